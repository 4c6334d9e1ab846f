"""The rule for addresses under which others are told to find a broker."""

from __future__ import annotations

from typing import Final

from tinymq.errors import InvalidRequest
from tinymq.names import valid_host

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
    if not valid_host(host) or not lowest <= port < 1 << 16:
        raise InvalidRequest(
            f"{host[:_SHOWN]!a}:{port} is no address; give the name or the number of a host, "
            f"and a port from {lowest} to 65535",
            field="host",
        )
