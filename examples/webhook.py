"""
Have a broker call a web server for each message, and make sure that it was the broker.

A broker runs inside this program, so nothing has to be started; with one of your own the
same is done by ``tinymq push set orders shop http://...``. The receiver checks signatures,
is out of order for its first three requests, and sees each order in the end::

    python examples/webhook.py
"""

from __future__ import annotations

import tempfile
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.task import react
from twisted.web.resource import Resource
from twisted.web.server import Request, Site

from tinymq.client import Client
from tinymq.embedded import EmbeddedBroker
from tinymq.webhook import VerificationError, verify

ORDERS = (b"tea", b"milk", b"sugar")
#: Requests that are answered with 503.
BROKEN = 3


class Receiver(Resource):
    """
    A small web server that gets orders.

    Args:
        secret: What the broker signs with.
    """

    isLeaf = True  # noqa: N815 - Twisted's name

    def __init__(self, secret: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.done: Deferred[None] = Deferred()
        self._secret = secret
        self._refused = 0
        #: A message may come twice, when an answer was lost: its id tells.
        self._seen: dict[str, bytes] = {}

    def render_POST(self, request: Request) -> bytes:  # noqa: N802 - Twisted's name
        """Take an order; a status from 200 to 299 says that it need not come again."""
        body = request.content.read() if request.content else b""
        try:
            delivery = verify(dict(request.requestHeaders.getAllRawHeaders()), body, self._secret)
        except VerificationError as error:
            request.setResponseCode(401)
            return str(error).encode()
        if self._refused < BROKEN:
            self._refused += 1
            request.setResponseCode(503)
            return b"out of order"
        self._seen[delivery.id] = body
        if len(self._seen) == len(ORDERS) and not self.done.called:
            for name, order in sorted(self._seen.items()):
                print(f"{name}: {order.decode()}")
            self.done.callback(None)
        return b""


async def run(reactor: Any) -> None:
    """Set an endpoint, publish, and wait until every order has arrived."""
    with tempfile.TemporaryDirectory() as folder:
        # This machine itself is no place to send to, unless the broker's owner says so.
        broker = EmbeddedBroker(reactor, folder, push__allow=("127.0.0.1",))
        broker.start()
        client = Client(reactor, broker.url)
        await client.admin.create_topic("orders")
        await client.admin.create_channel("orders", "shop", {"backoff": ["200ms"]})

        secret = "whsec_" + "c2VjcmV0IG9mIHRoaXMgZXhhbXBsZQ=="
        receiver = Receiver(secret)
        site = Site(receiver)  # type: ignore[no-untyped-call]
        site.noisy = False
        port = reactor.listenTCP(0, site, interface="127.0.0.1")
        url = f"http://127.0.0.1:{port.getHost().port}/orders"
        await client.admin.set_push("orders", "shop", url, secret=secret)

        producer = client.producer()
        for order in ORDERS:
            await producer.send("orders", order)
        await receiver.done

        told = (await client.admin.push("orders", "shop"))["endpoint"]
        print(f"{told['failed']} requests failed, the last with: {told['last_error']}")
        await client.close()
        await broker.stop()
        await port.stopListening()


def main(reactor: Any) -> Deferred[None]:
    """Run on Twisted's reactor."""
    return Deferred.fromCoroutine(run(reactor))


if __name__ == "__main__":
    react(main)
