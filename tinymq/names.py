"""
The one rule for the names that users choose: topics, channels, groups, brokers.

Names that differ only in case are different names. That is safe on a
case-folding file system, since no folder is ever named by a user's text.
"""

from __future__ import annotations

import re
from typing import Final

from tinymq.errors import InvalidName
from tinymq.limits import DEFAULT_LIMITS

#: The rule in words, for every page and error that needs it.
RULE: Final = (
    f"a name is 1 to {DEFAULT_LIMITS.name} bytes of A-Z, a-z, 0-9, '.', '_' and '-', "
    "and does not start with '.'"
)

#: Stands in a channel's name between its group and the instance whose channel it is.
INSTANCE: Final = "@"
#: Channels whose names begin so are the brokers' own; so does the name of a topic of theirs.
OWN_CHANNELS: Final = "tinymq."
#: The channel on a dead-letter topic that knows which dead letters are still there.
DEAD_LETTERS: Final = f"{OWN_CHANNELS}dlq"

#: The topic in which brokers keep who produces in transactions, and what was decided.
TRANSACTIONS: Final = "tinymq.transactions"
#: Its partitions, for ever: the last bits of a producer id say where it is looked after.
TRANSACTION_PLACES: Final = 16

_ALLOWED: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]*")
_SHOWN: Final = 40
#: What can stand in a URL of brokers, or an IPv6 address.
_HOST: Final = re.compile(r"[0-9A-Fa-f:.]+|[^\s:/\[\]@?#,%]+")
_MOST_HOST: Final = 255


def broker_called(name: str) -> str:
    """
    Call a broker by its name, so that people see that it is one.

    Args:
        name: Its name; many begin with the word already.
    """
    return name if name.lower().startswith("broker") else f"broker {name}"


def valid_name(name: object) -> str:
    """
    Return the name if it keeps the rule.

    Args:
        name: What a peer or a user gave.

    Raises:
        InvalidName: The name breaks the rule; the text says how, the data
            holds the name's length in bytes.
    """
    if not isinstance(name, str):
        raise InvalidName(f"not a text: {RULE}", length=0)
    length = len(name.encode("utf-8", "surrogatepass"))
    if length > DEFAULT_LIMITS.name:
        raise InvalidName(f"{_shown(name)} is {length} bytes long: {RULE}", length=length)
    if _ALLOWED.fullmatch(name) is None:
        raise InvalidName(f"{_shown(name)} is not a valid name: {RULE}", length=length)
    return name


def valid_channel(name: object) -> str:
    """
    Return the name of a channel if it keeps the rule: a name, or ``GROUP@INSTANCE``.

    Args:
        name: What a peer or a user gave.

    Raises:
        InvalidName: As `valid_name`, of the whole or of one of the two.
    """
    if not isinstance(name, str) or INSTANCE not in name:
        return valid_name(name)
    group, _, instance = name.partition(INSTANCE)
    length = len(name.encode("utf-8", "surrogatepass"))
    if length > DEFAULT_LIMITS.name:
        raise InvalidName(f"{_shown(name)} is {length} bytes long: {RULE}", length=length)
    valid_name(group)
    valid_name(instance)
    return name


def group_of(channel: str) -> str:
    """
    Return the group that a channel belongs to: its own name, or what stands before the instance.

    Args:
        channel: The channel's name.
    """
    return channel.partition(INSTANCE)[0]


def instance_of(channel: str) -> str:
    """
    Return whose channel it is within its group; empty if it is everybody's.

    Args:
        channel: The channel's name.
    """
    return channel.partition(INSTANCE)[2]


def users_channel(name: str) -> str:
    """
    Return the name of a channel if it can be a user's.

    Args:
        name: A valid name.

    Raises:
        InvalidName: It is kept for the brokers' own channels.
    """
    if name.startswith(OWN_CHANNELS):
        raise InvalidName(
            f"{_shown(name)} is a channel of the brokers' own: names that begin with "
            f"{OWN_CHANNELS} are theirs",
            length=len(name),
        )
    return name


def users_topic(name: str) -> str:
    """
    Return the name of a topic if people may change it.

    Args:
        name: A valid name.

    Raises:
        InvalidName: It is the brokers' own.
    """
    if name == TRANSACTIONS:
        raise InvalidName(
            f"{TRANSACTIONS} is the brokers' own: it keeps what was decided of transactions",
            length=len(name),
        )
    return name


def own_topic(name: str) -> bool:
    """
    Say whether a topic is the brokers' own: neither lists nor patterns mean it.

    Args:
        name: Its name.
    """
    return name == TRANSACTIONS


def asks_for_own(text: str) -> bool:
    """
    Say whether who looks for topics means the brokers' own, too.

    Args:
        text: The name or the pattern that is looked for.
    """
    return text.lower().startswith(OWN_CHANNELS)


def valid_host(host: str) -> bool:
    """
    Say whether a text can be where somebody is reached: one that cannot would break every list.

    Args:
        host: A name or an address, without a port.
    """
    return len(host) <= _MOST_HOST and host.isprintable() and _HOST.fullmatch(host) is not None


def _shown(name: str) -> str:
    return repr(name if len(name) <= _SHOWN else name[:_SHOWN] + "...")
