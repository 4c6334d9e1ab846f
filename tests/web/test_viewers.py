"""Values are shown exactly as stored, whatever they are, with bounded work."""

from __future__ import annotations

import json

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinymq.web.json_lines import (
    MOST_LINES,
    MOST_TOKENS,
    Line,
    indent_json,
    is_json,
    json_member,
)
from tinymq.web.msgpack_lines import indent_msgpack, is_msgpack, msgpack_line
from tinymq.web.plaintext import is_text, one_line, to_text, visible
from tinymq.web.viewers import dump_base64, dump_hex, guess, show

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


def written(lines: tuple[Line, ...]) -> str:
    """Join lines as a person sees them."""
    return "\n".join("".join(token.text for token in line) for line in lines)


def test_json_is_indented() -> None:
    """Objects and arrays are put on lines; empty ones stay closed; only values are set off."""
    lines, _ = indent_json('{"a":[1,{"b":null}],"c":{},"d":[],"e":"x"}')

    expected = """{
  "a": [
    1,
    {
      "b": null
    }
  ],
  "c": {},
  "d": [],
  "e": "x"
}"""
    assert expected == written(lines)
    assert [token.text for line in lines for token in line if token.string] == ['"x"']


@pytest.mark.parametrize(
    "token",
    [
        "1.00",
        "9223372036854775807",
        "1e400",
        "-0",
        "1" * 5000,
        '"\\u00e9\\/"',
        "0.1000000000000000055",
    ],
)
def test_json_tokens_are_never_touched(token: str) -> None:
    """Numbers beyond what JavaScript or Python keep, and escapes, stay as written."""
    assert f'"n": {token}' in written(indent_json(f'{{"n":{token}}}')[0])


def test_duplicate_keys_stay() -> None:
    """Both members of a name are shown."""
    assert written(indent_json('{"k":1,"k":2}')[0]).count('"k"') == 2


@given(JSON)
def test_indenting_loses_nothing(value: object) -> None:
    """Without white space outside strings, the text is the one that was stored."""
    text = json.dumps(value, ensure_ascii=True)

    assert json.dumps(json.loads(text)) == json.dumps(json.loads(written(indent_json(text)[0])))


@given(st.text(alphabet='{}[],:"\\ab1 \n', max_size=60))
def test_what_is_not_json_keeps_every_mark(text: str) -> None:
    """Broken JSON comes back with all its characters but white space."""
    shown = written(indent_json(text)[0])

    assert "".join(text.split()) == "".join(shown.split())


def test_json_cut_off_anywhere_is_shown_to_the_cut() -> None:
    """A window that ends in the middle of a string shows that middle."""
    assert written(indent_json('{"a":1,"long":"xxx')[0]).endswith('"long": "xxx')


@pytest.mark.parametrize(
    "text",
    [
        "[" * 65536,
        "]" * 65536,
        '"' * 65535,
        '"' + "\\" * 65535,
        ":" * 65536,
        "a:" * 32768,
        "[" + "1," * 32767,
        '{"a":' * 13107,
    ],
    ids=["open", "close", "quotes", "backslashes", "colons", "words", "numbers", "nested"],
)
def test_work_on_a_hostile_window_is_bounded(text: str) -> None:
    """However the marks lie on lines, so many tokens are looked at; no mark is lost."""
    lines, cut = indent_json(text)

    tokens = sum(len(line) for line in lines)
    assert len(lines) <= MOST_LINES + 1
    # Neighbours are joined, so there are never more pieces than tokens and lines.
    assert tokens <= 2 * MOST_TOKENS + len(lines) + 1
    assert "".join(written(lines).split()) == "".join(text.split())
    assert cut is (text[1] != "\\")
    assert bool(show(text.encode(), "json").note) is cut


def test_deep_json_is_still_json() -> None:
    """Nesting beyond what Python reads does not make a guess fail."""
    assert is_json(b"[" * 65536)


def test_long_msgpack_says_that_it_is_cut() -> None:
    """A page that leaves something out says so, and where all of it can be seen."""
    shown = show(msgpack.packb(list(range(5000))), "msgpack")

    assert "the rest is left out. Hex shows all of it." in shown.note
    assert not show(msgpack.packb([1]), "msgpack").note


def test_member_is_cut_out_verbatim() -> None:
    """The payload of a request keeps its numbers; inner members of the name do not count."""
    text = '{"x": {"payload": 0}, "payload": {"n": 1.00, "l": [1, 2]} , "y": 1}'

    assert json_member(text, "payload") == '{"n": 1.00, "l": [1, 2]}'
    assert json_member('{"p\\u0061yload":1.50}', "payload") == "1.50"
    assert json_member('{"x":"payload"}', "payload") == ""


def test_msgpack_is_written_exactly() -> None:
    """Integers, bytes, times, extensions and keys of any type are told apart."""
    value = {
        "big": 2**64 - 1,
        5: b"\x00\xff",
        "t": msgpack.Timestamp(1, 5),
        "e": msgpack.ExtType(7, b"x"),
        "n": [None, True, 1.5, "\u202e"],
    }

    shown = written(indent_msgpack(msgpack.packb(value))[0])

    assert '"big": 18446744073709551615' in shown
    assert "5: h'00ff'" in shown
    assert "timestamp(1.000000005)" in shown
    assert "ext(7, h'78')" in shown
    assert '"<U+202E>"' in shown


def test_msgpack_keeps_duplicate_keys_and_broken_text() -> None:
    """What a decoder would drop or refuse is shown."""
    raw = b"\x82\xa1k\x01\xa1k\xa2\xff\xfe"

    shown = written(indent_msgpack(raw)[0])

    assert shown.count('"k"') == 2
    assert "\\\\udcff" in shown or "\\xff" in shown or "udcff" in shown


@given(st.binary(max_size=200))
def test_any_bytes_can_be_shown_in_any_way(value: bytes) -> None:
    """No value makes a viewer fail."""
    guess(value, True, "")
    for kind in ("json", "msgpack", "text", "hex", "base64"):
        show(value, kind)
    one_line(value)


def test_msgpack_with_too_many_items_is_refused_with_a_reason() -> None:
    """A header that promises a billion items is not believed."""
    shown = show(b"\xdd\x3f\xff\xff\xff", "msgpack")

    assert "not one whole MessagePack value" in shown.note
    assert shown.block.startswith("00000000  dd 3f")


def test_hex_has_offset_bytes_and_text() -> None:
    """A dump is laid out as everywhere, from the offset of the window."""
    dumped = dump_hex(b"tinymq \x00\xff and more", 0x4000)

    assert dumped == (
        "00004000  74 69 6e 79 6d 71 20 00  ff 20 61 6e 64 20 6d 6f  tinymq .. and mo\n"
        "00004010  72 65                                             re"
    )


def test_base64_is_cut_into_lines() -> None:
    """Lines have 76 characters."""
    assert [len(line) for line in dump_base64(b"x" * 150).split("\n")] == [76, 76, 48]


@pytest.mark.parametrize(
    ("value", "whole", "said", "kind"),
    [
        (b'{"a":1}', True, "", "json"),
        (b'{"a":1', False, "", "json"),
        (b'{"a":', True, "", "text"),
        (b"plain", True, "", "text"),
        (b"12", True, "", "text"),
        (msgpack.packb({"a": 1}), True, "", "msgpack"),
        (b"\x00\x01", True, "", "hex"),
        (b"", True, "", "text"),
        (b"12", True, "application/json; charset=utf-8", "json"),
        (b"x", True, "application/vnd.thing+json", "json"),
        (b"\xff", True, "application/json", "hex"),
        (b"\x01", True, "application/msgpack", "msgpack"),
        (b"<a/>", True, "text/html", "text"),
    ],
)
def test_kind_is_guessed(value: bytes, whole: bool, said: str, kind: str) -> None:
    """The content type counts where it can be true; else the bytes are looked at."""
    assert kind == guess(value, whole, said)[0]


def test_text_cut_within_a_letter_is_text() -> None:
    """A window may end in the middle of a UTF-8 sequence, but not begin a fault earlier."""
    assert is_text("aé".encode()[:-1])
    assert not is_text(b"\xffabcdef")
    assert not is_text(b"a\x00b")
    assert not is_msgpack(b"")


def test_control_and_direction_marks_are_made_visible() -> None:
    """Nothing stored can reorder or hide what a person reads."""
    assert visible("\x00\x1b[31m\u202e\x7f") == "\u2400\u241b[31m<U+202E>\u2421"
    assert visible("a\tb\n") == "a\tb\n"
    assert to_text(b"\xff") == "\ufffd"


def test_one_line_is_short_and_flat() -> None:
    """A list shows the beginning of a value in one line; binary as hex."""
    assert one_line(b"a\n\n b") == "a b"
    assert len(one_line(b"x" * 500, 50)) == 50
    assert one_line(b"\xff\xfe")[:5] == "ff fe"
    assert one_line(None) == ""


def test_preview_of_msgpack_ends_with_its_line() -> None:
    """A list writes as many tokens as fit, however many the value has."""
    value = msgpack.packb([[1]] * 200)
    line = msgpack_line(value, 40)

    assert line is not None
    assert len(line) == 40
    assert line.startswith("[[1], [1], ")
    assert msgpack_line(msgpack.packb({"a": [2**63]}), 40) == '{"a": [9223372036854775808]}'
    assert msgpack_line(b"\xc1", 40) is None
