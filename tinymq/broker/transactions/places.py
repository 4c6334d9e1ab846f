"""Where transactions are looked after: by the last bits of a producer id, by the hash of a name."""

from __future__ import annotations

from hashlib import blake2b

from tinymq.names import TRANSACTION_PLACES


def place_of(transactional_id: str) -> int:
    """
    Say which partition of the topic of transactions looks after a producer.

    Args:
        transactional_id: The name of the producer.
    """
    digest = blake2b(transactional_id.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % TRANSACTION_PLACES


def place_of_producer(producer_id: int) -> int:
    """
    Say which partition of the topic of transactions knows about a producer id.

    Args:
        producer_id: Of any transaction.
    """
    return producer_id % TRANSACTION_PLACES
