"""Compressed columns: no more comes out than the limit allows."""

from __future__ import annotations

import struct
import zlib

import pytest
import zstandard

from tests.wire.measuring import peak_bytes
from tests.wire.test_batch import payload
from tinymq.errors import CorruptBatch
from tinymq.limits import DEFAULT_LIMITS
from tinymq.wire.batch import NATIVE, Codec, build
from tinymq.wire.codec import pack
from tinymq.wire.produced import check_produced
from tinymq.wire.records import RecordBatch, compress, decompress, encode_batch

MIB = 1 << 20
GIB = 1 << 30
LIMIT = 2 * MIB


def gzip_bomb() -> bytes:
    """Build 1 MB of gzip that inflates to 1 GiB: one block of a MiB of zeros, again and again."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    block = packer.compress(bytes(MIB)) + packer.flush(zlib.Z_FULL_FLUSH)
    return b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03" + block * (GIB // MIB)


def zstd_bomb(start: bytes, size: int) -> bytes:
    """Build zstd that inflates to `size`: blocks of 128 KiB, each one byte and a length."""
    block = struct.pack("<I", (131_072 << 3) | 2)[:3] + b"\0"
    return b"\x28\xb5\x2f\xfd" + start + block * (size // 131_072)


#: A window of 1 MiB and no size; one segment whose size is said.
UNSIZED = b"\x00\x50"
SIZED = b"\xe0" + GIB.to_bytes(8, "little")
#: A window of 2 GiB.
WIDE = b"\x00\xa8"

BOMBS = {
    "gzip": (Codec.GZIP, gzip_bomb()),
    "zstd without its size": (Codec.ZSTD, zstd_bomb(UNSIZED, GIB)),
    "zstd of 1 MB": (Codec.ZSTD, zstd_bomb(UNSIZED, 32 * GIB)),
    "zstd with its size": (Codec.ZSTD, zstd_bomb(SIZED, GIB)),
    "zstd that claims less": (Codec.ZSTD, zstd_bomb(b"\xe0\x10" + bytes(7), GIB)),
    "zstd with a huge window": (Codec.ZSTD, zstd_bomb(WIDE, GIB)),
}


@pytest.mark.parametrize(("codec", "bomb"), BOMBS.values(), ids=BOMBS)
def test_bombs_are_refused_at_the_limit(codec: Codec, bomb: bytes) -> None:
    """A gigabyte in a megabyte is given up at the limit, in flat memory."""

    def look() -> None:
        with pytest.raises(CorruptBatch):
            decompress(bomb, codec, LIMIT)

    assert peak_bytes(look) < 3 * LIMIT


@pytest.mark.parametrize(("codec", "bomb"), BOMBS.values(), ids=BOMBS)
def test_bombs_in_a_batch_hurt_only_who_looks(codec: Codec, bomb: bytes) -> None:
    """A broker takes the batch unopened; a reader refuses its values and still has its keys."""
    data = build(payload(None, None, pack([b"k"]), bomb), 1, NATIVE | codec)
    check_produced(data, DEFAULT_LIMITS)
    batch = RecordBatch(data, inflated=LIMIT)

    assert batch.keys == [b"k"]
    with pytest.raises(CorruptBatch):
        _ = batch.values


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_nested_compression_is_opened_once(codec: Codec) -> None:
    """A column compressed twice is not a column, and its inside is never inflated."""
    inner = compress(bytes(16 * MIB), codec)
    data = build(payload(None, None, None, compress(inner, codec)), 1, NATIVE | codec)
    batch = RecordBatch(data, inflated=LIMIT)

    def look() -> None:
        with pytest.raises(CorruptBatch, match="column values"):
            _ = batch.values

    assert peak_bytes(look) < LIMIT


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.ZSTD])
def test_no_part_of_a_compressed_column_is_a_column(codec: Codec) -> None:
    """Cut anywhere, or with something behind it, it is refused."""
    column = compress(b"some text " * 20, codec)

    for wrong in (*(column[:end] for end in range(len(column))), column + b"x", column * 2):
        with pytest.raises(CorruptBatch):
            decompress(wrong, codec, LIMIT)


def test_a_wrong_checksum_is_seen() -> None:
    """Gzip's own checksum counts, and zstd's where it has one."""
    gzipped = bytearray(compress(b"text" * 20, Codec.GZIP))
    gzipped[-8] ^= 1
    zstd = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(b"text" * 20))
    zstd[-1] ^= 1

    with pytest.raises(CorruptBatch, match="check"):
        decompress(gzipped, Codec.GZIP, LIMIT)
    with pytest.raises(CorruptBatch, match=r"[Cc]hecksum"):
        decompress(zstd, Codec.ZSTD, LIMIT)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.ZSTD])
def test_the_limit_itself_is_allowed(codec: Codec) -> None:
    """Exactly as many bytes as allowed come out; with one more they do not."""
    column = compress(bytes(1000), codec)

    assert decompress(column, codec, 1000) == bytes(1000)
    if codec:
        with pytest.raises(CorruptBatch, match="limit of 999"):
            decompress(column, codec, 999)


def test_zstd_of_other_writers_is_read() -> None:
    """A frame that does not say its size, as streaming compressors write it, is read too."""
    column = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1000))

    assert decompress(column, Codec.ZSTD, 1000) == bytes(1000)
    with pytest.raises(CorruptBatch):
        decompress(column, Codec.ZSTD, 999)


@pytest.mark.parametrize("codec", [Codec.SNAPPY, Codec.LZ4, 7])
def test_unknown_codecs_are_refused(codec: int) -> None:
    """A codec that native batches do not have is corrupt for a reader."""
    with pytest.raises(CorruptBatch, match=f"codec {codec} is not used"):
        decompress(b"data", codec, LIMIT)


def test_only_values_and_headers_are_compressed() -> None:
    """Keys stay readable without a codec, since brokers and partitioners look at them."""
    data = encode_batch([b"v"], keys=[b"plain key"], headers=[[("h", b"x")]], codec=Codec.ZSTD)

    assert b"plain key" in data
    assert RecordBatch(data).headers == [(("h", b"x"),)]
