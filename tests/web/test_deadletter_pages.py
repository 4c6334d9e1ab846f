"""The pages of dead letters: groups, rows, sending back and dropping step by step, export."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from twisted.internet.defer import Deferred
from twisted.logger import globalLogPublisher

from tests.fakes.broker import LogKeeper
from tests.web.client import Client, Reply
from tests.web.content import lively
from tests.web.queues import work
from tinymq.catalog import PUBLIC
from tinymq.catalog.shapes import shape
from tinymq.errors import BrokerSilent
from tinymq.web.deadletter_pages import Export

TARGET = "orders.created.billing.dead"
BASE = f"/dead-letters/{TARGET}"


@pytest.fixture(name="client")
def make_client() -> Client:
    """Make a client of a lively cluster."""
    return Client(lively())


def flat(reply: Reply) -> str:
    """What a person reads, with single spaces."""
    return re.sub(r"\s+", " ", reply.shown)


def hidden(reply: Reply) -> dict[str, str]:
    """The fields that the form of a page carries along, without its token."""
    form = reply.text[reply.text.index("<main") :]
    found = dict(re.findall(r'<input type="hidden" name="([^"]*)" value="([^"]*)"', form))
    found.pop("token", None)
    return found


def test_topics_of_dead_letters_are_listed(client: Client) -> None:
    """How many are there, from where, since when, and what is held back."""
    shown = flat(client.get("/dead-letters"))

    assert "3 topics for what channels give up · 349 messages here" in shown
    assert "payments.capture , mail.outbound +1" in shown
    assert "payments.dead takes no messages: its partition 2 is offline" in shown
    assert "Empty" in shown
    assert "smtp.dead" not in client.get("/dead-letters?name=payments").shown
    assert "No dead-letter topic matches" in client.get("/dead-letters?topic=nothing").shown


def test_no_dead_letters_say_so(client: Client) -> None:
    """A cluster without any says what would be here."""
    client.console.queue.queues = []

    assert "No message was given up" in client.get("/dead-letters").shown


def test_dead_letters_are_grouped_by_why(client: Client) -> None:
    """Reason, origin and error with a count, each a way to only those."""
    reply = client.get(BASE)
    shown = flat(reply)

    assert "ValueError: total must not be negative: -12.50 69 Only these" in shown
    assert "Some came back before" in shown
    assert 'href="/topics/orders.created/messages/3/20766200"' in reply.text
    assert "text=ConnectionError" in reply.text
    only = client.get(f"{BASE}?reason=rejected")
    assert "68 dead letters looked at" in flat(only)
    assert client.get("/dead-letters/nothing").status == 404
    assert client.get(f"{BASE}?since=soon").status == 400


def test_filter_that_matches_nothing_says_so(client: Client) -> None:
    """With the way back to all."""
    assert "No dead letter matches" in client.get(f"{BASE}?text=zzz").shown


def test_chosen_ones_are_sent_back_in_one_step(client: Client) -> None:
    """The plan says how many, where to, and what came back before; then it is done."""
    form = {"act": "redrive", "row.0": "0:3", "row.1": "0:4", "back": "reason="}
    plan = client.post(f"{BASE}/plan", **form)

    assert "Redrive 2" in plan.shown
    assert "1 message of them came back before" in plan.shown
    assert "curl -X POST" in plan.shown
    assert client.console.queue.calls == []
    done = client.post(f"{BASE}/redrive", **hidden(plan), to="origin")
    assert done.headers["location"] == f"{BASE}?done=redrive&count=2"
    assert client.console.queue.calls == [("redrive", TARGET, 2, "origin")]
    assert "2 messages sent back" in flat(client.get(done.headers["location"]))


def test_many_go_step_by_step_and_can_be_stopped(client: Client) -> None:
    """Each page is one step with the way to the next and the way out; the sums go along."""
    plan = client.post(f"{BASE}/plan", act="redrive", all="yes", back="reason=failed")
    assert "Redrive 138" in plan.shown

    page = client.post(f"{BASE}/redrive", **hidden(plan), to="archive", rate="50")
    assert "Done 50 in 1 step" in flat(page)
    assert f'href="{BASE}"' in page.text
    assert 'hx-trigger="load delay:1s, submit"' in page.text
    steps = 1
    while 'id="next"' in page.text:
        page = client.post(f"{BASE}/redrive", **hidden(page))
        steps += 1

    assert steps == 3
    assert "Done 138 in 3 steps" in flat(page)
    assert [call[2:] for call in client.console.queue.calls] == [
        (50, "archive"),
        (50, "archive"),
        (38, "archive"),
    ]
    assert "204 dead letters looked at" in flat(client.get(BASE))


def test_what_cannot_be_sent_stays_and_is_told(client: Client) -> None:
    """It is counted, listed with its reason, and still there."""
    form = {"act": "redrive", "row.0": "0:7", "row.1": "0:8"}
    plan = client.post(f"{BASE}/plan", **form)
    assert "1 message cannot be sent and would stay, such as 0/7: no origin" in flat(plan)

    page = client.post(f"{BASE}/redrive", **hidden(plan))

    assert "Done 1 in 1 step" in flat(page)
    assert "What stays" in page.shown
    assert "no origin" in page.shown


def test_dropping_needs_the_name_typed(client: Client) -> None:
    """Dropping is final, so it asks; then it goes step by step likewise."""
    plan = client.post(f"{BASE}/plan", act="drop", **{"row.0": "0:3"})
    wrong = client.post(f"{BASE}/drop", **hidden(plan), typed="x")

    assert wrong.status == 400
    assert f"type {TARGET} to confirm" in wrong.shown
    assert client.console.queue.calls == []
    done = client.post(f"{BASE}/drop", **hidden(plan), typed=TARGET)
    assert done.headers["location"] == f"{BASE}?done=drop&count=1"


def test_odd_steps_are_refused(client: Client) -> None:
    """Nothing chosen, or a rate that is none."""
    assert client.post(f"{BASE}/plan", act="redrive").status == 400
    reply = client.post(f"{BASE}/redrive", letters="0:3", rate="0")
    assert reply.status == 400
    assert client.console.queue.calls == []


@pytest.mark.parametrize("path", ["plan", "redrive", "drop"])
def test_steps_need_the_token(client: Client, path: str) -> None:
    """A form of another page does nothing."""
    body = f"all=yes&typed={TARGET}".encode()
    kind = {"Content-Type": "application/x-www-form-urlencoded"}

    assert client.call("POST", f"{BASE}/{path}", body, kind).status == 403
    assert client.console.queue.calls == []


def test_export_has_every_letter_on_a_line(client: Client) -> None:
    """All pages, filtered as the page is, to be saved."""
    reply = client.get(f"{BASE}/export?reason=failed")
    rows = [json.loads(line) for line in reply.body.splitlines()]

    assert reply.headers["content-type"] == "application/x-ndjson"
    assert reply.headers["content-disposition"] == f'attachment; filename="{TARGET}.ndjson"'
    assert len(rows) == 138
    assert {row["reason"] for row in rows} == {"failed"}
    assert client.call("HEAD", f"{BASE}/export").body == b""


def test_export_of_many_pages_is_whole(client: Client) -> None:
    """What does not fit into one step comes with the next."""
    client.console.queue.letters[TARGET] *= 4
    for index, row in enumerate(client.console.queue.letters[TARGET]):
        client.console.queue.letters[TARGET][index] = {**row, "offset": index}

    assert len(client.get(f"{BASE}/export").body.splitlines()) == 1368


def test_export_that_cannot_begin_is_a_page(client: Client) -> None:
    """What is wrong is said before the first line."""
    client.console.queue.failure = BrokerSilent("mq-2 does not answer")

    assert client.get(f"{BASE}/export").status == 503


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("dlq.list", {}),
        ("dlq.messages", {"target": TARGET, "limit": 5}),
        ("dlq.redrive", {"target": TARGET, "limit": 20, "dry_run": True}),
        ("dlq.drop", {"target": TARGET, "limit": 20, "dry_run": True}),
    ],
)
def test_fake_answers_as_operations_do(name: str, arguments: dict[str, object]) -> None:
    """What the pages are tested with has the fields that the catalog promises."""
    operation = PUBLIC[name]
    whole = arguments if operation.changes else operation.arguments(arguments)
    answer = json.loads(json.dumps(work().answer(name, dict(whole))))
    found = Draft202012Validator(shape(**operation.result)).iter_errors(answer)

    assert [error.message[:200] for error in found] == []


class FakeRequest:
    """What an export writes to; the browser takes one page, then waits."""

    def __init__(self) -> None:
        self.finished: Deferred[None] = Deferred()
        self.producer: Any = None
        self.written: list[bytes] = []
        self.aborted = False

    def notifyFinish(self) -> Deferred[None]:  # noqa: N802
        """Tell when the browser is gone."""
        return self.finished

    def registerProducer(self, producer: Any, streaming: bool) -> None:  # noqa: N802
        """Take who writes."""
        assert streaming
        self.producer = producer

    def unregisterProducer(self) -> None:  # noqa: N802
        """Let them go, which a request whose connection is gone cannot."""
        assert not self.finished.called
        self.producer = None

    def write(self, data: bytes) -> None:
        """Take a page, and ask for no more."""
        self.written.append(data)
        self.producer.pauseProducing()

    def loseConnection(self) -> None:  # noqa: N802
        """Break off."""
        self.aborted = True


async def _numbered(after: str) -> dict[str, Any]:
    """Read a page of which there are always more."""
    return {"messages": [{"after": after}], "more": True, "after": after + "i"}


def test_export_waits_for_the_browser_and_ends_with_it() -> None:
    """A page is read only when the one before is taken; none when nobody is there any more."""
    request: Any = FakeRequest()
    export = Export(request, _numbered, {"messages": [], "more": True, "after": "i"})
    assert len(request.written) == 1

    request.producer.resumeProducing()
    assert request.written[1:] == [b'{"after": "i"}\n']
    request.finished.errback(ConnectionError())

    assert export.done.called
    assert len(request.written) == 2


def test_export_that_fails_is_broken_off() -> None:
    """Its answer has begun, so the end too early is what tells of it; the log says why."""

    async def failing(after: str) -> dict[str, Any]:
        raise BrokerSilent("mq-2 does not answer")

    request: Any = FakeRequest()
    keeper = LogKeeper()
    globalLogPublisher.addObserver(keeper)
    try:
        export = Export(request, failing, {"messages": [], "more": True, "after": "i"})
        request.producer.resumeProducing()
    finally:
        globalLogPublisher.removeObserver(keeper)

    assert request.aborted
    assert export.done.called
    assert keeper.texts[0].startswith("The export of dead letters failed")
