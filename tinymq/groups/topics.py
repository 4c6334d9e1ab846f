"""The topics that groups read, as far as groups care."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from tinymq.groups.patterns import Pattern, Patterns
from tinymq.groups.values import TopicLike


class Topics:
    """
    The topics that there are, and the patterns that somebody holds.

    Args:
        by_id: Topics by id.
        by_name: The same by name.
    """

    def __init__(self, by_id: Mapping[bytes, TopicLike], by_name: Mapping[str, TopicLike]) -> None:
        self.by_id = by_id
        self.by_name = by_name
        self._patterns = Patterns()

    def follow(
        self,
        by_id: Mapping[bytes, TopicLike],
        by_name: Mapping[str, TopicLike],
        touched: Collection[bytes],
    ) -> frozenset[str]:
        """
        Have the topics as they are now.

        Args:
            by_id: Topics by id.
            by_name: The same by name.
            touched: The ids of those that may differ from before.

        Returns:
            The names whose topic came, went, was made anew or got partitions.
        """
        before, self.by_id, self.by_name = self.by_id, by_id, by_name
        changed: set[str] = set()
        came: set[str] = set()
        for topic_id in touched:
            old, new = before.get(topic_id), by_id.get(topic_id)
            if (old and old.partitions) != (new and new.partitions):
                changed.update(each.name for each in (old, new) if each is not None)
                if old is None and new is not None:
                    came.add(new.name)
        if changed:
            went = {name for name in changed if name not in by_name}
            self._patterns.follow(came & by_name.keys(), went)
        return frozenset(changed)

    def pattern(self, text: str) -> Pattern:
        """
        Return a pattern, to be held as long as it is to follow the topics.

        Args:
            text: The regular expression.

        Raises:
            InvalidRequest: It is none, or too large.
        """
        found = self.begun(text)
        while found.pending:
            found.step()
        return found

    def begun(self, text: str) -> Pattern:
        """
        Return a pattern that may not have looked at all topics; `Pattern.step` goes on.

        Args:
            text: The regular expression.

        Raises:
            InvalidRequest: It is none, or too large.
        """
        return self._patterns.begun(text, self.by_name)
