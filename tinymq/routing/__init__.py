"""Where a message of an exchange goes: pure tables, which know nothing of brokers."""

from tinymq.routing.tables import Table, table
from tinymq.routing.values import (
    KINDS,
    UNROUTABLE,
    Binding,
    Exchange,
    Kind,
    Terms,
    binding_id,
    binding_key,
    exchange_key,
)

__all__ = [
    "KINDS",
    "UNROUTABLE",
    "Binding",
    "Exchange",
    "Kind",
    "Table",
    "Terms",
    "binding_id",
    "binding_key",
    "exchange_key",
    "table",
]
