"""
Reading a configuration from a file, the environment and the command line.

Every mistake is one line that names the setting, what was given, what may be
given, and where it was given.
"""

from __future__ import annotations

import difflib
import textwrap
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import attrs

from tinymq.config import DEFAULT_CONFIG, Config, group_text, settings
from tinymq.errors import ConfigError
from tinymq.settings import Setting, Value

#: The variable that names the file when nothing else does.
FILE_VARIABLE: Final = "TINYMQ_CONFIG"

_PREFIX: Final = "TINYMQ_"
_GROUPS: Final = tuple(group.name for group in attrs.fields(Config))
_SHOWN: Final = 80
_WIDTH: Final = 88


def load(
    file: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
) -> Config:
    """
    Return the configuration that three sources give, the later ones winning.

    Args:
        file: A TOML file; if not given, the one that ``TINYMQ_CONFIG`` names.
        environment: Variables such as ``TINYMQ_STORAGE_DATA``. Those that
            begin with no group's name are not looked at.
        overrides: ``group.name`` to a text, as a command line gives it, or to
            a value of the right type.

    Raises:
        ConfigError: A source cannot be read, or a setting in it is unknown or
            wrong.
    """
    environment = environment or {}
    file = file or environment.get(FILE_VARIABLE)
    values: dict[str, Value] = {}
    sources: list[str] = []
    if file:
        values.update(_from_file(Path(file)))
        sources.append(str(file))
    values.update(_from_environment(environment))
    for name, given in (overrides or {}).items():
        values[name] = _read(name, given, "command line", typed=not isinstance(given, str))
    try:
        return DEFAULT_CONFIG.changed(values)
    except ConfigError as error:
        raise ConfigError(": ".join([*sources, str(error)])) from None


def _from_file(file: Path) -> dict[str, Value]:
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{file}: not TOML: {error}") from error
    return {name: _read(name, given, str(file), typed=True) for name, given in _flat(content, file)}


def _flat(content: dict[str, Any], file: Path) -> Iterator[tuple[str, object]]:
    for group, members in content.items():
        if not isinstance(members, dict):
            raise ConfigError(f"{file}: {group} stands outside of any [group]{_hint(group)}")
        if group not in _GROUPS:
            raise ConfigError(f"{file}: unknown group [{group}]; there are {', '.join(_GROUPS)}")
        for name, given in members.items():
            yield f"{group}.{name}", given


def _from_environment(environment: Mapping[str, str]) -> dict[str, Value]:
    values = {}
    for variable, text in sorted(environment.items()):
        group, _, name = variable.removeprefix(_PREFIX).lower().partition("_")
        if variable.startswith(_PREFIX) and group in _GROUPS:
            values[f"{group}.{name}"] = _read(
                f"{group}.{name}", text, f"environment variable {variable}", typed=False
            )
    return values


def _read(name: str, given: object, source: str, *, typed: bool) -> Value:
    kind = settings().get(name)
    if kind is None:
        raise ConfigError(f"{source}: unknown setting {name[:_SHOWN]}{_hint(name)}")
    try:
        return kind.read(given) if typed else kind.parse(str(given))
    except ValueError:
        shown = repr(given)
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "..."
        raise ConfigError(
            f"{source}: {name} = {shown} is wrong: it must be {kind.allowed}"
        ) from None


def _hint(name: str) -> str:
    names = list(settings())
    last = name.rpartition(".")[2]
    near = [known for known in names if known.partition(".")[2] == last]
    near = near or difflib.get_close_matches(name, names, n=1)
    return f"; did you mean {near[0]}?" if near else "; `tinymq config` lists all settings"


def default_toml() -> str:
    """Return a configuration file with every setting, its text, range and default."""
    lines = [
        "# The settings of a tinymq broker. Every line that is commented out shows the",
        "# default. A setting can also be given as TINYMQ_GROUP_NAME in the environment.",
    ]
    group = ""
    for name, kind in settings().items():
        if name.partition(".")[0] != group:
            group = name.partition(".")[0]
            lines += ["", "", f"[{group}]", f"# {group_text(group)}"]
        lines += ["", *_commented(name.partition(".")[2], kind, DEFAULT_CONFIG.value(name))]
    return "\n".join(lines) + "\n"


def _commented(name: str, kind: Setting, default: Value) -> list[str]:
    texts = [*textwrap.wrap(kind.text, _WIDTH), *textwrap.wrap(f"Allowed: {kind.allowed}.", _WIDTH)]
    return [*(f"# {text}" for text in texts), f"#{name} = {_toml(default)}"]


def _toml(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case tuple():
            return "[" + ", ".join(_toml(item) for item in value) + "]"
        case None:
            return '"none"'
        case _:
            return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
