"""The examples of the outbox run, as a user runs them."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.examples.test_examples import ROOT, example
from tests.fakes.postgres import Postgres, needs_postgres
from tinymq.verify.process import BrokerProcess

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a running broker."""
    with BrokerProcess(tmp_path_factory.mktemp("outbox") / "data") as broker:
        yield broker.url


def test_outbox_sqlite(url: str) -> None:
    """The order that fails leaves no message; the others come when there is a broker."""
    assert example("outbox_sqlite.py", url).splitlines() == [
        "there was no tea left for carl",
        "in the outbox: 2",
        "published: tea for ann",
        "published: tea for bob",
        "in the outbox: 0",
    ]


def test_outbox_sqlalchemy(url: str) -> None:
    """A session's rollback takes the message back."""
    assert example("outbox_sqlalchemy.py", f"--url={url}").splitlines() == [
        "ann is known already: IntegrityError",
        "published: 2",
        "[b'ann', b'bob']",
    ]


@needs_postgres()
def test_outbox_sqlalchemy_on_postgresql(url: str) -> None:
    """The same holds on PostgreSQL."""
    server = Postgres()
    try:
        server.start()
        database = f"postgresql+psycopg://tinymq@/postgres?host={server.folder}"
        printed = example("outbox_sqlalchemy.py", f"--database={database}")
    finally:
        server.stop()
    assert printed.splitlines()[1:] == ["published: 2", "[b'ann', b'bob']"]


def test_outbox_django(url: str) -> None:
    """What `atomic` rolls back is not published."""
    assert example("outbox_django.py", f"--url={url}").splitlines() == [
        "the number 2026-1 is taken",
        "in the outbox: 2",
        "published: 2",
        "[b'2026-1: 900', b'2026-2: 1250']",
    ]


def test_bank_transfer(url: str) -> None:
    """Every transfer is done, or refunded where the account is closed."""
    lines = example("bank_transfer.py", f"--url={url}").splitlines()
    assert lines[0] == "transfers: {'done': 56, 'refunded': 8}"
    assert lines[1].endswith("together 1600000")
    assert lines[2:] == ["the books are right"]


def test_bank_transfer_with_kills() -> None:
    """The same holds while processes are killed all the time."""
    lines = example("bank_transfer.py", "--crash").splitlines()
    assert lines[0] == "transfers: {'done': 56, 'refunded': 8}"
    assert lines[-1] == "the books are right"
    assert lines[1].startswith("processes killed: ")


@pytest.fixture
def banks(tmp_path: Path) -> tuple[Any, Any, Any]:
    """Return the example as a module, and two of its banks."""
    spec = importlib.util.spec_from_file_location("bank", ROOT / "examples" / "bank_transfer.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    a, b = module.Bank(tmp_path / "a.db"), module.Bank(tmp_path / "b.db")
    a.found()
    b.found(module.CLOSED)
    a.send(1, 2, 500)
    return module, a, b


def test_the_books_are_checked(banks: tuple[Any, Any, Any]) -> None:
    """Money on its way is accounted for as missing, and a transfer that is booked twice is
    found, also where the sum is right.
    """
    module, a, b = banks
    assert module.mistakes(a, b) == ["there are 1599500 cents, not 1600000"]
    with closing(a.connect()) as connection:
        ((transfer,),) = connection.execute("SELECT id FROM transfer").fetchall()
    for _ in range(2):
        with b.transaction() as connection:
            b.book(connection, transfer, 2, 500)
            connection.execute("UPDATE account SET cents = cents - 250 WHERE number = 7")
    with a.transaction() as connection:
        connection.execute("UPDATE transfer SET state = 'done'")

    (told,) = module.mistakes(a, b)
    assert told == f"transfer {transfer} is done, booked [-500] here, [500,500] there"
