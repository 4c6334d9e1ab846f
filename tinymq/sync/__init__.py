"""
The blocking client, on sockets of its own: no reactor, no thread.

::

    with Client("tinymq://127.0.0.1") as client:
        position = client.producer().send("orders", b"one")
"""

from __future__ import annotations

from tinymq.client.core.address import DEFAULT_URL
from tinymq.client.core.config import (
    Backoff,
    ClientConfig,
    ConsumerConfig,
    ProducerConfig,
    SubscriptionConfig,
)
from tinymq.client.core.delivered import ConsumerBatch
from tinymq.client.core.group.handed import GroupBatch, GroupMessage
from tinymq.client.core.group.positions import CommittedPosition
from tinymq.client.core.group.settings import GroupConfig, GroupMember, Share
from tinymq.client.core.handling import Reject, Requeue
from tinymq.client.core.metadata import TopicInfo
from tinymq.client.core.offsets import Survey
from tinymq.client.core.results import Account, Delayed, Failed, PartlySent, Position, Sent
from tinymq.client.core.starts import EARLIEST, LATEST, At, Mark
from tinymq.client.core.transactions.transforming import Out
from tinymq.sync.client import Admin, Client
from tinymq.sync.consumer import Consumer
from tinymq.sync.group import GroupConsumer
from tinymq.sync.positions import Positions
from tinymq.sync.producer import Producer
from tinymq.sync.subscription import Message, MessageBatch, Subscription
from tinymq.sync.transactional import Transaction, TransactionalProducer

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
    "Mark",
    "Message",
    "MessageBatch",
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
    "Subscription",
    "SubscriptionConfig",
    "Survey",
    "TopicInfo",
    "Transaction",
    "TransactionalProducer",
]
