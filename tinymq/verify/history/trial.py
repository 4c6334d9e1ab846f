"""
One run of `verify-history`: everybody works, everything is struck, and all is compared.

::

    clients ── doors ── brokers ── MetaServer
       └── diaries ──┐
    the logs, at last ┴── judge ── report
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from attrs import frozen

from tinymq.errors import TinyMQError
from tinymq.sync import Client, ClientConfig
from tinymq.verify.fleet import Fleet, free_port
from tinymq.verify.history.actor import CHANNEL, MOVERS, READERS
from tinymq.verify.history.cast import cast
from tinymq.verify.history.diary import all_events
from tinymq.verify.history.judge import COPIES, ORDERS, judge
from tinymq.verify.history.logs import Entry
from tinymq.verify.history.proxy import Doors
from tinymq.verify.history.report import HistoryReport
from tinymq.verify.history.strikes import Strikes
from tinymq.wire.messages import LATEST

BROKERS: Final = ("b1", "b2", "b3")
#: Partitions of each topic.
PARTITIONS: Final = {ORDERS: 6, COPIES[0]: 4, COPIES[1]: 3}
#: Who takes part, and how many of each.
PARTS: Final = (("producer", 2), ("member", 4), ("worker", 2), ("mover", 3), ("watcher", 1))
#: Seconds in which all must be read, worked off and moved when nothing is struck any more.
DRAINED_WITHIN: Final = 90.0
#: Seconds between two looks at that.
_GLANCE: Final = 0.5
#: Seconds of one call of administration.
_DEADLINE: Final = 20.0


@frozen(kw_only=True)
class Plan:
    """
    How much is tried.

    Attributes:
        seconds: For how long everything is struck.
        seed: Chance begins here.
    """

    seconds: float = 60.0
    seed: int = 0


class HistoryTrial:
    """
    One run.

    Args:
        plan: How much is tried.
        folder: Where data folders and diaries are made.
        tell: Told what is going on.
    """

    def __init__(self, plan: Plan, folder: Path, tell: Callable[[str], None]) -> None:
        self._plan = plan
        self._tell = tell
        self._chance = random.Random(plan.seed)  # noqa: S311 - nothing secret
        self._fleet = Fleet(folder / "cluster", BROKERS, self._chance)
        self._ports: dict[str, int] = {}
        for name in BROKERS:
            self._ports[name] = free_port(self._chance)
            self._fleet.processes[name].advertise(f"127.0.0.1:{self._ports[name]}")
        url = "tinymq://" + ",".join(f"127.0.0.1:{port}" for port in self._ports.values())
        self._actors = cast(PARTS, folder / "diaries", url, plan.seed)
        self._diaries = folder / "diaries"
        self.report = HistoryReport(plan.seed)

    def run(self) -> HistoryReport:
        """Do everything that was planned."""
        began = time.monotonic()
        behind = {
            self._ports[name]: int(self._fleet.processes[name].url.rpartition(":")[2])
            for name in BROKERS
        }
        doors = Doors(behind)
        try:
            self._fleet.start()
            with self._connect() as admin:
                self._make(admin)
                self._play(admin, doors)
                logs = {topic: read_all(admin, topic, PARTITIONS[topic]) for topic in PARTITIONS}
            judge(all_events(self._diaries), logs, self.report.findings)
        except TinyMQError as error:
            self.report.findings.problem(f"{type(error).__name__}: {error}")
        finally:
            for actor in self._actors:
                actor.kill()
            self._fleet.kill()
            doors.close()
        for text in self._ends():
            self.report.findings.problem(text)
        self.report.seconds = time.monotonic() - began
        return self.report

    def _connect(self) -> Client:
        config = ClientConfig(client_id="tinymq-verify", deadline_s=_DEADLINE)
        return Client(f"tinymq://{self._fleet.meta}", config)

    def _make(self, admin: Client) -> None:
        for topic, partitions in PARTITIONS.items():
            admin.admin.create_topic(topic, partitions)
        admin.admin.create_channel(ORDERS, CHANNEL)

    def _play(self, admin: Client, doors: Doors) -> None:
        """Let everybody work, strike, and wait until all is done."""
        for actor in self._actors:
            actor.start()
        struck = [each for each in self._actors if not each.name.startswith("watcher")]
        strikes = Strikes(self._fleet, struck, doors, self._ports, self._chance)
        strikes.run(self._plan.seconds, self._tell)
        self.report.strikes = dict(strikes.figures)
        self._stop("producer")
        self._tell("draining")
        self._await_drained(admin)
        for role, _ in PARTS[1:]:
            self._stop(role)

    def _stop(self, role: str) -> None:
        chosen = [each for each in self._actors if each.name.startswith(f"{role}-")]
        for actor in chosen:
            actor.ask_to_stop()
        for actor in chosen:
            actor.stop()

    def _await_drained(self, admin: Client) -> None:
        until = time.monotonic() + DRAINED_WITHIN
        while left := _left(admin):
            for actor in self._actors:
                actor.check()
            if time.monotonic() > until:
                self.report.findings.problem(
                    f"after {DRAINED_WITHIN:.0f} s without a strike there is left: {left}"
                )
                return
            time.sleep(_GLANCE)

    def _ends(self) -> list[str]:
        ends = [text for actor in self._actors for text in actor.problems]
        return [*ends, *self._fleet.errors()]


def _left(admin: Client) -> str:
    """Say what groups and the channel have not done yet; nothing if they are through."""
    lags: dict[str, int] = {}
    try:
        for group in (READERS, MOVERS):
            found = admin.admin.operate("group.info", name=group)
            rows = found["partitions"]
            unknown = any(row["end"] is None for row in rows)
            if found["silent"] or unknown or len(rows) < PARTITIONS[ORDERS]:
                return f"{group}: {found['silent']} are silent"
            lags[group] = sum(row["end"] - (row["committed"] or 0) for row in rows)
        found = admin.admin.operate("channel.info", topic=ORDERS, name=CHANNEL)
        lags[CHANNEL] = found["channel"]["lag"] + found["channel"]["in_flight"]
    except TinyMQError as error:
        return str(error)
    return ", ".join(f"{name}: {lag}" for name, lag in lags.items() if lag != 0)


def read_all(client: Client, topic: str, partitions: int) -> list[Entry]:
    """
    Read what is committed in a topic.

    Args:
        client: Where.
        topic: Its name.
        partitions: How many it has.

    Returns:
        Its records, by partition and offset.
    """
    ends = client.survey(topic, range(partitions), LATEST).offsets
    found: list[Entry] = []
    consumer = client.consumer()
    consumer.assign(topic)
    while any(consumer.position(topic, each) < ends[each] for each in range(partitions)):
        batch = consumer.next_batch(_DEADLINE)
        if batch is None:
            break
        found += [
            Entry(batch.partition, each.offset, (each.key or b"").decode(), each.value.decode())
            for each in batch
            if each.value is not None
        ]
    consumer.close()
    return sorted(found)
