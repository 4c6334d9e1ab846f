"""What all parts of a channel share: its policy, its places, and what it writes down."""

from __future__ import annotations

from typing import Final

from tinymq.broker.channel.counts import Counters
from tinymq.broker.channel.entries import BACK, SEEK, UNDO, WAIT, Entry
from tinymq.broker.channel.ledger import Journal
from tinymq.broker.channel.looking import Looking
from tinymq.broker.channel.moves import apply
from tinymq.broker.channel.overdue import Overdue
from tinymq.broker.channel.places import Places
from tinymq.channelpolicy import ChannelPolicy

#: Most messages below the cursor that are not settled.
LOOK_AHEAD: Final = 100_000
#: Kinds of moves by which messages come back that may have expired meanwhile.
_TURNS: Final = frozenset({BACK, WAIT, SEEK, UNDO})


class Core:
    """
    The middle of a channel on one partition.

    Args:
        policy: How it treats its messages.
        places: Where its messages are.

    Attributes:
        journal: What is to be written to the ledger.
        counters: What it did since the broker started.
        looking: What is known about messages that must be looked at.
        overdue: What was lost by time lately.
        turned: Kinds of moves by which messages came back.
    """

    def __init__(self, policy: ChannelPolicy, places: Places) -> None:
        self.policy = policy
        self.places = places
        self.journal = Journal()
        self.counters = Counters()
        self.looking = Looking(places, policy)
        self.overdue = Overdue()
        #: What happened since somebody emptied this, of what brings messages back.
        self.turned: set[int] = set()

    def move(self, now: int, who: str, entry: Entry) -> None:
        """
        Make a move and write it down.

        Args:
            now: The time.
            who: The consumer that it is about, or nobody.
            entry: The move.
        """
        self.journal.of(now, who).append(entry)
        apply(self.places, now, who, entry)
        if entry[0] in _TURNS:
            self.turned.add(entry[0])

    @property
    def room(self) -> int:
        """How many more messages may be unsettled below the cursor."""
        return LOOK_AHEAD - self.places.unsettled
