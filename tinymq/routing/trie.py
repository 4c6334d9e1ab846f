"""
Patterns of keys, as a tree of their words.

Words stand between dots. ``*`` is any one word, ``#`` any number of words, also none. A
key is followed down all branches at once, so that the cost grows with the words of the
key and the patterns that are like it so far, not with the patterns that there are.

As in AMQP, an empty key has no words (``#`` takes it, ``*`` does not), and between two
dots, or before the first or behind the last one, there is an empty word.
"""

from __future__ import annotations

from typing import Final

from attrs import define, field

_ONE: Final = b"*"
_ANY: Final = b"#"


@define(eq=False)
class _Node:
    """
    A place in the tree.

    Attributes:
        words: What follows a word that is said.
        one: What follows ``*``.
        any: What follows ``#``.
        loops: Whether it follows ``#``: any word leads back to it.
        targets: Of the patterns that end here, and how many lead to each.
    """

    words: dict[bytes, _Node] = field(factory=dict)
    one: _Node | None = None
    any: _Node | None = None
    loops: bool = False
    targets: dict[str, int] = field(factory=dict)

    @property
    def is_bare(self) -> bool:
        """Whether nothing ends here or follows."""
        return not (self.targets or self.words or self.one or self.any)


class Trie:
    """The patterns of one exchange, and where each leads."""

    def __init__(self) -> None:
        self._root = _Node()

    def add(self, pattern: bytes, target: str) -> None:
        """
        Add a pattern.

        Args:
            pattern: Words, ``*`` and ``#`` with dots between them.
            target: Where it leads.
        """
        node = self._root
        for word in words_of(pattern):
            node = _follow(node, word)
        node.targets[target] = node.targets.get(target, 0) + 1

    def remove(self, pattern: bytes, target: str) -> None:
        """
        Remove a pattern that was added.

        Args:
            pattern: The pattern.
            target: Where it leads.
        """
        way = [self._root]
        words = words_of(pattern)
        for word in words:
            way.append(_follow(way[-1], word))
        last = way[-1]
        last.targets[target] -= 1
        if not last.targets[target]:
            del last.targets[target]
        for node, word, follower in zip(way[-2::-1], reversed(words), way[:0:-1], strict=True):
            if not follower.is_bare or follower is node:
                continue
            if word == _ANY:
                node.any = None
            elif word == _ONE:
                node.one = None
            else:
                del node.words[word]

    def find(self, key: bytes) -> set[str]:
        """
        Return where the patterns lead that a key is like.

        Args:
            key: The key.
        """
        here = _with_none({self._root})
        for word in words_of(key):
            here = _with_none(_step(here, word))
            if not here:
                return set()
        found: set[str] = set()
        for node in here:
            found.update(node.targets)
        return found


def words_of(key: bytes) -> list[bytes]:
    """
    Return the words of a key or a pattern.

    Args:
        key: The key; without a byte it has no word.
    """
    return key.split(b".") if key else []


def _follow(node: _Node, word: bytes) -> _Node:
    """Return what follows a word of a pattern; it is made if there is nothing."""
    if word == _ANY:
        if node.loops:  # a second # adds nothing
            return node
        if node.any is None:
            node.any = _Node(loops=True)
        return node.any
    if word == _ONE:
        if node.one is None:
            node.one = _Node()
        return node.one
    return node.words.setdefault(word, _Node())


def _with_none(nodes: set[_Node]) -> set[_Node]:
    """Add what can be reached without a word: what follows a ``#``."""
    return nodes | {node.any for node in nodes if node.any is not None}


def _step(nodes: set[_Node], word: bytes) -> set[_Node]:
    found: set[_Node] = set()
    for node in nodes:
        if node.loops:
            found.add(node)
        follower = node.words.get(word)
        if follower is not None:
            found.add(follower)
        if node.one is not None:
            found.add(node.one)
    return found
