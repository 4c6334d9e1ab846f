"""A push endpoint: where the messages of a channel are sent to, as the store holds it."""

from __future__ import annotations

import json
from collections.abc import Mapping

from attrs import field, frozen


@frozen(kw_only=True)
class Endpoint:
    """
    Where the messages of a channel are sent to.

    Attributes:
        channel: Name of the channel.
        url: Where to.
        secret: What both sides know; nobody is shown it, and logs neither.
        timeout_ms: How long an answer may take.
        concurrency: Requests that one broker has open at once at most.
        give_up: Failures in a row after which it is paused.
        headers: What is added to each request; they may hold secrets, too.
        set_ms: When it was set; one that is set anew has another.
        paused_ms: Since when nothing is sent, or None.
        why: Why that is.
    """

    channel: str
    url: str
    secret: str = field(repr=False)
    timeout_ms: int = 10_000
    concurrency: int = 10
    give_up: int = 20
    headers: Mapping[str, str] = field(factory=dict, repr=False)
    set_ms: int = 0
    paused_ms: int | None = None
    why: str = ""

    @property
    def paused(self) -> bool:
        """Whether nothing is sent until somebody lets it go on."""
        return self.paused_ms is not None

    def encode(self) -> bytes:
        """Return the endpoint as it is stored."""
        facts = {
            "url": self.url,
            "secret": self.secret,
            "timeout_ms": self.timeout_ms,
            "concurrency": self.concurrency,
            "give_up": self.give_up,
            "headers": dict(self.headers),
            "set_ms": self.set_ms,
            "paused_ms": self.paused_ms,
            "why": self.why,
        }
        return json.dumps(facts, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, channel: str, stored: bytes) -> Endpoint:
        """Read what `encode` gave; what a newer version added is left out."""
        facts = json.loads(stored)
        names = (
            *("url", "secret", "timeout_ms", "concurrency", "give_up"),
            *("headers", "set_ms", "paused_ms", "why"),
        )
        return cls(channel=channel, **{name: facts[name] for name in names})


def endpoint_key(topic_id: bytes, channel: str) -> str:
    """Return the key of the endpoint of a channel in the store."""
    return f"push/{topic_id.hex()}/{channel}"
