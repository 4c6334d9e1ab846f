"""
The outbox within ``transaction.atomic`` of Django.

It wants ``pip install django``::

    python examples/outbox_django.py                      # with a broker of its own
    python examples/outbox_django.py --url tinymq://HOST  # with one that runs

Settings, model and tables are here in one file. In a project the tables come from a migration::

    operations = [migrations.RunSQL(outbox.statements(SQLITE))]

and the relay is a management command of a few lines, whose `handle` calls ``relay.run()``.
"""

from __future__ import annotations

import argparse
import sqlite3
import tempfile
from pathlib import Path
from typing import Any

import django
from django.conf import settings
from django.db import IntegrityError, connection, models, transaction

from tinymq.patterns.outbox import SQLITE, Outbox, Relay
from tinymq.sync import Client
from tinymq.testing import BrokerProcess

TOPIC = "invoices.written"

#: Cursors of Django want ``%s``, whatever the database is.
OUTBOX = Outbox(SQLITE, paramstyle="format")
#: The relay has connections of its own, of the driver.
RELAYED = Outbox(SQLITE)


def write_invoice(invoice: Any, number: str, cents: int) -> None:
    """Write an invoice, and tell of it in the same transaction."""
    with transaction.atomic():
        invoice.objects.create(number=number, cents=cents)
        with connection.cursor() as cursor:
            OUTBOX.add(cursor, TOPIC, f"{number}: {cents}".encode(), key=number)


def main(url: str, database: Path) -> None:
    """Write some invoices, one of which has a number that is taken."""
    settings.configure(
        DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(database)}},
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        USE_TZ=True,
    )
    django.setup()

    class Invoice(models.Model):  # noqa: DJ008 - nobody prints it
        number = models.CharField(max_length=20, unique=True)
        cents = models.IntegerField()

        class Meta:
            app_label = "shop"

    with connection.schema_editor() as editor:
        editor.create_model(Invoice)
    with connection.cursor() as cursor:
        OUTBOX.create(cursor)

    for number, cents in (("2026-1", 900), ("2026-2", 1250), ("2026-1", 7)):
        try:
            write_invoice(Invoice, number, cents)
        except IntegrityError:
            print(f"the number {number} is taken")
    with connection.cursor() as cursor:
        print("in the outbox:", OUTBOX.depth(cursor).waiting)
    connection.close()

    with Client(url) as client:
        client.admin.create_topic(TOPIC, config={"dedup.ms": 24 * 3600 * 1000})
        with Relay(RELAYED, lambda: sqlite3.connect(database), client) as relay:
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


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The outbox with Django.")
    parser.add_argument("--url", help="a broker that runs")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if options.url:
            main(options.url, Path(folder) / "shop.db")
        else:
            with BrokerProcess(Path(folder) / "data") as broker:
                main(broker.url, Path(folder) / "shop.db")
