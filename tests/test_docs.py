"""
What the documents say is run, and what they list is compared with the code.

Of README.md and docs/guide.md every ``python`` and every ``console`` block is
run, in order, against a real broker; a ``text`` block behind a ``python`` block
is its output. What cannot be the same twice is made equal on both sides: times,
and the port of the dashboard. The broker is found through ``TINYMQ_URL``, as a
reader on another port would do it. ``sh`` blocks are not run: they install
something, or start what does not end. Blocks of README.zh-CN.md are those of
README.md to the letter, so running them once is enough.

Set ``TINYMQ_WRITE_DOCS=1`` to write the tables of settings anew.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

import click
import pytest
from attrs import define, frozen

from tinymq.channelpolicy import DEFAULT_POLICY
from tinymq.cli.app import VERBS, root
from tinymq.config import DEFAULT_CONFIG, group_text
from tinymq.settings import Row
from tinymq.topicconfig import DEFAULT_TOPIC
from tinymq.verify.process import BrokerProcess

ROOT: Final = Path(__file__).parents[1]
RUN: Final = ("README.md", "docs/guide.md")
PAGES: Final = sorted(
    str(path.relative_to(ROOT)) for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"))
)

#: Seconds that one command of a document may take.
PATIENCE: Final = 60
DASHBOARD: Final = "http://127.0.0.1:7801"
RESTART: Final = "<!-- test: stop the broker and start it again -->"
BLOCK: Final = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z")


def text_of(page: str) -> str:
    """Read a document."""
    return (ROOT / page).read_text(encoding="utf-8")


@frozen
class Block:
    """
    A fenced block.

    Attributes:
        language: What stands behind the fence.
        text: What stands in it.
        place: Document and line.
        restart: Whether the broker is to be started again before it.
    """

    language: str
    text: str
    place: str
    restart: bool


def blocks_of(page: str) -> list[Block]:
    """Find the fenced blocks of a document."""
    text = text_of(page)
    found = []
    before = 0
    for match in BLOCK.finditer(text):
        line = text.count("\n", 0, match.start()) + 2
        restart = RESTART in text[before : match.start()]
        found.append(Block(match[1], match[2], f"{page}:{line}", restart))
        before = match.end()
    return found


def commands_of(block: Block) -> Iterator[tuple[str, str]]:
    """Split a ``console`` block into commands and what each prints."""
    for part in block.text.split("$ ")[1:] if block.text.startswith("$ ") else ():
        command, _, output = part.partition("\n")
        yield command, output


def same(text: str) -> str:
    """Make equal what differs from run to run."""
    return TIME.sub("TIME", text).rstrip()


@define
class Reader:
    """
    Does what a reader of the documents does.

    Attributes:
        broker: Runs while the documents are read.
        folder: Where the reader is.
    """

    broker: BrokerProcess
    folder: Path

    def environment(self) -> dict[str, str]:
        """Give the variables of the reader's shell."""
        place = os.pathsep.join((str(self.folder / "bin"), os.environ["PATH"]))
        return os.environ | {
            "PATH": place,
            "PYTHONPATH": str(ROOT),
            "TINYMQ_URL": self.broker.url,
        }

    def run(self, arguments: list[str], text: str, place: str) -> str:
        """Run a command that must end well, and return what it printed."""
        ended = subprocess.run(
            arguments,
            input=text,
            cwd=self.folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
        assert ended.returncode == 0, f"{place}: {text}\n{ended.stdout}{ended.stderr}"
        assert ended.stderr == "", place
        return ended.stdout

    def console(self, block: Block) -> None:
        """Type what stands behind each ``$`` and compare what is printed."""
        for command, printed in commands_of(block):
            found = self.run(["sh"], command.replace(DASHBOARD, self.broker.dashboard), block.place)
            assert same(found) == same(printed), f"{block.place}: {command}"

    def python(self, block: Block, following: Block | None) -> None:
        """Run a program, and compare with the block behind it."""
        found = self.run([sys.executable, "-W", "error", "-"], block.text, block.place)
        if following is not None and following.language == "text":
            assert same(found) == same(following.text), block.place


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    """Return a reader with a fresh broker and the command ``tinymq``."""
    folder = tmp_path_factory.mktemp("docs")
    command = folder / "bin" / "tinymq"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tinymq.cli "$@"\n')
    command.chmod(0o755)
    broker = BrokerProcess(folder / "data", http="tcp:0:interface=127.0.0.1")
    broker.start()
    yield Reader(broker, folder)
    broker.stop()


@pytest.mark.process
@pytest.mark.parametrize("page", RUN)
def test_examples(page: str, reader: Reader) -> None:
    """Every example does what the document says."""
    for block, following in pairwise([*blocks_of(page), None]):
        assert block is not None
        if block.restart:
            reader.broker.stop()
            reader.broker.start()
        if "curl " in block.text and shutil.which("curl") is None:
            continue
        if block.language == "console":
            reader.console(block)
        elif block.language == "python":
            reader.python(block, following)


@pytest.mark.parametrize("page", RUN)
def test_commands_can_be_read(page: str) -> None:
    """No block is passed over because of how it is written."""
    for block in blocks_of(page):
        assert block.language in {"console", "python", "text", "sh", "toml"}, block.place
        if block.language == "console":
            assert list(commands_of(block)), block.place


def anchors_of(page: str) -> set[str]:
    """Name the headings of a document as links do."""
    prose = BLOCK.sub("", text_of(page))
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES)
def test_links(page: str) -> None:
    """Every link within the repository leads somewhere, to the heading too."""
    for link in LINK.findall(BLOCK.sub("", text_of(page))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (ROOT / page).parent / name if name else ROOT / page
        assert target.exists(), f"{page}: {link}"
        if anchor:
            inside = os.path.relpath(target, ROOT)
            assert anchor in anchors_of(inside), f"{page}: {link}"


def test_index() -> None:
    """The index of docs/ leads to every page of it."""
    linked = set(LINK.findall(text_of("docs/README.md")))

    assert linked >= {path.name for path in ROOT.glob("docs/*.md")} - {"README.md"}


def test_translation() -> None:
    """The Chinese README has the parts of the English one, and its blocks to the letter."""
    english, chinese = text_of("README.md"), text_of("README.zh-CN.md")

    def shape(text: str) -> list[str]:
        return re.findall(r"^(#+) ", BLOCK.sub("", text), re.MULTILINE)

    def rows(text: str) -> int:
        return len(re.findall(r"^\|", text, re.MULTILINE))

    assert shape(chinese) == shape(english)
    assert rows(chinese) == rows(english)
    assert [block[1:] for block in without_comments(chinese)] == [
        block[1:] for block in without_comments(english)
    ]


def without_comments(text: str) -> list[tuple[int, str, str]]:
    """Find the blocks of a text, without the comments of ``sh``, which are translated."""
    return [
        (place, match[1], re.sub(r" +#.*", "", match[2]) if match[1] == "sh" else match[2])
        for place, match in enumerate(BLOCK.finditer(text))
    ]


def test_make() -> None:
    """The commands of the README are targets of the Makefile."""
    makefile = text_of("Makefile")

    for page in ("README.md", "README.zh-CN.md"):
        named = set(re.findall(r"^make (\w+)|`make (\w+)`", text_of(page), re.MULTILINE))
        named = {either or other for either, other in named}
        assert {"run", "test"} <= named
        for target in named:
            assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{page}: make {target}"


def test_verbs() -> None:
    """The guide's list of verbs is that of the command."""
    _, _, part = text_of("docs/guide.md").partition("\n## Command line\n")
    rows = re.findall(r"^\| `([\w-]+)", part.partition("\n## ")[0], re.MULTILINE)

    assert set(rows) == set(VERBS) - {"version"}


def commands_in(page: str) -> Iterator[list[str]]:
    """Find the commands of a document, in its blocks and within its lines."""
    for line in text_of(page).splitlines():
        for found in re.findall(r"(?:^|`|^\$ |\| )tinymq ([a-z][^`|\n]*)", line):
            if not line.startswith(("tinymq is ", "| ")) or f"`tinymq {found}" in line:
                yield found.split()


@pytest.mark.parametrize("page", PAGES)
def test_commands_exist(page: str) -> None:
    """Every verb that a document names is there, with the options that it is given."""
    for words in commands_in(page):
        command: click.Command = root
        left = list(words)
        while isinstance(command, click.Group) and left and re.fullmatch(r"[a-z-]+", left[0]):
            inside = command.get_command(click.Context(command), left[0])
            assert inside is not None, f"{page}: tinymq {' '.join(words)}"
            command, left = inside, left[1:]
        known = {name for each in command.params for name in (*each.opts, *each.secondary_opts)}
        for option in left if known else ():
            name = re.match(r"--[a-z][a-z-]*(?=$|=)", option)
            assert name is None or name[0] in {*known, "--help"}, f"{page}: tinymq {words}"


def cell(text: str) -> str:
    """Write a text as a cell of a table."""
    return text.replace("|", "\\|")


def broker_settings() -> str:
    """Write the tables of the broker's settings, a heading for each group."""
    lines: list[str] = []
    last = ""
    for row in DEFAULT_CONFIG.rows():
        group = row.name.partition(".")[0]
        if group != last:
            last = group
            if lines:
                lines.append("")
            lines += [f"### [{group}]", "", group_text(group), ""]
            lines += ["| setting | default | allowed | what it does |", "|---|---|---|---|"]
        lines.append(table_row(row.name, row.default, row.allowed, row.text))
    return "\n".join(lines) + "\n"


def topic_settings() -> str:
    """Write the table of a topic's settings."""
    return settings_table(DEFAULT_TOPIC.rows())


def channel_settings() -> str:
    """Write the table of a channel's settings."""
    return settings_table(DEFAULT_POLICY.rows())


def settings_table(rows: Sequence[Row]) -> str:
    """Write a table of settings."""
    lines = ["| setting | default | allowed | what it does |", "|---|---|---|---|"]
    lines += [table_row(row.name, row.default, row.allowed, row.text) for row in rows]
    return "\n".join(lines) + "\n"


def table_row(name: str, default: str, allowed: str, text: str) -> str:
    """Write one row of a table of settings."""
    shown = f"`{default}`" if default else "empty"
    return f"| `{name}` | {shown} | {cell(allowed)} | {cell(text)} |"


TABLES: Final = (
    ("docs/operations.md", "settings", broker_settings),
    ("docs/guide.md", "topic settings", topic_settings),
    ("docs/guide.md", "channel settings", channel_settings),
)


@pytest.mark.parametrize(("page", "name", "write"), TABLES, ids=[row[1] for row in TABLES])
def test_settings(page: str, name: str, write: object) -> None:
    """The tables of settings are those of the code."""
    assert callable(write)
    text = text_of(page)
    start, end = f"<!-- table: {name} -->\n\n", f"\n<!-- end of table: {name} -->"
    before, _, rest = text.partition(start)
    written, found, after = rest.partition(end)
    assert found, f"{page} has no table {name}"
    expected = write()

    if os.environ.get("TINYMQ_WRITE_DOCS"):
        (ROOT / page).write_text(before + start + expected + end + after, encoding="utf-8")
    else:
        assert written == expected
