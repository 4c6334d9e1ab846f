"""The daemon: how it starts, why it does not, and how it ends; with real processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest
from twisted.internet.defer import Deferred
from twisted.internet.selectreactor import SelectReactor
from twisted.internet.threads import deferToThreadPool
from twisted.python.threadpool import ThreadPool

from tests.conftest import RealReactor
from tests.fakes.broker import batch, values_in
from tests.fakes.peer import RawPeer
from tinymq import __version__
from tinymq.cluster.own import OwnMeta
from tinymq.config import DEFAULT_CONFIG, Config
from tinymq.errors import ConfigError, ShuttingDown
from tinymq.meta.server import MetaServer
from tinymq.service import BrokerService
from tinymq.storage.folder import DataFolder
from tinymq.sync import Client, SubscriptionConfig
from tinymq.tap import Options, makeService
from tinymq.verify.process import TWISTD, BrokerProcess
from tinymq.wire.header import REPLY, MessageType
from tinymq.wire.messages import (
    Fetch,
    Goodbye,
    Metadata,
    MetadataReply,
    Operate,
    Ping,
    Produce,
    error_from_meta,
)

#: Seconds that a daemon may take to give up.
PATIENCE = 30

LOCAL = "tcp:0:interface=127.0.0.1"


def topic_id(peer: RawPeer, name: str = "t") -> bytes:
    """The id of a topic, made if need be."""
    frame = peer.ask(Metadata(names=[name], create=True))
    ((_, found, *_),) = MetadataReply.from_meta(frame.split()[0]).topics
    return found


def publish(peer: RawPeer, topic: bytes, value: bytes) -> None:
    """Publish a record and wait for its acknowledgement."""
    frame = peer.ask(Produce(topic_id=topic, partition=0), batch(value))
    assert frame.type == MessageType.PRODUCE | REPLY


def read(peer: RawPeer, topic: bytes) -> list[bytes | None]:
    """All values of a short topic."""
    frame = peer.ask(Fetch(topics=[(topic, [(0, 0, -1)])], max_wait_ms=0))
    return values_in(frame.split()[1])


# --- options -----------------------------------------------------------------------


def registry(service: BrokerService) -> MetaServer:
    """The MetaServer of a service that has one."""
    own = service._meta
    assert isinstance(own, OwnMeta)
    return own.meta


class TestOptions:
    def parsed(self, *arguments: str) -> Options:
        """Options of a command line."""
        options = Options()
        options.parseOptions(list(arguments))
        return options

    def test_settings(self, tmp_path: Path) -> None:
        """Options win over the file, and any setting can be given."""
        file = tmp_path / "tinymq.toml"
        file.write_text('[broker]\nname = "from-file"\n[logging]\nlevel = "warn"\n')
        config = self.parsed(
            *("--config", str(file), "--name", "mine", "--data", "/d", "--http", "none"),
            *("--listen", "tcp:1:interface=127.0.0.1", "-l", "unix:/run/tinymq"),
            *("--set", "storage.reserve_bytes=1000", "--log-format", "json"),
        ).configuration()
        assert config.broker.name == "mine"
        assert config.logging.level == "warn"
        assert config.logging.format == "json"
        assert config.web.listen is None
        assert config.storage.reserve_bytes == 1000
        assert len(config.network.listen) == 2

    def test_insecure(self) -> None:
        """Listening for other machines must be wanted in so many words."""
        with pytest.raises(ConfigError):
            self.parsed("--listen", "tcp:7800").configuration()
        assert self.parsed("--listen", "tcp:7800", "--insecure").configuration().network.insecure

    @pytest.mark.parametrize(
        ("arguments", "what"),
        [
            (["--set", "storage.data"], "not 'storage.data'"),
            (["--prot", "7"], "option --prot not recognized"),
            (["--data"], "option --data requires argument"),
            (["extra"], "Wrong number of arguments."),
        ],
    )
    def test_mistakes(
        self, capsys: pytest.CaptureFixture[str], arguments: list[str], what: str
    ) -> None:
        """A mistake of the command line is told in one line, not behind a page of options."""
        with pytest.raises(SystemExit) as caught:
            self.parsed(*arguments)
        assert caught.value.code == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("tinymq: error: ")
        assert what in captured.err
        assert captured.err.count("\n") == 1

    def test_version(self, capsys: pytest.CaptureFixture[str]) -> None:
        """The version is printed."""
        with pytest.raises(SystemExit) as caught:
            self.parsed("--version")
        assert caught.value.code == 0
        assert capsys.readouterr().out == f"tinymq {__version__}\n"

    def test_wrong(self, capsys: pytest.CaptureFixture[str]) -> None:
        """A wrong setting ends the process with one line that names it."""
        with pytest.raises(SystemExit) as caught:
            makeService(self.parsed("--set", "storage.sync_threads=0"))
        assert caught.value.code == 1
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.startswith("tinymq: error: ")
        assert "storage.sync_threads" in captured.err
        assert captured.err.count("\n") == 1


# --- on a reactor of its own ----------------------------------------------------------


def config_of(data: Path) -> Config:
    """A configuration on a free port, without a dashboard."""
    return DEFAULT_CONFIG.changed(
        {"storage.data": str(data), "network.listen": (LOCAL,), "web.listen": None}
    )


class Peers:
    """Runs blocking peers beside a reactor, in threads of a pool of their own."""

    def __init__(self, reactor: SelectReactor) -> None:
        self._reactor = reactor
        self._pool = ThreadPool(0, 4)
        self._pool.start()

    def run(self, work: Callable[[], Any]) -> Deferred[Any]:
        """Run something in a thread."""
        return deferToThreadPool(self._reactor, self._pool, work)

    def stop(self) -> None:
        """End the threads."""
        self._pool.stop()


class TestService:
    def test_stop(self, real: RealReactor, tmp_path: Path) -> None:
        """A stop answers open reads, says goodbye, syncs, and leaves a clean folder (rule 16)."""
        data = tmp_path / "data"

        async def body(reactor: SelectReactor) -> None:
            service = BrokerService(reactor, config_of(data))
            service.startService()
            url = json.loads((data / "broker.json").read_text())["listen"]
            peers = Peers(reactor)
            ready: Deferred[None] = Deferred()

            def follow() -> list[object]:
                with RawPeer(url) as peer:
                    peer.hello()
                    topic = topic_id(peer)
                    publish(peer, topic, b"a")
                    peer.post(Fetch(topics=[(topic, [(0, 1, -1)])], max_wait_ms=60_000))
                    peer.ask(Ping())
                    reactor.callFromThread(ready.callback, None)
                    told: list[object] = []
                    while (frame := peer.frame()) is not None:
                        meta = frame.split()[0]
                        if frame.type == MessageType.ERROR:
                            told.append(type(error_from_meta(meta)))
                        else:
                            told.append(Goodbye.from_meta(meta).reason[:22])
                    return told

            outcome = peers.run(follow)
            await ready
            await service.stopService()
            assert await outcome == [ShuttingDown, "the broker is stopping"]
            peers.stop()
            host, _, port = url.removeprefix("tinymq://").rpartition(":")
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((host, int(port)), 1).close()

        real(body)
        assert not (data / "broker.json").exists()
        folder = DataFolder.open(str(data))
        assert folder.clean
        folder.close()

    def test_again(self, real: RealReactor, tmp_path: Path) -> None:
        """A folder is served again after a stop, under the same broker id."""
        data = tmp_path / "data"
        ids = []

        async def body(reactor: SelectReactor) -> None:
            service = BrokerService(reactor, config_of(data))
            service.startService()
            ids.append(service.broker.id)
            registry(service).create_topic("t", 1, {}) if len(ids) == 1 else None
            assert service.broker.meta.registry.names == ("t",)
            assert list(service.broker.meta.registry.brokers) == ids[:1]
            await service.stopService()

        real(body)
        real(body)
        assert ids[0] == ids[1]

    def test_stop_with_messages_in_hand(self, real: RealReactor, tmp_path: Path) -> None:
        """A stop gives nothing more out, takes what consumers settle, and nothing comes twice."""
        data = tmp_path / "data"
        settled: list[bytes | None] = []

        async def body(reactor: SelectReactor) -> None:
            service = BrokerService(reactor, config_of(data))
            service.startService()
            url = json.loads((data / "broker.json").read_text())["listen"]
            peers = Peers(reactor)
            ready: Deferred[None] = Deferred()
            stopping = threading.Event()

            def work() -> list[bytes | None]:
                with Client(url) as client:
                    if not settled:
                        client.producer().send_batch("t", [b"%d" % number for number in range(9)])
                    config = SubscriptionConfig(max_in_flight=4)
                    subscription = client.subscription("t", "c", config)
                    held = [message for message in map(subscription.next, [5] * 4) if message]
                    if not settled:
                        reactor.callFromThread(ready.callback, None)
                        assert stopping.wait(5)
                    for message in held:
                        time.sleep(0.005)
                        message.finish()
                        message.confirmed(5)
                    if not settled:
                        assert subscription.next(0.05) is None
                    subscription.close()
                    return [message.value for message in held]

            outcome = peers.run(work)
            if not settled:
                await ready
                stopped = service.stopService()
                stopping.set()
                await stopped
                settled.extend(await outcome)
            else:
                settled.extend(await outcome)
                await service.stopService()
            peers.stop()

        real(body)
        real(body)
        assert settled == [b"%d" % number for number in range(8)]

    def test_peer_that_does_not_read(self, real: RealReactor, tmp_path: Path) -> None:
        """A peer that does not take its goodbye does not hold the stop for long."""
        data = tmp_path / "data"

        async def body(reactor: SelectReactor) -> None:
            service = BrokerService(reactor, config_of(data))
            service.startService()
            registry(service).create_topic("t", 1, {"storage": "memory"})
            url = json.loads((data / "broker.json").read_text())["listen"]
            peers = Peers(reactor)

            def fill() -> RawPeer:
                peer = RawPeer(url)
                peer.hello()
                topic = topic_id(peer)
                for _ in range(20):
                    publish(peer, topic, b"x" * 900_000)
                for _ in range(90):
                    peer.post(Fetch(topics=[(topic, [(0, 0, -1)])]))
                return peer

            peer = await peers.run(fill)
            begun = time.monotonic()
            await service.stopService()
            assert time.monotonic() - begun < 5
            assert isinstance(peer, RawPeer)
            peer.socket.close()
            peers.stop()
            for connection in tuple(service.factory.connections):
                transport: Any = connection.transport
                transport.abortConnection()

        real(body)

    @pytest.mark.parametrize("content", [b"one", b""])
    def test_broker_id(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str], content: bytes
    ) -> None:
        """A file of the broker's number that holds none is told, and not overwritten."""
        data = tmp_path / "data"
        DataFolder.open(str(data)).close()
        (data / "broker.id").write_bytes(content)
        service = BrokerService(SelectReactor(), config_of(data))
        with pytest.raises(SystemExit):
            service.startService()
        assert "does not hold a broker's number" in capfd.readouterr().err
        assert (data / "broker.id").read_bytes() == content

    def test_unreadable(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        """Whatever the disk says at the start is told in one line."""
        data = tmp_path / "data"
        DataFolder.open(str(data)).close()
        (data / "broker.id").mkdir()
        service = BrokerService(SelectReactor(), config_of(data))
        with pytest.raises(SystemExit):
            service.startService()
        error = capfd.readouterr().err
        assert "the data folder cannot be used" in error
        assert error.count("\n") == 1


# --- real processes -------------------------------------------------------------------


def give_up(*arguments: str) -> str:
    """Start a daemon that must not start, and return its one line."""
    result = subprocess.run(
        [*TWISTD, "tinymq", "--http=none", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
        cwd=Path(__file__).parent.parent,
    )
    assert result.returncode == 1, result
    assert "Traceback" not in result.stdout + result.stderr
    lines = [line for line in result.stderr.splitlines() if line]
    assert len(lines) == 1, result
    return lines[0].removeprefix("tinymq: error: ")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Return a broker in a process of its own, started."""
    process = BrokerProcess(tmp_path / "data folder é")
    process.start()
    yield process
    process.kill()


@pytest.mark.process
class TestRefusals:
    def test_busy_port(self, tmp_path: Path) -> None:
        """A port that is taken is named, with what to do."""
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            line = give_up(
                f"--data={tmp_path / 'data'}", f"--listen=tcp:{port}:interface=127.0.0.1"
            )
        assert str(port) in line
        assert "--listen" in line
        assert "LISTEN=" in line
        folder = DataFolder.open(str(tmp_path / "data"))
        assert folder.clean  # nothing was opened, so that the next start has nothing to recover
        folder.close()

    def test_in_the_background(self, daemon: BrokerProcess, tmp_path: Path) -> None:
        """Without -n the terminal hears of it too, and no pid file is left."""
        background = [part for part in TWISTD if part not in {"-n", "--nodaemon"}]
        pid, log = tmp_path / "twistd.pid", tmp_path / "twistd.log"
        result = subprocess.run(
            [
                *(*background, f"--pidfile={pid}", f"--logfile={log}", "tinymq", "--http=none"),
                *(f"--data={daemon.data}", f"--listen={LOCAL}"),
            ],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
            cwd=Path(__file__).parent.parent,
        )
        assert result.returncode == 1, result
        assert "the data folder" in result.stderr
        assert "is in use by" in log.read_text()
        assert "Traceback" not in result.stderr + log.read_text()
        # The terminal is told first; then the process takes its file away.
        until = time.monotonic() + PATIENCE
        while pid.exists() and time.monotonic() < until:
            time.sleep(0.01)
        assert not pid.exists()

    def test_locked(self, daemon: BrokerProcess) -> None:
        """A folder that another broker has is told with that broker's process id."""
        line = give_up(f"--data={daemon.data}", f"--listen={LOCAL}")
        assert f"process id {daemon.pid}" in line

    def test_folder(self, tmp_path: Path) -> None:
        """A file, or a place where no folder can be made, is not a data folder."""
        file = tmp_path / "file"
        file.write_text("x")
        for path in (file, file / "below", Path("/proc/tinymq")):
            assert str(path) in give_up(f"--data={path}", f"--listen={LOCAL}")
        assert file.read_text() == "x"

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
    def test_read_only(self, tmp_path: Path) -> None:
        """A folder that may not be written is told as such."""
        data = tmp_path / "data"
        data.mkdir(mode=0o500)
        assert "cannot be written" in give_up(f"--data={data}", f"--listen={LOCAL}")

    def test_format(self, tmp_path: Path) -> None:
        """A folder of a newer version, or somebody else's, is refused untouched."""
        newer, other = tmp_path / "newer", tmp_path / "other"
        newer.mkdir()
        (newer / "format").write_text("tinymq 99\n")
        other.mkdir()
        (other / "thesis.tex").write_text("x")
        assert "format 99" in give_up(f"--data={newer}", f"--listen={LOCAL}")
        assert "not a data folder" in give_up(f"--data={other}", f"--listen={LOCAL}")
        assert {path.name for path in other.iterdir()} <= {"thesis.tex", "lock"}
        assert (newer / "format").read_text() == "tinymq 99\n"

    def test_settings(self, tmp_path: Path) -> None:
        """Wrong settings are told by name, from wherever they come."""
        assert "no.such" in give_up(f"--data={tmp_path}", "--set=no.such=1")
        assert "network.insecure" in give_up(f"--data={tmp_path}", "--listen=tcp:7800")


@pytest.mark.process
class TestLife:
    def test_kill(self, daemon: BrokerProcess) -> None:
        """What was acknowledged is there after SIGKILL, in a folder of any name."""
        with RawPeer(daemon.url) as peer:
            peer.hello()
            topic = topic_id(peer)
            for place in range(50):
                publish(peer, topic, b"%d" % place)
            daemon.kill()
        daemon.start()
        with RawPeer(daemon.url) as peer:
            peer.hello()
            assert topic_id(peer) == topic
            assert read(peer, topic) == [b"%d" % place for place in range(50)]
        assert "after an unclean stop" in daemon.log.read_text()
        assert "Traceback" not in daemon.log.read_text()

    def test_term(self, daemon: BrokerProcess) -> None:
        """SIGTERM ends in order: goodbye on the wire, a clean folder, and all data at once."""
        with RawPeer(daemon.url) as peer:
            peer.hello()
            topic = topic_id(peer)
            publish(peer, topic, b"a")
            peer.post(Fetch(topics=[(topic, [(0, 1, -1)])], max_wait_ms=60_000))
            peer.ask(Ping())
            daemon.stop()
            frames = []
            while (frame := peer.frame()) is not None:
                frames.append(frame.type)
            assert frames == [MessageType.ERROR, MessageType.GOODBYE]
        assert not (daemon.data / "broker.json").exists()
        daemon.start()
        log = daemon.log.read_text()
        assert "after a clean stop" in log
        assert "Traceback" not in log
        with RawPeer(daemon.url) as peer:
            peer.hello()
            assert read(peer, topic) == [b"a"]

    def test_foreign(self, daemon: BrokerProcess) -> None:
        """Bytes of other protocols are closed at once, and others are served."""
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", bytes(12)):
            with RawPeer(daemon.url) as peer:
                peer.socket.settimeout(1)
                peer.socket.sendall(data)
                assert peer.frame() is None
        with RawPeer(daemon.url) as peer:
            frame = peer.hello()
            assert frame.type == MessageType.HELLO | REPLY
            info = msgpack.unpackb(bytes(peer.ask(Operate(name="broker.info")).split()[1]))
            assert info["ready"] is True

    def test_json(self, tmp_path: Path) -> None:
        """With --log-format json every line is a JSON object."""
        process = subprocess.Popen(
            [
                *TWISTD,
                *("tinymq", f"--data={tmp_path / 'data'}", f"--listen={LOCAL}", "--http=none"),
                "--log-format=json",
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parent.parent,
        )
        try:
            assert process.stdout is not None
            seen = []
            for line in process.stdout:
                seen.append(json.loads(line))
                if "clients connect" in seen[-1]["message"]:
                    break
            process.terminate()
            out, err = process.communicate(timeout=PATIENCE)
            seen += [json.loads(line) for line in out.splitlines()]
        finally:
            process.kill()
            process.wait()
        assert err == ""
        assert process.returncode == -signal.SIGTERM  # so twistd ends, once all is done
        assert {"time", "level", "source", "message"} <= set(seen[0])
        assert seen[-1]["level"] == "info"
