"""
Serves the dashboard over the fake broker: ``python -m tests.web.serve lively``.

Prints the address once it listens. Used by the browser tests and by whoever
wants to look at the pages without a broker.
"""

from __future__ import annotations

import sys

from twisted.internet import reactor  # noqa: TID251

from tests.web import content
from tinymq.web.config import WebConfig
from tinymq.web.site import make_site


def main(kind: str) -> None:
    """Serve until killed."""
    console = getattr(content, kind)()
    site = make_site(console, reactor, WebConfig())  # type: ignore[arg-type]
    port = reactor.listenTCP(0, site, interface="127.0.0.1")  # type: ignore[attr-defined]
    print(f"http://127.0.0.1:{port.getHost().port}", flush=True)  # noqa: T201
    reactor.run()  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(sys.argv[1])
