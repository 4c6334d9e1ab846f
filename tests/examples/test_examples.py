"""Every example runs, as a user runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tinymq
from tests.conftest import LONG
from tests.fakes.redis import RedisServer, needs_redis
from tinymq.verify.process import BrokerProcess

pytestmark = pytest.mark.process

ROOT = Path(tinymq.__file__).parent.parent
#: How many files of the standard library are streamed.
FILES = [] if LONG else ["--files=40"]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of a running broker."""
    broker = BrokerProcess(tmp_path_factory.mktemp("examples") / "data")
    broker.start()
    yield broker.url
    broker.stop()


def example(name: str, *arguments: str) -> str:
    """Run an example to its end and return what it printed."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        check=False,
    )
    told = [
        line for line in done.stderr.splitlines() if not line.startswith("connection to broker")
    ]
    assert (done.returncode, told) == (0, []), done.stdout
    return done.stdout


def test_quickstart_blocking(url: str) -> None:
    """The blocking quickstart reads back what it published."""
    assert example("quickstart_blocking.py", url).splitlines() == [
        "published, the first one at 0@0",
        "0@0  b'en': b'hello'",
        "0@1  b'fr': b'bonjour'",
        "0@2  b'de': b'hallo'",
    ]


def test_quickstart_twisted(url: str) -> None:
    """The quickstart with Deferreds does the same."""
    assert example("quickstart_twisted.py", url).splitlines() == [
        "published, the first one at 0@0",
        "0@0  b'un'",
        "0@1  b'deux'",
        "0@2  b'trois'",
    ]


def test_rolling_group() -> None:
    """Members of a group are replaced one by one, and no order is lost or out of its order."""
    assert example("rolling_group.py").splitlines() == [
        "shipped: 300 orders of 20 customers",
        "those of each customer in order: True",
        "left to do: 0",
    ]


@pytest.mark.parametrize(("name", "count"), [("test_orders.py", 5), ("test_unpaid_orders.py", 4)])
def test_tests_of_a_program(name: str, count: int) -> None:
    """Tests that a user writes run without a broker, and quickly."""
    options = ("-q", "-pno:cacheprovider", "-ptinymq.testing.plugin")
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "pytest", *options, f"examples/{name}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        # The plugin is named here, since it is found by itself only where tinymq is installed.
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
    )
    told = [
        line for line in done.stderr.splitlines() if not line.startswith("connection to broker")
    ]
    assert (done.returncode, told) == (0, []), done.stdout
    assert f"{count} passed" in done.stdout


def test_asgi_app(url: str) -> None:
    """The web application stores orders and packs them, within one asyncio process."""
    assert example("asgi_app.py", url).splitlines() == [
        "stored at [0, 1, 2]",
        "{'packed': ['tea', 'milk', 'sugar']}",
    ]


def test_asgi_app_serves(url: str) -> None:
    """A server that speaks ASGI starts it, passes requests on, and stops it cleanly."""
    program = f"""
import asyncio, sys
sys.path.insert(0, {str(ROOT / "examples")!r})
from asgi_app import Shop, request

async def serve(shop):
    events, told = asyncio.Queue(), asyncio.Queue()
    life = asyncio.create_task(shop({{"type": "lifespan"}}, events.get, told.put))
    await events.put({{"type": "lifespan.startup"}})
    print((await told.get())["type"], await request(shop, "POST", b"tea") != {{}})
    await events.put({{"type": "lifespan.shutdown"}})
    print((await told.get())["type"])
    await life

asyncio.run(serve(Shop({url!r})))
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        check=False,
    )
    assert (done.stdout.splitlines(), done.stderr) == (
        ["lifespan.startup.complete True", "lifespan.shutdown.complete"],
        "",
    )


def test_embedded_broker() -> None:
    """A reader finds the broker within a process, and reads from it, with no other one."""
    assert example("embedded_broker.py").splitlines() == [
        "weather: b'21.5'",
        "weather: b'21.7'",
        "weather: b'22.0'",
    ]


def test_wsgi_app(url: str) -> None:
    """The application with blocking views serves threads and forked workers."""
    assert example("wsgi_app.py", url).splitlines() == [
        "stored at [0, 1, 2, 3]",
        "the worker stored at 4",
        "and the parent at 5",
    ]


def test_wsgi_app_serves(url: str) -> None:
    """A server that speaks WSGI is satisfied with it, also when there is no broker."""
    program = f"""
import sys, wsgiref.util, wsgiref.validate
sys.path.insert(0, {str(ROOT / "examples")!r})
from wsgi_app import Pool, Shop

def serve(url, deadline_s):
    shop = Shop(Pool(url, deadline_s=deadline_s))
    environ = {{"QUERY_STRING": ""}}
    wsgiref.util.setup_testing_defaults(environ)
    answer = wsgiref.validate.validator(shop)(environ, lambda status, headers: print(status))
    list(answer)
    answer.close()
    shop.pool.close()

serve({url!r}, 10)
serve("tinymq://127.0.0.1:1", 0.1)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        check=False,
    )
    assert (done.stdout.splitlines(), done.stderr) == (["200 OK", "503 Service Unavailable"], "")


def test_mail_worker() -> None:
    """Some mails go at once, some later, and what cannot be sent waits for a second chance."""
    lines = example("mail_worker.py", "--fast").splitlines()
    assert sorted(lines[:4]) == [
        "dead: carl@nowhere.example: rejected, 550 no such mailbox",
        "dead: dora@down.example: failed, connection refused",
        "sent to ann@here.example in attempt 1",
        "sent to bob@grey.example in attempt 2",
    ]
    assert sorted(lines[4:]) == ["1 sent back", "sent to dora@down.example in attempt 1"]


def test_unpaid_orders(url: str) -> None:
    """The order that was paid stays, the other one is cancelled, and cannot be paid then."""
    assert example("unpaid_orders.py", f"--url={url}", "--fast").splitlines() == [
        "order 1 is paid: True",
        "what waits: 1",
        "order 2 is paid: False",
        "order 1: paid",
        "order 2: cancelled",
    ]


def test_reminders(url: str) -> None:
    """What waits is listed in order of time; each comes once, but for the cancelled one."""
    assert example("reminders.py", f"--url={url}", "--fast").splitlines() == [
        "reminders/0~1: tea is ready, soon",
        "reminders/0~0: stand up, soon",
        "reminders/0~3: call the bank, in 7 days",
        "reminders/0~2: renew the passport, in 3000 days",
        "one was cancelled, one was moved",
        "reminder: tea is ready",
        "reminder: stand up",
        "reminder: renew the passport",
    ]


def test_thumbnails(url: str) -> None:
    """Every picture is shrunk once, although that takes longer than its lease."""
    *pictures, last = example("thumbnails.py", f"--url={url}", "--fast").splitlines()
    assert [line.split()[1] for line in sorted(pictures)] == [f"{n}:" for n in range(6)]
    assert {line.split(", ")[1] for line in pictures} == {"attempt 1"}
    assert last == "6 thumbnails"


def test_routing_by_region(url: str) -> None:
    """Orders are where they are wanted, and the shop hears of one that nobody wants."""
    assert example("routing_by_region.py", f"--url={url}").splitlines() == [
        "an order of Berlin would go to all-orders, eu-orders",
        "nobody takes an order without a region; it is kept",
        "eu-orders: eu.de.berlin, eu.fr.paris",
        "us-orders: us.ca, us.ny",
        "large-orders: eu.fr.paris, us.ca",
    ]


def test_ttl_and_dead_letter() -> None:
    """Orders come when their time is over, a short one before a long one that was there first."""
    assert example("ttl_and_dead_letter.py", "--fast").splitlines() == [
        "order 2 was not paid in time (expired)",
        *[f"order {number} was not paid in time (expired)" for number in (1, 3)],
    ]


def test_exactly_once(url: str) -> None:
    """Each order becomes one invoice, though the program crashes in the middle."""
    assert example("exactly_once.py", f"--url={url}").splitlines() == [
        "crashed in the middle",
        "20 invoices, 20 of them different",
    ]


def test_two_teams(url: str) -> None:
    """One team works the queue, the other reads the log, and both see every order."""
    assert example("two_teams.py", f"--url={url}").splitlines() == [
        "statistics: {'tea': 6, 'milk': 6}",
        "billing: 12 orders, each once: True",
        "left in the queue: 0",
        "statistics, once more from the beginning: {'tea': 2100, 'milk': 720}",
    ]


def test_the_standard_library(url: str) -> None:
    """Every line of the files comes out byte for byte, in order."""
    lines = example("stdlib_stream.py", f"--url={url}", *FILES).splitlines()
    assert lines[-2:] == [
        "sent: every file is byte for byte the same",
        "received: every file is byte for byte the same",
    ]


def test_the_standard_library_over_a_killed_broker() -> None:
    """The same holds when the broker is killed in the middle and restarted."""
    lines = example("stdlib_stream.py", "--kill-broker", *FILES).splitlines()
    assert "and restarted" in lines[0]
    assert lines[-1] == "received: every file is byte for byte the same"


@pytest.mark.parametrize(
    "name", ["quickstart_blocking.py", "quickstart_twisted.py", "wsgi_app.py", "asgi_app.py"]
)
def test_one_line_when_it_cannot_work(name: str) -> None:
    """Where there is no broker to be had, an example ends with one line, no traceback."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name), "http://127.0.0.1:7801"],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PYTHONPATH": str(ROOT), "PATH": ""},
        check=False,
    )
    (line,) = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (1, "")
    assert line.startswith("error: a broker URL starts with tinymq://")


def test_a_raw_client_without_a_broker() -> None:
    """The client without a library says in one line that nobody listens."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "raw_client.py"), "127.0.0.1", "1"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    (line,) = done.stderr.splitlines()
    assert (done.returncode, line.startswith("error: no broker answers: ")) == (1, True)


def test_webhook() -> None:
    """The receiver is out of order for a while, and sees each order in the end."""
    assert example("webhook.py").splitlines() == [
        "orders/0@0: tea",
        "orders/0@1: milk",
        "orders/0@2: sugar",
        "3 requests failed, the last with: 503 Service Unavailable: out of order",
    ]


@needs_redis()
def test_redis_delay(url: str, tmp_path: Path) -> None:
    """Orders wait on Redis; the one that is paid does not come."""
    server = RedisServer(tmp_path / "redis")
    server.start()
    try:
        told = example("redis_delay.py", server.url, url).splitlines()
    finally:
        server.kill()
    assert told == [
        "order 2 is paid: True",
        "nobody paid order 1",
        "nobody paid order 3",
        "left on Redis: 0",
    ]
