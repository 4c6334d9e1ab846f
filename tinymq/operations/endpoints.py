"""Setting, describing, pausing, testing and deleting push endpoints, over all brokers."""

from __future__ import annotations

import fnmatch
import os
import re
from bisect import bisect_right
from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime
from typing import Any, Final, Protocol

import attrs

from tinymq.catalog import PUBLIC
from tinymq.catalog.channels import CHANNEL_NAME
from tinymq.errors import InvalidRequest
from tinymq.meta.endpoint import Endpoint
from tinymq.meta.registry import Topic
from tinymq.operation import Operation, Parameter, Result, table
from tinymq.operations.base import Answers
from tinymq.operations.channels import Channels
from tinymq.outbound import Target, parse_target
from tinymq.webhook import SECRET_BYTES, new_secret, secret_bytes
from tinymq.wire.fields import I64, integer, text

#: What requests have anyway; an endpoint cannot say it in another way.
_OWN_HEADERS: Final = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "connection", "keep-alive"),
        *("expect", "te", "trailer", "upgrade", "proxy-connection"),
    }
)
_OWN_PREFIXES: Final = ("webhook-", "tinymq-")
_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_HEADER_VALUE: Final = re.compile(r"[\x20-\x7e\t]*")
#: What every endpoint has, before a broker said anything.
_COUNTED: Final = ("in_flight", "delivered", "failed", "delivered_s", "failed_s")
_MOST_REASON: Final = 1000


class Gate(Protocol):
    """Knows where messages may be sent to."""

    def check(self, target: Target) -> Awaitable[None]:
        """
        Resolve the name, and look at the addresses.

        Raises:
            EndpointRefused: Nothing may be sent there.
        """


class Endpoints(Channels):
    """Push endpoints over all brokers."""

    #: Looks at URLs that are set; without it only their form is looked at.
    gate: Gate | None = None

    async def set_endpoint(self, topic: str, name: str, *, dry_run: bool, **said: Any) -> Result:
        """Have the messages of a channel sent to a URL."""
        self._check_running()
        owner, _ = self._find_channel(topic, name)
        before = self._registry.endpoints.get((owner.id, name))
        if said["headers"] is None:
            said["headers"] = {} if before is None else before.headers
        wanted, made = _wanted(name, said), ""
        if not wanted.secret and before is None:
            made = new_secret(os.urandom(SECRET_BYTES))
            wanted = attrs.evolve(wanted, secret=made)
        if self.gate is not None:
            await self.gate.check(parse_target(wanted.url))
        endpoint = self._meta.set_endpoint(topic, wanted, dry_run=dry_run)
        told = await self._told(owner, endpoint, dry_run=dry_run)
        return {**told, "secret": made if made and not dry_run else None, "dry_run": dry_run}

    async def endpoint(self, topic: str, name: str) -> Result:
        """Describe the push endpoint of a channel."""
        endpoint = self._meta.describe_endpoint(topic, name)
        return await self._told(self.find(topic), endpoint, dry_run=True)

    async def pause_endpoint(self, topic: str, name: str, reason: str, *, dry_run: bool) -> Result:
        """Send nothing to an endpoint until it is resumed."""
        endpoint = self._meta.pause_endpoint(topic, name, reason, dry_run=dry_run)
        told = await self._told(self.find(topic), endpoint, dry_run=dry_run)
        return {**told, "dry_run": dry_run}

    async def resume_endpoint(self, topic: str, name: str, *, dry_run: bool) -> Result:
        """Let an endpoint go on."""
        endpoint = self._meta.resume_endpoint(topic, name, dry_run=dry_run)
        told = await self._told(self.find(topic), endpoint, dry_run=dry_run)
        return {**told, "dry_run": dry_run}

    async def delete_endpoint(self, topic: str, name: str, *, dry_run: bool) -> Result:
        """Send the messages of a channel nowhere any more."""
        owner = self.find(topic)
        was = await self._told(owner, self._meta.describe_endpoint(topic, name), dry_run=True)
        self._meta.delete_endpoint(topic, name, dry_run=dry_run)
        if not dry_run:
            await self._spread(owner)
        return {**was, "dry_run": dry_run}

    async def give_endpoint_up(self, topic_id: str, name: str, set_ms: int, reason: str) -> Result:
        """Pause an endpoint because a broker found that it does not take what is sent."""
        self._check_running()
        try:
            owner = bytes.fromhex(topic_id)
        except ValueError:
            raise InvalidRequest("an id is 32 hex digits", field="topic_id") from None
        endpoint = self._meta.give_endpoint_up(owner, name, set_ms, reason)
        return {"paused": endpoint is not None and endpoint.paused}

    async def endpoints(
        self,
        topic: str | None,
        filter: str,  # noqa: A002 - the API's word
        after: str,
        limit: int,
    ) -> Result:
        """List push endpoints in order of topic and channel."""
        places = self._endpoint_places(topic, filter)
        first = bisect_right(places, _place(after))
        page = places[first : first + limit]
        rows, silent = await self._endpoint_rows(page)
        more = len(places) > first + limit
        return {
            "endpoints": rows,
            "more": more,
            "after": "/".join(page[-1]) if more else None,
            "total": len(places),
            "silent": silent,
        }

    async def test_endpoint(self, topic: str, name: str, *, dry_run: bool) -> Result:
        """Send one made-up message to an endpoint, and tell what it answers."""
        endpoint = self._meta.describe_endpoint(topic, name)
        owner = self.find(topic)
        silent = self._known_silent(owner.leaders)
        leader = next((each for each in owner.leaders if each not in silent), owner.leaders[0])
        told: Result = {"ok": False, "status": None, "error": "", "ms": 0, "answer": ""}
        if dry_run:
            if self.gate is not None:
                await self.gate.check(parse_target(endpoint.url))
        else:
            arguments = {"id": owner.id.hex(), "name": name}
            told = await self._ask_alone(leader, "node.push_test", arguments)
        return {**told, "broker": self._broker_name(leader), "dry_run": dry_run}

    # --- rows ---------------------------------------------------------------------

    async def _told(self, topic: Topic, endpoint: Endpoint, *, dry_run: bool) -> Result:
        """Describe an endpoint, once the brokers know of it."""
        if not dry_run:
            await self._spread(topic)
        answers = await self._ask({*topic.leaders}, "node.push_figures", {"ids": [topic.id.hex()]})
        row = self._endpoint_row(topic, endpoint, answers, _figures(answers))
        return {"endpoint": row, "silent": self._silence(answers)}

    async def _endpoint_rows(
        self, page: Sequence[tuple[str, str]]
    ) -> tuple[list[Result], list[str]]:
        owners = self._owners(page)
        leaders = {leader for owner in owners.values() for leader in owner.leaders}
        ids = [owner.id.hex() for owner in owners.values()]
        answers = await self._ask(leaders, "node.push_figures", {"ids": ids})
        figures = _figures(answers)
        rows = []
        for name, channel in page:
            owner = owners.get(name)
            found = None if owner is None else self._registry.endpoints.get((owner.id, channel))
            if owner is not None and found is not None:  # nobody deleted it in the meantime
                rows.append(self._endpoint_row(owner, found, answers, figures))
        return rows, self._silence(answers)

    def _endpoint_places(self, topic: str | None, pattern: str) -> list[tuple[str, str]]:
        registry = self._registry
        only = None if topic is None else self.find(topic).id
        return sorted(
            (registry.topics[topic_id].name, channel)
            for topic_id, channel in registry.endpoints
            if topic_id in registry.topics
            and only in (None, topic_id)
            and (not pattern or fnmatch.fnmatchcase(channel, pattern))
        )

    def _endpoint_row(
        self,
        topic: Topic,
        endpoint: Endpoint,
        answers: Answers,
        figures: dict[tuple[str, str], list[Result]],
    ) -> Result:
        told = figures.get((topic.id.hex(), endpoint.channel), [])
        mine = [each for each in told if each["set_ms"] == endpoint.set_ms]
        return {
            "topic": topic.name,
            "channel": endpoint.channel,
            "url": endpoint.url,
            "timeout_ms": endpoint.timeout_ms,
            "concurrency": endpoint.concurrency,
            "give_up": endpoint.give_up,
            "headers": sorted(endpoint.headers),
            "set_ms": endpoint.set_ms,
            **self._endpoint_state(topic, endpoint, answers, mine),
            **{name: sum(each[name] for each in told) for name in _COUNTED},
            **_last(told),
            **_spread_of(told),
            "retry_at_ms": max(
                (each["retry_at_ms"] for each in mine if each["retry_at_ms"]), default=None
            ),
        }

    def _endpoint_state(
        self, topic: Topic, endpoint: Endpoint, answers: Answers, told: Sequence[Result]
    ) -> Result:
        if endpoint.paused_ms is not None:
            return {"state": "paused", "why": endpoint.why, "since_ms": endpoint.paused_ms}
        halted = next((each for each in told if each["halted"]), None)
        if halted is not None:  # and the MetaServer will hear of it
            since = halted["last_error_ms"] or endpoint.set_ms
            return {"state": "paused", "why": halted["halted"], "since_ms": since}
        offline = self._offline(topic, answers)
        if offline:
            name, why = next(iter(offline.items()))
            text = f"{name} does not answer: {why}"
            return {"state": "offline", "why": text, "since_ms": self._since(topic, endpoint)}
        return {"state": "active", "why": _why(told), "since_ms": endpoint.set_ms}

    def _since(self, topic: Topic, endpoint: Endpoint) -> int:
        """Say since when a broker of a topic is silent."""
        silent = () if self.board is None else self.board.silent()
        since = [each.since_ms for each in silent if each.id in topic.leaders]
        return min(since, default=endpoint.set_ms)


def _wanted(name: str, said: dict[str, Any]) -> Endpoint:
    """Check what is to be set."""
    try:
        parse_target(said["url"])
    except ValueError as reason:
        raise InvalidRequest(f"url of push.set must be {reason}", field="url") from None
    secret = said["secret"] or ""
    if secret:
        try:
            secret_bytes(secret)
        except ValueError as reason:
            raise InvalidRequest(f"secret of push.set must be {reason}", field="secret") from None
    _check_headers(said["headers"])
    return Endpoint(**{**said, "channel": name, "secret": secret})


def _check_headers(headers: dict[str, str]) -> None:
    seen: set[str] = set()
    for name, value in headers.items():
        lower = name.lower()
        if not _HEADER_NAME.fullmatch(name):
            raise InvalidRequest(f"{name[:40]!a} cannot be the name of a header", field="headers")
        if lower in _OWN_HEADERS or lower.startswith(_OWN_PREFIXES):
            raise InvalidRequest(f"the header {name} is set by the broker", field="headers")
        if lower in seen:
            raise InvalidRequest(f"the header {name} is there twice", field="headers")
        if not _HEADER_VALUE.fullmatch(value) or value != value.strip():
            raise InvalidRequest(
                f"the value of the header {name} must be printable ASCII, without spaces around",
                field="headers",
            )
        seen.add(lower)


def _place(after: str) -> tuple[str, str]:
    topic, slash, name = after.partition("/")
    return (topic, name) if slash or not topic else (topic, "\U0010ffff")


def _figures(answers: Answers) -> dict[tuple[str, str], list[Result]]:
    """Collect what brokers told of endpoints, by topic id and channel."""
    found: dict[tuple[str, str], list[Result]] = {}
    for answer in answers.results.values():
        for row in answer["endpoints"]:
            found.setdefault((row["id"], row["channel"]), []).append(row)
    return found


def _last(told: Sequence[Result]) -> Result:
    """Say what was answered last, and what went wrong last."""
    answered = max(told, key=lambda row: row["last_ms"], default=None)
    wrong = max(told, key=lambda row: row["last_error_ms"] or 0, default=None)
    return {
        "last_status": None if answered is None else answered["last_status"],
        "last_error": "" if wrong is None else wrong["last_error"],
        "last_error_ms": None if wrong is None else wrong["last_error_ms"],
    }


def _spread_of(told: Sequence[Result]) -> Result:
    """Merge how long answers took: pairs of milliseconds at most, and how many."""
    counts: dict[float, int] = {}
    for row in told:
        for most, count in row["times"]:
            counts[most] = counts.get(most, 0) + count
    return {"p50_ms": _quantile(counts, 0.5), "p95_ms": _quantile(counts, 0.95)}


def _quantile(counts: dict[float, int], share: float) -> float | None:
    left = sum(counts.values()) * share
    for most, count in sorted(counts.items()):
        left -= count
        if left <= 0:
            return most
    return None


def _why(told: Sequence[Result]) -> str:
    """Say in words why less is sent just now than could be."""
    until = max((each["retry_at_ms"] or 0 for each in told), default=0)
    if until:
        moment = datetime.fromtimestamp(until / 1000, UTC)
        return f"it asked to be left alone until {moment:%Y-%m-%d %H:%M:%S} UTC"
    row = max((each["row"] for each in told), default=0)
    if row > 1:
        return f"the last {row} requests failed"
    trouble = next((each["trouble"] for each in told if each["trouble"]), "")
    return str(trouble)


ENDPOINT_OPERATIONS: Final[dict[str, Operation]] = table(
    PUBLIC["push.set"].by(Endpoints.set_endpoint),
    PUBLIC["push.list"].by(Endpoints.endpoints),
    PUBLIC["push.info"].by(Endpoints.endpoint),
    PUBLIC["push.delete"].by(Endpoints.delete_endpoint),
    PUBLIC["push.pause"].by(Endpoints.pause_endpoint),
    PUBLIC["push.resume"].by(Endpoints.resume_endpoint),
    PUBLIC["push.test"].by(Endpoints.test_endpoint),
    Operation(
        "meta.give_endpoint_up",
        "cluster",
        True,
        (
            Parameter("topic_id", text(32)),
            CHANNEL_NAME,
            Parameter("set_ms", integer(0, I64)),
            Parameter("reason", text(_MOST_REASON)),
        ),
        Endpoints.give_endpoint_up,
    ),
)
