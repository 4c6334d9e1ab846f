"""The rule for addresses under which others are told to find a broker."""

from __future__ import annotations

from typing import Final

from tinymq.errors import InvalidRequest

_MOST_HOST: Final = 255
_SHOWN: Final = 40


def check_address(host: str, port: int, lowest: int = 1) -> None:
    """
    Make sure that an address can be one.

    Args:
        host: A name or a number.
        port: The port.
        lowest: The lowest port.

    Raises:
        InvalidRequest: It cannot.
    """
    if not 0 < len(host) <= _MOST_HOST or not lowest <= port < 1 << 16:
        raise InvalidRequest(
            f"{host[:_SHOWN]!a}:{port} is no address; give a host of at most {_MOST_HOST} "
            f"characters, and a port from {lowest} to 65535",
            field="host",
        )
