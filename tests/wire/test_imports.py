"""The wire serves any program: it loads no Twisted."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import tinymq.wire


def test_no_twisted_is_loaded() -> None:
    """Every module of the wire is imported in a fresh process, and Twisted stays out."""
    names = [module.name for module in pkgutil.iter_modules(tinymq.wire.__path__)]
    code = "import sys\n" + "".join(f"import tinymq.wire.{name}\n" for name in names)

    done = subprocess.run(
        [sys.executable, "-c", code + "print('twisted' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == "False\n"
    assert len(names) >= 7
