"""The client in examples/, written from the document alone, agrees with the code byte by byte."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
from google_crc32c import value as crc_value

from tinymq.limits import DEFAULT_LIMITS
from tinymq.wire.batch import stamp
from tinymq.wire.header import MessageType
from tinymq.wire.produced import check_produced
from tinymq.wire.records import encode_batch


@pytest.fixture(scope="module")
def client() -> ModuleType:
    """Load the example, which is no package."""
    path = Path(__file__).parents[2] / "examples" / "raw_client.py"
    spec = spec_from_file_location("raw_client", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_types_are_the_same(client: ModuleType) -> None:
    """The numbers that the example copied are those of the code; no channels, no groups."""
    queue = {kind for kind in MessageType if MessageType.SUBSCRIBE <= kind < MessageType.METADATA}
    groups = {kind for kind in MessageType if MessageType.MEMBER <= kind < MessageType.ERROR}
    for kind in set(MessageType) - queue - groups - {MessageType.AUTH}:
        assert getattr(client, kind.name) == kind


def test_checksum_is_the_same(client: ModuleType) -> None:
    """The description of CRC-32C in the document is enough to compute it."""
    assert client.crc32c(b"123456789") == crc_value(b"123456789") == 0xE3069283


def test_batches_are_the_same(client: ModuleType) -> None:
    """What the example sends is what this package would send."""
    values = [b"one", None, b"x" * 300]
    ours = encode_batch(values, producer_id=7, producer_epoch=1, base_sequence=5)

    assert client.encode(values, (7, 1, 5)) == ours


def test_stored_batches_are_read(client: ModuleType) -> None:
    """What the broker stamped is read with its offsets."""
    run = b""
    for base, values in ((5, [b"a", None]), (9, [b"c"])):
        batch = encode_batch(values)
        run += b"".join(stamp(batch, check_produced(batch, DEFAULT_LIMITS), base, 2, 77))

    assert list(client.decode(run)) == [(5, b"a"), (6, None), (9, b"c")]


def test_damage_is_seen(client: ModuleType) -> None:
    """A batch that was changed on its way is refused."""
    batch = encode_batch([b"value"])

    with pytest.raises(ValueError, match="corrupt"):
        list(client.decode(batch[:-5] + b"x" + batch[-4:]))
