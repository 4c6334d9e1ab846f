"""The settings of a group consumer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from attrs import Attribute, evolve, field, fields, frozen

from tinymq.client.core.config import (
    ConsumerConfig,
    _begin,
    _function,
    _instance,
    _instance_name,
    _one_of,
    _seconds,
    _whole,
    _word,
)
from tinymq.client.core.starts import WORDS, At, Place
from tinymq.errors import ConfigError, UsageError
from tinymq.wire.messages import NOTE_BYTES

STRATEGIES: Final = ("range", "roundrobin", "sticky", "cooperative-sticky", "own")
COMMITS: Final = ("periodic", "batch", "manual")


class Share(NamedTuple):
    """
    A partition that a member is given, or that is taken from it.

    Attributes:
        topic: Name of the topic.
        partition: Number of the partition.
        offset: What is read next: the committed position. Where nothing was, the group's
            start was committed by taking over; -1 if that cannot be read.
        epoch: Epoch of the record before it, or -1.
        note: What was committed with the position, or ``""``.
    """

    topic: str
    partition: int
    offset: int = -1
    epoch: int = -1
    note: str = ""


class GroupMember(NamedTuple):
    """
    A member, as an assignor sees it.

    Attributes:
        id: Its number, new at each start.
        instance: Its name, if it is a static one, or ``""``.
        topics: The topics that it wants.
        data: Its `GroupConfig.member_data`.
    """

    id: str
    instance: str
    topics: Sequence[str]
    data: bytes


#: Divides partitions: the members, and topics with their numbers of partitions, to a
#: list of topic and partition for each member's id.
Assignor = Callable[
    [Sequence[GroupMember], Mapping[str, int]], Mapping[str, Sequence[tuple[str, int]]]
]
#: Told of shares; may return what is waited for, in the faces that can wait.
Notice = Callable[[list[Share]], Any]


def _assignor(self: Any, attribute: Attribute[Any], value: Any) -> None:
    if (self.strategy == "own") != callable(value):
        raise ConfigError("GroupConfig.assignor is a function if strategy is own, and only then")


@frozen(kw_only=True)
class GroupConfig(ConsumerConfig):
    """
    Settings of a group consumer: those of a consumer, and these.

    Attributes:
        start: Where a partition begins of which the group has committed nothing:
            ``earliest``, ``latest``, an offset, or `At` a time; ``@`` and milliseconds
            since the epoch do as well. Whoever takes the partition over first commits it,
            with ``manual``, too: it says that nothing is done.
        out_of_range: As for every consumer: when a committed position does not exist any
            more, or the topic was made anew under the group, ``error`` tells, with the
            valid range; ``earliest`` and ``latest`` jump there.
        commit: When what is done is committed: ``periodic``, every `commit_s`;
            ``batch``, as soon as a batch is done; ``manual``, only when told to. The
            first two also commit before a partition is given up.
        commit_s: Interval of periodic commits.
        strategy: How partitions are divided among members: ``cooperative-sticky``,
            ``sticky``, ``range``, ``roundrobin``, or ``own``. All members must agree.
        assignor: The function that divides them, with ``own``.
        member_data: What assignors are told of this member, at most 4096 bytes.
        instance: Name of a static member: it has its partitions again when it is back
            within `session_s`, and nobody else has them meanwhile.
        session_s: A member that is silent for so long is taken for dead.
        rebalance_s: How long giving up a partition may take: the time for handlers to
            end. Then it is lost, and what they do is done again by the next owner.
        max_ahead: A partition is not handed out further than so many offsets beyond the
            first one that is not done.
        leave_s: Time for the last commits and for leaving, at the end.
        on_assigned: Called with the `Share` list of partitions that are read from now on,
            before their first record; it may `seek`.
        on_revoked: Called with partitions that are given up, when all that was handed
            out is done, before the last commit.
        on_lost: Called with partitions that somebody else may have by now.
    """

    start: str | int | At = field(default="earliest", validator=_begin)
    commit: str = _word("periodic", COMMITS)
    commit_s: float = _seconds(5.0, 0.01, 3600.0)
    strategy: str = field(default="cooperative-sticky", validator=_one_of(STRATEGIES))
    assignor: Assignor | None = field(default=None, validator=_assignor)
    member_data: bytes = field(default=b"", validator=_instance(bytes))
    instance: str | None = field(default=None, validator=_instance_name)
    session_s: float = _seconds(45.0, 1.0, 3600.0)
    rebalance_s: float = _seconds(60.0, 1.0, 3600.0)
    max_ahead: int = _whole(100_000, 1, 1 << 31)
    leave_s: float = _seconds(5.0)
    on_assigned: Notice | None = field(default=None, validator=_function)
    on_revoked: Notice | None = field(default=None, validator=_function)
    on_lost: Notice | None = field(default=None, validator=_function)

    def __attrs_post_init__(self) -> None:
        if len(self.member_data) > NOTE_BYTES:
            raise ConfigError(f"GroupConfig.member_data has at most {NOTE_BYTES} bytes")

    @property
    def place(self) -> Place:
        """Where a partition begins of which nothing was committed."""
        start = self.start
        if not isinstance(start, str):
            return start
        return WORDS[start] if start in WORDS else At(int(start.removeprefix("@")))

    def check_transactional(self, group: str) -> None:
        """
        See whether transactions may commit the positions of a consumer.

        Args:
            group: Name of its group.

        Raises:
            UsageError: It commits by itself, also what a transaction takes back.
        """
        if self.commit != "manual":
            raise UsageError(
                f"group {group} commits by itself, whatever becomes of the transaction: make its "
                'consumer with commit="manual"'
            )


def group_config(config: GroupConfig | None, changes: Mapping[str, Any]) -> GroupConfig:
    """
    Make settings of what the caller gave.

    Args:
        config: Settings, or None.
        changes: Fields that are to be different.

    Raises:
        ConfigError: One of them is wrong, or there is no such field.
    """
    known = {one.name for one in fields(GroupConfig)}
    for name in changes:
        if name not in known:
            raise ConfigError(f"GroupConfig has no field {name}")
    return GroupConfig(**changes) if config is None else evolve(config, **changes)


def listed(names: Iterable[str]) -> list[str]:
    """
    Make a list of names of topics, or of patterns.

    Args:
        names: As the caller gave them.

    Raises:
        UsageError: It is one word.
    """
    if isinstance(names, str):
        raise UsageError(f"topics and patterns are lists of words: [{names!r}]")
    return list(names)
