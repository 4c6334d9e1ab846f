"""Whatever is sent to the operations over HTTP is answered, and never with 500."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fakes.broker import BrokerFixture
from tests.web.client import Client
from tinymq.catalog import PUBLIC
from tinymq.console import BrokerConsole
from tinymq.operation import Operation
from tinymq.web.routes import ROUTES

#: All but the one that waits.
OPERATIONS = [each for each in PUBLIC.values() if each.name != "cluster.watch"]

_TEXTS = st.text(max_size=8) | st.sampled_from(["t", "1", "\0", "\ud800", "é" * 300, "sync", ""])
_LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from([2**63 - 1, 2**63, -1, 0, 1, 10**30])
    | _TEXTS
)
VALUES = st.recursive(
    _LEAVES,
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(_TEXTS, inside, max_size=3),
    max_leaves=5,
)


@pytest.fixture
def client(tmp_path: Path) -> Client:
    """Return a client of a broker with a topic."""
    fixture = BrokerFixture(tmp_path / "data")
    fixture.topic("t", storage="memory")
    fixture.connect()
    console = BrokerConsole(fixture.broker, fixture.operations, fixture.node, fixture.nodes)
    return Client(cast("Any", console))


def segment(text: str) -> str:
    """Write text as a part of an address, which no surrogate can be."""
    return quote(text.encode("utf-8", "replace"), safe="") or "t"


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda each: each.name)
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_nothing_breaks_an_operation(
    client: Client, operation: Operation, data: st.DataObject
) -> None:
    """Any values for any parameters are taken or refused with a reason."""
    route = ROUTES[operation.name]
    path = route.path
    for each in route.in_path:
        path = path.replace(f"{{{each.name}}}", segment(data.draw(_TEXTS)))
    names = st.sampled_from([*(each.name for each in operation.parameters), "dry_run", "?"])
    query = data.draw(st.dictionaries(names, _TEXTS, max_size=3))
    path += "?" + "&".join(f"{segment(name)}={segment(text)}" for name, text in query.items())
    body = json.dumps(data.draw(st.dictionaries(names, VALUES, max_size=3))).encode()
    reply = client.send(route.method, path, body)
    assert reply.status < 500 or (reply.status == 503 and operation.name == "broker.log_level")
    if reply.headers["content-type"].startswith("text/plain"):  # no such address
        assert reply.status == 404
    elif reply.status >= 400:
        assert json.loads(reply.body)["detail"]
    else:
        assert set(json.loads(reply.body)) == set(operation.result)
