"""
The outbox within a session of SQLAlchemy.

It wants ``pip install sqlalchemy``, and for PostgreSQL ``pip install 'psycopg[binary]'``::

    python examples/outbox_sqlalchemy.py                            # SQLite, a broker of its own
    python examples/outbox_sqlalchemy.py --url tinymq://HOST \
        --database postgresql+psycopg://user@host/name
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from sqlalchemy import Engine, create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tinymq.patterns.outbox import POSTGRESQL, SQLITE, Outbox, Relay
from tinymq.sync import Client
from tinymq.testing import BrokerProcess

TOPIC = "users.registered"


class Base(DeclarativeBase):
    """The tables."""


class User(Base):
    """Somebody who has registered."""

    __tablename__ = "users"
    name: Mapped[str] = mapped_column(primary_key=True)


def register(session: Session, outbox: Outbox, name: str) -> None:
    """Register a user, and tell of it in the session's transaction."""
    session.add(User(name=name))
    session.flush()
    # The driver's connection, in the transaction of the session.
    outbox.add(session.connection().connection, TOPIC, name.encode(), key=name)


def main(engine: Engine, url: str) -> None:
    """Register some users, one of whom is known already."""
    outbox = Outbox(POSTGRESQL if engine.dialect.name == "postgresql" else SQLITE)
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        outbox.create(connection.connection)

    for name in ("ann", "bob", "ann"):
        try:
            with Session(engine) as session, session.begin():
                register(session, outbox, name)
        except Exception as error:  # noqa: BLE001 - of the driver, wrapped
            print(f"{name} is known already: {type(error).__name__}")

    with Client(url) as client:
        client.admin.create_topic(TOPIC, config={"dedup.ms": 24 * 3600 * 1000})
        # A raw connection is begun, committed and given back as one of the driver.
        with Relay(outbox, engine.raw_connection, client) as relay:
            while relay.turn():
                pass
            print("published:", relay.sent)
        with client.consumer() as consumer:
            consumer.assign(TOPIC)
            come: list[bytes | None] = []
            while len(come) < 2:
                batch = consumer.next_batch()
                assert batch is not None
                come += batch.values
    print(sorted(value or b"" for value in come))
    engine.dispose()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The outbox with SQLAlchemy.")
    parser.add_argument("--url", help="a broker that runs")
    parser.add_argument("--database", help="a URL of SQLAlchemy")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        engine = create_engine(options.database or f"sqlite:///{folder}/users.db")
        if options.url:
            main(engine, options.url)
        else:
            with BrokerProcess(Path(folder) / "data") as broker:
                main(engine, broker.url)
