"""
Make thumbnails: slow, blocking work in a pool of threads, whose leases are renewed meanwhile.

A picture takes longer than the channel's lease, and yet no other worker gets it::

    python examples/thumbnails.py                      # with a broker of its own
    python examples/thumbnails.py --url tinymq://HOST  # with one that runs
"""

from __future__ import annotations

import argparse
import struct
import tempfile
import time
import zlib
from pathlib import Path
from threading import Semaphore, Thread

from tinymq.sync import Client, Message, SubscriptionConfig
from tinymq.testing import BrokerProcess

TOPIC, CHANNEL = "pictures", "thumbnails"
COUNT, SIZE, SMALL = 6, 64, 16


def picture(number: int) -> bytes:
    """Paint a picture, as PPM: a header, then three bytes for each pixel."""
    pixels = bytes(
        value % 256
        for y in range(SIZE)
        for x in range(SIZE)
        for value in (x * 4, y * 4, number * 40)
    )
    return b"P6 %d %d 255\n" % (SIZE, SIZE) + pixels


def shrink(ppm: bytes) -> bytes:
    """Make a small PNG of a PPM picture."""
    header, _, pixels = ppm.partition(b"\n")
    width, height = map(int, header.split()[1:3])
    step = width // SMALL
    rows = [
        b"\0" + b"".join(pixels[(y * width + x) * 3 :][:3] for x in range(0, width, step))
        for y in range(0, height, step)
    ]
    facts = struct.pack(">IIBBBBB", SMALL, len(rows), 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", facts), (b"IDAT", zlib.compress(b"".join(rows))), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )


def main(url: str, folder: Path, lease_s: float) -> None:
    """Publish pictures, and shrink each of them once."""
    done = Semaphore(0)

    def work(message: Message) -> None:
        time.sleep(lease_s * 2)  # the slow part; whatever it is, the lease is renewed
        small = shrink(message.value or b"")
        (folder / f"{message.offset}.png").write_bytes(small)
        told = f"picture {message.offset}: {len(small)} bytes, attempt {message.attempt}\n"
        print(told, end="")  # in one piece: several threads print
        message.finish()
        done.release()

    with Client(url) as client:
        client.producer().send_batch(TOPIC, [picture(number) for number in range(COUNT)])
        client.admin.create_channel(TOPIC, CHANNEL, config={"lease.ms": round(lease_s * 1000)})
        # No more are taken than there are threads, so that other workers get the rest.
        subscription = client.subscription(TOPIC, CHANNEL, SubscriptionConfig(max_in_flight=3))
        worker = Thread(target=subscription.run, args=(work,), kwargs={"concurrency": 3})
        worker.start()
        for _ in range(COUNT):
            done.acquire()
        subscription.close(within_s=5)
        worker.join()
    print(f"{len(list(folder.glob('*.png')))} thumbnails")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Make thumbnails in threads.")
    parser.add_argument("--url", help="a running broker; without it one is started")
    parser.add_argument("--fast", action="store_true", help="short leases and quick work")
    options = parser.parse_args()
    seconds = 0.2 if options.fast else 1.0
    with tempfile.TemporaryDirectory() as place:
        if options.url:
            main(options.url, Path(place), seconds)
        else:
            with BrokerProcess(Path(place, "data")) as broker:
                main(broker.url, Path(place), seconds)
