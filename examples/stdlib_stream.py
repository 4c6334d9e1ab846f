"""
Stream the source of Python's standard library through a topic, and prove it came through.

Every line of every ``.py`` file is a record, keyed by its file's name, over
eight partitions. One process publishes, another reads at the same time, and
a third compares: for each file, what came out must be what lies on the disk,
byte for byte and in order.

::

    python examples/stdlib_stream.py                 # with a broker of its own
    python examples/stdlib_stream.py --kill-broker   # killed in the middle, and restarted
    python examples/stdlib_stream.py --url tinymq://localhost --files 100
"""

from __future__ import annotations

import argparse
import hashlib
import json
import secrets
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tinymq.sync import Backoff, Client, ClientConfig, ConsumerConfig, ProducerConfig
from tinymq.verify.process import BrokerProcess

PARTITIONS = 8
#: Records that one call publishes.
BATCH = 5000
#: Seconds that a call may take, with a broker that is restarted meanwhile.
PATIENCE = 60.0

ROOT = Path(sysconfig.get_path("stdlib"))
EAGER = Backoff(first_s=0.02, most_s=0.2)
CLIENT = ClientConfig(backoff=EAGER, deadline_s=PATIENCE)


class Digest:
    """Hashes the lines of each file as they come."""

    def __init__(self) -> None:
        self.lines = 0
        self.size = 0
        self._files: dict[bytes, tuple[Any, int]] = {}

    def add(self, file: bytes, line: bytes) -> None:
        """Take the next line of a file."""
        digest, count = self._files.get(file) or (hashlib.sha256(), 0)
        digest.update(line)
        self._files[file] = digest, count + 1
        self.lines += 1
        self.size += len(line)

    def result(self) -> dict[str, list[Any]]:
        """Give hash and number of lines of each file."""
        return {
            file.decode(): [digest.hexdigest(), count]
            for file, (digest, count) in self._files.items()
        }


def sources(limit: int | None) -> Iterator[tuple[bytes, bytes]]:
    """Yield every line with the name of its file; the newline belongs to the line."""
    files = sorted(path for path in ROOT.rglob("*.py") if "site-packages" not in path.parts)
    for path in files[:limit]:
        name = str(path.relative_to(ROOT)).encode()
        with path.open("rb") as file:
            for line in file:
                yield name, line


# --- the three processes -----------------------------------------------------


def produce(url: str, topic: str, limit: int | None) -> None:
    """Publish everything, telling the parent how far it is."""
    digest = Digest()
    with Client(url, CLIENT) as client:
        producer = client.producer(ProducerConfig(deadline_s=PATIENCE, backoff=EAGER))
        keys: list[bytes] = []
        values: list[bytes] = []

        def send() -> None:
            producer.send_batch(topic, values, keys)
            keys.clear()
            values.clear()
            print(json.dumps({"sent": digest.lines}), flush=True)

        for name, line in sources(limit):
            digest.add(name, line)
            keys.append(name)
            values.append(line)
            if len(values) == BATCH:
                send()
        if values:
            send()
    print(json.dumps({"files": digest.result()}), flush=True)


def consume(url: str, topic: str, lines: int) -> None:
    """Read until so many records have come, and see that no more follow."""
    digest = Digest()
    with Client(url, CLIENT) as client:
        consumer = client.consumer(ConsumerConfig(deadline_s=PATIENCE, give_up_s=PATIENCE))
        consumer.assign(topic)
        while digest.lines < lines:
            take(digest, consumer.next_batch())
        take(digest, consumer.next_batch(0.5))
    print(json.dumps({"files": digest.result()}), flush=True)


def take(digest: Digest, batch: Any) -> None:
    """Hash the records of a batch."""
    if batch is not None:
        for key, value in zip(batch.keys, batch.values, strict=True):
            digest.add(key or b"", value or b"")


def child(role: str, *arguments: str) -> subprocess.Popen[str]:
    """Start this file again in another role."""
    command = [sys.executable, __file__, role, *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def compare(options: argparse.Namespace, url: str, broker: BrokerProcess | None) -> bool:
    """Run both sides and compare what came out with what lies on the disk."""
    truth = Digest()
    for name, line in sources(options.files):
        truth.add(name, line)
    topic = f"stdlib-{secrets.token_hex(4)}"
    with Client(url) as client:
        client.admin.create_topic(topic, PARTITIONS)
    limit = [] if options.files is None else [str(options.files)]
    began = time.monotonic()
    reader = child("consume", url, topic, str(truth.lines))
    writer = child("produce", url, topic, *limit)
    told = watch(writer, truth.lines // 2, broker)
    came = json.loads(reader.communicate()[0] or "{}")
    seconds = time.monotonic() - began
    with Client(url) as client:
        client.admin.delete_topic(topic)
    expected = truth.result()
    print(f"{len(expected)} files, {truth.lines} lines, {truth.size / 1e6:.1f} MB")
    print(f"{seconds:.1f} s: {truth.lines / seconds:,.0f} lines/s through {PARTITIONS} partitions")
    return check("sent", expected, told) and check("received", expected, came.get("files", {}))


def watch(writer: subprocess.Popen[str], middle: int, broker: BrokerProcess | None) -> Any:
    """Follow the writer to its end; in the middle kill the broker, if there is one to kill."""
    told: Any = {}
    assert writer.stdout is not None
    for line in writer.stdout:
        news = json.loads(line)
        told = news.get("files", told)
        if broker is not None and news.get("sent", 0) >= middle:
            broker.kill()
            broker.start()
            print(f"the broker was killed after {news['sent']} lines, and restarted")
            broker = None
    writer.wait()
    return told


def check(what: str, expected: dict[str, list[Any]], found: dict[str, list[Any]]) -> bool:
    """Say which files differ."""
    wrong = [name for name in expected if found.get(name) != expected[name]]
    strange = found.keys() - expected.keys()
    for name in wrong[:10]:
        print(f"{what}: {name} should be {expected[name]}, is {found.get(name)}")
    if not wrong and not strange:
        print(f"{what}: every file is byte for byte the same")
        return True
    print(f"{what}: {len(wrong)} files differ, {len(strange)} were never there")
    return False


def main() -> int:
    """Run the role that the command line names."""
    if sys.argv[1:2] == ["produce"]:
        produce(sys.argv[2], sys.argv[3], int(sys.argv[4]) if sys.argv[4:] else None)
        return 0
    if sys.argv[1:2] == ["consume"]:
        consume(sys.argv[2], sys.argv[3], int(sys.argv[4]))
        return 0
    parser = argparse.ArgumentParser(description="Stream the standard library through a topic.")
    parser.add_argument("--url", help="a running broker; without it one is started")
    parser.add_argument("--files", type=int, help="only the first so many files")
    parser.add_argument(
        "--kill-broker", action="store_true", help="kill the broker in the middle (its own only)"
    )
    options = parser.parse_args()
    if options.url:
        if options.kill_broker:
            parser.error("--kill-broker kills a broker of its own; leave --url away")
        return 0 if compare(options, options.url, None) else 1
    with tempfile.TemporaryDirectory(prefix="tinymq-stdlib-") as folder:
        broker = BrokerProcess(Path(folder, "data"))
        broker.start()
        try:
            same = compare(options, broker.url, broker if options.kill_broker else None)
        finally:
            broker.stop()
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
