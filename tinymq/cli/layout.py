"""
Where the processes of `tinymq up` have their data and their ports.

What was chosen is kept in the folder, so that the next run is the same: other
brokers and clients know a broker by its address.
"""

from __future__ import annotations

import errno
import ipaddress
import json
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from attrs import frozen
from typing_extensions import override

from tinymq.cli.failure import REFUSED, USAGE, Failed
from tinymq.cli.values import host_port

#: What is remembered, in the folder.
FILE: Final = "up.json"
#: Brokers' ports begin so far behind the MetaServer's.
GAP: Final = 11
#: Ports that are tried for a broker.
_TRIES: Final = 200
_ANYWHERE: Final = ("0.0.0.0", "::", "")  # noqa: S104 - recognised, not bound


@frozen
class Address:
    """
    A host and a port of it; port 0 is any free one.

    Attributes:
        host: A name or an address.
        port: The port.
    """

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Address:
        """
        Read ``HOST:PORT``, ``[::1]:PORT`` or a port alone.

        Raises:
            ValueError: It is none of these.
        """
        host, _, port = text.rpartition(":")
        host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
        if not (port.isascii() and port.isdigit()) or int(port) > 65_535:
            raise ValueError(f"{text!r} is no address; write 127.0.0.1:7800, [::1]:7800 or 7800")
        return cls(host, int(port))

    @property
    def pair(self) -> tuple[str, int]:
        """Host and port, as sockets want it."""
        return self.host, self.port

    @property
    def six(self) -> bool:
        """Whether it is one of IPv6."""
        try:
            return ipaddress.ip_address(self.host).version == 6
        except ValueError:
            return False

    @property
    def endpoint(self) -> str:
        """Twisted's endpoint string that listens there."""
        host = self.host.replace(":", "\\:")
        return f"tcp{'6' if self.six else ''}:{self.port}:interface={host}"

    @property
    def reached(self) -> Address:
        """Where this machine reaches it."""
        loopback = "::1" if self.six else "127.0.0.1"
        return Address(loopback, self.port) if self.host in _ANYWHERE else self

    @override
    def __str__(self) -> str:
        return host_port(self.host, self.port)


DEFAULT_LISTEN: Final = Address("127.0.0.1", 7800)


@frozen
class BrokerPlace:
    """
    Where one broker is.

    Attributes:
        name: Its name, and that of its folder.
        address: Where it listens.
        zone: Its zone, or empty.
    """

    name: str
    address: Address
    zone: str = ""


@frozen
class Layout:
    """
    Where everything is.

    Attributes:
        folder: Holds a folder for each process.
        listen: Where the MetaServer listens.
        http: Where the dashboard is, or None.
        brokers: The brokers.
    """

    folder: Path
    listen: Address
    http: Address | None
    brokers: tuple[BrokerPlace, ...]

    @property
    def url(self) -> str:
        """The URL with all addresses: clients go on while some of them do not answer."""
        places = [self.listen, *(broker.address for broker in self.brokers)]
        return "tinymq://" + ",".join(str(place.reached) for place in places)


@frozen
class Wanted:
    """
    What the command line says; None is what was before, else the default.

    Attributes:
        brokers: How many.
        listen: Where the MetaServer listens.
        http: Where the dashboard is, or ``none``.
        zones: Given to the brokers in turn.
    """

    brokers: int | None = None
    listen: Address | None = None
    http: Address | str | None = None
    zones: tuple[str, ...] = ()


def is_free(address: Address) -> bool:
    """
    Whether one can listen at an address.

    Raises:
        Failed: Nobody ever can: it is not one of this machine.
    """
    family = socket.AF_INET6 if address.six else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except (socket.gaierror, UnicodeError):
            raise Failed(f"{address.host!r} is no host", status=USAGE) from None
        except OSError as error:
            if error.errno == errno.EADDRNOTAVAIL:
                raise Failed(
                    f"{address.host} is no address of this machine",
                    "give one of its own with --listen or --http",
                ) from None
            return False
    return True


def any_free(host: str) -> Address:
    """Find a free port of a host."""
    address = Address(host, 0)
    family = socket.AF_INET6 if address.six else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        return Address(host, probe.getsockname()[1])


def remembered(folder: Path) -> dict[str, Any]:
    """
    Read what an earlier run chose.

    Raises:
        Failed: The file is there, and cannot be read.
    """
    try:
        found = json.loads((folder / FILE).read_bytes())
    except FileNotFoundError:
        return {}
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise Failed(
            f"{folder / FILE} cannot be read",
            "remove it, and give --brokers, --listen and --http as before",
        )
    return found


def remember(layout: Layout, before: Mapping[str, Any]) -> None:
    """Write what was chosen for the next run; ports of brokers that rest are kept."""
    ports = dict(before.get("brokers", {}))
    ports |= {broker.name: broker.address.port for broker in layout.brokers}
    zones = dict(before.get("zones", {}))
    zones |= {broker.name: broker.zone for broker in layout.brokers}
    content = {
        "url": layout.url,  # for people and scripts; the next run makes it anew
        "count": len(layout.brokers),
        "listen": str(layout.listen),
        "http": str(layout.http or "none"),
        "brokers": ports,
        "zones": zones,
    }
    file = layout.folder / FILE
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    fresh.replace(file)


def lay_out(folder: Path, wanted: Wanted, before: Mapping[str, Any]) -> Layout:
    """
    Choose folders and ports.

    Args:
        folder: Holds everything.
        wanted: By the command line.
        before: What `remembered` gave.

    Raises:
        Failed: A port is in use, or what was remembered makes no sense.
    """
    try:
        count = wanted.brokers or int(before.get("count", 3))
        listen = wanted.listen or _read(before.get("listen")) or DEFAULT_LISTEN
        ports = {str(name): int(port) for name, port in before.get("brokers", {}).items()}
        zones = {str(name): str(zone) for name, zone in before.get("zones", {}).items()}
        http = _http(wanted, before, listen)
    except (ValueError, TypeError, AttributeError) as error:
        raise Failed(f"{folder / FILE} makes no sense: {error}", "remove it") from None
    taken: set[int] = set()
    listen = _claim(listen, "--listen", taken)
    http = None if http is None else _claim(http, "--http", taken)
    brokers = []
    for number in range(1, count + 1):
        name = f"broker-{number}"
        zone = wanted.zones[(number - 1) % len(wanted.zones)] if wanted.zones else ""
        address = _broker_address(Address(listen.host, ports.get(name, 0)), listen, number, taken)
        brokers.append(BrokerPlace(name, address, zone or zones.get(name, "")))
    return Layout(folder, listen, http, tuple(brokers))


def _read(text: str | None) -> Address | None:
    return None if text is None else Address.parse(text)


def _http(wanted: Wanted, before: Mapping[str, Any], listen: Address) -> Address | None:
    given = wanted.http or before.get("http")
    if given == "none":
        return None
    if isinstance(given, Address):
        return given
    if given is not None:
        return Address.parse(str(given))
    return Address(listen.host, listen.port + 1 if listen.port else 0)


def _claim(address: Address, option: str, taken: set[int]) -> Address:
    """Hold a port that must be this one."""
    if address.port == 0:
        address = any_free(address.host)
    elif address.port in taken or not is_free(address):
        raise Failed(
            f"{address} is in use",
            f"stop what listens there, or choose another with {option}",
            REFUSED,
        )
    taken.add(address.port)
    return address


def _broker_address(known: Address, listen: Address, number: int, taken: set[int]) -> Address:
    """Find the port of a broker: the one it had, else a free one near the MetaServer's."""
    if known.port:
        return _claim(known, "`--listen`; or remove the broker's port from up.json", taken)
    for address in _candidates(listen, number):
        if address.port not in taken and is_free(address):
            taken.add(address.port)
            return address
    raise Failed(
        f"there is no free port for broker-{number} behind {listen}",
        "choose another place with --listen; brokers listen behind it",
    )


def _candidates(listen: Address, number: int) -> Iterator[Address]:
    first = listen.port + GAP + number - 1
    for port in range(first, min(first + _TRIES, 65_536)):
        yield Address(listen.host, port)


def resting(layout: Layout, before: Mapping[str, Any]) -> list[str]:
    """Name the brokers that an earlier run had, and this one does not start."""
    names = {broker.name for broker in layout.brokers}
    known = [name for name in before.get("brokers", {}) if name not in names]
    return sorted(known, key=lambda name: (len(name), name))
