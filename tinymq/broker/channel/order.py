"""
The order of keys: who may have which message next, when messages of a key stay in order.

Keys hash to slots. A slot belongs to the consumer that has messages of it in
flight, and is free when nothing of it is; so a slot moves between consumers
without any hand-over. A key with a message that waits for its next attempt is
parked: its later messages stand aside, all other keys of the slot go on.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING, Final

from tinymq.broker.channel.history import History, Stretches
from tinymq.broker.channel.lease import owner_of
from tinymq.broker.channel.runs import offsets_in

if TYPE_CHECKING:
    from tinymq.broker.channel.places import Places

#: More than enough for the consumers of one partition, and few enough to look at all of them.
SLOTS: Final = 256
#: Owns slots that nobody may have just now.
_NOBODY: Final = ""


class KeyOrder:
    """
    An index over the places of a channel, made anew from them when they change wildly.

    Args:
        keys: The hash of the key of every message that is not settled, by
            offset; shared with who reads them.

    Attributes:
        parked: Messages that stand aside behind one of their key.
    """

    def __init__(self, keys: dict[int, int]) -> None:
        self.keys = keys
        self.parked = Stretches()
        self._heaps: dict[int, list[int]] = {}
        self._flying: dict[int, int] = {}
        self._owners: dict[int, str] = {}
        self._delayed: dict[int, int] = {}
        self._aside: dict[int, list[int]] = {}

    def rebuild(self, places: Places) -> None:
        """
        Begin anew from what is where.

        Args:
            places: Where the messages are; nothing is parked.
        """
        for index in (self._heaps, self._flying, self._owners, self._delayed, self._aside):
            index.clear()
        kept: set[int] = set()
        for lease in places.leases.values():
            self.fly(owner_of(lease.holder), lease.base, lease.bits)
            kept.update(offsets_in(lease.base, lease.bits))
        for _, base, bits, _ in places.waiting:
            self.delay(base, bits)
            kept.update(offsets_in(base, bits))
        for start, end, _ in places.ready:
            self.ready(start, end)
            kept.update(range(start, end))
        for offset in [o for o in self.keys if o < places.cursor and o not in kept]:
            del self.keys[offset]

    # --- what happens to messages --------------------------------------------

    def ready(self, start: int, end: int) -> None:
        """
        Messages may be given out.

        Args:
            start: The first of them.
            end: The offset behind the last.
        """
        keys, heaps = self.keys, self._heaps
        for offset in range(start, end):
            heappush(heaps.setdefault(keys[offset] % SLOTS, []), offset)

    def fly(self, holder: str, base: int, bits: int) -> None:
        """
        Messages were given out.

        Args:
            holder: To whom.
            base: The offset of bit 0.
            bits: Which ones.
        """
        keys, flying, owners = self.keys, self._flying, self._owners
        for offset in offsets_in(base, bits):
            slot = keys[offset] % SLOTS
            if not flying.get(slot):
                flying[slot] = 0
                owners[slot] = holder
            elif owners[slot] != holder:
                # The order was altered while several held messages of it.
                owners[slot] = _NOBODY
            flying[slot] += 1

    def land(self, base: int, bits: int) -> None:
        """
        Messages are not in flight any more.

        Args:
            base: The offset of bit 0.
            bits: Which ones.
        """
        keys, flying = self.keys, self._flying
        for offset in offsets_in(base, bits):
            slot = keys[offset] % SLOTS
            flying[slot] -= 1
            if not flying[slot]:
                del flying[slot], self._owners[slot]

    def gone(self, base: int, bits: int) -> None:
        """
        Messages are settled, and their keys are not needed any more.

        Args:
            base: The offset of bit 0.
            bits: Which ones.
        """
        for offset in offsets_in(base, bits):
            self.keys.pop(offset, None)

    def delay(self, base: int, bits: int) -> None:
        """
        Messages wait, so their keys are parked.

        Args:
            base: The offset of bit 0.
            bits: Which ones.
        """
        for offset in offsets_in(base, bits):
            key = self.keys[offset]
            self._delayed[key] = self._delayed.get(key, 0) + 1

    def wake(self, base: int, bits: int) -> list[tuple[int, History]]:
        """
        Messages wait no longer.

        Args:
            base: The offset of bit 0.
            bits: Which ones.

        Returns:
            The parked messages that are ready again with them.
        """
        freed: list[int] = []
        for offset in offsets_in(base, bits):
            key = self.keys[offset]
            self._delayed[key] -= 1
            if not self._delayed[key]:
                del self._delayed[key]
                freed += self._aside.pop(key, ())
        return [(offset, self.parked.remove(offset, offset + 1)[0][2]) for offset in freed]

    # --- who gets what ---------------------------------------------------------

    def pick(
        self, consumer: str, credit: int, ready: Stretches, *, alone: bool
    ) -> list[tuple[int, History]]:
        """
        Choose messages for a consumer; each must then be given out.

        Args:
            consumer: Who asks.
            credit: How many at most.
            ready: What may be given out.
            alone: Choose among those that are given out alone, else among the others.

        Returns:
            Offsets and histories, in order.
        """
        owners, heaps = self._owners, self._heaps
        heads = [
            (heap[0], slot)
            for slot, heap in heaps.items()
            if heap and owners.get(slot, consumer) == consumer
        ]
        heapify(heads)
        picked: list[tuple[int, History]] = []
        while heads and len(picked) < credit:
            offset, slot = heads[0]
            heap = heaps[slot]
            history = ready.at(offset)
            if history is None:
                raise AssertionError(f"offset {offset} is not ready")
            if self.keys[offset] in self._delayed:
                self._park(offset, ready)
            elif history.alone != alone:
                heappop(heads)
                continue
            else:
                picked.append((offset, history))
            heappop(heap)
            if heap:
                heapreplace(heads, (heap[0], slot))
            else:
                heappop(heads)
        return picked

    def _park(self, offset: int, ready: Stretches) -> None:
        for stretch in ready.remove(offset, offset + 1):
            self.parked.put(*stretch)
        self._aside.setdefault(self.keys[offset], []).append(offset)

    def first_of(self, groups: Iterable[tuple[int, int]]) -> dict[int, int]:
        """
        Return the keys of messages with the lowest offset of each.

        Args:
            groups: Messages, as the offset of bit 0 and bits.
        """
        first: dict[int, int] = {}
        for base, bits in groups:
            for offset in offsets_in(base, bits):
                key = self.keys[offset]
                first[key] = min(first.get(key, offset), offset)
        return first
