"""What a channel does as a whole, and the sentences that say why it does not do more."""

from __future__ import annotations

from typing import Any

import pytest

from tinymq.catalog.figures import CAUSES, RATED, STATES, TOTALLED
from tinymq.figures.channels import SUMMED, clear_ms, merge, moment, no_signs, standing, sum_up

NOW = 1_750_000_000_000


#: Ten messages come in each second, and eight are finished.
BEHIND: dict[str, Any] = {
    "lag": 300,
    "ready": 300,
    "lag_ms": 31_000,
    "trend_s": 2.0,
    "rates": {"finished_s": 8.0, "delivered_s": 8.0, "published_s": 10.0},
}


def row(**facts: Any) -> dict[str, Any]:
    """A row of one partition that does nothing, but for what is said."""
    signs = {**no_signs(), "partitions": 1, **facts.pop("signs", {})}
    rates = {**dict.fromkeys(RATED, 0.0), **facts.pop("rates", {})}
    totals = {**dict.fromkeys(TOTALLED, 0), **facts.pop("totals", {})}
    return {
        **dict.fromkeys(SUMMED, 0),
        "consumers": 1,
        "lag_ms": None,
        "trend_s": 0.0,
        "undo_until_ms": None,
        **facts,
        "rates": rates,
        "totals": totals,
        "signs": signs,
    }


def told(*rows: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Say how a channel stands."""
    given = {"paused": None, "offline": {}, "now": NOW, **more}
    found = standing(sum_up(rows), given["paused"], given["offline"], given["now"])
    assert found["state"] in STATES
    assert {each["cause"] for each in found["why"]} <= {*CAUSES}
    return found


def why(*rows: dict[str, Any], **more: Any) -> dict[str, str]:
    """Give the causes with their sentences."""
    return {each["cause"]: each["text"] for each in told(*rows, **more)["why"]}


def test_sums() -> None:
    """Counts, rates and totals are added; of ages the highest counts, of consumers the most."""
    one = row(lag=3, ready=3, lag_ms=5, rates={"finished_s": 1.5}, totals={"late": 2}, trend_s=1.0)
    two = row(lag=4, ready=4, lag_ms=9, rates={"finished_s": 2.0}, consumers=3, undo_until_ms=7)
    found = sum_up([one, two])
    assert (found["lag"], found["lag_ms"], found["consumers"], found["trend_s"]) == (7, 9, 3, 1.0)
    assert (found["rates"]["finished_s"], found["totals"]["late"]) == (3.5, 2)
    assert found["undo_until_ms"] == 7
    assert sum_up([found, found])["lag"] == 14


def test_messages_that_expire() -> None:
    """That many expire is told, and that a single one does is not."""
    assert why(row(rates={"expired_s": 12.4})) == {
        "expiring": "12 messages a second expire before they are settled"
    }
    assert why(row(rates={"expired_s": 0.1})) == {}


def test_what_is_not_known_is_not_zero() -> None:
    """A rate that nobody knows is null, and one that somebody knows is that."""
    unknown = row(rates=dict.fromkeys(RATED), trend_s=None)
    assert sum_up([unknown])["rates"]["finished_s"] is None
    assert sum_up([unknown, row(rates={"finished_s": 2.0})])["rates"]["finished_s"] == 2.0
    assert sum_up([])["trend_s"] is None


@pytest.mark.parametrize(
    ("lag", "trend", "expected"),
    [
        (0, 5.0, 0),
        (100, -10.0, 10_000),
        (100, 0.0, None),
        (100, None, None),
        (100, 3.0, None),
        (3, -5.6e-17, None),
    ],
)
def test_clear(lag: int, trend: float | None, expected: int | None) -> None:
    """The time until nothing is left is known only while the lag shrinks."""
    assert clear_ms(lag, trend) == expected


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        ({}, "idle"),
        ({"consumers": 0}, "no_consumers"),
        ({"lag": 1, "ready": 1}, "stuck"),
        ({"lag": 1, "ready": 1, "rates": {"finished_s": 1.0}}, "consuming"),
        ({"lag": 1, "ready": 1, "rates": {"delivered_s": None}}, "consuming"),
        ({"lag": 1, "in_flight": 1}, "consuming"),
        ({"lag": 1, "waiting": 1}, "idle"),
        ({**BEHIND}, "falling_behind"),
        ({**BEHIND, "lag_ms": 29_000}, "consuming"),
        ({**BEHIND, "trend_s": 0.1}, "consuming"),
        ({**BEHIND, "lag": 200}, "consuming"),
        ({"lag": 1, "parked": 1}, "stuck"),
    ],
)
def test_states(facts: dict[str, Any], state: str) -> None:
    """A channel is stuck when there is something to give out and nothing moves."""
    assert told(row(**facts))["state"] == state


def test_nobody_knows() -> None:
    """A channel of which no broker answers is stuck, and says which."""
    found = told(offline={"b2": "not heard since 10:00:00 UTC"})
    assert found["state"] == "stuck"
    assert found["why"] == [
        {
            "cause": "offline",
            "text": "b2, which leads partitions of it, does not answer: "
            "not heard since 10:00:00 UTC",
        }
    ]


def test_pause() -> None:
    """A pause is told with its times and its reason."""
    paused = {"since_ms": NOW, "until_ms": NOW + 86_400_000, "reason": "upgrade"}
    assert why(row(), paused=paused) == {
        "paused": "paused since 15:06:40 UTC until 2025-06-16 15:06:40 UTC: upgrade"
    }


def test_consumers() -> None:
    """Consumers that are not there, hold all they want, or want nothing."""
    lag = {"lag": 1200, "ready": 1000, "in_flight": 200}
    assert why(row(**lag, consumers=0)) == {
        "no_consumers": "nobody is subscribed, and 1,200 messages wait"
    }
    full = row(**lag, consumers=2, signs={"members": 6, "at_limit": 6})
    assert why(full) == {
        "in_flight_limit": "both consumers have as many messages in flight as asked for, "
        "200 in all, and 1,000 messages wait"
    }
    mixed = row(**lag, consumers=2, signs={"members": 2, "at_limit": 1, "no_credit": 1})
    text = "both consumers take no more just now, and 1,000 messages wait"
    assert why(mixed) == {"no_credit": text}
    assert why(row(**lag, signs={"members": 2, "at_limit": 1})) == {}


def test_troubles() -> None:
    """The look-ahead, slow consumers, poison and what stands aside are named."""
    found = why(
        row(
            lag=10,
            waiting=9,
            parked=1,
            given_up=1,
            signs={
                "full": [3],
                "slow": ["ana (10.0.0.1:5) takes 2.1 s a message and holds 5"],
                "worst": [8, 3, 12],
                "next_due": NOW,
                "kept": ["no room"],
            },
        )
    )
    assert found["full"].startswith("100,000 messages of partition 3 were given out")
    assert found["slow_consumer"] == "ana (10.0.0.1:5) takes 2.1 s a message and holds 5"
    assert found["poison"] == "message 3@12 has failed 8 times"
    assert found["waiting"].endswith(
        "9 messages, waits for its next attempt, the first at 15:06:40 UTC"
    )
    assert found["parked"].startswith("1 message stands aside")
    assert found["dead_letters_kept"] == "1 message that was given up waits here: no room"


def test_one_client_at_several_brokers() -> None:
    """A slow client is one, with what all its connections do, also when it is told by several."""
    half = ["ana", "10.0.0.1:5", "takes 4.0 s a message and holds 5", 0.25, 5, 9000]
    other = ["ana", "10.0.0.1:6", "takes 4.0 s a message and holds 3", 0.25, 3, 4000]
    signs = {"slow": [half]}
    alone = "ana (10.0.0.1:5) takes 4.0 s a message and holds 5"
    assert why(row(lag=9, in_flight=9, signs=signs)) == {"slow_consumer": alone}
    rows = [row(lag=4, signs=signs), row(lag=5, signs={"slow": [other]})]
    both = "ana takes 2.0 s a message and holds 8, over 2 connections"
    assert why(*rows) == {"slow_consumer": both}
    still = [[*half[:3], 0.0, 5, 9000], [*other[:3], 0.0, 3, 4000]]
    text = (
        "ana has settled nothing lately and holds 8, the oldest for 9 seconds, over 2 connections"
    )
    assert why(row(lag=9, signs={"slow": still})) == {"slow_consumer": text}
    busy = [[*half[:3], 0.9, 5, 9000], [*other[:3], 0.9, 3, 4000]]
    assert why(row(lag=9, signs={"slow": busy})) == {}


def test_falling_behind_says_why() -> None:
    """What comes in and what is finished is told, and what waits for an idle consumer."""
    assert why(row(**BEHIND, signs={"alone": 2})) == {
        "set_apart": "2 messages were lost with a consumer or not settled in time, so that each "
        "waits for a consumer that holds nothing else",
        "falling_behind": "8.0 messages a second are finished, and 10.0 come in",
    }


def test_skew() -> None:
    """A partition with most of the lag is named, but not among two that are nearly even."""
    rows = [row(lag=8200, signs={"most": [8200, 3]}), row(lag=1800, signs={"most": [1800, 1]})]
    text = "partition 3 holds 82 % of the lag (8,200 of 10,000)"
    assert why(*rows) == {"partition_skew": text}
    even = [row(lag=600, signs={"most": [600, 0]}), row(lag=400, signs={"most": [400, 1]})]
    assert why(*even) == {}


def test_signs_stay_small() -> None:
    """However many partitions there are, few are named."""
    signs = no_signs()
    for index in range(100):
        merge(signs, {**no_signs(), "full": [index], "slow": [f"c{index}"], "worst": [index, 0, 1]})
    assert (len(signs["full"]), len(signs["slow"]), signs["worst"]) == (3, 12, [99, 0, 1])


def test_moments() -> None:
    """The date is told of another day only."""
    assert moment(NOW, NOW) == "15:06:40 UTC"
    assert moment(NOW - 86_400_000, NOW) == "2025-06-14 15:06:40 UTC"
