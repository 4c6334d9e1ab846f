"""docs/protocol.md says what the code does: each table in it is checked against the code."""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any

import pytest
from attrs import NOTHING, fields

from tests.wire.vectors import VECTORS
from tinymq.errors import BY_CODE
from tinymq.limits import MAX_NESTING, Limits
from tinymq.wire import batch as batches
from tinymq.wire.batch import BATCH_HEADER, BatchHeader, Codec, Column
from tinymq.wire.codec import MAX_ARRAY, MAX_MAP, MAX_META
from tinymq.wire.fields import Check
from tinymq.wire.header import HEADER, MessageType
from tinymq.wire.messages import PUSHES, REPLIES, REQUESTS, Error, Message

TEXT = (Path(__file__).parents[2] / "docs" / "protocol.md").read_text(encoding="utf-8")

POWERS = {
    (1 << 63) - 1: "2^63-1",
    (1 << 31) - 1: "2^31-1",
    1 << 24: "2^24",
    1 << 20: "2^20",
}


def section(heading: str) -> str:
    """Cut out what stands under one heading, down to the next of its level or above."""
    level = heading.index(" ")
    start = TEXT.index(f"\n{heading}\n")
    end = re.search(rf"\n#{{1,{level}}} ", TEXT[start + len(heading) :])
    return TEXT[start:] if end is None else TEXT[start : start + len(heading) + end.start()]


def tables(part: str) -> list[list[list[str]]]:
    """Find the tables of a part of the document, as rows of cells without their heads."""
    found: list[list[list[str]]] = []
    inside = False
    for line in re.sub(r"```.*?```", "", part, flags=re.DOTALL).splitlines():
        if line.startswith("|"):
            if not inside:
                found.append([])
            found[-1].append([cell.strip() for cell in line.strip("|").split(" | ")])
        inside = line.startswith("|")
    return [[[cell.strip() for cell in row] for row in rows[2:]] for rows in found]


def short(text: str) -> str:
    """Write large round numbers as people do."""
    return re.sub(r"\d+", lambda match: POWERS.get(int(match[0]), match[0]), text)


def type_of(check: Check) -> str:
    """Let a check say what it takes, by giving it what nothing takes."""
    try:
        check(None)
        nil = "nil or "
    except ValueError:
        nil = ""
    with pytest.raises(ValueError, match=r"\w") as caught:
        check(1.5)
    return nil + short(str(caught.value))


def default_of(value: Any) -> str:
    """Write a default as the document does."""
    if value is NOTHING:
        return "required"
    names = {None: "absent", True: "`true`", False: "`false`"}
    if value is None or isinstance(value, bool):
        return names[value]
    return f'`"{value}"`' if isinstance(value, str) else f"`{short(str(value))}`"


def rows_of(cls: type[Message]) -> list[list[str]]:
    """Write the rows of a message's table, but for the last cell, which is for people."""
    return [
        [f"`{row.key}`", row.name, type_of(row.check), default_of(row.default)]
        for row in cls.schema.rows
    ]


@pytest.mark.parametrize("type_", [*REQUESTS, *PUSHES])
def test_messages(type_: int) -> None:
    """Each message's section has its keys, names, types and defaults, request before reply."""
    name = MessageType(type_).name
    part = section(f"### {name} `0x{type_:02x}`")
    asked = REQUESTS[type_] if type_ in REQUESTS else PUSHES[type_]
    classes = [asked, *([REPLIES[type_]] if type_ in REPLIES else [])]
    expected = [rows_of(cls) for cls in classes if cls.schema.rows]

    found = [[row[:4] for row in rows] for rows in tables(part)]

    assert found[: len(expected)] == expected


def test_error_frame() -> None:
    """The map that errors travel in."""
    (rows,) = tables(section("### ERROR `0xff`"))

    assert [row[:4] for row in rows] == rows_of(Error)


def test_types() -> None:
    """The list of types."""
    (rows,) = tables(section("## Messages").split("\n### ")[0])

    assert [row[:2] for row in rows] == [[f"`0x{kind:02x}`", kind.name] for kind in MessageType]


def test_errors() -> None:
    """The list of errors: codes, names, flags and sentences."""
    (rows,) = tables(section("## Errors"))
    yes = {True: "yes", False: ""}

    assert rows == [
        [
            str(code),
            cls.__name__,
            yes[cls.retriable],
            yes[cls.fatal],
            (cls.__doc__ or "").strip().replace("\n    ", " "),
        ]
        for code, cls in sorted(BY_CODE.items())
    ]


def test_limits() -> None:
    """The list of limits: names, defaults and bounds."""
    (rows,) = tables(section("## Limits"))

    assert [row[:3] for row in rows] == [
        [f"`{limit.name}`", str(limit.default), str(limit.metadata["most"])]
        for limit in fields(Limits)
    ]


def test_frame_header() -> None:
    """The fields of the frame header and where they stand."""
    (rows,) = tables(section("### Header"))

    assert [row[:2] for row in rows] == layout(HEADER.format)


def test_batch_header() -> None:
    """The fields of the batch header and where they stand."""
    (rows,) = tables(section("### Batch header"))

    assert [row[:3] for row in rows] == [
        [*place, name]
        for place, name in zip(layout(BATCH_HEADER.format), BatchHeader._fields, strict=True)
    ]


def layout(form: str) -> list[list[str]]:
    """Write offset and type of each field of a struct."""
    names = {"b": "i8", "B": "u8", "h": "i16", "H": "u16", "i": "i32", "I": "u32", "q": "i64"}
    codes = form.removeprefix(">")
    return [
        [str(struct.calcsize(">" + codes[:place])), names[code]] for place, code in enumerate(codes)
    ]


def test_attributes() -> None:
    """The bits of the attributes, and the numbers of the codecs."""
    bits, codecs = tables(section("### Attributes"))
    named = {
        "3": batches.APPEND_TIME,
        "4": batches.TRANSACTIONAL,
        "5": batches.CONTROL,
        "11": batches.ABORTED,
        "12": batches.HAS_DUE,
        "13": batches.HAS_IDS,
        "14": batches.HAS_EXPIRY,
        "15": batches.NATIVE & 0xFFFF,
    }

    assert {row[0]: 1 << int(row[0]) for row in bits if row[0] in named} == named
    assert [row[0] for row in bits] == ["0-2", "3", "4", "5", "6-10", "11", "12", "13", "14", "15"]
    assert [row[:2] for row in codecs] == [[str(int(codec)), codec.name.lower()] for codec in Codec]


def test_columns() -> None:
    """The columns in their order."""
    (rows,) = tables(section("### Columns"))

    assert [row[:2] for row in rows] == [
        [str(int(column)), column.name.lower()] for column in Column
    ]


def test_msgpack_rules() -> None:
    """The limits of msgpack in prose."""
    part = section("### msgpack")

    for number in (MAX_META, MAX_ARRAY, MAX_MAP, MAX_NESTING):
        assert re.search(rf"\b{number}\b", part)


@pytest.mark.parametrize(
    ("name", "part"), [("hello", "frames"), ("produce", "frames"), ("all-far", "stamped")]
)
def test_examples(name: str, part: str) -> None:
    """The annotated bytes are those of the golden vectors."""
    (vector,) = [row["bytes"] for row in VECTORS[part] if row["name"] == name]
    start = TEXT.index(f"```text\n# vector {name}\n")
    block = TEXT[start + len("```text\n") :].split("```")[0]
    written = "".join(line.split("#")[0] for line in block.splitlines())

    assert bytes.fromhex(written).hex(" ") == vector.hex(" ")
