"""The plugin of pytest, found through its entry point as in an installation."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

#: Other plugins that load Twisted or attrs would hide what ours loads.
OPTIONS = ("-q", "--strict-config", "-pno:cacheprovider", "-pno:twisted", "-pno:hypothesispytest")

USED = """
def test_used(tinymq_broker):
    producer = tinymq_broker.client().producer()
    assert tinymq_broker.run(producer.send("t", b"v")).offset == 0
"""
SERVED = """
from tinymq.sync import Client

def test_served(tinymq_server):
    with Client(tinymq_server.url) as client:
        assert client.producer().send("t", b"v").offset == 0
"""
UNUSED = """
import sys

def test_unused():
    loaded = {name for name in sys.modules if name.startswith("tinymq")}
    assert loaded == {"tinymq", "tinymq.testing", "tinymq.testing.plugin"}
    assert not any(name.partition(".")[0] in {"twisted", "zope", "attr"} for name in sys.modules)
"""


def installed(where: Path) -> None:
    """Write what an installation says about tinymq, with the project's entry points."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["pytest11"]
    facts = where / "tinymq-0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: tinymq\nVersion: 0\n")
    (facts / "RECORD").write_text("tinymq/__init__.py,,\ntinymq/testing/plugin.py,,\n")
    lines = [f"{name} = {place}" for name, place in points.items()]
    (facts / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]))


@pytest.mark.process
@pytest.mark.parametrize("text", [USED, SERVED, UNUSED], ids=["used", "served", "unused"])
def test_entry_point(text: str, tmp_path: Path) -> None:
    """The fixture is there without an import, and costs nothing where nobody asks for it."""
    installed(tmp_path)
    (tmp_path / "test_it.py").write_text(text)

    ended = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", *OPTIONS, "test_it.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout
