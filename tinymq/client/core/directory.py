"""
Which independent brokers have a topic, by the word of several lookup servers, without I/O.

Every lookup server is asked in each round, and their answers are put together:

- a node that several of them name counts once;
- a server that is silent or fails does not matter as long as another answers;
- a node that is named is known at once; one that none of those who answered names
  any more is forgotten when the round is over;
- while nobody answers everything that was known stays known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any, Final

from attrs import Factory, define, frozen

from tinymq.client.core.address import Address
from tinymq.client.core.config import LookupConfig
from tinymq.errors import ClosedError, TinyMQError, UnreachableError
from tinymq.names import valid_host

#: Rounds about one topic are at least so many seconds apart, whatever goes wrong.
_CALM_S: Final = 1.0


@frozen
class Node:
    """
    An independent broker.

    Attributes:
        id: Its identity, as hexadecimal digits.
        name: Its name.
        address: Where it is reached.
        zone: Where it stands, or empty.
    """

    id: str
    name: str
    address: Address
    zone: str = ""


#: Told the nodes of a topic, or why nothing is known.
FoundNodes = Callable[[list[Node] | None, TinyMQError | None], None]


def read_nodes(result: Mapping[str, Any]) -> list[Node]:
    """
    Read what ``lookup.find`` returned; rows that make no sense are left out.

    Args:
        result: The map.
    """
    found = []
    for row in result.get("nodes") or ():
        try:
            place = Address(str(row["host"]), int(row["port"]))
            if not valid_host(place.host) or not 0 < place.port < 1 << 16:
                continue
            found.append(Node(str(row["node"]), str(row["name"]), place, str(row.get("zone", ""))))
        except (KeyError, TypeError, ValueError, AttributeError):
            continue
    return found


@define(eq=False)
class _Subject:
    """One topic: what is known, and the round that goes on."""

    known: dict[str, Node] = Factory(dict)
    watched: int = 0
    open: set[int] = Factory(set)
    named: dict[str, Node] = Factory(dict)
    answers: int = 0
    began: float = -inf
    hurry_at: float = inf
    next_at: float = inf
    fresh_until: float = -inf
    again: bool = False
    why: TinyMQError | None = None
    callers: list[FoundNodes] = Factory(list)


class Directory:
    """
    The nodes of topics.

    Args:
        servers: How many lookup servers there are.
        config: Settings.
        ask: Called with the number of a server and a topic; `answered` or
            `failed` is called for each.
        heard: Called with a topic whenever its nodes were told.
    """

    def __init__(
        self,
        servers: int,
        config: LookupConfig,
        ask: Callable[[int, str], None],
        heard: Callable[[str], None],
    ) -> None:
        self._servers = servers
        self._config = config
        self._ask = ask
        self._heard = heard
        self._subjects: dict[str, _Subject] = {}
        self._closed = False

    def known(self, topic: str) -> list[Node]:
        """
        Say what is known now, without asking.

        Args:
            topic: Name of the topic.
        """
        subject = self._subjects.get(topic)
        return [] if subject is None else list(subject.known.values())

    def find(self, topic: str, done: FoundNodes, now: float) -> None:
        """
        Find the nodes of a topic; by asking, unless that was done a moment ago.

        Args:
            topic: Name of the topic.
            done: Told once.
            now: The time.
        """
        subject = self._subject(topic)
        if self._closed:
            done(None, ClosedError("the lookup was closed"))
        elif subject.known and now < subject.fresh_until:
            done(list(subject.known.values()), None)
        else:
            subject.callers.append(done)
            if not subject.open:
                self._begin(topic, subject, now)
            elif subject.answers:
                subject.hurry_at = min(subject.hurry_at, now + self._config.patience_s)

    def watch(self, topic: str, now: float) -> None:
        """
        Ask for a topic again and again, until `unwatch`.

        Args:
            topic: Name of the topic.
            now: The time.
        """
        subject = self._subject(topic)
        subject.watched += 1
        if not subject.open:
            self._begin(topic, subject, now)

    def unwatch(self, topic: str) -> None:
        """
        Take back one `watch`.

        Args:
            topic: Name of the topic.
        """
        subject = self._subject(topic)
        subject.watched -= 1
        if subject.watched <= 0:
            subject.next_at = inf

    def refresh(self, topic: str, now: float) -> None:
        """
        Ask soon, because a node does not answer; however often this is called.

        Args:
            topic: Name of the topic.
            now: The time.
        """
        subject = self._subject(topic)
        subject.fresh_until = -inf
        if subject.open:
            subject.again = True
        else:
            subject.next_at = min(subject.next_at, max(now, subject.began + _CALM_S))

    # --- answers ---------------------------------------------------------------

    def answered(self, server: int, topic: str, nodes: Sequence[Node], now: float) -> None:
        """
        Take what a lookup server said.

        Args:
            server: Its number.
            topic: Name of the topic.
            nodes: Those that it knows.
            now: The time.
        """
        subject = self._subject(topic)
        if server not in subject.open:
            return
        subject.open.discard(server)
        subject.answers += 1
        subject.hurry_at = min(subject.hurry_at, now + self._config.patience_s)
        for node in nodes:
            subject.named[node.id] = subject.known[node.id] = node
        if subject.open:
            self._heard(topic)
        else:
            self._end(topic, subject, now)

    def failed(self, server: int, topic: str, error: TinyMQError, now: float) -> None:
        """
        Note that a lookup server did not answer.

        Args:
            server: Its number.
            topic: Name of the topic.
            error: Why.
            now: The time.
        """
        subject = self._subject(topic)
        if server not in subject.open:
            return
        subject.open.discard(server)
        subject.why = error
        if not subject.open:
            self._end(topic, subject, now)

    # --- time and end ----------------------------------------------------------

    @property
    def wake_at(self) -> float:
        """When `tick` has something to do."""
        at = inf
        for subject in self._subjects.values():
            if subject.open:
                at = min(at, subject.hurry_at if subject.callers else inf)
            else:
                at = min(at, subject.next_at)
        return at

    def tick(self, now: float) -> None:
        """
        Begin rounds that are due, and answer those who have waited enough.

        Args:
            now: The time.
        """
        for topic, subject in tuple(self._subjects.items()):
            if not subject.open and subject.next_at <= now:
                self._begin(topic, subject, now)
            elif subject.open and subject.hurry_at <= now:
                self._serve(subject)

    def close(self) -> None:
        """End everything; who waits is told `ClosedError`."""
        self._closed = True
        subjects, self._subjects = self._subjects, {}
        for subject in subjects.values():
            for done in subject.callers:
                done(None, ClosedError("the lookup was closed"))

    # --- inside ----------------------------------------------------------------

    def _subject(self, topic: str) -> _Subject:
        return self._subjects.setdefault(topic, _Subject())

    def _begin(self, topic: str, subject: _Subject, now: float) -> None:
        subject.open = set(range(self._servers))
        subject.named = {}
        subject.answers = 0
        subject.began = now
        subject.hurry_at = subject.next_at = inf
        subject.again = False
        subject.why = None
        for server in range(self._servers):
            self._ask(server, topic)

    def _end(self, topic: str, subject: _Subject, now: float) -> None:
        if subject.answers:
            subject.known = dict(subject.named)
            subject.fresh_until = now + self._config.refresh_s
        # Who waits for the first node of a topic wants to hear of it soon.
        pause = self._config.refresh_s if subject.answers and subject.known else _CALM_S
        if subject.again:
            subject.next_at = max(now, subject.began + _CALM_S)
        elif subject.watched > 0:
            subject.next_at = now + min(pause, self._config.refresh_s)
        self._serve(subject)
        self._heard(topic)

    def _serve(self, subject: _Subject) -> None:
        callers, subject.callers = subject.callers, []
        subject.hurry_at = inf
        for done in callers:
            if subject.answers or subject.known:
                done(list(subject.known.values()), None)
            else:
                error = UnreachableError(f"no lookup server answered: {subject.why}")
                error.__cause__ = subject.why
                done(None, error)
