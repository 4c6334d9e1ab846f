"""The example of delays by time to live, with hours in place of seconds and nothing to wait for."""

from __future__ import annotations

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import tinymq
from tinymq.testing import InProcessBroker

HOUR = 3600


def load() -> ModuleType:
    """Import the example."""
    path = Path(tinymq.__file__).parent.parent / "examples" / "ttl_and_dead_letter.py"
    spec = spec_from_file_location("ttl_and_dead_letter", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_hours() -> None:
    """Nothing comes early, also when nobody looks and the broker is started anew meanwhile."""
    example = load()

    async def until(broker: InProcessBroker, count: int) -> list[str]:
        async with broker.asyncio_client() as client:
            found: list[str] = await example.cancel_unpaid(client, count)
        return found

    async def publish(broker: InProcessBroker) -> None:
        async with broker.asyncio_client() as client:
            await example.prepare(client, 3 * HOUR)
            await example.order(client, 1)
            await example.order(client, 2, wait_s=HOUR)

    with InProcessBroker() as broker:
        broker.run_asyncio(publish(broker))
        broker.jump(minutes=59)
        early = broker.records(example.DUE)
        broker.jump(minutes=2)
        one = [record.value for record in broker.records(example.DUE)]
        broker.kill()
        broker.restart()
        broker.jump(hours=2)
        two = [record.value for record in broker.records(example.DUE)]
        found = broker.run_asyncio(until(broker, 2))

    assert early == []
    assert one == [b"order 2"]
    assert two == [b"order 2", b"order 1"]
    assert sorted(found) == ["order 1", "order 2"]
