"""
Writes pictures of every page: ``python -m tests.web.screens FOLDER [CONTENT]``.

Both themes at 1440 px, and a phone's 390 px. Meant to be looked at.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.web.chromium import Chromium

PAGES: Final = {
    "overview": "/",
    "topics": "/topics",
    "topic": "/topics/orders.created",
    "partitions": "/topics/clicks.raw/partitions",
    "messages": "/topics/orders.created/messages",
    "message": "/topics/orders.created/messages/3/20766200",
    "publish": "/topics/orders.created/publish",
    "settings": "/topics/orders.created/settings",
    "danger": "/topics/orders.created/danger",
    "purge": "/topics/orders.created/purge",
    "delete": "/topics/orders.created/delete",
    "new-topic": "/new-topic",
    "channels": "/channels",
    "topic-channels": "/topics/orders.created/channels",
    "new-channel": "/topics/orders.created/new-channel",
    "channel": "/topics/orders.created/channels/billing",
    "channel-peek": "/topics/orders.created/channels/billing/messages",
    "channel-settings": "/topics/orders.created/channels/billing/settings",
    "channel-danger": "/topics/orders.created/channels/billing/danger",
    "seek": "/topics/orders.created/channels/billing/seek?to=latest",
    "pause": "/topics/orders.created/channels/billing/pause",
    "groups": "/groups?sort=lag&reverse=true",
    "group": "/groups/invoices",
    "group-assignment": "/groups/sessionizer/assignment",
    "group-danger": "/groups/invoices/danger",
    "transactions": "/transactions",
    "inflight": "/inflight",
    "inflight-one": "/inflight?topic=orders.created&channel=billing",
    "deadletters": "/dead-letters",
    "deadletter": "/dead-letters/orders.created.billing.dead",
    "delayed": "/delayed",
    "delayed-topic": "/delayed?topic=orders.created&since=1m",
    "retries": "/delayed?topic=orders.created&channel=billing",
    "delayed-one": "/delayed/orders.created/1~18",
    "schedules": "/schedules",
    "schedule": "/schedules/reindex",
    "new-schedule": "/new-schedule",
    "exchanges": "/exchanges",
    "exchange": "/exchanges/orders.in",
    "routed": "/exchanges/orders.in?ask=yes&key=order.failed.%2A",
    "unroutable": "/exchanges/vip?ask=yes&key=none",
    "new-exchange": "/new-exchange",
    "endpoints": "/push",
    "endpoint": "/topics/mail.outbound/channels/smtp/push",
    "new-endpoint": "/topics/orders.created/channels/billing/push",
    "brokers": "/brokers",
    "broker": "/brokers/2",
    "drain": "/brokers/2/drain",
    "undrain": "/brokers/2/undrain",
    "clients": "/clients",
    "client": "/clients/1/1000",
    "kick": "/clients/1/1000/kick",
    "found": "/find?q=a",
    "api": "/api",
    "error": "/topics/no-such-topic",
    "formats": "/topics/demo.formats/messages",
    "msgpack": "/topics/demo.formats/messages/0/1",
    "hex": "/topics/demo.formats/messages/0/3",
    "empty": "/topics/empty.topic/messages",
}
#: Pages that are looked at, and made of what the others are made of.
MORE: Final = {
    "group-many": "/groups/sessionizer",
    "group-partitions": "/groups/sessionizer/partitions?lagging=yes",
    "group-seek": "/groups/invoices/seek?to=back&at=1000",
    "group-evict": "/groups/invoices/evict?member=7f3a09c2-e81b-4b7e-9d10-000000000003",
    "transaction-abort": "/transactions/abort?id=checkout-7",
}
#: Pages of the work queue and of what waits or goes on: two looks at each, dark and light.
QUEUE: Final = frozenset(
    {"channels", "topic-channels", "new-channel", "channel", "channel-peek", "channel-settings"}
    | {"channel-danger", "seek", "pause", "inflight", "inflight-one", "deadletters", "deadletter"}
    | {"delayed", "delayed-topic", "retries", "delayed-one", "schedules", "schedule"}
    | {"new-schedule", "exchanges", "exchange", "routed", "unroutable", "new-exchange"}
    | {"endpoints", "endpoint", "new-endpoint", "groups", "group", "group-assignment"}
    | {"group-danger", "transactions"}
)
LOOKS: Final = (("light", 1440), ("dark", 1440), ("light", 390), ("dark", 390))


@contextmanager
def serving(content: str) -> Iterator[str]:
    """Run the dashboard over a fake broker in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.web.serve", content], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def main(folder: str, content: str = "lively", *only: str) -> None:
    """Write the pictures."""
    out = Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    with serving(content) as address, Chromium() as browser:
        tab = browser.tab()
        for theme, width in LOOKS:
            for name, path in {**PAGES, **MORE}.items():
                if only and name not in only:
                    continue
                tab.look(width, 900, theme)
                tab.open(address + path)
                tab.screenshot(out / f"{content}-{name}-{width}-{theme}.png")
        for complaint in tab.complaints:
            print(complaint)  # noqa: T201


if __name__ == "__main__":
    main(*sys.argv[1:])
