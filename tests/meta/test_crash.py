"""What the MetaServer acknowledged survives `kill -9`."""

from __future__ import annotations

import random
import select
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import LONG
from tinymq.meta import MetaServer, Store

CHILD = """
import sys, pathlib
from tinymq.meta import MetaServer, Store
store = Store(pathlib.Path(sys.argv[1]))
server = MetaServer(store)
server.register(1, "one", ("h", 1), takeover=True)
number = len(server.registry.names)
while True:
    topic = server.create_topic(f"t{number}", 2)
    ids = server.producer_ids(3)
    print(topic.name, topic.id.hex(), ids.start, ids.stop, flush=True)
    number += 1
"""


def killed_run(file: Path, lines: int) -> list[str]:
    """Let a child create topics, kill it at once after some lines, and return all lines."""
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(file)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    ) as child:
        assert child.stdout is not None
        assert select.select([child.stdout], [], [], 30)[0]
        printed = [child.stdout.readline() for _ in range(lines)]
        child.kill()
        rest = child.stdout.read()
    return [line for line in "".join((*printed, rest)).split("\n")[:-1] if line]


@pytest.mark.process
def test_acknowledged_topics_survive_kills(file: Path, request: pytest.FixtureRequest) -> None:
    """Every topic and producer id that was acknowledged is there after each kill."""
    chance = random.Random(int(request.config.option.hypothesis_seed))
    acknowledged: dict[str, str] = {}
    spent: set[int] = set()
    for _ in range(50 if LONG else 4):
        for line in killed_run(file, chance.randrange(1, 20)):
            name, topic_id, start, stop = line.split()
            assert spent.isdisjoint(range(int(start), int(stop)))
            spent.update(range(int(start), int(stop)))
            acknowledged[name] = topic_id
        store = Store(file)
        server = MetaServer(store)
        kept = {topic.name: topic.id.hex() for topic in server.registry.topics.values()}
        assert {name: kept.get(name) for name in acknowledged} == acknowledged
        assert len(kept) <= len(acknowledged) + 2 * (50 if LONG else 4)
        store.close()
