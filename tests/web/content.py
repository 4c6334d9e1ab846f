"""What the fake broker holds: a lively cluster, and a hostile one."""

from __future__ import annotations

import random

import msgpack
from attrs import evolve

from tests.web.crowd import crowd, hostile_crowd
from tests.web.fakes import GB, NOW, FakeConsole, FakePartition, FakeRecord, FakeTopic
from tests.web.fleet import connected, silenced, slowed, three
from tests.web.flow import flow, hostile_flow, troubled_flow
from tests.web.queues import hostile_work, work

ORDER = b"""{"order_id":"ord_48210377","placed_at":"2026-11-29T14:26:31.417Z",\
"customer_ref":9223372036854775807,"currency":"EUR","total":1249.00,"lines":[\
{"sku":"KX-2201-B","qty":2,"unit":499.50},{"sku":"KX-0417","qty":1,"unit":250.00}],\
"coupon":null,"express":true,"channel":"web","risk":{"score":0.10,"model":"r7"},"notes":""}"""

#: Pieces of markup, scripts, controls and direction marks that must stay inert.
HOSTILE = (
    '"><img src=x onerror=alert(1)>',
    "<script>alert(1)</script>",
    "' onmouseover='alert(1)",
    "{{ 7*7 }}{% raw %}",
    "\u202eevil\u202c\u2066x",
    "nul\x00bell\x07esc\x1b[31m",
    "line\r\nSet-Cookie: a=b\n\n",
    "javascript:alert(1)//\\",
    "]]>--><svg/onload=alert(1)>",
)


def order(rng: random.Random, index: int, time_ms: int) -> FakeRecord:
    """Make one order."""
    number = rng.randint(10**7, 10**8 - 1)
    return FakeRecord(
        time_ms,
        ORDER.replace(b"48210377", b"%d" % number),
        b"ord_%d" % number,
        (
            ("trace-id", b"7f3a09c2e81b%04x" % index),
            ("content-type", b"application/json"),
            ("region", b"east-2"),
            ("retry-of", b""),
        ),
    )


def _orders() -> FakeTopic:
    rng = random.Random(5)
    rates = (27.1, 28.4, 26.0, 66.2, 25.3, 26.9, 24.8, 26.3)
    sizes = (4.1, 4.1, 4.1, 9.3, 4.1, 4.2, 4.0, 4.2)
    starts = (4811020, 4799316, 4822190, 10904112, 4790011, 4803377, 4788450, 4801932)
    logs = []
    ends = (9281137, 9361296, 9220456, 20766256, 9192826, 9281387, 9164674, 9461150)
    for rate, size, start, end in zip(rates, sizes, starts, ends, strict=True):
        times = sorted(NOW - 900 - rng.randint(0, 9000) for _ in range(158))
        times.insert(0, NOW - 176_400_000)
        times.append(NOW - rng.randint(30, 900))
        records = [order(rng, i, at) for i, at in enumerate(times)]
        logs.append(
            FakePartition(
                start=start,
                earlier=end - start - len(records),
                records=records,
                bytes=int(size * GB),
                rate=rate,
            )
        )
    return FakeTopic(
        name="orders.created",
        partitions=logs,
        config={"retention.time": "2 d", "segment.bytes": "256 MB"},
        out=1000.8,
    )


def _other(name: str, rate: float, out: float, size: float, partitions: int = 3) -> FakeTopic:
    rng = random.Random(name)
    logs = [
        FakePartition(
            start=rng.randint(0, 10**6),
            earlier=int(size * 5e6 / partitions),
            records=[
                FakeRecord(
                    NOW - 5000 * i - rng.randint(0, 4000), b"event %d of %s" % (i, name.encode())
                )
                for i in range(60, 0, -1)
            ],
            bytes=int(size * GB / partitions),
            rate=rate / partitions,
        )
        for _ in range(partitions)
    ]
    return FakeTopic(name=name, partitions=logs, out=out)


def lively() -> FakeConsole:
    """Make a healthy cluster of three brokers with traffic."""
    console = FakeConsole(
        _orders(),
        _other("clicks.raw", 2810.4, 9420.0, 214.8, 12),
        _other("audit.raw", 640.2, 640.2, 96.1),
        _other("payments.capture", 112.0, 336.0, 19.7, 6),
        _other("media.resize", 18.3, 18.3, 12.3),
        _other("mail.outbound", 9.5, 9.4, 2.2),
        _other("webhooks.out", 4.4, 4.4, 0.8),
        _other("search.reindex", 0.0, 0.0, 0.4, 1),
        _formats(),
        FakeTopic(name="empty.topic", partitions=[FakePartition()]),
    )
    console.broker, *others = three()
    console.others = tuple(others)
    console.connected = connected(console.brokers)
    console.queue = work()
    console.flow = flow()
    console.crowd = crowd()
    return console


def _formats() -> FakeTopic:
    """Hold one value of every kind that the viewers know."""
    whole = {"id": 2**63 - 1, "tags": ["a", "b"], "raw": b"\x00\xff", 5: 1.5}
    values: list[bytes | None] = [
        b'{"n":1.00,"big":9223372036854775807,"n":2,"e":1e400,"s":"\\u00e9"}',
        msgpack.packb(whole),
        b"plain text\nwith two lines",
        bytes(range(256)) * 4,
        b"",
        None,
        b'{"long":"' + b"x" * 150_000 + b'"}',
    ]
    records = [FakeRecord(NOW - 1000 * (9 - i), v, b"k%d" % i) for i, v in enumerate(values)]
    return FakeTopic(
        name="demo.formats", partitions=[FakePartition(records=records, bytes=152_000)]
    )


def troubled() -> FakeConsole:
    """Make a cluster with problems: a full disk, a silent broker, slow clients, old versions."""
    console = lively()
    console.refusing = "Free disk space is below the reserve of 50 GB."
    second, third = console.others
    third = evolve(third, draining=True, version="0.2.1", memory=int(7.1 * GB), reactor_lag_ms=61.0)
    console.others = (second, third)
    console.silent = (silenced(second, 135),)
    topic = console._topics["payments.capture"]
    topic.partitions[2].offline = "fdatasync failed: Input/output error"
    console.connected[0] = slowed(console.connected[0], 312, 1_048_576)
    console.connected[5] = slowed(console.connected[5], 44, 524_288)
    console.flow = troubled_flow()
    return console


def hostile() -> FakeConsole:
    """Make a cluster in which every text that a stranger may set is an attack."""
    topics = []
    for index, text in enumerate(HOSTILE):
        raw = text.encode()
        records = [
            FakeRecord(NOW - 100, raw, raw, ((text, raw), ("content-type", raw))),
            FakeRecord(NOW - 90, b'{"' + raw.replace(b'"', b"") + b'":1}', raw),
            FakeRecord(NOW - 80, msgpack.packb({text: [text]}), None),
        ]
        log = FakePartition(records=records, bytes=100, rate=1.0, offline=text if index else "")
        config = {"retention.time": text}
        topics.append(FakeTopic(name=text, partitions=[log], config=config, out=1.0))
    console = FakeConsole(*topics)
    console.label = HOSTILE[0]
    console.refusing = HOSTILE[0]
    first = three()[0]
    console.broker, *others = (
        evolve(
            first, id=index + 1, name=text, zone=text, version=text, listen=text, draining=index > 4
        )
        for index, text in enumerate(HOSTILE)
    )
    console.others = tuple(others)
    console.silent = (silenced(others[0], 60), silenced(evolve(first, id=77, name=HOSTILE[1]), 9))
    console.connected = [
        evolve(
            slowed(one, 10, 9),
            broker_id=1,
            broker=text,
            client_id=text,
            address=text,
            agent=text,
            user=text,
            protocol=text,
        )
        for one, text in zip(connected([first]), HOSTILE, strict=False)
    ]
    console.queue = hostile_work(HOSTILE)
    console.flow = hostile_flow(HOSTILE)
    console.crowd = hostile_crowd(HOSTILE)
    return console
