"""The table of limits: one place, checked values."""

from __future__ import annotations

import pytest
from attrs import asdict, fields
from attrs.exceptions import FrozenInstanceError

from tinymq.limits import DEFAULT_LIMITS, KIB, MIB, Limits
from tinymq.wire.batch import HEADER_SIZE, MAX_RECORDS
from tinymq.wire.codec import MAX_META
from tinymq.wire.messages import HelloReply
from tinymq.wire.records import encode_batch

NAMES = [attribute.name for attribute in fields(Limits)]


def test_defaults() -> None:
    """The numbers that clients may count on when nothing was configured."""
    assert asdict(DEFAULT_LIMITS) == {
        "hello": 4 * KIB,
        "hello_seconds": 5,
        "meta": 64 * KIB,
        "batch": MIB,
        "value": 16 * MIB,
        "records": 65_535,
        "key": 64 * KIB,
        "headers": 64 * KIB,
        "header_count": 128,
        "name": 200,
        "partitions": 1000,
        "fetch": MIB,
        "outgoing": 4 * MIB,
        "producer_window": 64,
        "heartbeat_seconds": 15,
        "inflated": 32 * MIB,
    }


@pytest.mark.parametrize("name", NAMES)
def test_limits_have_limits(name: str) -> None:
    """No limit can be set to nothing, or over what the code stands for."""
    most = {attribute.name: attribute.metadata["most"] for attribute in fields(Limits)}[name]

    assert getattr(Limits(**{name: most}), name) == most
    for wrong in (0, -1, most + 1):
        with pytest.raises(ValueError, match=name):
            Limits(**{name: wrong})


def test_limits_do_not_change_while_a_broker_runs() -> None:
    """What HELLO told a client stays true."""
    with pytest.raises(FrozenInstanceError):
        DEFAULT_LIMITS.batch = 1  # type: ignore[misc]


def test_a_body_has_room_for_the_longest_record() -> None:
    """Value, key and headers at their limits fit into one batch of one frame."""
    limits = Limits(value=70 * KIB, batch=KIB)
    batch = encode_batch(
        [bytes(limits.value)],
        keys=[bytes(limits.key)],
        headers=[[("h", bytes(limits.headers - 1))]],
        times=2**62,
        ids=[bytes(16)],
    )

    assert HEADER_SIZE < len(batch) <= limits.payload
    assert limits.body == 4 + limits.meta + limits.payload


def test_a_large_batch_makes_room_too() -> None:
    """The payload is bounded by the larger of batch and value."""
    assert Limits(batch=2 * MIB, value=KIB).payload == 2 * MIB


def test_the_wire_and_the_table_agree() -> None:
    """Numbers that the wire has for itself are those of the table."""
    assert DEFAULT_LIMITS.meta == MAX_META
    assert DEFAULT_LIMITS.records == MAX_RECORDS


def test_limits_travel() -> None:
    """HELLO's reply holds the whole table."""
    reply = HelloReply(
        broker_id=0,
        name="",
        software="",
        cluster=bytes(16),
        session=bytes(16),
        heartbeat=15,
        limits=asdict(DEFAULT_LIMITS),
    )

    assert Limits(**HelloReply.from_meta(reply.to_meta()).limits) == DEFAULT_LIMITS
