"""The asyncio client itself, and where it may be used."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from tests.aio.stage import Stage, ending, in_loop
from tinymq.aio import (
    Client,
)
from tinymq.client.core.fork import Home, Process
from tinymq.errors import (
    ConfigError,
    ForkedError,
    InvalidRequest,
    MalformedFrame,
    UnknownTopic,
    UsageError,
)


@in_loop
async def test_admin() -> None:
    """Each operation arrives by its name with the arguments that were given."""
    async with Stage() as stage:
        calls: list[tuple[str, dict[str, Any]]] = []

        def note(name: str, /, **more: Any) -> dict[str, Any]:
            calls.append((name, more))
            return {"is": name}

        for name in ("topic.create", "topic.purge", "broker.info"):
            stage.puppet.operations[name] = partial(note, name)
        admin = stage.client.admin
        await admin.create_topic("t", 2, {"sync": "os"})
        await admin.purge("t", before=5)
        assert await admin.broker_info() == {"is": "broker.info"}

        settings = {"partitions": 2, "config": {"sync": "os"}}
        assert calls == [
            ("topic.create", {"name": "t", "dry_run": False, **settings}),
            ("topic.purge", {"name": "t", "before": 5, "dry_run": False}),
            ("broker.info", {}),
        ]


@in_loop
async def test_admin_errors() -> None:
    """The broker's error and a result that is no map fail the call."""
    async with Stage() as stage:
        stage.puppet.operations["odd"] = lambda: 7  # type: ignore[assignment, return-value]
        admin = stage.client.admin
        errors = await ending(admin.operate("nix"), admin.operate("odd"))

        assert [InvalidRequest, MalformedFrame] == [type(error) for error in errors]


@in_loop
async def test_metadata() -> None:
    """Topics are described, created where asked, and errors are the broker's."""
    async with Stage() as stage:
        found = await stage.client.metadata(["a", "b", "a"], create=True)
        errors = await ending(stage.client.metadata(["a", "nix", "nada"]))

        assert [found["a"].partitions, found["b"].partitions] == [1, 1]
        assert [UnknownTopic] == [type(error) for error in errors]
        assert await stage.client.metadata([]) == {}


def test_no_loop_and_another_loop() -> None:
    """Without a loop, in a second loop or in another thread, every call says what to do."""
    stage = Stage()
    client = stage.client
    with pytest.raises(UsageError, match="no asyncio loop"):
        client.producer()
    seen: list[Any] = []

    async def first() -> None:
        producer, consumer = client.producer(), client.consumer()
        seen.extend([producer, consumer])
        thread = threading.Thread(target=lambda: seen.append(_caught(producer.send)))
        thread.start()
        thread.join()

    async def second() -> None:
        producer, consumer, in_thread = seen
        assert "no asyncio loop runs in this thread" in str(in_thread)
        for call in (producer.send, producer.send_batch, producer.send_oneway):
            assert "make a client in each loop" in str(_caught(call))
        for method in (consumer.pause, consumer.resume, consumer.unassign):
            with pytest.raises(UsageError, match="closed"):
                method("t")
        with pytest.raises(UsageError, match="closed"):
            consumer.seek("t", 0, 0)
        errors = await ending(
            client.metadata(["t"]),
            client.admin.broker_info(),
            client.close(),
            producer.flush(),
            producer.close(),
            consumer.assign("t"),
            consumer.next_batch(),
            consumer.end_offsets("t"),
            consumer.close(),
        )
        assert [UsageError] * len(errors) == [type(error) for error in errors]

    asyncio.run(first())
    asyncio.run(second())


def _caught(send: Callable[[str, Any], Any]) -> BaseException | None:
    try:
        send("t", [b"x"])
    except UsageError as error:
        return error
    return None


@in_loop
async def test_forked() -> None:
    """In a child process every call is refused."""
    stage = Stage()
    producer, consumer = stage.client.producer(), stage.client.consumer()
    process = Process()
    stage.client._network.home = Home(process)
    process.pid = -1
    with pytest.raises(ForkedError, match="make a new client"):
        producer.send("t", b"x")
    errors = await ending(producer.flush(), consumer.next_batch(), stage.client.close())
    process.forked()
    await stage.client.close()

    assert [ForkedError] * 3 == [type(error) for error in errors]


def test_wrong_url() -> None:
    """A wrong URL is found when the client is made, also outside of a loop."""
    with pytest.raises(ConfigError):
        Client("http://x")


@pytest.mark.process
def test_no_twisted() -> None:
    """The asyncio face does not cost the import of Twisted, nor a thread."""
    code = (
        "import sys, threading, tinymq.aio\n"
        "assert not [name for name in sys.modules if name.split('.')[0] in ('twisted', 'zope')]\n"
        "assert threading.active_count() == 1\n"
    )
    subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": ":".join(sys.path)}, check=True)
