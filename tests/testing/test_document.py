"""What docs/testing.md shows is run: every block, every test in it."""

from __future__ import annotations

import contextlib
import inspect
import re
import unittest
from pathlib import Path
from typing import Any, Final

import pytest

from tinymq.testing import BrokerProcess, InProcessBroker

PAGE: Final = Path(__file__).parents[2] / "docs" / "testing.md"
BLOCK: Final = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TEXT: Final = PAGE.read_text(encoding="utf-8")
TABLE: Final = re.compile(r"^\| (`[^|]+) \|", re.MULTILINE)


def run(test: Any, folder: Path) -> None:
    """Call a test function, once for each of its parameters, with fresh brokers."""
    marks = getattr(test, "pytestmark", [])
    cases = [{mark.args[0]: value} for mark in marks for value in mark.args[1]] or [{}]
    names = inspect.signature(test).parameters
    for case in cases:
        with InProcessBroker() as broker, contextlib.ExitStack() as stack:
            fixtures = {"tinymq_broker": broker} | case
            if "tinymq_server" in names:
                fixtures["tinymq_server"] = stack.enter_context(BrokerProcess(folder / "data"))
            test(*(fixtures[name] for name in names))


@pytest.mark.process
@pytest.mark.parametrize("text", BLOCK.findall(TEXT), ids=range(len(BLOCK.findall(TEXT))))
def test_block(text: str, tmp_path: Path) -> None:
    """The block runs, and its tests pass."""
    names: dict[str, Any] = {"__name__": "document"}
    exec(compile(text, str(PAGE), "exec"), names)
    tests = [each for name, each in names.items() if name.startswith("test_")]
    for test in tests:
        run(test, tmp_path)
    for case in names.values():
        if isinstance(case, type) and issubclass(case, unittest.TestCase):
            suite = unittest.defaultTestLoader.loadTestsFromTestCase(case)
            result = unittest.TestResult()
            suite.run(result)
            assert result.testsRun
            assert not result.errors + result.failures
    assert "def test_" in text or "with InProcessBroker" in text or "with BrokerProcess" in text


def test_every_power_is_described() -> None:
    """Each public name of the broker stands in the document, and no other."""
    public = {name for name in dir(InProcessBroker) if not name.startswith("_")}
    with InProcessBroker() as broker:
        public |= {name for name in vars(broker) if not name.startswith("_")}
    named = {
        name for row in TABLE.findall(TEXT) for name in re.findall(r"`(\w+)", row) if name != "n"
    }

    assert named <= public
    assert {name for name in public if not re.search(rf"\b{name}\b", TEXT)} <= {"url"}
