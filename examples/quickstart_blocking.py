"""
Publish three records and read them back, with the blocking client.

Start a broker first (``make run``), then::

    python examples/quickstart_blocking.py [tinymq://HOST:PORT]
"""

from __future__ import annotations

import sys

from tinymq.errors import TinyMQError
from tinymq.sync import Client


def main() -> None:
    """Publish, then read."""
    url = sys.argv[1] if len(sys.argv) > 1 else None
    with Client(url) as client:
        producer = client.producer()
        first = producer.send("greetings", b"hello", key=b"en")
        producer.send("greetings", b"bonjour", key=b"fr", headers=[("from", b"Paris")])
        producer.send("greetings", b"hallo", key=b"de")
        print(f"published, the first one at {first.partition}@{first.offset}")

        consumer = client.consumer()
        consumer.assign("greetings", [first.partition], start=first.offset)
        left = 3
        for batch in consumer:
            for record in batch:
                print(f"{batch.partition}@{record.offset}  {record.key!r}: {record.value!r}")
            left -= len(batch)
            if left <= 0:
                break


if __name__ == "__main__":
    try:
        main()
    except TinyMQError as error:
        sys.exit(f"error: {error}")
