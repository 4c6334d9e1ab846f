"""The fake groups, transactions and histories tell what the catalog says that real ones do."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.web.crowd import FakeCrowd, crowd
from tinymq.catalog import PUBLIC
from tinymq.catalog.shapes import shape

LATE = "7f3a09c2-e81b-4b7e-9d10-000000000003"


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("group.list", {"topic": "orders.created"}),
        ("group.info", {"name": "invoices"}),
        ("group.info", {"name": "mailer"}),
        ("group.info", {"name": "sessionizer"}),
        ("group.seek", {"name": "mailer", "to": "latest", "dry_run": True}),
        ("group.reset", {"name": "mailer"}),
        ("group.delete", {"name": "mailer", "dry_run": True}),
        ("group.evict", {"name": "invoices", "member": LATE, "dry_run": True}),
        ("transaction.list", {}),
        ("transaction.abort", {"transactional_id": "checkout-7", "dry_run": True}),
        ("topic.history", {"name": "orders.created", "limit": 2}),
    ],
)
def test_shapes(name: str, arguments: dict[str, Any]) -> None:
    """Every field, and no other."""
    fake: FakeCrowd = crowd()
    Draft202012Validator(shape(**PUBLIC[name].result)).validate(fake.answer(name, arguments))


def test_undo() -> None:
    """Likewise what takes a seek back, once there was one."""
    fake = crowd()
    fake.answer("group.seek", {"name": "mailer", "to": "latest"})
    told = fake.answer("group.undo_seek", {"name": "mailer", "dry_run": True})
    Draft202012Validator(shape(**PUBLIC["group.undo_seek"].result)).validate(told)
