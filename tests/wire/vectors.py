"""
The golden vectors in vectors.json, which other languages may use as well.

In the JSON file bytes are strings that begin with ``hex:``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

PREFIX: Final = "hex:"


def from_json(value: Any) -> Any:
    """Turn what JSON can say into what msgpack can say."""
    if isinstance(value, str) and value.startswith(PREFIX):
        return bytes.fromhex(value.removeprefix(PREFIX))
    if isinstance(value, list):
        return [from_json(item) for item in value]
    if isinstance(value, dict):
        return {key: from_json(item) for key, item in value.items()}
    return value


def load() -> dict[str, list[dict[str, Any]]]:
    """Read the file; every value is ready for use."""
    text = Path(__file__).with_name("vectors.json").read_text(encoding="utf-8")
    return {
        part: [from_json(row) for row in rows]
        for part, rows in json.loads(text).items()
        if part != "about"
    }


VECTORS: Final = load()
