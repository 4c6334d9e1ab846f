"""The rule for names, as every way in must enforce it."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinymq.errors import InvalidName
from tinymq.names import RULE, broker_called, valid_host, valid_name

ALPHABET = "abcXYZ019._-"


@pytest.mark.parametrize("name", ["a", "a" * 200, "orders.v2_eu-west", "_x", "-", "A.."])
def test_good_names(name: str) -> None:
    """A name within the rule comes back as it is."""
    assert valid_name(name) == name


@pytest.mark.parametrize(
    "name",
    [
        "",
        ".",
        "..",
        ".hidden",
        "../../x",
        "/etc/x",
        "a/../b",
        "C:\\x",
        "%2e%2e%2f",
        "a b",
        "a\n",
        "a\0",
        "ä",
        "\ud800",
        "Ⅷ",
    ],
)
def test_bad_names(name: str) -> None:
    """A name outside the rule is refused with the rule in words."""
    with pytest.raises(InvalidName, match=re.escape(RULE)):
        valid_name(name)


@pytest.mark.parametrize("given_", [None, 3, b"bytes", ["a"]])
def test_what_is_no_text(given_: object) -> None:
    """What is not even a text gets the same error."""
    with pytest.raises(InvalidName, match=re.escape(RULE)):
        valid_name(given_)


@pytest.mark.parametrize(
    ("name", "length"),
    [("a" * 201, 201), ("a" * 256, 256), ("ä" * 101, 202), ("a" * 100000, 100000)],
)
def test_long_names(name: str, length: int) -> None:
    """The bound is in bytes, and the error does not repeat the whole name."""
    with pytest.raises(InvalidName, match=f"is {length} bytes long") as caught:
        valid_name(name)
    assert caught.value.data == {"length": length}
    assert len(str(caught.value)) < 300


@given(st.text(ALPHABET, min_size=1, max_size=220))
def test_names_of_the_alphabet(name: str) -> None:
    """Exactly the first character and the length decide over allowed letters."""
    if name.startswith(".") or len(name) > 200:
        with pytest.raises(InvalidName):
            valid_name(name)
    else:
        assert valid_name(name) == name


@given(st.text(max_size=50))
def test_accepted_names_are_plain(name: str) -> None:
    """Whatever is accepted is harmless in a path, a URL and a log line."""
    try:
        accepted = valid_name(name)
    except InvalidName as error:
        assert str(error).isprintable()  # noqa: PT017
    else:
        assert re.fullmatch(r"[A-Za-z0-9_-][A-Za-z0-9._-]*", accepted)
        assert "/" not in accepted


def test_case_is_kept() -> None:
    """Names that differ only in case are two names."""
    assert valid_name("Orders") != valid_name("orders")


def test_errors_are_readable() -> None:
    """A refused name is shown in the letters that it was written in, but for what is unseen."""
    with pytest.raises(InvalidName, match="'订单' is not a valid name"):
        valid_name("订单")
    with pytest.raises(InvalidName, match=r"'a\\u202eb' is not a valid name"):
        valid_name("a\u202eb")


@pytest.mark.parametrize(
    "host", ["localhost", "10.0.0.1", "::1", "2001:db8::1", "b1.example.net", "broker_1", "größe"]
)
def test_hosts(host: str) -> None:
    """A host may be whatever can stand in a broker's URL."""
    assert valid_host(host)


@pytest.mark.parametrize(
    "host",
    ["", "x\ny", "x y", "x:y", "a,b", "a/b", "[::1]", "u@h", "h?x", "\0", "\x1b[31m", "h" * 256],
)
def test_no_hosts(host: str) -> None:
    """What would break the URL that is made of it is no host."""
    assert not valid_host(host)


@pytest.mark.parametrize(("name", "called"), [("far", "broker far"), ("Broker-2", "Broker-2")])
def test_what_a_broker_is_called(name: str, called: str) -> None:
    """The word broker is said once, whether or not the name begins with it."""
    assert broker_called(name) == called
