"""The channels that a trial takes messages from, and what their consumers do with them."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, Final, Literal

from attrs import field, frozen

from tinymq.verify.numbered import Mark

#: What may become of a message. To hold one is to do nothing until it is lost.
Act = Literal["finish", "requeue", "reject", "give_back", "hold"]

#: A handler may have a message for so long; then its lease runs out.
_LEASE: Final = {"lease.ms": 1500, "handler.ms": 1500}
_AGAIN: Final = {"attempts": 4, "backoff": ["0s", "100ms"], "jitter.percent": 0}
#: Messages of so many keys lie between each other.
_KEYS: Final = 5
#: In so many of a thousand cases nobody asks for the confirmation.
_UNCONFIRMED: Final = 400


@frozen(kw_only=True)
class Job:
    """
    A channel, and who works on it.

    Attributes:
        topic: The topic's name.
        name: The channel's.
        config: Its settings.
        workers: How many consumers.
        acts: What becomes of messages, out of a thousand; the rest is finished.
    """

    topic: str
    name: str
    config: Mapping[str, Any] = field(factory=dict)
    workers: int = 2
    acts: Mapping[Act, int] = field(factory=dict)

    @property
    def order(self) -> str:
        """Which order it keeps."""
        return str(self.config.get("order", "none"))

    @property
    def once(self) -> bool:
        """Whether it delivers at most once."""
        return self.config.get("delivery") == "at_most_once"

    @property
    def dead(self) -> str:
        """Its dead-letter topic."""
        return f"{self.topic}.{self.name}.dead"

    def choose(self, chance: random.Random) -> tuple[Act, bool]:
        """
        Choose what becomes of a message, and whether its confirmation is waited for.

        Args:
            chance: Decides.
        """
        confirmed = chance.randrange(1000) >= _UNCONFIRMED
        drawn = chance.randrange(1000)
        for act, share in self.acts.items():
            drawn -= share
            if drawn < 0:
                return act, confirmed
        return "finish", confirmed


_MANY: Final[Mapping[Act, int]] = {"requeue": 120, "reject": 30, "give_back": 40, "hold": 15}
_FEW: Final[Mapping[Act, int]] = {"requeue": 60, "reject": 20, "give_back": 30, "hold": 3}

#: Topic, sync policy, partitions.
WORK: Final = ("work", "always", 2)
LOOSE: Final = ("work-os", "os", 1)

#: Channels of one broker.
JOBS: Final = (
    Job(topic=WORK[0], name="free", config={**_LEASE, **_AGAIN}, acts=_MANY),
    Job(topic=WORK[0], name="keys", config={**_LEASE, **_AGAIN, "order": "key"}, acts=_MANY),
    Job(topic=WORK[0], name="strict", config={**_LEASE, **_AGAIN, "order": "strict"}, acts=_FEW),
    Job(topic=WORK[0], name="once", config={"delivery": "at_most_once"}),
    Job(topic=LOOSE[0], name="loose", config={**_LEASE, **_AGAIN}, acts=_MANY, workers=1),
)


#: Partitions for each broker, and the channels of a cluster.
SHARE: Final = 2
_LONG: Final = {**_LEASE, **_AGAIN, "attempts": 1_000_000}
_SPARED: Final[Mapping[Act, int]] = {"requeue": 80, "give_back": 40, "hold": 5}
CLUSTER_JOBS: Final = (
    Job(topic=WORK[0], name="free", config=_LONG, acts={**_SPARED, "reject": 10}),
    Job(topic=WORK[0], name="keys", config={**_LONG, "order": "key"}, acts=_SPARED),
    Job(topic=WORK[0], name="once", config={"delivery": "at_most_once"}, workers=1),
)


def key_of(mark: Mark) -> bytes:
    """Give the key that a record of this mark has."""
    return b"%d" % (mark.number % _KEYS)
