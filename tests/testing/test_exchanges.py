"""What publishers hear of exchanges, on the fake clock."""

from __future__ import annotations

import pytest

from tinymq.client import PartlySent, Position
from tinymq.errors import Unroutable
from tinymq.testing import InProcessBroker


def test_what_no_binding_takes() -> None:
    """It is stored, and its publisher hears where; what a binding takes is no different."""
    with InProcessBroker() as broker:
        client = broker.client()
        producer = client.producer()
        broker.create_topic("east")
        broker.run(client.admin.create_exchange("orders", "direct"))
        with pytest.raises(Unroutable) as caught:
            broker.run(producer.send("orders", b"a", key="east"))
        broker.run(client.admin.bind("orders", "east", key="east"))
        position = broker.run(producer.send("orders", b"b", key="east"))
        with pytest.raises(PartlySent) as partly:
            broker.run(producer.send_batch("orders", [b"c", b"d"], keys=["west", "east"]))
        broker.advance(5)

        assert caught.value.data["exchange"] == "orders"
        assert isinstance(position, Position)
        assert [failed.value for failed in partly.value.failed] == [b"c"]
        assert partly.value.sent.count == 1
        assert [record.value for record in broker.records("east")] == [b"b", b"d"]
        assert len(broker.records("orders")) == 4


def test_a_delayed_message_is_routed_when_it_comes() -> None:
    """The bindings of that time decide."""
    with InProcessBroker() as broker:
        client = broker.client()
        broker.create_topic("east")
        broker.run(client.admin.create_exchange("orders", "direct"))
        broker.run(client.producer().send("orders", b"a", key="east", delay=60))
        broker.run(client.admin.bind("orders", "east", key="east"))
        broker.advance(59)
        assert broker.records("east") == []
        broker.advance(5)
        assert [record.value for record in broker.records("east")] == [b"a"]
