"""The error tree: codes are part of the protocol, words are for people."""

from __future__ import annotations

import inspect

import pytest

from tinymq import errors
from tinymq.errors import (
    BY_CODE,
    ClientError,
    ForeignCluster,
    GroupBusy,
    InternalError,
    OffsetOutOfRange,
    ProtocolError,
    RequestError,
    StateError,
    StorageError,
    TinyMQError,
    UsageError,
    WireError,
    from_wire,
)

CLASSES = [
    cls for cls in vars(errors).values() if inspect.isclass(cls) and issubclass(cls, TinyMQError)
]
WIRE = [cls for cls in CLASSES if issubclass(cls, WireError) and cls is not WireError]


def test_there_is_one_tree() -> None:
    """Everything that is raised on purpose has one base, and one of three kinds."""
    for cls in CLASSES:
        assert issubclass(cls, (UsageError, ClientError, WireError)) or cls is TinyMQError


@pytest.mark.parametrize("cls", CLASSES)
def test_every_error_says_what_it_is(cls: type[TinyMQError]) -> None:
    """Each class has a docstring of one sentence, the text of last resort."""
    first = (cls.__doc__ or "").strip().split("\n", maxsplit=1)[0]

    assert first.endswith(".")


def test_codes_are_unique_and_their_own() -> None:
    """No two classes share a code, and none inherits one."""
    assert all("code" in vars(cls) for cls in WIRE)
    assert len({cls.code for cls in WIRE}) == len(WIRE)
    assert set(BY_CODE.values()) == set(WIRE)
    assert all(code == cls.code for code, cls in BY_CODE.items())


def test_codes_do_not_change() -> None:
    """The codes that clients know; a line is added here and never altered."""
    assert {code: cls.__name__ for code, cls in BY_CODE.items()} == {
        1: "InternalError",
        10: "ProtocolError",
        11: "BadMagic",
        12: "UnsupportedVersion",
        13: "FrameTooLarge",
        14: "MalformedFrame",
        15: "MessageIdInUse",
        16: "HelloRequired",
        20: "RequestError",
        21: "UnknownType",
        22: "InvalidRequest",
        23: "InvalidName",
        24: "UnknownTopic",
        25: "UnknownTopicId",
        26: "UnknownPartition",
        27: "TopicExists",
        28: "OffsetOutOfRange",
        29: "LogTruncated",
        30: "CorruptBatch",
        31: "BatchTooLarge",
        32: "ValueTooLarge",
        33: "OutOfOrderSequence",
        34: "ProducerFenced",
        35: "UnknownProducer",
        36: "NothingToUndo",
        37: "UnknownClient",
        38: "UnknownBroker",
        39: "Forbidden",
        40: "UnknownChannel",
        41: "ChannelExists",
        42: "LeaseLost",
        43: "UnknownSubscription",
        44: "InvalidDelay",
        45: "UnknownDelayed",
        46: "Unroutable",
        47: "UnknownSchedule",
        48: "UnknownExchange",
        49: "UnknownBinding",
        50: "StateError",
        51: "ShuttingDown",
        52: "NotLeader",
        53: "Overloaded",
        54: "MetaUnavailable",
        55: "BrokerSilent",
        56: "ForeignCluster",
        57: "NotCoordinator",
        58: "UnstablePosition",
        59: "GroupBusy",
        60: "StorageError",
        61: "StorageFull",
        62: "PartitionOffline",
        63: "TooManyOpenFiles",
        70: "UnknownEndpoint",
        71: "EndpointRefused",
        80: "UnknownGroup",
        81: "UnknownMember",
        82: "FencedGeneration",
        83: "InconsistentGroup",
        84: "InvalidTransaction",
        85: "TransactionAborted",
    }


@pytest.mark.parametrize("cls", WIRE)
def test_flags_follow_the_branch(cls: type[WireError]) -> None:
    """Wrong bytes end the connection, a wrong request never helps itself, moments pass."""
    assert cls.fatal == (issubclass(cls, (ProtocolError, InternalError)))
    if issubclass(cls, (ProtocolError, RequestError, InternalError)):
        assert not cls.retriable
    if issubclass(cls, StateError):  # no moment makes another cluster of one
        assert cls.retriable == (cls not in {ForeignCluster, GroupBusy})


@pytest.mark.parametrize("cls", WIRE)
def test_errors_are_built_from_the_wire(cls: type[WireError]) -> None:
    """A code becomes its class, with text and data."""
    error = from_wire(cls.code, "words", {"start": 1})

    assert type(error) is cls
    assert (error.text, str(error), error.data) == ("words", "words", {"start": 1})


def test_an_unknown_code_is_kept() -> None:
    """A newer broker's error is a plain one that keeps its code."""
    error = from_wire(999, "words")

    assert type(error) is WireError
    assert (error.code, error.data) == (999, {})
    assert WireError.code == 1


def test_without_words_the_docstring_speaks() -> None:
    """An error that is raised bare still says something."""
    assert OffsetOutOfRange().text == "The offset lies outside what the partition holds."


def test_storage_errors_are_one_branch() -> None:
    """Whoever catches the disk's refusals catches them all."""
    assert {cls.code for cls in WIRE if issubclass(cls, StorageError)} == {60, 61, 62, 63}
