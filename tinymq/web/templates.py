"""
Finds the templates, wherever the package lies.

In the source tree they are the top-level folder ``templates/``; in a wheel
they lie inside the package, as ``tinymq/templates``.
"""

from __future__ import annotations

from pathlib import Path

import tinymq


def find_templates() -> Path:
    """
    Find the folder of the Jinja2 templates.

    Raises:
        FileNotFoundError: The installation is broken; the text says where it
            was looked for.
    """
    package = Path(tinymq.__file__).resolve().parent
    places = (package / "templates", package.parent / "templates")
    for place in places:
        if (place / "shell.html").is_file():
            return place
    raise FileNotFoundError(f"no templates in {' or '.join(map(str, places))}")
