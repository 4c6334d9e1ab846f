"""Messages: each field is checked, in each way that it can be wrong."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from attrs import NOTHING

from tests.wire.test_vectors import message_class
from tests.wire.vectors import VECTORS
from tinymq.errors import BY_CODE, InvalidRequest, MalformedFrame, WireError
from tinymq.limits import MAX_NESTING
from tinymq.wire.codec import pack, unpack_meta
from tinymq.wire.fields import I64, Check, counts, mapping
from tinymq.wire.header import MessageType
from tinymq.wire.messages import (
    PUSHES,
    REPLIES,
    REQUESTS,
    Error,
    Fetch,
    Hello,
    HelloReply,
    Message,
    Produce,
    error_from_meta,
    error_meta,
)

CLASSES: list[type[Message]] = [*REQUESTS.values(), *REPLIES.values(), Error]

#: What no field takes, whatever it is.
NEVER: list[Any] = [
    1.5,
    1 << 64,
    -(1 << 64),
    "s" * 70_000,
    b"b" * 70_000,
    [1.5] * 70_000,
    [[[[1.5]]]],
    {1: 2},
    {"k": 1.5, 2: 3},
]


def good_meta(cls: type[Message]) -> dict[str, Any]:
    """Find a vector of this class."""
    for vector in VECTORS["frames"]:
        if message_class(vector["type"]) is cls:
            return dict(vector["meta"])
    raise AssertionError(cls)


FIELDS = [
    pytest.param(cls, row.name, row.key, id=f"{cls.__name__}.{row.name}")
    for cls in CLASSES
    for row in cls.schema.rows
]
REQUIRED_FIELDS = [
    pytest.param(cls, row.name, row.key, id=f"{cls.__name__}.{row.name}")
    for cls in CLASSES
    for row in cls.schema.rows
    if row.default is NOTHING
]


def fault(cls: type[Message]) -> type[WireError]:
    """Say whose fault a wrong field is."""
    return MalformedFrame if cls.reply else InvalidRequest


@pytest.mark.parametrize(("cls", "name", "key"), REQUIRED_FIELDS)
def test_a_missing_field_is_named(cls: type[Message], name: str, key: str) -> None:
    """Each required field that is missing is named by its long and its short name."""
    meta = good_meta(cls)
    del meta[key]

    with pytest.raises(fault(cls), match=rf"field {name} \({key}\) is missing") as caught:
        cls.from_meta(meta)
    assert type(caught.value) is fault(cls)
    assert caught.value.data == {"field": name}


@pytest.mark.parametrize("value", NEVER, ids=lambda value: f"{value!r:.12}")
@pytest.mark.parametrize(("cls", "name", "key"), FIELDS)
def test_a_wrong_value_is_named(cls: type[Message], name: str, key: str, value: Any) -> None:
    """Each field refuses wrong types and sizes, in words that say what is wanted."""
    with pytest.raises(fault(cls), match=rf"field {name} \({key}\) must be ") as caught:
        cls.from_meta({**good_meta(cls), key: value})
    assert caught.value.data == {"field": name}


@pytest.mark.parametrize("cls", CLASSES)
def test_a_check_says_what_it_takes(cls: type[Message]) -> None:
    """The sentence that a check tells is the one that it raises."""
    for row in cls.schema.rows:
        with pytest.raises(ValueError, match=r"\w") as caught:
            row.check(1.5)
        assert row.check.must in {str(caught.value), f"nil or {caught.value}"}
        assert row.check.schema["type"]


@pytest.mark.parametrize(("cls", "name", "key"), FIELDS)
def test_a_value_that_msgpack_can_say_is_taken_or_refused(
    cls: type[Message], name: str, key: str
) -> None:
    """Whatever else a field holds gives a message or the documented error, and nothing else."""
    deep: Any = []
    for _ in range(1000):
        deep = [deep]
    values: list[Any] = [None, True, 0, -1, -(1 << 63), I64, "", b"", "ä" * 99, [], [[]], {}]
    for value in (*values, {"k": deep}):
        with suppress(fault(cls)):
            cls.from_meta({**good_meta(cls), key: value})


@pytest.mark.parametrize("cls", CLASSES)
def test_unknown_keys_are_ignored(cls: type[Message]) -> None:
    """A newer peer may say more: that is how the protocol grows."""
    meta = good_meta(cls)

    assert cls.from_meta({**meta, "future": [1, {"a": 2}]}) == cls.from_meta(meta)


@pytest.mark.parametrize("cls", CLASSES)
def test_fields_at_their_default_are_not_sent(cls: type[Message]) -> None:
    """A message made of defaults alone is an empty map beside its required keys."""
    meta = good_meta(cls)
    needed = {row.key: meta[row.key] for row in cls.schema.rows if row.default is NOTHING}

    assert set(cls.from_meta(needed).to_meta()) == set(needed)


@pytest.mark.parametrize("cls", CLASSES)
def test_keys_are_short_and_unique(cls: type[Message]) -> None:
    """Each key is one letter and stands for one field."""
    keys = [row.key for row in cls.schema.rows]

    assert len(set(keys)) == len(keys)
    assert all(len(key) == 1 and key.islower() for key in keys)


def test_every_type_but_the_reserved_has_its_messages() -> None:
    """AUTH waits for security, ERROR is a reply only; three are a broker's to send."""
    kinds = set(MessageType) - {MessageType.AUTH, MessageType.ERROR}

    assert set(PUSHES) == {MessageType.DELIVER, MessageType.LEASE_LOST, MessageType.ENDED}
    assert set(REQUESTS) == kinds - set(PUSHES)
    assert set(REPLIES) == set(REQUESTS) - {MessageType.GOODBYE, MessageType.CREDIT}
    assert not any(cls.reply for cls in REQUESTS.values())


def test_booleans_are_not_numbers() -> None:
    """True is not partition 1, and 1 is not true."""
    topic = bytes(16)
    with pytest.raises(InvalidRequest):
        Produce.from_meta({"t": topic, "p": True})
    with pytest.raises(MalformedFrame):
        HelloReply.from_meta({**good_meta(HelloReply), "r": 1})


def test_strings_are_measured_in_bytes() -> None:
    """200 bytes are 100 letters of two bytes."""
    assert Hello.from_meta({"c": "ä" * 100}).client_id == "ä" * 100
    with pytest.raises(InvalidRequest, match="at most 200 bytes"):
        Hello.from_meta({"c": "ä" * 101})


def test_rows_have_exactly_their_items() -> None:
    """A row that is too long or too short is refused; its growth needs a new key."""
    for row in ([0, 1], [0, 1, -1, 9]):
        with pytest.raises(InvalidRequest, match="an array of 3 items"):
            Fetch.from_meta({"q": [[bytes(16), [row]]]})


@pytest.mark.parametrize("holder", [lambda inner: {"k": inner}, lambda inner: [inner]])
def test_maps_are_nested_so_deep(holder: Any) -> None:
    """Free maps may be nested as deep as the limit says, so that nobody recurses without end."""
    value: Any = 1
    for _ in range(MAX_NESTING - 1):
        value = holder(value)

    assert mapping({"top": value}) == {"top": value}
    with pytest.raises(ValueError, match=f"nested at most {MAX_NESTING} deep"):
        mapping({"top": holder(value)})


@pytest.mark.parametrize("value", [[], {"a": "1"}, {"a": True}, {1: 1}, {"a": None}])
def test_counts_are_whole_numbers(value: Any) -> None:
    """A table of limits holds numbers and nothing else."""
    check: Check = counts
    with pytest.raises(ValueError, match="whole numbers"):
        check(value)


# --- errors --------------------------------------------------------------------


@pytest.mark.parametrize("cls", BY_CODE.values())
def test_errors_come_back(cls: type[WireError]) -> None:
    """Each class of error travels with its text, data and flags."""
    error = cls("what is wrong", start=5, names=["a"])

    found = error_from_meta(unpack_meta(pack(error_meta(error))))

    assert type(found) is cls
    assert (found.text, found.data) == (error.text, error.data)
    assert (found.code, found.retriable, found.fatal) == (cls.code, cls.retriable, cls.fatal)


@pytest.mark.parametrize(("retriable", "fatal"), [(False, False), (True, False), (False, True)])
def test_errors_of_the_future_keep_what_they_say(retriable: bool, fatal: bool) -> None:
    """An unknown code is kept, and its flags tell what to do about it."""
    found = error_from_meta({"e": 4711, "x": "new", "r": retriable, "f": fatal})

    assert type(found) is WireError
    assert (found.code, found.text) == (4711, "new")
    assert (found.retriable, found.fatal) == (retriable, fatal)
    assert error_meta(found)["e"] == 4711
    assert (WireError.code, WireError.retriable, WireError.fatal) == (1, False, False)


@pytest.mark.parametrize("data", [{"text": 1}, {"self": 1, "code": 2}, {"": 3}, None])
def test_data_of_errors_may_have_any_names(data: dict[str, Any] | None) -> None:
    """A peer that names its facts as our arguments are named breaks nothing."""
    found = error_from_meta({"e": 28, "x": "text", "d": data} if data else {"e": 28})

    assert found.data == (data or {})


def test_long_texts_of_errors_are_cut() -> None:
    """A text fits its frame, whatever went into it."""
    meta = error_meta(InvalidRequest("\U0001f40c" * 5000))

    assert len(error_from_meta(unpack_meta(pack(meta))).text) == 1000


def test_texts_that_are_no_unicode_travel() -> None:
    """A file name with undecodable bytes in a text does not stop the answer."""
    meta = error_meta(InvalidRequest("cannot open \udcff"))

    assert error_from_meta(unpack_meta(pack(meta))).text == "cannot open ?"


def test_fetch_names_at_most_so_many_partitions() -> None:
    """The limit holds for all topics together, not for each."""
    row = [0, 0, -1]
    topics = [[bytes(16), [row] * 500], [b"b" * 16, [row] * 500]]
    assert len(Fetch.from_meta({"q": topics}).topics) == 2
    with pytest.raises(InvalidRequest, match="at most 1000 partitions"):
        Fetch.from_meta({"q": [*topics, [b"c" * 16, [row]]]})
