"""Every way to install tinymq must find the command, the plugin and the pages' files."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path
from shutil import copytree, ignore_patterns

import pytest

ROOT = Path(__file__).parents[1]

#: Run by the Python of an installation: where it finds the package and its files.
PROBE = """
import pathlib, sys, tinymq
package = pathlib.Path(tinymq.__file__).parent
inside, beside = package / "templates", package.parent / "templates"
templates = inside if inside.is_dir() else beside
print(package)
print(any(templates.rglob("*.html")), any((package / "web" / "static").rglob("*.css")))
print((package / "py.typed").exists())
"""

#: What the script ``twistd`` does; the environment has Twisted but not its scripts.
TWISTD = "from twisted.scripts.twistd import run; run()"

pytestmark = pytest.mark.process


def run(arguments: Sequence[str | Path], where: Path) -> str:
    """Run a command far from this checkout's variables and return what it printed."""
    environment = {k: v for k, v in os.environ.items() if k not in {"PYTHONPATH", "TINYMQ_LONG"}}
    ended = subprocess.run(
        [str(argument) for argument in arguments],
        cwd=where,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"{arguments}:\n{ended.stdout}{ended.stderr}"
    return ended.stdout


class Site:
    """A virtual environment that sees the packages of this one, without tinymq."""

    def __init__(self, where: Path) -> None:
        self.where = where
        venv.create(where / "venv", with_pip=False)
        self.bin = where / "venv" / "bin"
        packages = next((where / "venv" / "lib").glob("python*/site-packages"))
        # A path in a .pth file is not searched for further .pth files, so an
        # editable tinymq of the outer environment stays out of sight.
        (packages / "outer.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def install(self, *what: str | Path) -> None:
        """Install without asking any network."""
        pip = (sys.executable, "-m", "pip", "--python", self.bin / "python", "install", "--quiet")
        options = ("--no-deps", "--no-index", "--no-build-isolation", "--ignore-installed")
        run((*pip, *options, *what), self.where)

    def check(self, package: Path | None = None) -> None:
        """
        Check that everything is found, from a folder that is not a checkout.

        Args:
            package: Where the package must lie; inside the environment if not given.
        """
        empty = self.where / "empty"
        empty.mkdir()
        found, pages, typed = run((self.bin / "python", "-c", PROBE), empty).splitlines()
        assert found == str(package) if package else found.startswith(str(self.where / "venv"))
        assert pages == "True True"
        assert typed == "True"
        assert "tinymq" in run((self.bin / "tinymq", "--help"), empty)
        assert "--data" in run((self.bin / "python", "-c", TWISTD, "tinymq", "--help"), empty)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return a copy of the sources, as in an empty clone."""
    target = tmp_path / "source"
    target.mkdir()
    for name in ("tinymq", "twisted", "templates"):
        copytree(ROOT / name, target / name, ignore=ignore_patterns("__pycache__", "dropin.cache"))
    for name in ("setup.py", "pyproject.toml", "MANIFEST.in", "LICENSE", "README.md", "Makefile"):
        (target / name).write_bytes((ROOT / name).read_bytes())
    return target


@pytest.fixture
def site(tmp_path: Path) -> Site:
    """Return an environment to install into."""
    where = tmp_path / "site"
    where.mkdir()
    return Site(where)


def build(kind: str, source: Path, target: Path) -> Path:
    """Build a wheel or an sdist as pip and build do, and return its file."""
    call = f"from setuptools.build_meta import *; print(build_{kind}(sys.argv[1]))"
    printed = run((sys.executable, "-c", f"import sys; {call}", target), source)
    return target / printed.splitlines()[-1]


def test_sdist_and_wheel(source: Path, site: Site, tmp_path: Path) -> None:
    """A wheel made from the sdist carries the plugin, the templates and the static files."""
    sdist = build("sdist", source, tmp_path)
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    wheel = build("wheel", unpacked, tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "twisted/plugins/tinymq_plugin.py" in names
    assert "twisted/__init__.py" not in names
    assert "twisted/plugins/__init__.py" not in names
    assert {name.split("/")[0] for name in names if "dist-info" not in name} == {
        "tinymq",
        "twisted",
    }
    site.install(wheel)
    site.check()


def test_editable(source: Path, site: Site) -> None:
    """An editable install finds everything in the checkout, and adds nothing to it."""
    before = set(source.rglob("*.py"))
    site.install("--editable", source)
    site.check(source / "tinymq")
    assert set(source.rglob("*.py")) == before


def test_plain_checkout(source: Path) -> None:
    """Without any installation, twistd finds the plugin from within the checkout."""
    found, pages, _ = run((sys.executable, "-c", PROBE), source).splitlines()
    assert found == str(source / "tinymq")
    assert pages == "True True"
    assert "--data" in run((sys.executable, "-c", TWISTD, "tinymq", "--help"), source)


def test_version_is_written_once() -> None:
    """The version stands in tinymq/__init__.py and nowhere else."""
    assert 'dynamic = ["version"]' in (ROOT / "pyproject.toml").read_text()
    assert "version=" not in (ROOT / "setup.py").read_text()
