"""Clients that are quick to find a broker that was started again."""

from __future__ import annotations

from typing import Final

from tinymq.sync import Backoff, Client, ClientConfig, ProducerConfig

#: Seconds that a call may take, with its broker dead for a while.
DEADLINE: Final = 30.0

_EAGER: Final = Backoff(first_s=0.01, most_s=0.05)

#: Small batches, so that each call has several of them on their way.
PRODUCER: Final = ProducerConfig(
    create_topics=False, deadline_s=DEADLINE, backoff=_EAGER, batch_bytes=2048
)


def connect(url: str) -> Client:
    """Make a client of the broker at a URL."""
    config = ClientConfig(
        client_id="tinymq-verify",
        connect_timeout_s=2.0,
        request_timeout_s=5.0,
        deadline_s=DEADLINE,
        backoff=_EAGER,
    )
    return Client(url, config)
