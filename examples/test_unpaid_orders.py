"""
Tests of ``unpaid_orders.py`` on a fake clock: half an hour passes in no time.

Run it with ``pytest examples/test_unpaid_orders.py``. The fixture ``tinymq_broker``
comes with the installation of tinymq.
"""

from __future__ import annotations

import sys
from datetime import timedelta
from pathlib import Path

import pytest
from twisted.internet.defer import Deferred

sys.path.insert(0, str(Path(__file__).parent))
from unpaid_orders import Shop

MINUTE = timedelta(minutes=1)


@pytest.fixture
def shop(tinymq_broker):
    """Return a shop that is open and has one order."""
    shop = Shop(tinymq_broker.client())
    shop.open()
    Deferred.fromCoroutine(shop.run())
    tinymq_broker.run(shop.order("1"))
    return shop


def test_an_order_that_nobody_pays_for_is_cancelled(tinymq_broker, shop):
    """Not after 29 minutes, but after 30."""
    tinymq_broker.advance(29 * MINUTE)
    assert shop.states == {"1": "open"}

    tinymq_broker.advance(MINUTE + timedelta(seconds=1))
    assert shop.states == {"1": "cancelled"}


def test_an_order_that_is_paid_stays(tinymq_broker, shop):
    """Once it is paid nothing comes any more, however long one waits."""
    tinymq_broker.advance(29 * MINUTE)
    assert tinymq_broker.run(shop.pay("1"))

    tinymq_broker.jump(days=1)
    assert shop.states == {"1": "paid"}


def test_who_pays_too_late_is_told(tinymq_broker, shop):
    """An order is either paid or cancelled, never both."""
    tinymq_broker.advance(31 * MINUTE)

    assert not tinymq_broker.run(shop.pay("1"))
    assert shop.states == {"1": "cancelled"}


def test_the_broker_may_be_away_meanwhile(tinymq_broker, shop):
    """What was due while the broker was down comes when it is back."""
    tinymq_broker.advance(10 * MINUTE)
    tinymq_broker.kill()
    tinymq_broker.advance(60 * MINUTE)
    assert shop.states == {"1": "open"}

    tinymq_broker.restart()
    tinymq_broker.advance(MINUTE)
    assert shop.states == {"1": "cancelled"}
