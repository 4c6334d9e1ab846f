"""
A web application with blocking views, as in Django or Flask, that publishes.

It is plain WSGI, so that nothing needs to be installed; `Pool` and the body of
`order` look the same in a Django project, with ``pool = Pool()`` in a module that
the views import. Start a broker first (``make run``), then::

    TINYMQ_URL=tinymq://127.0.0.1 gunicorn --chdir examples --threads 8 wsgi_app:app

or let it serve a few requests to itself::

    python examples/wsgi_app.py [tinymq://HOST:PORT]
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import Any

from tinymq.errors import TinyMQError
from tinymq.sync import Client, Producer, ProducerConfig


class Pool:
    """
    Producers for as many requests as are served at the same time.

    A blocking client serves one thread at a time, and does not survive a fork: a
    server that loads the application and forks afterwards (``gunicorn --preload``,
    uWSGI, Celery) needs new ones in each worker. Nothing is connected before the
    first request, and what a parent had connected is forgotten in its children.

    Args:
        url: Of the broker.
        deadline_s: How long a customer waits at most.
    """

    def __init__(self, url: str | None = None, deadline_s: float = 5) -> None:
        self.url = url
        self.config = ProducerConfig(deadline_s=deadline_s)
        self._idle: list[tuple[Client, Producer]] = []
        os.register_at_fork(after_in_child=self._idle.clear)

    @contextlib.contextmanager
    def producer(self) -> Iterator[Producer]:
        """Lend a producer that no other thread has."""
        try:
            client, producer = self._idle.pop()
        except IndexError:
            client = Client(self.url)
            producer = client.producer(self.config)
        try:
            yield producer
        finally:
            self._idle.append((client, producer))

    def close(self) -> None:
        """Close what is idle, when the process ends."""
        while self._idle:
            self._idle.pop()[0].close()


class Shop:
    """
    Takes orders by HTTP.

    Args:
        pool: Has the producers.
    """

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    def order(self, body: bytes) -> dict[str, Any]:
        """Answer when the order is on the broker's disk."""
        with self.pool.producer() as producer:
            position = producer.send("shop.slips", body)
        return {"partition": position.partition, "offset": position.offset}

    def __call__(
        self, environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        """Serve one request, as WSGI has it."""
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        status, answer = "200 OK", {}
        try:
            answer = self.order(body)
        except TinyMQError as error:  # it may not be stored, and the customer is told
            status, answer = "503 Service Unavailable", {"error": str(error)}
        start_response(status, [("Content-Type", "application/json")])
        return [json.dumps(answer).encode()]


app = Shop(Pool())


def request(shop: Shop, body: bytes) -> dict[str, Any]:
    """Do one request, as a server would pass it on."""
    environ = {"CONTENT_LENGTH": str(len(body)), "wsgi.input": BytesIO(body)}
    answer: dict[str, Any] = json.loads(b"".join(shop(environ, lambda status, headers: None)))
    if "error" in answer:
        sys.exit(f"error: {answer['error']}")
    return answer


def main() -> None:
    """Serve requests in threads, and then in a worker that is forked."""
    shop = Shop(Pool(sys.argv[1] if len(sys.argv) > 1 else None))
    orders = [b"tea", b"milk", b"sugar", b"salt"]
    with ThreadPoolExecutor(2) as threads:
        answers = list(threads.map(lambda order: request(shop, order), orders))
    print("stored at", sorted(answer["offset"] for answer in answers), flush=True)
    worker = os.fork()
    if not worker:
        print("the worker stored at", request(shop, b"rice")["offset"], flush=True)
        shop.pool.close()
        os._exit(0)
    os.waitpid(worker, 0)
    print("and the parent at", request(shop, b"oil")["offset"])
    shop.pool.close()


if __name__ == "__main__":
    main()
