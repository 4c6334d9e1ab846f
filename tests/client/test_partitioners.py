"""Keys find the same partition as in Kafka, in every process and every form."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinymq.client.core.partitioners import (
    Key,
    KeyCache,
    Turn,
    key_bytes,
    key_partition,
    murmur2,
)
from tinymq.errors import UsageError

#: From the tests of Kafka's Java client, which shows the hash signed.
GOLDEN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize("key", GOLDEN)
def test_golden(key: bytes) -> None:
    """The hash is Kafka's."""
    found = murmur2(key)

    assert GOLDEN[key] == (found - (1 << 32) if found >= 1 << 31 else found)


@pytest.mark.parametrize("size", range(18))
def test_forms(size: int) -> None:
    """Equal content in bytes, bytearray, memoryview and str means an equal partition."""
    text = "abcdefghijklmnopqrstuvwxyz"[:size]
    plain = text.encode()
    forms: list[Key] = [plain, bytearray(plain), memoryview(plain), text]

    assert len({key_partition(form, 8191) for form in forms}) == 1
    assert {plain} == {key_bytes(form) for form in forms}


def test_no_key() -> None:
    """No key is no key, and other types are refused."""
    assert key_bytes(None) is None
    with pytest.raises(UsageError, match="not int"):
        key_bytes(7)  # type: ignore[arg-type]


@given(st.binary(max_size=600), st.integers(1, 1000))
def test_cache(key: bytes, partitions: int) -> None:
    """The cache answers as the function does, the first and the second time."""
    cache = KeyCache(partitions)

    assert [key_partition(key, partitions)] * 2 == [cache[key], cache[key]]
    assert (key in cache) == (len(key) <= 256)


def test_cache_is_bounded() -> None:
    """Ever new keys do not make the cache grow without end."""
    cache = KeyCache(3)
    for number in range(1 << 16):
        cache[b"%d" % number] = 0
    _ = cache[b"one more"]

    assert len(cache) == 1


def test_same_in_every_process() -> None:
    """Python's hash seed has no influence."""
    code = (
        "from tinymq.client.core.partitioners import key_partition\n"
        "print([key_partition(f'key-{n}', 16) for n in range(1000)])"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert len(runs) == 1


def test_turn() -> None:
    """Partitions are taken in turn, and only usable ones if some are not."""
    turn = Turn(0.0)

    assert [turn.next(3) for _ in range(3)] == [1, 2, 0]
    assert {4, 5} == {turn.next(9, [4, 5]) for _ in range(4)}
