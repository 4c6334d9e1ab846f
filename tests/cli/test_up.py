"""`tinymq up`: folders, ports, commands and what is said; processes are fakes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.test_crew import World
from tinymq.cli import up
from tinymq.cli.crew import Crew, Member
from tinymq.cli.failure import Failed
from tinymq.cli.layout import (
    Address,
    BrokerPlace,
    Layout,
    Wanted,
    any_free,
    is_free,
    lay_out,
    remember,
    remembered,
    resting,
)
from tinymq.sync import Client

LOOPBACK = "127.0.0.1"


@pytest.fixture
def busy() -> Iterator[Address]:
    """Return an address where somebody listens."""
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        yield Address(LOOPBACK, taken.getsockname()[1])


def chosen(folder: Path, wanted: Wanted) -> Layout:
    """Lay out and remember, as the verb does."""
    before = remembered(folder)
    layout = lay_out(folder, wanted, before)
    remember(layout, before)
    return layout


@pytest.mark.parametrize(
    ("text", "host", "port", "endpoint"),
    [
        ("127.0.0.1:7800", LOOPBACK, 7800, "tcp:7800:interface=127.0.0.1"),
        ("7900", LOOPBACK, 7900, "tcp:7900:interface=127.0.0.1"),
        ("[::1]:7800", "::1", 7800, r"tcp6:7800:interface=\:\:1"),
        ("localhost:1", "localhost", 1, "tcp:1:interface=localhost"),
    ],
)
def test_addresses(text: str, host: str, port: int, endpoint: str) -> None:
    """An address is a host and a port, or a port alone, also of IPv6."""
    address = Address.parse(text)
    assert (address.host, address.port, address.endpoint) == (host, port, endpoint)
    assert Address.parse(str(address)) == address


@pytest.mark.parametrize("text", ["", "host", "host:", "host:x", "1:70000", "host:-1"])
def test_no_addresses(text: str) -> None:
    """What is no address is refused with examples."""
    with pytest.raises(ValueError, match=r"127\.0\.0\.1:7800"):
        Address.parse(text)


def test_where_this_machine_reaches_it() -> None:
    """An address that means every interface is reached on the loopback one."""
    assert str(Address("0.0.0.0", 7800).reached) == "127.0.0.1:7800"
    assert str(Address("::", 7800).reached) == "[::1]:7800"
    assert str(Address("10.0.0.1", 7800).reached) == "10.0.0.1:7800"


def test_free_and_busy(busy: Address) -> None:
    """A port where somebody listens is not free; a host that is not ours is refused."""
    assert is_free(busy) is False
    assert is_free(any_free(LOOPBACK)) is True
    with pytest.raises(Failed, match="no address of this machine"):
        is_free(Address("192.0.2.1", 7800))
    with pytest.raises(Failed, match="is no host"):
        is_free(Address("no host", 7800))


def test_ports_are_remembered(tmp_path: Path) -> None:
    """The next run has the same ports and zones; a broker that rests keeps its own."""
    listen = any_free(LOOPBACK)
    first = chosen(tmp_path, Wanted(3, listen, Address(LOOPBACK, 0), ("a", "b")))
    ports = [broker.address.port for broker in first.brokers]
    assert len({listen.port, *ports}) == 4
    assert min(ports) >= listen.port + 11
    assert [broker.zone for broker in first.brokers] == ["a", "b", "a"]
    assert chosen(tmp_path, Wanted()) == first
    fewer = chosen(tmp_path, Wanted(brokers=1))
    assert fewer.brokers == first.brokers[:1]
    assert resting(fewer, remembered(tmp_path)) == ["broker-2", "broker-3"]
    assert chosen(tmp_path, Wanted(brokers=3)) == first


def test_a_busy_port_of_a_new_broker_is_passed_over(tmp_path: Path, busy: Address) -> None:
    """A new broker takes the next port that is free."""
    listen = Address(LOOPBACK, busy.port - 11)
    if not is_free(listen):
        listen = any_free(LOOPBACK)
    layout = lay_out(tmp_path, Wanted(2, listen, "none"), {})
    assert busy.port not in {broker.address.port for broker in layout.brokers}
    assert layout.http is None


def test_busy_ports_that_must_be_these(tmp_path: Path, busy: Address) -> None:
    """A port that was asked for, or was a broker's before, is an error when it is in use."""
    with pytest.raises(Failed, match="is in use") as found:
        lay_out(tmp_path, Wanted(1, busy), {})
    assert "--listen" in found.value.hint
    listen = any_free(LOOPBACK)
    with pytest.raises(Failed, match="is in use") as found:
        lay_out(tmp_path, Wanted(1, listen, busy), {})
    assert "--http" in found.value.hint
    with pytest.raises(Failed, match="is in use"):
        lay_out(tmp_path, Wanted(1, listen, listen), {})
    with pytest.raises(Failed, match=f"{busy.port} is in use"):
        lay_out(tmp_path, Wanted(1, listen, "none"), {"brokers": {"broker-1": busy.port}})


def test_the_url_names_every_process(tmp_path: Path) -> None:
    """The MetaServer stands first, brokers behind it; the file of the folder has it as well."""
    layout = Layout(
        tmp_path,
        Address("0.0.0.0", 7800),
        None,
        (BrokerPlace("broker-1", Address("0.0.0.0", 7811)), BrokerPlace("b", Address("::1", 2))),
    )
    assert layout.url == "tinymq://127.0.0.1:7800,127.0.0.1:7811,[::1]:2"
    remember(layout, {})
    assert json.loads((tmp_path / "up.json").read_bytes())["url"] == layout.url


def test_a_broken_memory(tmp_path: Path) -> None:
    """What cannot be understood of an earlier run is said, with what to do."""
    file = tmp_path / "up.json"
    file.write_text("[]")
    with pytest.raises(Failed, match="cannot be read"):
        remembered(tmp_path)
    file.write_text("{")
    with pytest.raises(Failed, match="cannot be read"):
        remembered(tmp_path)
    wrong: list[dict[str, Any]] = [{"count": "x"}, {"brokers": []}, {"listen": "x"}, {"http": "x"}]
    for content in wrong:
        with pytest.raises(Failed, match="makes no sense"):
            lay_out(tmp_path, Wanted(), content)


def test_commands(tmp_path: Path) -> None:
    """Each process gets its role, its folder, its address, and what is for all."""
    listen = Address("0.0.0.0", any_free("0.0.0.0").port)
    layout = lay_out(tmp_path, Wanted(1, listen, Address(LOOPBACK, 0), ("east",)), {})
    (meta,), (broker,) = up.stages(layout, up.Extra(("logging.level=debug",), insecure=True))
    assert meta.command[-8:] == (
        "tinymq",
        f"--data={tmp_path}/meta",
        "--role=meta",
        "--name=meta",
        f"--listen=tcp:{listen.port}:interface=0.0.0.0",
        f"--http={layout.http.endpoint if layout.http else ''}",
        "--set=logging.level=debug",
        "--insecure",
    )
    assert f"--logfile={tmp_path}/log/broker-1.log" in broker.command
    assert broker.command[-9:-2] == (
        f"--data={tmp_path}/broker-1",
        "--role=broker",
        f"--meta=127.0.0.1:{listen.port}",
        "--name=broker-1",
        "--zone=east",
        f"--listen={layout.brokers[0].address.endpoint}",
        "--http=none",
    )


def small(folder: Path) -> Layout:
    """Lay out one broker."""
    listen, http = Address(LOOPBACK, 0), Address(LOOPBACK, 0)
    return lay_out(folder, Wanted(1, listen, http), {})


def crew_of(layout: Layout, world: World) -> Crew:
    """Make a crew of fakes."""
    return Crew(up.stages(layout, up.Extra()), world, lambda: world.asked)


@pytest.mark.parametrize("form", ["table", "json"])
def test_what_is_said_when_it_is_up(
    tmp_path: Path, form: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """People are told where everything is and what to try; programs get one line."""
    world = World()
    world.at[5.0] = world.ask
    layout = small(tmp_path)
    assert up.run(crew_of(layout, world), layout, lambda: world.asked, form) == 0
    said = capsys.readouterr()
    assert said.err == "stopping\n"
    url = f"tinymq://{layout.listen},{layout.brokers[0].address}"
    if form == "json":
        document = json.loads(said.out)
        assert document["url"] == url
        assert document["brokers"][0]["name"] == "broker-1"
        assert (document["meta_pid"], document["brokers"][0]["pid"]) == (1, 2)
    else:
        assert "tinymq is up: a MetaServer and 1 broker\n" in said.out
        assert f"  dashboard  http://{layout.http}\n" in said.out
        assert f"  clients    {url}\n" in said.out
        assert f"try: tinymq --url {url} pub greetings hello" in said.out


def test_a_process_that_had_to_be_killed(tmp_path: Path) -> None:
    """The exit status tells that a stop was not orderly."""
    world = World()
    layout = small(tmp_path)

    def ask() -> None:
        world.processes["broker-1"].deaf = True
        world.ask()

    world.at[1.0] = ask
    assert up.run(crew_of(layout, world), layout, lambda: world.asked, "table") == 1


def test_a_folder_in_use(tmp_path: Path, run: Run) -> None:
    """A second run on the same folder is refused and names the first."""
    with up.locked(tmp_path / "cluster"):
        result = run("up", "--data", str(tmp_path / "cluster"))
    assert result.exit_code == 1
    assert f"is in use by `tinymq up`, process {os.getpid()}" in result.stderr


def test_a_folder_that_is_none(tmp_path: Path, run: Run) -> None:
    """A file, and the data folder of a single broker, are refused."""
    file = tmp_path / "file"
    file.write_text("")
    for data in (file, file / "below"):
        result = run("up", "--data", str(data))
        assert (result.exit_code, "is no folder" in result.stderr) == (1, True)
    (tmp_path / "meta.sqlite").write_text("")
    result = run("up", "--data", str(tmp_path))
    assert "is the data folder of one broker" in result.stderr


@pytest.mark.parametrize("count", ["0", "65", "-1", "x"])
def test_how_many(run: Run, count: str) -> None:
    """There are 1 to 64 brokers."""
    assert run("up", "--brokers", count).exit_code == 2


def test_signals_are_counted() -> None:
    """Signals ask for a stop; one that was ignored before, as under nohup, stays so."""
    before = signal.getsignal(signal.SIGHUP)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with up.signals() as asked:
            assert asked() == 0
            signal.raise_signal(signal.SIGHUP)
            signal.raise_signal(signal.SIGTERM)
            signal.raise_signal(signal.SIGINT)
            assert asked() == 2
    finally:
        signal.signal(signal.SIGHUP, before)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.process
def test_real_processes(tmp_path: Path) -> None:
    """A process is started, is ready when its file says so, and its last words are known."""
    machine = up.Machine()
    code = "import sys, pathlib; sys.stderr.write('tinymq: error: no\\n')"
    member = Member("x", (sys.executable, "-c", code), tmp_path / "x", tmp_path / "log" / "x.log")
    assert machine.last_words(member) == "it said nothing"
    process = machine.start(member)
    assert machine.ready(member, process.pid) is False
    while process.poll() is None:
        machine.sleep(0.01)
    assert machine.last_words(member) == "no"
    member.data.mkdir()
    (member.data / "broker.json").write_text(json.dumps({"pid": process.pid}))
    assert machine.ready(member, process.pid) is True
    assert machine.ready(member, process.pid + 1) is False


def read_without_meta(facts: dict[str, Any]) -> bytes:
    """Read topic t to its end while the MetaServer stands still; give its lines in order."""
    os.kill(facts["meta_pid"], signal.SIGSTOP)
    try:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "tinymq", "--url", facts["brokers"][1]["url"]),
                *("consume", "t", "--exit"),
            ],
            cwd=Path(up.__file__).parents[2],
            capture_output=True,
            timeout=60,
            check=False,
        )
    finally:
        os.kill(facts["meta_pid"], signal.SIGCONT)
    assert (done.returncode, done.stderr) == (0, b"")
    return b"".join(sorted(done.stdout.splitlines(keepends=True)))


@pytest.mark.process
def test_a_cluster(tmp_path: Path) -> None:
    """Two brokers and their MetaServer start, survive a kill, and stop in order."""
    command = [
        *(sys.executable, "-m", "tinymq", "up", "-n", "2", "-o", "json"),
        *("-d", str(tmp_path / "a clüster"), "--listen", f"{LOOPBACK}:0", "--http", "none"),
    ]
    root = str(Path(up.__file__).parents[2])
    with subprocess.Popen(
        command,
        cwd=root,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            facts = json.loads(process.stdout.readline())
            with Client(facts["url"]) as client:
                rows = client.admin.operate("broker.list")["brokers"]
                assert [(row["id"], row["name"]) for row in rows] == [
                    (1, "broker-1"),
                    (2, "broker-2"),
                ]
                client.admin.create_topic("t", 2)
                producer = client.producer()
                for partition in range(2):
                    producer.send("t", b"x", partition=partition)
                os.kill(facts["brokers"][0]["pid"], signal.SIGKILL)
                ended = process.stderr.readline()
                assert "broker-1 ended with signal 9" in ended
                assert "broker-1.log" in ended
                assert process.stderr.readline() == "broker-1 is ready again\n"
                places = [producer.send("t", b"y", partition=each) for each in range(2)]
                assert [place.offset for place in places] == [1, 1]
            assert read_without_meta(facts) == b"x\nx\ny\ny\n"
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
            assert process.stderr.read() == "stopping\n"
        finally:
            process.kill()
