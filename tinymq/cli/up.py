"""`tinymq up`: a MetaServer and some brokers on this machine, in one command."""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import click
from attrs import define, field, frozen

from tinymq.cli.crew import Crew, Member, Running
from tinymq.cli.failure import Failed
from tinymq.cli.layout import (
    Address,
    BrokerPlace,
    Layout,
    Wanted,
    lay_out,
    remember,
    remembered,
    resting,
)
from tinymq.cli.output import note, write_json
from tinymq.cli.pulse import Pulse
from tinymq.cli.values import Parsed

#: Most brokers of one machine.
MOST: Final = 64
#: Of prctl: the signal that a process gets when the one that started it ends.
_PDEATHSIG: Final = 1

ADDRESS: Final = Parsed("host:port", Address.parse)
HTTP: Final = Parsed("host:port|none", lambda text: text if text == "none" else Address.parse(text))


@frozen
class Extra:
    """
    What every process gets on its command line besides.

    Attributes:
        settings: ``group.name=value`` each.
        insecure: Whether other machines may connect.
    """

    settings: tuple[str, ...] = ()
    insecure: bool = False


@click.command()
@click.option(
    "-n",
    "--brokers",
    type=click.IntRange(1, MOST),
    help="How many; as the last time if not given, at first 3.",
)
@click.option(
    "-d",
    "--data",
    "folder",
    type=click.Path(path_type=Path),
    default="./cluster",
    show_default=True,
    metavar="DIR",
    help="Holds a folder for each process, and their logs.",
)
@click.option(
    "--listen",
    type=ADDRESS,
    help="Where the MetaServer listens; brokers listen behind it.  [default: 127.0.0.1:7800]",
)
@click.option("--http", type=HTTP, help="Where the dashboard is, or none.  [default: one more]")
@click.option(
    "--zone", "zones", multiple=True, metavar="ZONE", help="Of the brokers, in turn; repeat it."
)
@click.option(
    "-s",
    "--set",
    "settings",
    multiple=True,
    metavar="GROUP.NAME=VALUE",
    help="A setting of every process; may be repeated.",
)
@click.option(
    "--insecure", is_flag=True, help="Let other machines connect, without authentication."
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json"]), default="table", show_default=True
)
def up(  # noqa: PLR0913, PLR0917 - the options
    brokers: int | None,
    folder: Path,
    listen: Address | None,
    http: Address | str | None,
    zones: tuple[str, ...],
    settings: tuple[str, ...],
    insecure: bool,
    output: str,
) -> int:
    """
    Start a MetaServer and some brokers on this machine, and keep them running.

    One that dies is started again. Ctrl-C stops all of them in order. Data, ports
    and zones are the same the next time.
    """
    wanted = Wanted(brokers, listen, http, zones)
    with locked(folder):
        before = remembered(folder)
        layout = lay_out(folder, wanted, before)
        remember(layout, before)
        for name in resting(layout, before):
            note(f"{name} of {folder} is not started; what it holds cannot be read meanwhile")
        with signals() as asked:
            crew = Crew(stages(layout, Extra(settings, insecure)), Machine(), asked)
            return run(crew, layout, asked, output)


def run(crew: Crew, layout: Layout, asked: Any, output: str) -> int:
    """
    Start a crew, watch it, and stop it.

    Args:
        crew: The processes.
        layout: Where they are.
        asked: How often a stop was asked for.
        output: The form of what is said once they are ready.

    Returns:
        The exit status.
    """
    try:
        if crew.begin():
            _welcome(crew, layout, output)
            crew.watch()
    finally:
        if asked():
            note("stopping")
        orderly = crew.stop()
    return 0 if orderly else 1


# --- what is run --------------------------------------------------------------


def stages(layout: Layout, extra: Extra) -> list[list[Member]]:
    """
    Give the command of each process, the MetaServer's first.

    Args:
        layout: Where they are.
        extra: For each of them.
    """
    meta = [
        "--role=meta",
        "--name=meta",
        f"--listen={layout.listen.endpoint}",
        f"--http={layout.http.endpoint if layout.http else 'none'}",
    ]
    return [
        [_member(layout, "meta", layout.listen, meta, extra)],
        [
            _member(layout, each.name, each.address, _broker(layout, each), extra)
            for each in layout.brokers
        ],
    ]


def _broker(layout: Layout, place: BrokerPlace) -> list[str]:
    return [
        "--role=broker",
        f"--meta={layout.listen.reached}",
        f"--name={place.name}",
        *([f"--zone={place.zone}"] if place.zone else []),
        f"--listen={place.address.endpoint}",
        "--http=none",
    ]


def _member(
    layout: Layout, name: str, address: Address, arguments: list[str], extra: Extra
) -> Member:
    from tinymq.verify.process import TWISTD  # noqa: PLC0415 - not needed for --help

    data, log = layout.folder / name, layout.folder / "log" / f"{name}.log"
    command = (
        *TWISTD,
        f"--logfile={log}",
        "tinymq",
        f"--data={data}",
        *arguments,
        *(f"--set={setting}" for setting in extra.settings),
        *(["--insecure"] if extra.insecure else []),
    )
    # New brokers come one after the other, so that broker-3 gets the number 3.
    after = not (data / "broker.id").exists()
    return Member(name, command, data, log, after, address.reached.pair)


def _welcome(crew: Crew, layout: Layout, output: str) -> None:
    url = layout.url
    dashboard = f"http://{layout.http.reached}" if layout.http else None
    if output == "json":
        brokers = [
            {
                "name": each.name,
                "url": f"tinymq://{each.address.reached}",
                "zone": each.zone,
                "pid": crew.pids[each.name],
            }
            for each in layout.brokers
        ]
        facts = {"url": url, "dashboard": dashboard, "pid": os.getpid(), "brokers": brokers}
        write_json({**facts, "meta_pid": crew.pids["meta"]}, indent=None)
    else:
        count = len(layout.brokers)
        click.echo(f"tinymq is up: a MetaServer and {count} broker{'s' if count > 1 else ''}")
        click.echo(f"  clients    {url}")
        click.echo(f"  dashboard  {dashboard or 'none'}")
        for each in layout.brokers:
            zone = f", zone {each.zone}" if each.zone else ""
            click.echo(f"  {each.name:<9}  tinymq://{each.address.reached}{zone}")
        click.echo(f"  data       {layout.folder}, logs in {layout.folder / 'log'}")
        click.echo(f"try: tinymq --url {url} pub greetings hello")
        click.echo("Ctrl-C stops everything")
    sys.stdout.flush()


# --- this machine -------------------------------------------------------------


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """
    Make the folder, and hold it for this process.

    Raises:
        Failed: Another process holds it, or it is something else.
    """
    if (folder / "meta.sqlite").exists() or (folder / "topics").exists():
        raise Failed(f"{folder} is the data folder of one broker", "choose another with --data")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise Failed(f"{folder} is no folder", "choose another with --data") from None
    with (folder / "up.lock").open("a+b") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            lock.seek(0)
            who = lock.read(20).decode("ascii", "replace").strip() or "another process"
            raise Failed(
                f"{folder} is in use by `tinymq up`, process {who}",
                "stop that one, or choose another folder with --data",
            ) from None
        lock.truncate(0)
        lock.write(b"%d\n" % os.getpid())
        lock.flush()
        yield


@contextmanager
def signals() -> Iterator[Any]:
    """Count what asks for a stop, instead of ending at once; gives what tells how often."""
    count = 0

    def ask(number: int, frame: Any) -> None:
        nonlocal count
        count += 1

    before = {}
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # such as HUP under nohup
            before[number] = signal.signal(number, ask)
    try:
        yield lambda: count
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@define
class Machine:
    """Real processes and a real clock; see `tinymq.cli.crew.Means`."""

    _pulses: dict[str, Pulse] = field(factory=dict)

    def start(self, member: Member) -> Running:
        """Start a process, and do not wait."""
        member.log.parent.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):
            (member.data / "broker.json").unlink()
        with suppress(KeyError):
            self._pulses.pop(member.name).close()
        with _errors(member).open("wb") as errors:
            return subprocess.Popen(  # noqa: S603 - our own command
                member.command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                env=_environment(),
                # Ctrl-C is for us alone: we stop the processes in order.
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 - there are no threads here
            )

    def ready(self, member: Member, pid: int) -> bool:
        """Whether the process of this number has told where it listens."""
        try:
            found = json.loads((member.data / "broker.json").read_bytes())
        except (OSError, ValueError):
            return False
        return isinstance(found, dict) and found.get("pid") == pid

    def silent(self, member: Member) -> float:
        """Tell for how many seconds a process owes an answer."""
        if member.address is None:
            return 0.0
        pulse = self._pulses.setdefault(member.name, Pulse(member.address))
        return pulse.silent(self.now())

    def last_words(self, member: Member) -> str:
        """Give the last line that a process wrote to stderr, else to its log."""
        for file in (_errors(member), member.log):
            with suppress(OSError):
                lines = file.read_text("utf-8", "replace").strip().splitlines()
                if lines:
                    return lines[-1].removeprefix("tinymq: error: ")
        return "it said nothing"

    def now(self) -> float:
        """Tell seconds that never go back."""
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)

    def tell(self, text: str) -> None:
        """Say something to a person."""
        note(text)


def _errors(member: Member) -> Path:
    """Name the file that takes what a process says before it has a log."""
    return member.log.with_suffix(".err")


def _environment() -> dict[str, str]:
    """Let the processes find this very tinymq."""
    import tinymq  # noqa: PLC0415

    root = str(Path(tinymq.__file__).parent.parent)
    known = os.environ.get("PYTHONPATH")
    return os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{known}" if known else root}


def _end_with_parent() -> None:
    """Let a process stop when we were killed; only Linux can."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGTERM)
