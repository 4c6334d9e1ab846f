"""The rooms import in one direction, and the pure ones know no Twisted."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "tinymq"

#: What every room may import.
BASE = {"errors", "limits", "names", "settings", "config", "configfile"}
BASE |= {"dotted", "topicconfig", "channelpolicy", "conditions", "cron", "outbound"}

#: Room to the rooms that it may import, besides itself and the base.
ALLOWED: dict[str, set[str]] = {
    **{name: set() for name in BASE},
    "webhook": set(),
    "wire": set(),
    "storage": {"wire"},
    "stats": {"wire"},
    "routing": set(),
    "groups": {"wire", "routing"},
    "meta": {"wire", "storage", "routing"},
    "broker": {"wire", "storage", "meta", "stats", "routing", "groups"},
    "operation": {"wire"},
    "catalog": {"wire", "operation", "routing"},
    "caller": {"operation"},
    "node": {"wire", "storage", "meta", "broker", "stats", "logs", "operation", "catalog"}
    | {"figures", "groups"},
    "push": {"wire", "meta", "broker", "client", "webhook"},
    "operations": {"wire", "meta", "broker", "stats", "node", "figures", "routing", "groups"}
    | {"operation", "catalog", "caller", "webhook"},
    "traffic": {"stats"},
    "transports": {"wire"},
    "connection": {"wire", "broker", "stats", "caller", "traffic", "transports"},
    "connections": {"wire", "broker", "stats", "connection", "clockwork"},
    "consuming": {"wire", "broker", "caller", "connection"},
    "protocol": {"wire", "broker", "meta", "stats", "operations", "groups"}
    | {"caller", "connection", "connections", "consuming"},
    "cluster": {"wire", "storage", "meta", "broker", "client", "stats"}
    | {"node", "operation", "operations", "caller", "ground", "clockwork"},
    "ground": {"storage", "broker", "client"},
    "client": {"wire", "transports"},
    "aio": {"wire", "client"},
    "sync": {"wire", "client"},
    "patterns": {"wire", "client", "aio", "sync"},
    "streams": {"wire", "client", "aio", "sync"},
    "gateways": {"wire", "storage", "broker", "meta", "stats", "operations", "protocol"},
    "web": {"wire", "stats", "operation", "catalog", "caller"},
    "logs": set(),
    "process": set(),
    "clockwork": {"broker"},
    "maps": {"stats"},
    "figures": {"storage", "broker", "meta", "stats", "maps", "clockwork", "operation", "catalog"},
    "console": {"wire", "storage", "meta", "broker", "stats", "operations", "protocol", "web"}
    | {"figures", "maps", "client", "node"}
    | {"operation", "caller"},
    "verify": {"wire", "storage", "client", "sync"},
    "cli": {
        "wire",
        "storage",
        "meta",
        "stats",
        "operation",
        "catalog",
        "client",
        "aio",
        "sync",
        "verify",
        "webhook",
        "patterns",
    },
    "cleaner": {"storage", "broker"},
    "service": {
        "cleaner",
        "wire",
        "storage",
        "meta",
        "broker",
        "stats",
        "operations",
        "protocol",
        "web",
    }
    | {"client", "gateways", "console", "figures", "logs", "node", "cluster", "ground", "push"},
    "testing": {"wire", "storage", "meta", "broker", "stats", "operations", "protocol"}
    | {"client", "aio", "sync", "console", "logs", "service", "node", "cluster", "verify"},
    "embedded": {"service", "client"},
    "tap": {"logs", "service", "process"},
    "__init__": {"client"},
    "__main__": {"cli"},
}

#: Rooms, and one inner room, that do not know Twisted.
PURE = ["wire", "storage", "meta", "client/core", "aio", "sync", "operation", "catalog"]
PURE += ["routing", "webhook", "groups"]
PURE += sorted(BASE)

MODULES = sorted(PACKAGE.rglob("*.py"))


def exists(room: str) -> bool:
    """Whether a room was built yet."""
    return (PACKAGE / room).is_dir() or (PACKAGE / f"{room}.py").exists()


def room_of(module: Path) -> str:
    """Return the room that a file belongs to."""
    return module.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported(module: Path) -> Iterator[str]:
    """Yield the full names of what a file imports, at any depth of its code."""
    package = ("tinymq", *module.relative_to(PACKAGE).parent.parts)
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package[: len(package) - node.level + 1] if node.level else ()
            origin = ".".join([*parents, *([node.module] if node.module else [])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


@cache
def rooms_imported(module: Path) -> set[str]:
    """Return the rooms that a file imports."""
    names = (name.split(".") for name in imported(module))
    own = {parts[1] for parts in names if parts[0] == "tinymq" and len(parts) > 1}
    return {room for room in own if exists(room)}


@pytest.mark.parametrize("room", sorted({room_of(module) for module in MODULES}))
def test_direction(room: str) -> None:
    """A room imports only what lies below it."""
    assert room in ALLOWED, f"say in {__file__} what {room} may import"
    allowed = ALLOWED[room] | BASE | {room}
    wrong = {
        str(module.relative_to(ROOT)): sorted(rooms_imported(module) - allowed)
        for module in MODULES
        if room_of(module) == room and rooms_imported(module) - allowed
    }
    assert wrong == {}


def test_the_base_has_its_own_order() -> None:
    """Errors and limits import nothing of tinymq that could lead back to them."""
    assert rooms_imported(PACKAGE / "errors.py") == set()
    assert rooms_imported(PACKAGE / "limits.py") == set()


@pytest.mark.parametrize("room", [room for room in PURE if exists(room)])
def test_pure_rooms_name_no_twisted(room: str) -> None:
    """No file of a pure room imports Twisted, not even within a function."""
    files = [PACKAGE / f"{room}.py"] if (PACKAGE / f"{room}.py").exists() else []
    files += (PACKAGE / room).rglob("*.py")
    found = [str(file) for file in files for name in imported(file) if _is_twisted(name)]
    assert found == []


@pytest.mark.process
def test_pure_rooms_load_no_twisted() -> None:
    """In a fresh process, all modules of the pure rooms leave Twisted unloaded."""
    modules = [
        ".".join(module.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
        for module in MODULES
        if any(
            module.relative_to(PACKAGE).as_posix().startswith((f"{room}/", f"{room}.py"))
            for room in PURE
        )
    ]
    program = "\n".join(
        (*(f"import {name}" for name in modules), "import sys", "print('twisted' in sys.modules)")
    )
    ended = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.stdout, ended.stderr) == ("False\n", "")


def _is_twisted(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] in {"twisted", "zope", "klein", "treq"}
