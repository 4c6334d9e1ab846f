"""
A web application that publishes, and works on what was published, in one process.

It is plain ASGI, so that nothing needs to be installed; `lifespan` and the two
handlers look the same in FastAPI or Starlette. Start a broker first
(``make run``), then let a server run it::

    TINYMQ_URL=tinymq://127.0.0.1 uvicorn --app-dir examples asgi_app:app

or let it serve a few requests to itself::

    python examples/asgi_app.py [tinymq://HOST:PORT]
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from tinymq.aio import LATEST, Client, Producer
from tinymq.errors import TinyMQError

Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class Shop:
    """
    Takes orders by HTTP and packs them in the background.

    Args:
        url: Of the broker.
    """

    producer: Producer

    def __init__(self, url: str | None = None) -> None:
        self.url = url
        self.packed: list[str] = []
        self.news = asyncio.Event()

    @contextlib.asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """Open the client in the server's loop, and close it when the server stops."""
        async with Client(self.url) as client, client.producer() as self.producer:
            consumer = client.consumer()
            await client.metadata(["shop.orders"], create=True)
            await consumer.assign("shop.orders", start=LATEST)

            async def pack() -> None:
                async for batch in consumer:
                    self.packed += [record.value.decode() for record in batch if record.value]
                    self.news.set()

            packing = asyncio.create_task(pack())
            yield
            await self.producer.flush()
            await consumer.close()  # ends the `async for`
            await packing

    async def order(self, body: bytes) -> dict[str, Any]:
        """Answer when the order is on the broker's disk."""
        position = await self.producer.send("shop.orders", body)
        return {"partition": position.partition, "offset": position.offset}

    async def list_packed(self) -> dict[str, Any]:
        """List what was packed so far."""
        return {"packed": self.packed}

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Serve one request, or the life of the server, as ASGI has it."""
        if scope["type"] == "lifespan":
            await receive()
            async with self.lifespan():
                await send({"type": "lifespan.startup.complete"})
                await receive()
            await send({"type": "lifespan.shutdown.complete"})
            return
        body = b""
        more = True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        answer = await (self.order(body) if scope["method"] == "POST" else self.list_packed())
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(answer).encode()})


app = Shop()


async def request(shop: Shop, method: str, body: bytes = b"") -> dict[str, Any]:
    """Do one request, as a server would pass it on."""
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    await shop({"type": "http", "method": method, "path": "/orders"}, receive, send)
    answer: dict[str, Any] = json.loads(sent[-1]["body"])
    return answer


async def main() -> None:
    """Serve four requests to itself."""
    shop = Shop(sys.argv[1] if len(sys.argv) > 1 else None)
    async with shop.lifespan():
        orders = [b"tea", b"milk", b"sugar"]
        answers = await asyncio.gather(*[request(shop, "POST", order) for order in orders])
        print("stored at", [answer["offset"] for answer in answers])
        while len(shop.packed) < len(orders):
            shop.news.clear()
            await shop.news.wait()
        print(await request(shop, "GET"))


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except TinyMQError as error:
        sys.exit(f"error: {error}")
