"""Looking at the messages of one partition that are not due yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tinymq.broker.delays.index import Rebuilt, Row
from tinymq.broker.delays.parts import Parts
from tinymq.wire.records import Record


class Looking(Parts):
    """What is asked of the index, less what it does not know yet."""

    def catch_up(self) -> Iterator[None]:
        """Bring the index up to the log, step by step; ask nothing else before."""
        return self.follower.catch_up()

    def _rows_of(self, ids: Sequence[int]) -> dict[int, Row]:
        for _ in self.follower.catch_up():
            pass
        while True:
            try:
                return self.index.find(self.follower.home, ids)
            except Rebuilt:
                for _ in self.follower.catch_up():
                    pass

    def rows(
        self, after: tuple[int, int] | None, since: int | None, until: int | None, limit: int
    ) -> list[Row]:
        """
        Return messages that wait, in order of their time; the index must have caught up.

        Args:
            after: Only those behind this due time and id.
            since: Only those that are due then, or later.
            until: Only those that are due before.
            limit: Most rows.
        """
        ghosts, found = self.memory.ghosts, list[Row]()
        while len(found) < limit:
            try:
                rows = self.index.rows(self.follower.home, after, since, until, limit)
            except Rebuilt:
                self._rows_of(())
                continue
            found += (row for row in rows if row.id not in ghosts)
            if len(rows) < limit:
                break
            after = rows[-1].due, rows[-1].id
        return found[:limit]

    def count(self, since: int | None, until: int | None) -> int:
        """
        Count messages, as `rows` finds them.

        Args:
            since: Only those that are due then, or later.
            until: Only those that are due before.
        """
        if since is None and until is None:
            return max(0, self.memory.count)  # nobody has to walk through a million rows
        try:
            found = self.index.count(self.follower.home, since, until)
            ghosts = self.index.find(self.follower.home, [*self.memory.ghosts])
        except Rebuilt:
            self._rows_of(())
            return self.count(since, until)
        low, high = since or 0, until
        gone = (row for row in ghosts.values() if row.due >= low)
        return found - sum(high is None or row.due < high for row in gone)

    def next_due(self) -> int | None:
        """Say when the first message comes; the index must have caught up."""
        found = self.rows(None, None, None, 1)
        return found[0].due if found else None

    def find(self, ids: Sequence[int]) -> dict[int, Row]:
        """
        Find messages that wait.

        Args:
            ids: Which ones.
        """
        ghosts = self.memory.ghosts
        return {each: row for each, row in self._rows_of(ids).items() if each not in ghosts}

    def scheduled(self, schedule: str) -> list[tuple[int, int]]:
        """
        Find what waits for a schedule.

        Args:
            schedule: Which one, as NAME@CREATED.

        Returns:
            Ids and due times.
        """
        self._rows_of(())
        try:
            rows = self.index.of_schedule(self.follower.home, schedule)
        except Rebuilt:
            return self.scheduled(schedule)
        return [(row.id, row.due) for row in rows if row.id not in self.memory.ghosts]

    def record(self, row: Row) -> Record:
        """
        Read a message with its value.

        Args:
            row: From the index.
        """
        batch = self.batch(row.offset)
        place = row.offset - batch.base
        return Record(
            row.id,
            row.taken,
            batch.keys[place],
            batch.values[place],
            batch.headers[place],
            batch.times[place],
        )

    def lying_in(self, low: int, high: int, limit: int) -> list[Row]:
        """
        Find what waits in a part of the log; the index must have followed it.

        Args:
            low: Where the part begins.
            high: Where it ends.
            limit: Most rows.
        """
        return self.index.lying_in(self.follower.home, low, high, limit)
