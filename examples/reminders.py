"""
Keep reminders: each comes at its time, and until then it can be listed, moved and cancelled.

::

    python examples/reminders.py --fast             # with a broker of its own
    python examples/reminders.py --url tinymq://HOST  # with one that runs
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

from tinymq.errors import TinyMQError
from tinymq.sync import Client, Delayed, SubscriptionConfig
from tinymq.testing import BrokerProcess

TOPIC, CHANNEL = "reminders", "me"


def show(client: Client) -> None:
    """Show what waits, in order of time."""
    for row in client.admin.list_delayed(TOPIC)["messages"]:
        place = Delayed(row["topic"], row["partition"], row["id"])
        text = client.admin.delayed(place)["message"]["value"]
        left = datetime.fromtimestamp(row["due_ms"] / 1000, UTC) - datetime.now(UTC)
        print(f"{place}: {text}, {f'in {left.days} days' if left.days > 0 else 'soon'}")


def main(url: str, minute: timedelta) -> None:
    """Make some reminders, change some, and wait for those that come soon."""
    with Client(url) as client, client.producer() as producer:
        now = datetime.now(UTC)
        places = {
            text: producer.send(TOPIC, text.encode(), at=at, key="me")
            for text, at in {
                "stand up": now + 10 * minute,
                "tea is ready": now + 5 * minute,
                "renew the passport": now + timedelta(days=3000, hours=1),
                "call the bank": now + timedelta(days=7, hours=1),
            }.items()
        }
        show(client)

        client.admin.cancel_delayed(places["call the bank"])
        client.admin.move_delayed(places["renew the passport"], at=now + 15 * minute)
        print("one was cancelled, one was moved")

        config = SubscriptionConfig(create_topics=True)
        with client.subscription(TOPIC, CHANNEL, config) as subscription:
            for _ in range(3):
                message = subscription.next(timeout=60 * minute.total_seconds() + 10)
                assert message is not None
                print("reminder:", (message.value or b"").decode())
                message.finish()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Keep reminders.")
    parser.add_argument("--url", help="a running broker; without it one is started")
    parser.add_argument("--fast", action="store_true", help="a minute lasts for 0.05 s")
    options = parser.parse_args()
    length = timedelta(seconds=0.05) if options.fast else timedelta(minutes=1)
    if options.url:
        try:
            main(options.url, length)
        except TinyMQError as error:
            sys.exit(f"error: {error}")
    else:
        with tempfile.TemporaryDirectory() as folder, BrokerProcess(Path(folder, "data")) as broker:
            main(broker.url, length)
