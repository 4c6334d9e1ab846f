"""Making, describing, changing, purging and deleting topics."""

from __future__ import annotations

import fnmatch
from bisect import bisect_right
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from tinymq.caller import Caller
from tinymq.catalog import PUBLIC
from tinymq.errors import InvalidRequest, StorageError
from tinymq.figures.channels import counted
from tinymq.meta.history import Change
from tinymq.meta.registry import Topic
from tinymq.names import asks_for_own
from tinymq.node.partitions import Rows, nothing_to_undo
from tinymq.operation import WHICH, Operation, Result, table
from tinymq.operations.base import Answers, author_of, only_one
from tinymq.operations.leaders import Leaders
from tinymq.stats import PartitionReport


class Topics(Leaders):
    """Topics over all brokers."""

    async def create(
        self,
        caller: Caller,
        name: str,
        partitions: int | None,
        config: dict[str, Any],
        *,
        dry_run: bool,
    ) -> Result:
        """Make a topic; one that exists with the same settings is no error."""
        self._check_running()
        existed = name in self._registry.by_name
        with self._meta.on_behalf_of(author_of(caller)):
            topic = self._meta.create_topic(name, partitions, config, dry_run=dry_run)
        if dry_run:
            row = {**topic_facts(topic), "partitions": topic.partitions}
            return {"topic": row, "created": not existed, "dry_run": True}
        await self._spread(topic)
        return {"topic": await self._describe(topic), "created": not existed, "dry_run": False}

    async def ensure(self, name: str) -> Result:
        """Make a topic for its first use at a broker elsewhere."""
        self._check_running()
        await self._spread(self._meta.ensure_topic(name))
        return {"revision": self._revision}

    async def alter(
        self,
        caller: Caller,
        name: str,
        partitions: int | None,
        config: dict[str, Any],
        *,
        dry_run: bool,
    ) -> Result:
        """Change settings of a topic, or add partitions."""
        before = self.find(name)
        with self._meta.on_behalf_of(author_of(caller)):
            after = self._meta.alter_topic(name, config, partitions, dry_run=dry_run)
        old, new = before.config.to_mapping(), after.config.to_mapping()
        changes = [[key, old[key], new[key]] for key in new if old[key] != new[key]]
        if after.partitions != before.partitions:
            changes.append(["partitions", before.partitions, after.partitions])
        if not dry_run and changes:
            await self._spread(after)
        shown = before if dry_run else after
        return {"topic": await self._describe(shown), "changes": changes, "dry_run": dry_run}

    async def delete(self, name: str, *, dry_run: bool) -> Result:
        """Remove a topic with all its records; brokers that are away do it when they are back."""
        topic = self.find(name)
        answers = await self._ask_leaders(topic, "node.holdings")
        if not dry_run:
            self._meta.delete_topic(name, topic.id)
        return {"plan": self._plan(topic, answers, dry_run=dry_run)}

    def search(self, filter: str, after: str, limit: int) -> Result:  # noqa: A002 - the API's word
        """List topics in order of their names."""
        registry = self._registry
        names = sorted(registry.by_name) if asks_for_own(filter) else registry.names
        matching = [name for name in names if not filter or fnmatch.fnmatchcase(name, filter)]
        first = bisect_right(matching, after)
        page = [registry.by_name[name] for name in matching[first : first + limit + 1]]
        silent = []
        if self.board is not None:
            self.board.look()
            silent = [each.name for each in self.board.silent()]
        rows = [
            {**topic_facts(topic), "partitions": topic.partitions, **self._totals(topic)}
            for topic in page[:limit]
        ]
        return {
            "topics": rows,
            "more": len(page) > limit,
            "total": len(matching),
            "silent": silent,
        }

    def _totals(self, topic: Topic) -> Result:
        if self.board is not None:
            reports = [place.report for place in self.board.places(topic)]
            return {
                "messages": sum(each.messages for each in reports),
                "bytes": sum(each.bytes for each in reports),
            }
        partitions = self._broker.partitions_of(topic)
        return {
            "messages": sum(each.stable_offset - each.log.start_offset for each in partitions),
            "bytes": sum(each.log.size_bytes for each in partitions),
        }

    async def info(self, name: str) -> Result:
        """Describe one topic with its partitions."""
        return {"topic": await self._describe(self.find(name))}

    async def purge(
        self, caller: Caller, name: str, *, dry_run: bool, **chosen: int | None
    ) -> Result:
        """Move the start of a topic's logs; the files stay until the undo window has passed."""
        topic = self.find(name)
        only_one(**{key: chosen[key] for key in ("before", "before_ms", "keep")})
        await self._need_all(topic, chosen["partition"], "purged")
        answers = await self._ask_leaders(topic, "node.purge", **chosen, dry_run=dry_run)
        until = self._broker.wall() + topic.config.undo_ms
        plan = self._plan(topic, answers, dry_run=dry_run)
        if not dry_run:
            how_many = counted(plan["messages"], "record")
            self._note(caller, topic, "purged", f"{how_many}{_where(chosen)}")
        return {"plan": plan, "undo_until_ms": until}

    async def undo_purge(
        self, caller: Caller, name: str, partition: int | None, *, dry_run: bool
    ) -> Result:
        """Bring back what the last purge took, while its window is open."""
        topic = self.find(name)
        await self._need_all(topic, partition, "brought back")
        answers = await self._ask_leaders(
            topic, "node.undo_purge", partition=partition, dry_run=dry_run
        )
        undone = sum(result["undone"] for result in answers.results.values())
        if not undone:
            raise nothing_to_undo(name)
        if not dry_run:
            where = f"the last purge of {counted(undone, 'partition')}"
            self._note(caller, topic, "undone", where)
        return {"topic": await self._describe(topic), "dry_run": dry_run}

    async def compact(self, name: str, partition: int | None, *, dry_run: bool) -> Result:
        """Have the log of a topic that is compacted cleaned soon."""
        topic = self.find(name)
        if not topic.config.compacts:
            raise InvalidRequest(
                f"{name} is not compacted: retention.mode is {topic.config.retention_mode}; set "
                "it to compact or compact_limits first",
                field="name",
            )
        await self._need_all(topic, partition, "cleaned")
        answers = await self._ask_leaders(
            topic, "node.compact", partition=partition, dry_run=dry_run
        )
        rows = [row for _, row in sorted(answers.rows.items())]
        found = {
            "topic": topic.name,
            "partitions": rows,
            "bytes": sum(row["bytes"] for row in rows),
            "dirty": sum(row["dirty"] for row in rows),
            "silent": self._silence(answers),
            "dry_run": dry_run,
        }
        return {"compaction": found}

    def history(self, name: str, limit: int, after: str) -> Result:
        """Tell who changed what about a topic, the newest first."""
        changes = self._meta.topic_history(self.find(name))
        if after:
            if not (after.isascii() and after.isdigit()):
                raise InvalidRequest("after must be as the page before says it", field="after")
            changes = [each for each in changes if each.number < int(after)]
        page = changes[:limit]
        more = len(changes) > limit
        return {
            "changes": [_change(each) for each in page],
            "more": more,
            "after": str(page[-1].number) if more else None,
        }

    def _note(self, caller: Caller, topic: Topic, act: str, note: str) -> None:
        """Note what was done to records; it is done, so a full disk does not undo it."""
        try:
            with self._meta.on_behalf_of(author_of(caller)):
                self._meta.note(topic, act, note)
        except StorageError as error:
            self._log.warn(
                "the history of {topic} lacks that it was {act}: {error}",
                topic=topic.name,
                act=act,
                error=error,
            )

    async def _describe(self, topic: Topic) -> Result:
        """Describe a topic with its partitions, as a map."""
        answers = await self._ask_leaders(topic, "node.partitions")
        rows = self._rows(topic, answers)
        return {
            **topic_facts(topic),
            "messages": sum((row["end"] or 0) - (row["start"] or 0) for row in rows),
            "bytes": sum(row["bytes"] or 0 for row in rows),
            "delayed": sum(row.get("delayed") or 0 for row in rows),
            "partitions": rows,
            "silent": self._silence(answers),
        }

    def _rows(self, topic: Topic, answers: Answers) -> Rows:
        known = answers.rows
        places = None
        if len(known) < topic.partitions and self.board is not None:
            places = self.board.places(topic)
        rows = []
        for index, leader in enumerate(topic.leaders):
            row = known.get(index)
            if row is None:
                report = None if places is None else places[index].report
                row = self._missing(index, leader, answers, report)
            rows.append({**row, "leader": self._broker_name(leader), "leader_id": leader})
        return rows

    def _missing(
        self, index: int, leader: int, answers: Answers, report: PartitionReport | None
    ) -> Result:
        """Describe a partition whose leader says nothing, as it was when that was heard last."""
        name, why = self._broker_name(leader), answers.silent.get(leader)
        reason = f"{name} does not answer: {why}" if why else f"{name} has not opened it yet"
        names = ("start", "end", "bytes", "oldest_ms", "newest_ms")
        facts = {name: report and getattr(report, name) for name in names}
        waiting = {name: getattr(report, name, None) for name in ("delayed", "overdue", "late_ms")}
        told = {"dropped": 0, "held": None, "state": "offline", "reason": reason}
        return {"partition": index, **facts, **waiting, **told}

    def _plan(self, topic: Topic, answers: Answers, *, dry_run: bool) -> Result:
        """Sum up what an operation takes away."""
        rows = [row for _, row in sorted(answers.rows.items())]
        return {
            "topic": topic.name,
            "partitions": rows,
            "messages": sum(row["messages"] for row in rows),
            "bytes": sum(row["bytes"] for row in rows),
            "silent": self._silence(answers),
            "dry_run": dry_run,
        }


def topic_facts(topic: Topic) -> Result:
    """What a topic is, without what it holds."""
    return {
        "name": topic.name,
        "id": topic.id.hex(),
        "created_ms": topic.created_ms,
        "config": topic.config.to_mapping(),
    }


def _where(chosen: Mapping[str, int | None]) -> str:
    """Say which records a purge was about."""
    found = ""
    before_ms = chosen["before_ms"]
    if chosen["before"] is not None:
        found = f" before offset {chosen['before']:,}"
    elif before_ms is not None:
        found = f" before {_moment(before_ms)}"
    elif chosen["keep"] is not None:
        found = f", all but the last {chosen['keep']:,}"
    part = chosen["partition"]
    return found + ("" if part is None else f" of partition {part}")


def _moment(ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OSError, OverflowError):
        return f"{ms} ms since 1970"


def _change(change: Change) -> Result:
    return {
        "at_ms": change.at_ms,
        "who": change.who,
        "peer": change.peer,
        "act": change.act,
        "settings": [
            {"name": name, "before": before, "after": after}
            for name, before, after in change.settings
        ],
        "note": change.note,
    }


TOPIC_OPERATIONS: Final[dict[str, Operation]] = table(
    PUBLIC["topic.create"].by(Topics.create, caller=True),
    PUBLIC["topic.alter"].by(Topics.alter, caller=True),
    PUBLIC["topic.delete"].by(Topics.delete),
    PUBLIC["topic.list"].by(Topics.search),
    PUBLIC["topic.info"].by(Topics.info),
    PUBLIC["topic.purge"].by(Topics.purge, caller=True),
    PUBLIC["topic.undo_purge"].by(Topics.undo_purge, caller=True),
    PUBLIC["topic.compact"].by(Topics.compact),
    PUBLIC["topic.history"].by(Topics.history),
    Operation("meta.ensure_topic", "cluster", True, (WHICH,), Topics.ensure),
)
