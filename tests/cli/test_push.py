"""`tinymq push`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.cli.conftest import Run
from tests.fakes.memory_broker import MemoryBroker
from tinymq.webhook import SECRET_BYTES, secret_bytes

ROW: dict[str, Any] = {
    "topic": "orders",
    "channel": "mail",
    "url": "https://example.com/hook",
    "timeout_ms": 10_000,
    "concurrency": 10,
    "give_up": 20,
    "headers": ["X-Key"],
    "set_ms": 1_700_000_000_000,
    "state": "paused",
    "why": "20 failures in a row; the last: 500 Oops",
    "since_ms": 1_700_000_000_000,
    "in_flight": 1,
    "delivered": 5,
    "failed": 20,
    "delivered_s": 0.5,
    "failed_s": 0.0,
    "last_status": 500,
    "last_error": "500 Oops\x1b[2J",
    "last_error_ms": 1_700_000_000_000,
    "p50_ms": 12.4,
    "p95_ms": 1500.0,
    "retry_at_ms": None,
}
ONE: dict[str, Any] = {"endpoint": ROW, "silent": [], "dry_run": False}


def test_set(broker: MemoryBroker, run: Run) -> None:
    """What is set is said, and the secret that was made, this one time."""
    broker.answers["push.set"] = [{**ONE, "secret": "whsec_abc"}, {**ONE, "secret": None}]
    options = ("--answer-within", "5s", "--concurrency", "3", "--header", "X-Key: a:b")
    url = "https://example.com/hook"
    result = run("push", "set", "orders", "mail", url, *options)
    assert result.stdout.splitlines() == [
        "orders/mail is sent to https://example.com/hook",
        "secret, shown only now: whsec_abc",
    ]
    assert broker.calls[0][1] == {
        "topic": "orders",
        "name": "mail",
        "url": url,
        "concurrency": 3,
        "give_up": 20,
        "dry_run": False,
        "timeout_ms": 5000,
        "headers": {"X-Key": "a:b"},
    }
    result = run("push", "set", "orders", "mail", url, "--secret-file", "-", stdin="whsec_x\n")
    assert broker.calls[1][1]["secret"] == "whsec_x"
    assert "secret" not in result.stdout
    assert "headers" not in broker.calls[1][1]


def test_a_lost_secret_is_replaced(broker: MemoryBroker, run: Run, tmp_path: Path) -> None:
    """A new secret is made, set and shown once; never beside one that is given."""
    broker.answers["push.set"] = [{**ONE, "secret": None}] * 2
    command = ("push", "set", "orders", "mail", "https://example.com/hook", "--new-secret")
    result = run(*command)
    made = broker.calls[0][1]["secret"]
    assert len(secret_bytes(made)) == SECRET_BYTES
    assert result.stdout.splitlines()[1] == f"secret, shown only now: {made}"
    assert json.loads(run(*command, "-o", "json").stdout)["secret"] == broker.calls[1][1]["secret"]
    file = tmp_path / "secret"
    file.write_text(made)
    assert run(*command, "--secret-file", str(file)).exit_code == 2


def test_no_headers(broker: MemoryBroker, run: Run) -> None:
    """Headers that are not said stay, unless there are to be none."""
    broker.answers["push.set"] = [{**ONE, "secret": None}]
    run("push", "set", "orders", "mail", "http://x/", "--no-headers")
    assert broker.calls[0][1]["headers"] == {}


def test_wrong_header(run: Run) -> None:
    """What is no header is refused, and its text is not repeated whole."""
    result = run("push", "set", "a", "b", "http://x/", "--header", "Bearer hush")
    assert result.exit_code == 2


def test_list(broker: MemoryBroker, run: Run) -> None:
    """Endpoints are listed with how they do."""
    page = {"endpoints": [ROW], "more": False, "after": None, "total": 1, "silent": ["b2"]}
    broker.answers["push.list"] = [page, page]
    result = run("push", "ls", "-t", "orders")
    line = result.stdout.splitlines()[1]
    assert line.split()[:9] == [
        *("orders", "mail", "https://example.com/hook"),
        *("1", "5", "20", "500", "12ms", "1.5s"),
    ]
    assert line.endswith("paused: 20 failures in a row; the last: 500 Oops")
    assert "b2" in result.stderr
    assert run("push", "ls", "-o", "name").stdout == "orders/mail\n"


def test_info(broker: MemoryBroker, run: Run) -> None:
    """All there is to know of one, and nothing of it moves the cursor."""
    broker.answers["push.info"] = [{"endpoint": ROW, "silent": []}] * 2
    result = run("push", "info", "orders", "mail")
    assert "10 at each broker" in result.stdout
    assert "after 20 failures in a row" in result.stdout
    assert "\x1b" not in result.stdout
    told = json.loads(run("push", "info", "orders", "mail", "-o", "json").stdout)
    assert told["endpoint"]["headers"] == ["X-Key"]


def test_steering(broker: MemoryBroker, run: Run) -> None:
    """Each verb says what it did."""
    broker.answers |= {f"push.{verb}": [ONE] for verb in ("pause", "resume", "delete")}
    assert run("push", "pause", "orders", "mail", "--reason", "night").exit_code == 0
    assert run("push", "resume", "orders", "mail").stdout == "orders/mail goes on\n"
    assert run("push", "rm", "orders", "mail", "--yes").exit_code == 0
    assert [name for name, _ in broker.calls] == ["push.pause", "push.resume", "push.delete"]
    assert broker.calls[0][1]["reason"] == "night"


def test_test(broker: MemoryBroker, run: Run) -> None:
    """The exit status says whether the endpoint took the made-up message."""
    told = {
        "ok": True,
        "status": 200,
        "error": "",
        "ms": 12.0,
        "answer": "thanks",
        "broker": "b1",
        "dry_run": False,
    }
    wrong = {**told, "ok": False, "status": None, "error": "no answer within 2.5 s", "answer": ""}
    broker.answers["push.test"] = [told, wrong, {**wrong, "dry_run": True}]
    result = run("push", "test", "orders", "mail")
    assert (result.exit_code, result.stdout) == (0, "status 200 after 12ms, sent by b1\nthanks\n")
    result = run("push", "test", "orders", "mail")
    assert (result.exit_code, "no answer within" in result.stdout) == (1, True)
    assert run("push", "test", "orders", "mail", "--dry-run").exit_code == 0
