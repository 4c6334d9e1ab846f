"""
Where this process may send on behalf of others: which URLs, and which addresses.

A broker stands where its users may not reach: beside databases, and beside the metadata
address of a cloud, which gives keys to whoever asks. So what is sent to an address that a
user names goes to public addresses only, unless the broker's owner says otherwise.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Final, TypeAlias
from urllib.parse import urlsplit

from attrs import frozen

IPAddress: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network

#: Most characters of a URL.
MOST_URL: Final = 2000
#: Most characters of a name in the domain name system.
_MOST_HOST: Final = 253
_PORTS: Final = {"http": 80, "https": 443}
_LABEL: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
#: Beside what `ipaddress` knows to be not for everybody.
_REFUSED: Final[tuple[tuple[Network, str], ...]] = (
    (ipaddress.ip_network("169.254.169.254/32"), "the metadata of a cloud"),
    (ipaddress.ip_network("fd00:ec2::254/128"), "the metadata of a cloud"),
    (ipaddress.ip_network("168.63.129.16/32"), "the metadata of a cloud"),
    (ipaddress.ip_network("100.64.0.0/10"), "shared behind a provider's NAT"),
    (ipaddress.ip_network("0.0.0.0/8"), "of this network"),
    (ipaddress.ip_network("192.0.0.0/24"), "reserved"),
    (ipaddress.ip_network("192.88.99.0/24"), "a relay of 6to4"),
    (ipaddress.ip_network("fec0::/10"), "private"),
    (ipaddress.ip_network("::/96"), "an address of IPv4 in disguise"),
    (ipaddress.ip_network("64:ff9b:1::/48"), "an address of IPv4 in disguise"),
    (ipaddress.ip_network("100::/64"), "reserved"),
    (ipaddress.ip_network("2001::/32"), "an address of IPv4 in disguise"),
    (ipaddress.ip_network("3fff::/20"), "for documents only"),
    (ipaddress.ip_network("5f00::/16"), "reserved"),
)
_KINDS: Final = (
    ("is_link_local", "of this link only"),
    ("is_multicast", "of a group"),
    ("is_private", "private"),
    ("is_reserved", "reserved"),
)
_NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
_SIX_TO_FOUR: Final = ipaddress.ip_network("2002::/16")


@frozen
class Target:
    """
    Where a URL leads.

    Attributes:
        url: The URL, as it is asked for.
        scheme: ``http`` or ``https``.
        host: A name in lower case, or an address without brackets.
        port: The port.
    """

    url: str
    scheme: str
    host: str
    port: int

    @property
    def origin(self) -> tuple[str, str, int]:
        """What two URLs of one server have in common."""
        return (self.scheme, self.host, self.port)


def parse_target(url: str) -> Target:
    """
    Read a URL to which messages may be sent.

    Args:
        url: The URL.

    Raises:
        ValueError: It is none; the text completes the sentence "the URL must be …".
    """
    if not url or len(url) > MOST_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError(f"1 to {MOST_URL} printable ASCII characters without spaces")
    if "\\" in url:
        raise ValueError("without backslashes")
    try:
        parts = urlsplit(url)
        port = parts.port
        host = (parts.hostname or "").lower().removesuffix(".")
    except ValueError:
        raise ValueError("a URL such as https://example.com/hook") from None
    if parts.scheme not in _PORTS:
        raise ValueError("a URL that begins with https:// or http://")
    if "@" in parts.netloc:
        raise ValueError("without a user and a password: set a header for those")
    if "#" in url:
        raise ValueError("without a fragment (#...)")
    if not _is_host(host) or port == 0:
        raise ValueError("a URL with a host name or an IP address")
    return Target(url, parts.scheme, host, _PORTS[parts.scheme] if port is None else port)


def _is_host(host: str) -> bool:
    if as_address(host) is not None:
        return True
    labels = host.split(".")
    if not host or len(host) > _MOST_HOST or not all(map(_LABEL.fullmatch, labels)):
        return False
    # 0x7f.1 and 2130706433 are addresses to some resolvers and names to nobody.
    return not re.fullmatch(r"\d+|0x[0-9a-f]*", labels[-1])


def as_address(text: str) -> IPAddress | None:
    """
    Read an address.

    Args:
        text: Without brackets.

    Returns:
        None if it is none, or one of a single link (with ``%``).
    """
    try:
        return None if "%" in text else ipaddress.ip_address(text)
    except ValueError:
        return None


def why_private(address: IPAddress) -> str | None:
    """
    Say why an address is not one to which anybody may have messages sent.

    Args:
        address: The address; one of IPv4 in the form of one of IPv6 counts as what it is.

    Returns:
        None for a public one.
    """
    inner = _inside(address)
    if inner is not None:
        why = why_private(inner)
        return None if why is None else f"{inner} in another form, which is {why}"
    if address.is_loopback or address.is_unspecified:
        return "this machine"
    for network, why in _REFUSED:
        if address in network:
            return why
    for name, text in _KINDS:
        if getattr(address, name):
            return text
    return None if address.is_global else "not public"


def _inside(address: IPAddress) -> IPv4Address | None:
    """Find the address of IPv4 to which one of IPv6 leads."""
    if isinstance(address, IPv4Address):
        return None
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    number = int(address)
    if address in _NAT64:
        return IPv4Address(number & 0xFFFFFFFF)
    if address in _SIX_TO_FOUR:
        return IPv4Address(number >> 80 & 0xFFFFFFFF)
    return None


@frozen
class Allowed:
    """
    What the broker's owner allows beside public addresses.

    Attributes:
        networks: Networks of addresses.
        names: Names; those that begin with a dot stand for all that end so.
    """

    networks: tuple[Network, ...] = ()
    names: tuple[str, ...] = ()

    @classmethod
    def of(cls, entries: Iterable[str]) -> Allowed:
        """
        Read the setting.

        Args:
            entries: Networks, addresses and names.

        Raises:
            ValueError: One is none of these.
        """
        networks: list[Network] = []
        names: list[str] = []
        for entry in entries:
            try:
                networks.append(ipaddress.ip_network(entry))
            except ValueError as error:
                name = entry.lower().removesuffix(".")
                if "/" in entry or not _is_host(name.removeprefix(".")):
                    raise ValueError(
                        f"{entry!r} is neither a network such as 10.0.0.0/8 nor a name; "
                        "several stand with spaces between, or in a list"
                    ) from error
                names.append(name)
        return cls(tuple(networks), tuple(names))

    def why_refused(self, host: str, address: IPAddress) -> str | None:
        """
        Say why nothing may be sent to an address.

        Args:
            host: The name by which it was found, or itself.
            address: The address.

        Returns:
            None if it may.
        """
        why = why_private(address)
        if why is None or self._names(host):
            return None
        plain = _inside(address) or address
        if any(each in network for network in self.networks for each in (address, plain)):
            return None
        return why

    def _names(self, host: str) -> bool:
        return any(
            host == name.removeprefix(".") or (name.startswith(".") and host.endswith(name))
            for name in self.names
        )
