"""Making, describing, changing, purging and deleting topics."""

from __future__ import annotations

import fnmatch
from bisect import bisect_right
from typing import Any, Final

from tinymq.catalog import PUBLIC
from tinymq.meta.registry import Topic
from tinymq.node.partitions import Rows, nothing_to_undo
from tinymq.operation import WHICH, Operation, Result, table
from tinymq.operations.base import Answers, only_one
from tinymq.operations.leaders import Leaders
from tinymq.stats import PartitionReport


class Topics(Leaders):
    """Topics over all brokers."""

    async def create(
        self, name: str, partitions: int | None, config: dict[str, Any], *, dry_run: bool
    ) -> Result:
        """Make a topic; one that exists with the same settings is no error."""
        self._check_running()
        existed = name in self._registry.by_name
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
        self, name: str, partitions: int | None, config: dict[str, Any], *, dry_run: bool
    ) -> Result:
        """Change settings of a topic, or add partitions."""
        before = self.find(name)
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
        names, registry = self._registry.names, self._registry
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
        self,
        name: str,
        partition: int | None,
        before: int | None,
        before_ms: int | None,
        keep: int | None,
        *,
        dry_run: bool,
    ) -> Result:
        """Move the start of a topic's logs; the files stay until the undo window has passed."""
        topic = self.find(name)
        only_one(before=before, before_ms=before_ms, keep=keep)
        chosen = {"partition": partition, "before": before, "before_ms": before_ms, "keep": keep}
        await self._need_all(topic, partition, "purged")
        answers = await self._ask_leaders(topic, "node.purge", **chosen, dry_run=dry_run)
        until = self._broker.wall() + topic.config.undo_ms
        return {"plan": self._plan(topic, answers, dry_run=dry_run), "undo_until_ms": until}

    async def undo_purge(self, name: str, partition: int | None, *, dry_run: bool) -> Result:
        """Bring back what the last purge took, while its window is open."""
        topic = self.find(name)
        await self._need_all(topic, partition, "brought back")
        answers = await self._ask_leaders(
            topic, "node.undo_purge", partition=partition, dry_run=dry_run
        )
        if not sum(result["undone"] for result in answers.results.values()):
            raise nothing_to_undo(name)
        return {"topic": await self._describe(topic), "dry_run": dry_run}

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


TOPIC_OPERATIONS: Final[dict[str, Operation]] = table(
    PUBLIC["topic.create"].by(Topics.create),
    PUBLIC["topic.alter"].by(Topics.alter),
    PUBLIC["topic.delete"].by(Topics.delete),
    PUBLIC["topic.list"].by(Topics.search),
    PUBLIC["topic.info"].by(Topics.info),
    PUBLIC["topic.purge"].by(Topics.purge),
    PUBLIC["topic.undo_purge"].by(Topics.undo_purge),
    Operation("meta.ensure_topic", "cluster", True, (WHICH,), Topics.ensure),
)
