"""
The operations of people and their programs, each once.

What is said here of an operation makes its HTTP route, its part of the OpenAPI
document, its command and the check of its role; `tinymq.operations` adds the
method that carries it out. Knows no Twisted, since the command line reads it.
"""

from __future__ import annotations

from typing import Final

from tinymq.catalog.channels import CHANNELS
from tinymq.catalog.cluster import CLUSTER
from tinymq.catalog.deadletters import DEAD_LETTERS
from tinymq.catalog.delayed import DELAYED
from tinymq.catalog.endpoints import ENDPOINTS
from tinymq.catalog.exchanges import EXCHANGES
from tinymq.catalog.groups import GROUPS
from tinymq.catalog.inflight import INFLIGHT
from tinymq.catalog.members import GROUP_MEMBERS
from tinymq.catalog.messages import MESSAGES
from tinymq.catalog.retries import RETRIES
from tinymq.catalog.schedules import SCHEDULES
from tinymq.catalog.topics import TOPICS
from tinymq.catalog.transactions import TRANSACTIONS
from tinymq.operation import Operation

__all__ = ["PUBLIC"]

#: Every public operation by its name.
PUBLIC: Final[dict[str, Operation]] = {
    **TOPICS,
    **CHANNELS,
    **GROUPS,
    **GROUP_MEMBERS,
    **INFLIGHT,
    **RETRIES,
    **DEAD_LETTERS,
    **EXCHANGES,
    **ENDPOINTS,
    **DELAYED,
    **MESSAGES,
    **SCHEDULES,
    **TRANSACTIONS,
    **CLUSTER,
}
