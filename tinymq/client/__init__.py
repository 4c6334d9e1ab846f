"""
The client with Deferreds.

::

    client = Client(reactor, "tinymq://127.0.0.1")
    producer = client.producer()
    position = await producer.send("orders", b"one")

Importing this package loads Twisted only when one of the classes that need it
is asked for: `tinymq.client.core` and `tinymq.sync` work without it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from tinymq.client.core.address import DEFAULT_URL
from tinymq.client.core.config import (
    Backoff,
    ClientConfig,
    ConsumerConfig,
    LookupConfig,
    ProducerConfig,
    SubscriptionConfig,
)
from tinymq.client.core.delivered import ConsumerBatch
from tinymq.client.core.directory import Node
from tinymq.client.core.group.handed import GroupBatch, GroupMessage
from tinymq.client.core.group.positions import CommittedPosition
from tinymq.client.core.group.settings import GroupConfig, GroupMember, Share
from tinymq.client.core.handling import Reject, Requeue
from tinymq.client.core.metadata import TopicInfo
from tinymq.client.core.results import Account, Delayed, Failed, PartlySent, Position, Sent
from tinymq.client.core.starts import EARLIEST, LATEST, At, Mark
from tinymq.client.core.transactions.transforming import Out

if TYPE_CHECKING:
    from tinymq.client.admin import Admin
    from tinymq.client.client import Client
    from tinymq.client.consumer import Consumer
    from tinymq.client.group import GroupConsumer
    from tinymq.client.lookup import Lookup
    from tinymq.client.lookup_consumer import LookupConsumer
    from tinymq.client.lookup_producer import LookupProducer, Stored
    from tinymq.client.lookup_subscription import LookupSubscription
    from tinymq.client.positions import Positions
    from tinymq.client.producer import Producer
    from tinymq.client.subscription import Message, MessageBatch, Subscription
    from tinymq.client.transactional import Transaction, TransactionalProducer

_LAZY: Final = {
    "Admin": "tinymq.client.admin",
    "Client": "tinymq.client.client",
    "Consumer": "tinymq.client.consumer",
    "GroupConsumer": "tinymq.client.group",
    "Lookup": "tinymq.client.lookup",
    "LookupConsumer": "tinymq.client.lookup_consumer",
    "LookupProducer": "tinymq.client.lookup_producer",
    "LookupSubscription": "tinymq.client.lookup_subscription",
    "Message": "tinymq.client.subscription",
    "MessageBatch": "tinymq.client.subscription",
    "Positions": "tinymq.client.positions",
    "Producer": "tinymq.client.producer",
    "Stored": "tinymq.client.lookup_producer",
    "Subscription": "tinymq.client.subscription",
    "Transaction": "tinymq.client.transactional",
    "TransactionalProducer": "tinymq.client.transactional",
}

__all__ = [
    "DEFAULT_URL",
    "EARLIEST",
    "LATEST",
    "Account",
    "Admin",
    "At",
    "Backoff",
    "Client",
    "ClientConfig",
    "CommittedPosition",
    "Consumer",
    "ConsumerBatch",
    "ConsumerConfig",
    "Delayed",
    "Failed",
    "GroupBatch",
    "GroupConfig",
    "GroupConsumer",
    "GroupMember",
    "GroupMessage",
    "Lookup",
    "LookupConfig",
    "LookupConsumer",
    "LookupProducer",
    "LookupSubscription",
    "Mark",
    "Message",
    "MessageBatch",
    "Node",
    "Out",
    "PartlySent",
    "Position",
    "Positions",
    "Producer",
    "ProducerConfig",
    "Reject",
    "Requeue",
    "Sent",
    "Share",
    "Stored",
    "Subscription",
    "SubscriptionConfig",
    "TopicInfo",
    "Transaction",
    "TransactionalProducer",
]


def __getattr__(name: str) -> Any:
    place = _LAZY.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(place), name)
    globals()[name] = found
    return found
