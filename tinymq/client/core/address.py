"""Where brokers are: ``tinymq://host[:port][,host2[:port]...]``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from typing_extensions import override

from tinymq.errors import ConfigError

DEFAULT_PORT: Final = 7800
DEFAULT_URL: Final = f"tinymq://127.0.0.1:{DEFAULT_PORT}"
#: The environment variable that replaces the default.
URL_VARIABLE: Final = "TINYMQ_URL"

_SCHEME: Final = "tinymq://"
_PLACE: Final = re.compile(
    r"(?:\[(?P<six>[0-9A-Fa-f:.%]+)\]|(?P<host>[^\s:/\[\]@?#]+))(?::(?P<port>\d+))?"
)


class Address(NamedTuple):
    """One place to connect to."""

    host: str
    port: int

    @override
    def __str__(self) -> str:
        """As it stands in a URL."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_url(url: str) -> list[Address]:
    """
    Read a broker URL.

    Args:
        url: ``tinymq://`` and one or more places with commas between them; an
            IPv6 address stands in brackets.

    Returns:
        The places in the order given.

    Raises:
        ConfigError: It is not such a URL.
    """
    if not url.startswith(_SCHEME):
        web = url.startswith(("http://", "https://"))
        why = f"; HTTP is the dashboard's, brokers have port {DEFAULT_PORT} by default"
        raise ConfigError(f"a broker URL starts with {_SCHEME}, not {url!r}{why if web else ''}")
    return [_place(part, url) for part in url.removeprefix(_SCHEME).rstrip("/").split(",")]


def url_of(addresses: Iterable[Address]) -> str:
    """
    Write places as a broker URL.

    Args:
        addresses: The places.
    """
    return _SCHEME + ",".join(map(str, addresses))


def url_from(url: str | None, environment: Mapping[str, str]) -> str:
    """
    Choose the URL: the one given, that of the environment, or the default.

    Args:
        url: What the caller said, or None.
        environment: The variables of the process.
    """
    return url or environment.get(URL_VARIABLE) or DEFAULT_URL


def _place(part: str, url: str) -> Address:
    found = _PLACE.fullmatch(part)
    if found is None:
        raise ConfigError(f"{part!r} in {url!r} is not host, host:port or [IPv6]:port")
    port = int(found["port"] or DEFAULT_PORT)
    if not 1 <= port <= 65_535:
        raise ConfigError(f"port {port} in {url!r} is not from 1 to 65535")
    return Address(found["six"] or found["host"], port)
