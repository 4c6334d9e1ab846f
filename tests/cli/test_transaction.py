"""`tinymq transaction`: listed, and aborted."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.fakes.memory_broker import MemoryBroker


def transaction_row(**facts: Any) -> dict[str, Any]:
    """A transaction that is open for two seconds."""
    return {
        "transactional_id": "bank",
        "producer_id": 17,
        "epoch": 3,
        "state": "open",
        "since_ms": time.time_ns() // 1_000_000 - 2000,
        "timeout_ms": 60_000,
        "partitions": [{"topic": "t", "partition": index} for index in range(5)],
        "client": "teller",
        **facts,
    }


@pytest.fixture(autouse=True)
def transactions(broker: MemoryBroker) -> None:
    """Give a broker that is silent, and two transactions."""
    rows = [transaction_row(), transaction_row(transactional_id="shop", state="committing")]
    page = {"transactions": rows, "more": False, "after": None, "silent": ["b2"]}
    broker.answers["transaction.list"] = [page]
    broker.answers["transaction.abort"] = [{"transaction": rows[0], "dry_run": False}]


def test_list(run: Run) -> None:
    """Each with its state, how long it is open, when it ends by itself, and where it is."""
    found = run("transaction", "ls")
    lines = found.stdout.splitlines()
    assert lines[0].split()[:3] == ["TRANSACTIONAL-ID", "TRANSACTION", "STATE"]
    assert lines[1].split()[:3] == ["bank", "17:3", "open"]
    assert {"57s", "58s"}.intersection(lines[1].split())
    assert "t/0, t/1, t/2, 2 more" in lines[1]
    assert lines[2].split()[:3] == ["shop", "17:3", "committing"]
    assert "b2 did not answer" in found.stderr


def test_json(run: Run) -> None:
    """The document is that of the API."""
    document = json.loads(run("transaction", "ls", "-o", "json").stdout)
    assert [row["transactional_id"] for row in document["transactions"]] == ["bank", "shop"]


def test_abort(broker: MemoryBroker, run: Run) -> None:
    """It asks before, unless told not to."""
    assert run("transaction", "abort", "bank", "--yes").output == (
        "aborted transaction 17:3 of bank\n"
    )
    assert broker.calls[-1][1]["transactional_id"] == "bank"


@pytest.mark.parametrize(("output", "said"), [("name", "bank\n"), ("csv", "TRANSACTIONAL-ID")])
def test_abort_in_other_words(run: Run, output: str, said: str) -> None:
    """Programs get what they ask for."""
    found = run("transaction", "abort", "bank", "--yes", "-o", output).output
    assert found.upper().startswith(said.upper())


def test_abort_json(run: Run) -> None:
    """The document is that of the API."""
    found = run("transaction", "abort", "bank", "--yes", "-o", "json").output
    assert json.loads(found)["transaction"]["epoch"] == 3


def test_dry_run(broker: MemoryBroker, run: Run) -> None:
    """Nothing is asked, and nothing done."""
    broker.answers["transaction.abort"] = [{"transaction": transaction_row(), "dry_run": True}]
    assert run("transaction", "abort", "bank", "--dry-run").output.startswith("would abort")
