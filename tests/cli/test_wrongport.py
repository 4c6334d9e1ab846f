"""The port of the dashboard, taken for that of the broker."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.cli.conftest import Run
from tests.fakes.memory_broker import MemoryBroker
from tinymq.cli.failure import Failed
from tinymq.cli.wrongport import explain
from tinymq.errors import UnreachableError

Serve = Callable[[bytes], str]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Return what answers one connection with some bytes, and gives the URL."""
    with ExitStack() as ends:

        def start(answer: bytes) -> str:
            listener = ends.enter_context(socket.create_server(("127.0.0.1", 0)))

            def run() -> None:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(answer)

            thread = threading.Thread(target=run)
            thread.start()
            ends.callback(thread.join)
            return f"tinymq://127.0.0.1:{listener.getsockname()[1]}"

        yield start


def http(body: bytes, status: str = "200 OK") -> bytes:
    """Make an answer."""
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status.encode(), len(body), body)


def test_a_dashboard(serve: Serve) -> None:
    """A dashboard says where its broker is."""
    body = b'{"brokers": [{"listen": "tinymq://127.0.0.1:7810"}]}'
    found = explain(serve(http(body)))
    assert isinstance(found, Failed)
    assert "is the dashboard; clients connect to tinymq://127.0.0.1:7810" in str(found)
    assert found.hint == "--url tinymq://127.0.0.1:7810"
    assert found.status == 3


@pytest.mark.parametrize(
    "answer", [http(b"no", "404 Not Found"), http(b"[]"), http(b'{"brokers": []}'), http(b"{")]
)
def test_another_web_server(serve: Serve, answer: bytes) -> None:
    """Another web server is told of, with the port that brokers usually have."""
    found = explain(serve(answer))
    assert "is a web server, no broker" in str(found)


@pytest.mark.parametrize("answer", [b"", b"220 mail\r\n", b"\xff" * 100])
def test_something_else(serve: Serve, answer: bytes) -> None:
    """What speaks no HTTP gets no explanation."""
    assert explain(serve(answer)) is None


def test_nobody_and_no_url() -> None:
    """Where nobody listens, and for what is no URL, there is nothing to tell."""
    with socket.socket() as alone:
        alone.bind(("127.0.0.1", 0))
        assert explain(f"tinymq://127.0.0.1:{alone.getsockname()[1]}") is None
    assert explain("http://x") is None


def test_verbs_explain(broker: MemoryBroker, run: Run) -> None:
    """A verb that reaches no broker tells who answered in its place."""
    broker.failure = UnreachableError("no broker answers")
    broker.stranger = Failed("that is the dashboard", "--url tinymq://x", 3)
    result = run("topic", "ls")
    assert (result.exit_code, result.stderr) == (
        3,
        "error: that is the dashboard (hint: --url tinymq://x)\n",
    )
