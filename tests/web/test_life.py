"""The life line of a message: what channels did with it, and where it is now."""

from __future__ import annotations

import re

import pytest

from tests.web.client import Client
from tests.web.content import lively
from tinymq.errors import BrokerSilent
from tinymq.web.life import lanes_of

PATH = "/topics/orders.created/messages/3/20766200"


def test_message_shows_its_life_by_channel() -> None:
    """Published, given out, timed out, given out again, finished: with times and clients."""
    reply = Client(lively()).get(PATH)
    shown = re.sub(r"\s+", " ", reply.shown)

    assert "Life line" in shown
    words = ["Published", "Given out", "Timed out", "Given out", "Finished"]
    assert re.findall(r"<b>([A-Z][a-z ]+)</b><time", reply.text)[:5] == words
    assert "billing-7, attempt 1" in shown
    assert "Settled on 1 of 3 channels" in shown
    assert "What was before 2026-11-28 14:32:06.000 UTC has been forgotten" in shown


def test_message_of_a_topic_without_channels_has_no_life_line() -> None:
    """There is nothing to tell, so nothing is shown."""
    assert "Life line" not in Client(lively()).get("/topics/demo.formats/messages/0/1").shown


def test_waits_are_told_from_work() -> None:
    """Behind what puts a message back it waits; while somebody has it, it does not."""
    events = [
        {"channel": "c", "time_ms": 10, "what": what, "attempt": 1, "client_id": None, "text": ""}
        for what in ("delivered", "requeued", "delivered", "something_new")
    ]
    life = {"channels": [{"channel": "c", "state": "odd"}], "events": events}

    (lane,) = lanes_of(life, 4)

    assert [event.waits for event in lane.events] == [True, False, True, False, False]
    assert lane.events[-1].word.word == "Something new"
    assert (lane.attempts, lane.took_ms, lane.state.word) == (2, 6, "odd")


def test_channel_that_did_nothing_yet_has_a_line() -> None:
    """It begins with the append and says where the message is."""
    (lane,) = lanes_of({"channels": [{"channel": "c", "state": "new"}], "events": []}, 4)

    assert (len(lane.events), lane.took_ms, lane.state.word) == (1, None, "Not given out yet")


def test_message_is_shown_without_its_life() -> None:
    """When nobody can tell what channels did, the message itself is still there."""
    console = lively()
    console.queue.failure = BrokerSilent("mq-2 does not answer")
    reply = Client(console).get(PATH)

    assert reply.status == 200
    assert "Not known just now" in reply.shown
    assert "mq-2 does not answer" in reply.shown


@pytest.mark.parametrize(
    ("last", "word", "colour"),
    [
        ("finished", "Finished", "ok"),
        ("dead_lettered", "Dead letter", "bad"),
        ("", "Settled", "ok"),
    ],
)
def test_a_settled_message_says_how_it_ended(last: str, word: str, colour: str) -> None:
    """A dead letter is no success, although its channel is done with it."""
    event = {"channel": "c", "time_ms": 5, "attempt": 1, "client_id": None, "text": ""}
    events = [{**event, "what": last}] if last else []
    life = {"channels": [{"channel": "c", "state": "settled"}], "events": events}

    lane = lanes_of(life, 0)[0]

    assert (lane.state.word, lane.state.colour) == (word, colour)
