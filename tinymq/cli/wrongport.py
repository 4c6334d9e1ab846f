"""Who answers where no broker does: perhaps a dashboard, which knows where the broker is."""

from __future__ import annotations

import json
from typing import Any, Final

from tinymq.cli.failure import UNREACHABLE, Failed
from tinymq.errors import ConfigError

#: Seconds that a dashboard may take to answer.
_PATIENCE_S: Final = 2.0
#: Most bytes of its answer that are read.
_LONGEST: Final = 1 << 20
#: Where it tells of its brokers.
_PATH: Final = "/api/v1/cluster"


def explain(url: str) -> Failed | None:
    """
    Find out whether the port of a URL is that of a web server.

    Args:
        url: Where no broker answered.

    Returns:
        What to tell instead; None when nobody speaks HTTP there.
    """
    import http.client  # noqa: PLC0415 - only after a failure

    from tinymq.client.core.address import parse_url  # noqa: PLC0415

    try:
        host, port = parse_url(url)[0]
    except ConfigError:
        return None
    connection = http.client.HTTPConnection(host, port, timeout=_PATIENCE_S)
    try:
        connection.request("GET", _PATH)
        answer = connection.getresponse()
        where = _listening(answer.read(_LONGEST) if answer.status == 200 else b"")
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
    if where is None:
        return Failed(
            f"{host}:{port} is a web server, no broker",
            "the broker's own port is 7800 unless it was given another with --listen",
            UNREACHABLE,
        )
    return Failed(
        f"{host}:{port} is the dashboard; clients connect to {where}",
        f"--url {where}",
        UNREACHABLE,
    )


def _listening(body: bytes) -> str | None:
    """Find in a dashboard's answer where a broker listens."""
    try:
        found: Any = json.loads(body)
        listen = found["brokers"][0]["listen"]
    except (ValueError, KeyError, IndexError, TypeError):
        return None
    return listen if isinstance(listen, str) else None
