"""
Static files under names that hold their hash, so that browsers keep them.
"""

from __future__ import annotations

import gzip
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

from attrs import frozen

FOLDER: Final = Path(__file__).resolve().parent / "static"
_TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


@frozen
class Asset:
    """
    One static file.

    Attributes:
        address: Its path on the server.
        media: Its media type.
        body: Its bytes.
        packed: The same, compressed.
    """

    address: str
    media: str
    body: bytes
    packed: bytes


def _load(path: Path) -> Asset:
    body = path.read_bytes()
    mark = sha256(body).hexdigest()[:12]
    return Asset(
        address=f"/static/{path.stem}.{mark}{path.suffix}",
        media=_TYPES[path.suffix],
        body=body,
        packed=gzip.compress(body, 9, mtime=0),
    )


class Assets:
    """All static files, read once."""

    def __init__(self, folder: Path = FOLDER) -> None:
        files = [p for p in folder.rglob("*") if p.suffix in _TYPES]
        self._by_name = {path.name: _load(path) for path in sorted(files)}
        self._by_address = {asset.address: asset for asset in self._by_name.values()}

    def address(self, name: str) -> str:
        """Find the address of a file by its plain name."""
        return self._by_name[name].address

    def at(self, address: str) -> Asset | None:
        """Find a file by its address."""
        return self._by_address.get(address)


@cache
def packaged() -> Assets:
    """Load the files that come with the package."""
    return Assets()
