"""
The client for asyncio: no reactor, no thread, only the loop that runs anyway.

::

    async with Client("tinymq://127.0.0.1") as client:
        position = await client.producer().send("orders", b"one")
"""

from __future__ import annotations

from tinymq.aio.client import Admin, Client
from tinymq.aio.consumer import Consumer
from tinymq.aio.group import GroupConsumer
from tinymq.aio.positions import Positions
from tinymq.aio.producer import Producer
from tinymq.aio.subscription import Message, MessageBatch, Subscription
from tinymq.aio.transactional import Transaction, TransactionalProducer
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
from tinymq.client.core.results import Account, Delayed, Failed, PartlySent, Position, Sent
from tinymq.client.core.starts import EARLIEST, LATEST, At, Mark
from tinymq.client.core.transactions.transforming import Out

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
    "TopicInfo",
    "Transaction",
    "TransactionalProducer",
]
