"""The blocking producer of transactions, against a puppet on a socket."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.client.transactions.banker import Banker
from tests.sync.server import Server
from tinymq.errors import ClosedError, ProducerFenced, TransactionAborted, UsageError
from tinymq.sync import Client, ProducerConfig, TransactionalProducer


@pytest.fixture
def server() -> Iterator[Server]:
    """Return a coordinator on a socket."""
    banker = Banker()
    banker.make("t")
    with Server(banker) as server:
        yield server


def banker(server: Server) -> Banker:
    """The puppet behind it."""
    assert isinstance(server.puppet, Banker)
    return server.puppet


def fail(producer: TransactionalProducer) -> None:
    """Raise something in a block."""
    with producer.transaction() as tx:
        tx.send("t", b"z")
        tx.flush()
        raise ZeroDivisionError


def test_blocks(server: Server) -> None:
    """A block is committed at its end; an exception aborts it and comes out."""
    with Client(server.url) as client, client.transactional("one") as producer:
        with producer.transaction() as tx:
            for number in range(100):
                tx.send("t", b"%d" % number)
            tx.send_batch("t", [b"x", b"y"], ids=["1", None])
            tx.flush()
        assert tx.committed
        with pytest.raises(ZeroDivisionError):
            fail(producer)
        tx = producer.begin()
        tx.send("t", b"open")
        with pytest.raises(UsageError, match="is open"):
            producer.begin()
    assert producer.name == "one"
    with server.lock:
        assert [commit for _, commit in banker(server).ended] == [True, False]
        assert len(banker(server).topics["t"].logs[0].headers) < 10
    with pytest.raises(ClosedError):
        producer.begin()


def test_ends(server: Server) -> None:
    """What the coordinator says comes out of the block, or of the call."""
    with Client(server.url) as client:
        producer = client.transactional("one", timeout_s=5)
        tx = producer.begin()
        tx.send("t", b"a")
        tx.flush()
        with server.lock:
            banker(server).aborts.add((16, 0))
        with pytest.raises(TransactionAborted):
            tx.commit()
        with producer.transaction() as tx:
            tx.send("t", b"a")
        other = client.transactional("one")
        with other.transaction() as tx:
            tx.send("t", b"b")
        with pytest.raises(ProducerFenced), producer.transaction() as tx:
            tx.send("t", b"c")
        assert producer.fenced
        assert not other.fenced


def test_full(server: Server) -> None:
    """A transaction that is larger than the buffer waits for answers."""
    config = ProducerConfig(buffer_bytes=10_000)
    with Client(server.url) as client, client.transactional("one", config) as producer:
        with producer.transaction() as tx:
            for _ in range(100):
                tx.send("t", b"x" * 1000)
        assert tx.committed
    with server.lock:
        assert len(banker(server).values("t")) == 100
