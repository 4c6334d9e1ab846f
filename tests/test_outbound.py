"""Which URLs and addresses messages may be sent to."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinymq.outbound import Allowed, parse_target, why_private

PUBLIC = ["8.8.8.8", "93.184.216.34", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"]
PRIVATE = [
    *("127.0.0.1", "127.255.255.254", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1"),
    *("172.31.255.255", "192.168.0.1", "169.254.169.254", "169.254.0.1", "168.63.129.16"),
    *("100.64.0.1", "100.127.255.255", "224.0.0.1", "239.1.1.1", "240.0.0.1"),
    *("255.255.255.255", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1"),
    *("::", "::1", "::7f00:1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254"),
    *("fe80::1", "febf::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "2001:db8::1"),
    *("64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::"),
    *("2001::1", "100::1", "3fff::1", "5f00::1", "2001:10::1"),
]


@pytest.mark.parametrize("address", PUBLIC)
def test_public(address: str) -> None:
    """Addresses of everybody are fine."""
    assert why_private(ipaddress.ip_address(address)) is None


@pytest.mark.parametrize("address", PRIVATE)
def test_private(address: str) -> None:
    """Addresses of this machine, of this network, and of nobody are not, in whatever form."""
    assert why_private(ipaddress.ip_address(address))


@given(st.ip_addresses(v=4))
def test_disguises(address: ipaddress.IPv4Address) -> None:
    """An address in the form of another is refused whenever it is refused itself."""
    number = int(address)
    for other in (
        ipaddress.IPv6Address((0xFFFF << 32) | number),
        ipaddress.IPv6Address((0x64FF9B << 96) | number),
        ipaddress.IPv6Address((0x2002 << 112) | (number << 80)),
    ):
        assert (why_private(address) is None) == (why_private(other) is None)


class TestAllowed:
    """What the owner allows beside."""

    @pytest.mark.parametrize(
        ("host", "address", "fine"),
        [
            ("x.example", "10.1.2.3", True),
            ("x.example", "11.1.2.3", True),
            ("x.example", "192.168.1.1", False),
            ("x.example", "::ffff:10.1.2.3", True),
            ("hooks.local", "192.168.1.1", True),
            ("x.hooks.local", "192.168.1.1", False),
            ("a.b.internal", "127.0.0.1", True),
            ("internal", "127.0.0.1", True),
            ("xinternal", "127.0.0.1", False),
            ("x.example", "fd00::5", True),
        ],
    )
    def test_entries(self, host: str, address: str, fine: bool) -> None:
        """Networks allow addresses, names what they lead to, and a dot all that end so."""
        allowed = Allowed.of(["10.0.0.0/8", "hooks.local", ".internal", "fd00::/8"])
        refused = allowed.why_refused(host, ipaddress.ip_address(address))
        assert (refused is None) is fine

    @pytest.mark.parametrize("entry", ["", "10.0.0.1/8", "a b", "http://x", "x/8", "*", "."])
    def test_wrong(self, entry: str) -> None:
        """What is neither a network nor a name is refused."""
        with pytest.raises(ValueError, match="neither a network"):
            Allowed.of([entry])


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        ("https://example.com/x?y=1", ("https", "example.com", 443)),
        ("HTTP://Example.COM.:8080", ("http", "example.com", 8080)),
        ("http://[2606:4700::1111]/", ("http", "2606:4700::1111", 80)),
        ("http://8.8.8.8:1/", ("http", "8.8.8.8", 1)),
        ("http://a_b.example/", ("http", "a_b.example", 80)),
    ],
)
def test_urls(url: str, origin: tuple[str, str, int]) -> None:
    """Where a URL leads."""
    assert parse_target(url).origin == origin


@pytest.mark.parametrize(
    "url",
    [
        *("", "example.com", "//example.com/", "ftp://example.com", "file:///etc/passwd"),
        *("http://", "http:///x", "http://u@example.com/", "http://u:p@example.com/"),
        *("http://@example.com/", "http://example.com/#x", "http://example.com#"),
        *("http://exa mple.com/", "http://example.com/\r\nX: y", "http://example.com/\t"),
        *("http://ex\\ample.com/", "http://example.com:0/", "http://example.com:70000/"),
        *("http://example.com:x/", "http://1.1/", "http://2130706433/", "http://0x7f.1/"),
        *("http://0177.0.0.1/", "http://127.1/", "http://[fe80::1%25eth0]/", "http://[::1/"),
        *("http://a..b/", "http://-a.example/", "http://é.example/", "http://%31%32/"),
        "http://example.com/" + "x" * 2000,
    ],
)
def test_wrong_urls(url: str) -> None:
    """What is no URL of a server, or could be read in two ways, is refused."""
    with pytest.raises(ValueError, match=r"\w"):
        parse_target(url)
