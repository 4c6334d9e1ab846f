"""
What must be known of messages before they are given out: their keys, and whether they match.

A channel without a filter and without an order of keys never looks at a
message. Others say what they want to know next, and somebody who can read the
log tells them; nothing is given out that was not looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from tinymq.broker.channel.history import NEW
from tinymq.broker.channel.order import KeyOrder
from tinymq.broker.channel.places import Places
from tinymq.broker.channel.runs import Run, Runs
from tinymq.channelpolicy import ChannelPolicy

#: Messages beyond the cursor that are looked at in advance.
IN_ADVANCE: Final = 10_000


class Looking:
    """
    What is known of the messages of one channel.

    Args:
        places: Where they are.
        policy: What must be known.
    """

    def __init__(self, places: Places, policy: ChannelPolicy) -> None:
        self._places = places
        self._keys: dict[int, int] = {}
        self._unknown = Runs()
        self._looked = places.cursor
        self._needed = False
        self._by_key = False
        self.begin(policy)

    def begin(self, policy: ChannelPolicy) -> None:
        """
        Forget everything and look again.

        Args:
            policy: What must be known.
        """
        places = self._places
        places.gather()
        places.order = None
        places.hidden = Runs()
        self._keys = {}
        self._unknown = Runs()
        self._needed = policy.looks
        self._by_key = policy.order == "key"
        self._looked = places.cursor
        for start, end, history in places.open() if self._needed else ():
            # What was given out before has passed the filter.
            if self._by_key or history == NEW:
                self._unknown.add(start, end)
        self._complete()

    @property
    def incomplete(self) -> bool:
        """Whether messages that were given out, or might have been, must be looked at again."""
        return bool(self._unknown)

    def _complete(self) -> None:
        if self._by_key and self._places.order is None and not self._unknown:
            self._places.order = KeyOrder(self._keys)
            self._places.order.rebuild(self._places)

    def end(self, end: int) -> int:
        """
        Return the offset up to which messages may be given out.

        Args:
            end: Offset behind the last that is visible.
        """
        return self._looked if self._needed else end

    def wanted(self, end: int) -> Run | None:
        """
        Return the messages that are to be looked at next, None if there are none.

        Args:
            end: Offset behind the last that is visible.
        """
        if not self._needed:
            return None
        if self._unknown:
            # Many in one look, though there may be others between them: what each of them
            # needs is in the same batches, and a look reads a whole batch.
            start = self._unknown.first
            return start, self._unknown.reach(start + IN_ADVANCE)
        cursor = self._places.cursor
        self._looked = max(self._looked, cursor)
        end = min(end, cursor + IN_ADVANCE)
        return (self._looked, end) if self._looked < end else None

    def tell(self, start: int, keys: Sequence[int], hidden: Iterable[Run]) -> list[Run]:
        """
        Take what was found.

        Args:
            start: Where the look began.
            keys: A hash of the key of each message from there on.
            hidden: What is not to be given out.

        Returns:
            What is to be settled of it.
        """
        end = start + len(keys)
        places = self._places
        settled: list[Run] = []
        if self._unknown:
            hides = Runs(hidden)
            looked = [*self._unknown.within(start, end)]
            settled = [
                run
                for first, behind in looked
                for new, last, history in places.ready.within(first, behind)
                if history == NEW
                for run in hides.within(new, last)
            ]
            self._unknown.remove(start, end)
        elif start <= self._looked < end:
            for first, behind in hidden:
                places.hidden.add(max(first, places.cursor), min(behind, end))
            self._looked = end
            looked = [(start, end)]
        else:
            return []
        if self._by_key:
            for first, behind in looked:
                self._learn(first, behind, keys[first - start : behind - start])
            self._complete()
        return settled

    def _learn(self, start: int, end: int, keys: Sequence[int]) -> None:
        self._keys.update(zip(range(start, end), keys, strict=True))
        for runs in (self._places.hidden, self._places.ahead):
            for first, behind in runs.within(start, end):
                for offset in range(first, behind):
                    self._keys.pop(offset, None)
