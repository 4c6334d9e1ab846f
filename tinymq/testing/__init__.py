"""
A broker within the test: the real broker, the real client, and time that is yours.

::

    with InProcessBroker() as broker:
        client = broker.client()
        broker.run(client.producer().send("orders", b"tea"))
        broker.jump(days=30)
        assert broker.records("orders") == []

No socket is opened, no reactor runs and nothing sleeps. `BrokerProcess` is the other
way: a broker in a process of its own, for programs that open sockets. Importing this package
loads nothing before one of the classes is asked for; pytest's plugin relies on it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tinymq.testing.broker import InProcessBroker
    from tinymq.testing.clock import Time
    from tinymq.testing.links import Acknowledgement
    from tinymq.verify.process import BrokerProcess

_LAZY: Final = {
    "Acknowledgement": "tinymq.testing.links",
    "BrokerProcess": "tinymq.verify.process",
    "InProcessBroker": "tinymq.testing.broker",
    "Time": "tinymq.testing.clock",
}

__all__ = ["Acknowledgement", "BrokerProcess", "InProcessBroker", "Time"]


def __getattr__(name: str) -> Any:
    place = _LAZY.get(name)
    if place is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(place), name)
    globals()[name] = found
    return found
