"""
The kinds of entries in the ledger of a channel.

An entry is a tuple of a kind and its facts: the arguments of the move that it
stands for, in `tinymq.broker.channel.moves`. Kinds are never given another
meaning.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

#: Kinds of entries, by their first item.
LEASE: Final = 0
TAKE: Final = 1
FINISH: Final = 2
BACK: Final = 3
WAIT: Final = 4
DOOM: Final = 5
DISCARD: Final = 6
BURY: Final = 7
SKIP: Final = 8
TRIM: Final = 9
PASS: Final = 10
ADMIT: Final = 11
SEEK: Final = 12
UNDO: Final = 13
PAUSE: Final = 14
POLICY: Final = 15
#: A FINISH of a single message, by the number of its bit: the most frequent of all.
ONE: Final = 16
REVIVE: Final = 17
RECALL: Final = 18
#: What a consumer's client calls itself; changes nothing.
NAMED: Final = 20
#: A message that was copied into the ledger; of the partition, not of a channel.
KEEP: Final = 21
#: Many runs that are given up at once: each with its own history.
EXPIRE: Final = 22
#: What waits comes at another time.
RESCHEDULE: Final = 23

#: Messages in flight that a transaction holds until it is decided.
HOLD: Final = 24

#: Why something happened to a message: people did it, without asking its holder.
OPERATOR: Final = "operator"

#: A kind, and what belongs to it.
Entry: TypeAlias = tuple[Any, ...]
