"""Relays and business processes are killed at every step; what was committed arrives once."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import tinymq
from tests.conftest import LONG
from tests.patterns.conftest import Base
from tests.patterns.outbox_kills import KEYS
from tinymq.sync import Client
from tinymq.topicconfig import TopicConfig
from tinymq.verify.process import BrokerProcess

pytestmark = pytest.mark.process

ROOT = Path(tinymq.__file__).parent.parent
ROUNDS = 300 if LONG else 5
#: Whether topics know ids again; without that a message may come twice, never not at all.
DEDUP = any(field.name == "dedup_ms" for field in TopicConfig.__attrs_attrs__)


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a running broker."""
    with BrokerProcess(tmp_path_factory.mktemp("kills") / "data") as broker:
        yield broker.url


def test_killed_at_every_step(base: Base, url: str) -> None:
    """Every committed message is in the topic exactly once, in order of its key, and none else."""
    seed = random.SystemRandom().randrange(2**32)
    topic = f"kills-{base.dialect.name}"
    with Client(url) as client:
        settings = {"dedup.ms": 600_000} if DEDUP else {}
        client.admin.create_topic(topic, 3, config=settings)
        done = subprocess.run(
            [
                *(sys.executable, "-W", "error", "-m", "tests.patterns.outbox_kills"),
                *(base.dsn, url, topic, str(seed), str(ROUNDS)),
            ],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60 + ROUNDS,
            check=False,
        )
        assert done.returncode == 0, f"seed {seed}: {done.stderr}"
        found = json.loads(done.stdout)
        came = read(client, topic, 3)

    assert (found["left"], found["parked"]) == (0, 0), seed
    assert sorted({*came}) == found["work"], seed
    if DEDUP:
        assert [number for number, count in Counter(came).items() if count > 1] == [], seed
        for place, key in enumerate(KEYS[:2]):
            of_key = [number for number in came if number % len(KEYS) == place]
            assert of_key == sorted(of_key), (seed, key)


def read(client: Client, topic: str, partitions: int) -> list[int]:
    """Read a topic to its end, behind which one more record is put for that."""
    with client.producer() as producer:
        for number in range(partitions):
            producer.send(topic, b"end", partition=number)
    consumer = client.consumer()
    consumer.assign(topic)
    came: list[bytes | None] = []
    while came.count(b"end") < partitions:
        batch = consumer.next_batch(timeout=20)
        assert batch is not None
        came += batch.values
    consumer.close()
    return [int(value or b"") for value in came if value != b"end"]
