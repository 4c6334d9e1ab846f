"""The process that cleans files."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest
from twisted.internet.defer import Deferred

from tests.conftest import RealReactor
from tests.storage.keyed import Keyed, opened, visible
from tinymq.broker.workers import Failed
from tinymq.cleaner import ProcessWorker
from tinymq.storage import swap
from tinymq.storage.disk import Disk
from tinymq.storage.tasks import Cleaned, Damaged, Done, Event, Source, Task
from tinymq.storage.worker import Rate, Server, event_of, frame, read_frame, sent
from tinymq.sync import Client
from tinymq.verify.process import BrokerProcess

T = TypeVar("T")


@pytest.fixture
def keyed(tmp_path: Path) -> Keyed:
    """A log with something to clean."""
    found = opened(str(tmp_path / "log"))
    for number in range(60):
        found.put((b"k%d" % (number % 2), b"x" * 50))
    found.close_file()
    return found


class TestMessages:
    @pytest.mark.parametrize(
        "event",
        [
            Damaged(5, 7),
            Cleaned(0, 9, 100, 1, 2, ((0, 80), (4, 90)), 3),
            Done(9, 1, True, 4, 5, 6, 7, 8),
        ],
    )
    def test_events(self, event: Event) -> None:
        """An event comes through as it was."""
        message = read_frame(BytesIO(frame(sent(event))))
        assert message is not None
        assert event_of(message) == event

    def test_task(self) -> None:
        """So does what is to be done."""
        sources = (Source(0, 5, 100), Source(5, 9, 50, sound=False))
        task = Task(folder="x", sources=sources, behind=(Source(9, 10, 5),), rate=7)
        message = read_frame(BytesIO(frame([task.to_map()])))
        assert message is not None
        assert Task.from_map(message[0]) == task

    def test_end(self) -> None:
        """Nothing comes from an input that ended."""
        assert read_frame(BytesIO(b"\0\0")) is None


class TestRate:
    def test_waits(self) -> None:
        """No more bytes go to and fro in a second than may, and idle time is not saved up."""
        now = [0.0]

        def sleep(seconds: float) -> None:
            now[0] += seconds

        rate = Rate(1000, lambda: now[0], sleep)
        for _ in range(50):
            rate(100)
        assert now[0] == pytest.approx(5, abs=0.05)
        now[0] += 100
        rate(2000)
        assert now[0] == pytest.approx(107, abs=0.1)

    def test_no_bound(self) -> None:
        """Without a rate nobody waits."""
        Rate(0, sleep=lambda seconds: pytest.fail("it waited"))(1 << 40)


class TestServer:
    def serve(self, task: Task) -> list[Any]:
        """Let it clean, and return what it says."""
        requests: Iterator[list[Any]] = iter([["clean", task.to_map()], *[["go"]] * 100])
        answers: list[bytes] = []
        Server(lambda: next(requests), answers.append).serve()
        return [read_frame(BytesIO(answer)) for answer in answers]

    def test_events(self, keyed: Keyed) -> None:
        """It tells each event and waits until it is asked for the next."""
        told = self.serve(keyed.task())
        assert [message[0] for message in told] == ["cleaned", "done"]

    def test_failure(self, keyed: Keyed) -> None:
        """What goes wrong is told, and it serves on."""
        sources = (Source(0, 60, 5000), *keyed.task().sources)
        (told,) = self.serve(Task(folder=keyed.log.path + "x", sources=sources))
        assert told[0] == "failed"
        assert "No such file" in told[1]


def run(worker: ProcessWorker, keyed: Keyed, on: Callable[[Event], None]) -> Deferred[Any]:
    """Clean a log in the process; fires with how it ended."""
    ended: Deferred[Any] = Deferred()

    def told(event: Event | Failed) -> None:
        if isinstance(event, (Done, Failed)):
            ended.callback(event)
            return
        on(event)
        if isinstance(event, Cleaned):
            assert keyed.log.swap(event)
            swap.finish(Disk(), keyed.log.path, [base for base, _ in event.sources[1:]])
        worker.go_on()

    worker.begin(keyed.task(rate=50 << 20), told)
    return ended


@pytest.mark.process
class TestProcess:
    def test_cleans(self, keyed: Keyed, real: RealReactor) -> None:
        """A log is cleaned by another process, which ends when there is nothing to do."""

        async def body(reactor: Any) -> None:
            worker = ProcessWorker(reactor)
            done = await run(worker, keyed, lambda event: None)
            assert isinstance(done, Done)
            assert done.records == 58
            assert worker.pid != os.getpid()
            worker.rest()
            assert worker.pid is None

        real(body)
        assert visible(keyed.log) == keyed.expected(60)

    def test_killed(self, keyed: Keyed, real: RealReactor) -> None:
        """When it is killed, that is told, nothing is lost, and another one does the work."""

        async def body(reactor: Any) -> None:
            worker = ProcessWorker(reactor)

            def kill(event: Event) -> None:
                assert worker.pid is not None
                os.kill(worker.pid, signal.SIGKILL)

            failed = await run(worker, keyed, kill)
            assert isinstance(failed, Failed)
            swap.abandon(Disk(), keyed.log.path)
            assert visible(keyed.log).items() >= keyed.expected(60).items()
            done = await run(worker, keyed, lambda event: None)
            worker.stop()
            assert isinstance(done, Done)

        real(body)
        assert visible(keyed.log) == keyed.expected(60)


@pytest.mark.process
def test_a_broker_and_its_process(tmp_path: Path) -> None:
    """A broker cleans by its process, starts another one for one killed, and takes it along."""
    slow = ["--set=compaction.rate_bytes=2MiB"]
    broker = BrokerProcess(tmp_path / "data", arguments=slow)
    broker.start()
    with Client(broker.url) as client:
        config = {"retention.mode": "compact", "segment.bytes": 65536, "sync": "os"}
        client.admin.create_topic("t", 1, config)
        fill(client)
        cleaning(client)
        child = child_of(broker)
        until(lambda: child.nice() > psutil.Process(broker.pid).nice())
        child.kill()
        until(lambda: is_gone(child))
        # By itself it would wait half a minute, if it was asked before it missed its process.
        until(lambda: cleaning(client) or not dirty(client))
        fill(client)
        cleaning(client)
        child = child_of(broker)
        broker.kill()
    until(lambda: is_gone(child))
    broker.start()
    with Client(broker.url) as client:
        cleaning(client)
        until(lambda: not dirty(client))
        found: dict[bytes | None, bytes | None] = {}
        with client.consumer() as consumer:
            consumer.assign("t")
            while len(found) < 100:
                for record in consumer.next_batch() or ():
                    assert record.key not in found
                    found[record.key] = record.value
    broker.stop()
    assert found == {b"%d" % each: b"%d" % (3900 + each) * 20 for each in range(100)}


def fill(client: Client) -> None:
    """Publish some records of a hundred keys."""
    with client.producer() as producer:
        for number in range(40):
            values = [b"%d" % (number * 100 + each) * 20 for each in range(100)]
            producer.send_batch("t", values, keys=[b"%d" % each for each in range(100)])


def cleaning(client: Client) -> bool:
    """Have it cleaned; it is not yet."""
    client.admin.operate("topic.compact", name="t")
    return False


def dirty(client: Client) -> int:
    """How much was never cleaned."""
    found = client.admin.operate("topic.compact", name="t", dry_run=True)
    return int(found["compaction"]["dirty"])


def child_of(broker: BrokerProcess) -> psutil.Process:
    """The process that cleans."""

    def look() -> psutil.Process | None:
        children = psutil.Process(broker.pid).children()
        return next((each for each in children if not is_gone(each)), None)

    return until(look)


def is_gone(process: psutil.Process) -> bool:
    """Whether it runs no more."""
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def until(look: Callable[[], T | None]) -> T:
    """Wait until something is there, and return it."""
    deadline = time.monotonic() + 20
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return found
