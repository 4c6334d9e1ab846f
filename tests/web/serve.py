"""
Serves the dashboard over the fake broker: ``python -m tests.web.serve lively``.

Prints the address once it listens. Used by the browser tests and by whoever
wants to look at the pages without a broker.
"""

from __future__ import annotations

import sys
from typing import Any, cast

from twisted.internet import reactor  # noqa: TID251
from twisted.internet.address import IPv4Address
from twisted.internet.interfaces import IReactorCore, IReactorTime

from tests.web import content
from tinymq.web.config import SiteConfig
from tinymq.web.site import make_site


def main(kind: str) -> None:
    """Serve until killed."""
    console = getattr(content, kind)()
    site = make_site(console, cast(IReactorTime, reactor), SiteConfig())
    port = reactor.listenTCP(0, cast(Any, site), interface="127.0.0.1")
    address = port.getHost()
    assert isinstance(address, IPv4Address)
    print(f"http://127.0.0.1:{address.port}", flush=True)  # noqa: T201
    cast(IReactorCore, reactor).run()


if __name__ == "__main__":
    main(sys.argv[1])
