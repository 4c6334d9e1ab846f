"""Dead letters over all brokers: listing them, looking, sending them back, dropping them."""

from __future__ import annotations

import fnmatch
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any, Final

from attrs import field, frozen

from tinymq.broker.letters import dead_letter_topic, is_parking, parking_topic
from tinymq.catalog import PUBLIC
from tinymq.errors import (
    BrokerSilent,
    InvalidRequest,
    StateError,
    UnknownChannel,
    UnknownTopic,
    WireError,
)
from tinymq.meta.registry import Topic
from tinymq.names import DEAD_LETTERS, OWN_CHANNELS
from tinymq.operation import NAME, Operation, Parameter, Result, table
from tinymq.operations.base import Answers
from tinymq.operations.leaders import Leaders
from tinymq.operations.written import written

#: Groups of one answer.
_MOST_GROUPS: Final = 100
#: What stands for the channels that gave the letters up.
ORIGIN: Final = "origin"
_CHOICE: Final = ("topic", "channel", "reason", "text", "since_ms", "until_ms")

#: A partition of the dead-letter topic, and an offset there.
_Place = tuple[int, int]


@frozen(kw_only=True)
class _Found:
    """
    What was seen of the dead letters of a topic.

    Attributes:
        letters: By place, in order.
        groups: How many are alike: by reason, topic, channel and error.
        scanned: How many were looked at.
        covered: How many of them lie before the end of this page.
        after: Where the next page begins; None when there is none.
        silent: Who did not answer.
    """

    letters: dict[_Place, Result]
    groups: Counter[tuple[str, str, str, str]]
    scanned: int
    covered: int
    after: str | None
    silent: list[str]


@frozen
class _Step:
    """
    What becomes of the letters of one step.

    Attributes:
        done: Those that were dealt with.
        failed: Why others stay where they are.
    """

    done: set[_Place] = field(factory=set)
    failed: dict[_Place, str] = field(factory=dict)

    def fail(self, places: Iterable[_Place], why: str) -> None:
        """Let letters stay."""
        self.failed.update(dict.fromkeys(places, why))


class DeadLetters(Leaders):
    """Dead letters over all brokers."""

    #: How many records a second a topic gets of late, by its id; None where nobody counts.
    arrivals: Callable[[bytes], float] | None = None

    async def ensure_dead_letters(self, origin: str, name: str) -> Result:
        """Make a topic for dead letters, for a broker elsewhere."""
        self._check_running()
        self._meta.ensure_dead_letters(origin, name)
        await self._spread(self.find(name))
        return {"revision": self._revision}

    # --- listing --------------------------------------------------------------------

    async def dead_letter_topics(
        self,
        topic: str | None,
        filter: str,  # noqa: A002 - the API's word
        after: str,
        limit: int,
    ) -> Result:
        """List dead-letter topics with how much is in them."""
        registry = self._registry
        only = None if topic is None else self.find(topic).name
        everybody = {*registry.brokers, *([self._broker.id] if self._broker.id else [])}
        asked = await self._ask(everybody, "node.kept_letters", {})
        kept: dict[str, list[Result]] = defaultdict(list)
        for answer in asked.results.values():
            for row in answer["kept"]:
                kept[row["target"]].append(row)
        sources = self._sources()
        names = {
            each.name
            for each in registry.topics.values()
            if DEAD_LETTERS in registry.channels_of(each.id)
        }
        chosen = sorted(
            name
            for name in names | kept.keys()
            if (not filter or fnmatch.fnmatchcase(name, filter))
            and (only is None or any(source == only for source, _ in sources[name]))
        )
        page = [name for name in chosen if name > after][:limit]
        topics = [registry.by_name[name] for name in page if name in registry.by_name]
        counted = await self._ask(
            {leader for each in topics for leader in each.leaders},
            "node.dead_letters",
            {"ids": [each.id.hex() for each in topics]},
        )
        rows: dict[str, list[Result]] = defaultdict(list)
        for answer in counted.results.values():
            for row in answer["partitions"]:
                rows[row["id"]].append(row)
        more = bool(page) and page[-1] != chosen[-1]
        return {
            "queues": [self._queue(name, rows, kept[name], sources) for name in page],
            "more": more,
            "after": page[-1] if more else None,
            "total": len(chosen),
            "silent": self._silence(Answers(silent={**asked.silent, **counted.silent})),
        }

    def _sources(self) -> dict[str, set[tuple[str, str]]]:
        """
        Say which channels give up to which topics, parking places included.

        An exchange does so for what no binding takes; it has no name as a channel.
        """
        registry = self._registry
        found: dict[str, set[tuple[str, str]]] = defaultdict(set)
        for topic_id, exchange in registry.exchanges.items():
            topic = registry.topics.get(topic_id)
            if topic is not None:
                for target in (exchange.dead_letter, parking_topic(topic.name)):
                    found[target].add((topic.name, ""))
        for topic_id, channels in registry.channels.items():
            topic = registry.topics.get(topic_id)
            if topic is None:
                continue
            for name, info in channels.items():
                if not name.startswith(OWN_CHANNELS):
                    target = dead_letter_topic(topic.name, name, info.policy.dead_letter)
                    found[target].add((topic.name, name))
                    found[parking_topic(topic.name)].add((topic.name, name))
        return found

    def _queue(
        self,
        name: str,
        rows: dict[str, list[Result]],
        kept: list[Result],
        sources: dict[str, set[tuple[str, str]]],
    ) -> Result:
        topic = self._registry.by_name.get(name)
        known = [] if topic is None else rows[topic.id.hex()]
        channels = {channel for _, channel in sources[name]}
        rate = None
        if topic is not None and self.arrivals is not None:
            rate = self.arrivals(topic.id)
        return {
            "target": name,
            "topics": sorted({source for source, _ in sources[name]}),
            "channel": channels.pop() or None if len(channels) == 1 else None,
            "messages": sum(row["messages"] for row in known),
            "oldest_ms": min((at for row in known if (at := row["oldest_ms"])), default=None),
            "newest_ms": max((at for row in known if (at := row["newest_ms"])), default=None),
            "per_s": rate,
            "kept": sum(row["kept"] for row in kept),
            "kept_why": "; ".join(sorted({row["why"] for row in kept if row["why"]})),
            "parking": is_parking(name),
            "loop": _loop(name, sources),
        }

    # --- looking --------------------------------------------------------------------

    async def dead_letter_messages(
        self, target: str, after: str, limit: int, **choice: Any
    ) -> Result:
        """Look at the dead letters that are still there."""
        found = await self._look(self.find(target), choice, None, after, limit, groups=True)
        return {
            "groups": [
                dict(zip(("reason", "topic", "channel", "text"), key, strict=True), count=count)
                for key, count in found.groups.most_common(_MOST_GROUPS)
            ],
            "messages": [_shown(place, row) for place, row in found.letters.items()],
            "scanned": found.scanned,
            "more": found.after is not None,
            "after": found.after,
            "silent": found.silent,
        }

    async def _look(
        self,
        topic: Topic,
        choice: dict[str, Any],
        offsets: list[_Place] | None,
        after: str,
        limit: int,
        *,
        groups: bool = False,
    ) -> _Found:
        """Look at a page of dead letters, in order of partition and offset."""
        if DEAD_LETTERS not in self._registry.channels_of(topic.id):
            raise UnknownTopic(
                f"{topic.name} is no dead-letter topic: nothing was given up to it",
                topic=topic.name,
            )
        start = _place(after)
        arguments: dict[str, Any] = {
            "id": topic.id.hex(),
            "choice": {key: value for key, value in choice.items() if value is not None},
            "limit": limit,
            "groups": groups,
        }
        if offsets is not None:
            arguments["offsets"] = [list(each) for each in offsets]
        by_leader: dict[int, list[list[int]]] = defaultdict(list)
        for index in range(start[0], topic.partitions):
            if offsets is None or any(index == where for where, _ in offsets):
                first = start[1] + 1 if index == start[0] else 0
                by_leader[topic.leaders[index]].append([index, first])
        answers = Answers()
        for leader, places in by_leader.items():
            answer = await self._ask([leader], "node.letters", {**arguments, "places": places})
            answers.results.update(answer.results)
            answers.silent.update(answer.silent)
        return self._page(answers, limit)

    def _page(self, answers: Answers, limit: int) -> _Found:
        letters: dict[_Place, Result] = {}
        groups: Counter[tuple[str, str, str, str]] = Counter()
        scanned = covered = 0
        after: str | None = None
        for index, row in sorted(answers.rows.items()):
            scanned += row["scanned"]
            for *key, count in row["groups"]:
                groups[tuple(key)] += count
            if after is not None:
                continue
            room = limit - len(letters)
            if not room and (row["letters"] or row["next"] is not None):
                after = _before(index, 0)
                continue
            taken = row["letters"][:room]
            letters.update({(index, each["offset"]): each for each in taken})
            covered += row["covered"] if len(taken) == len(row["letters"]) else len(taken)
            if len(taken) < len(row["letters"]):
                after = _before(index, row["letters"][len(taken)]["offset"])
            elif row["next"] is not None:
                after = _before(index, row["next"])
        return _Found(
            letters=letters,
            groups=groups,
            scanned=scanned,
            covered=covered,
            after=after,
            silent=self._silence(answers),
        )

    # --- sending back, and dropping ---------------------------------------------------

    async def redrive(
        self,
        target: str,
        offsets: list[_Place] | None,
        to: str,
        limit: int,
        after: str,
        *,
        dry_run: bool,
        **choice: Any,
    ) -> Result:
        """Send dead letters back, one step."""
        topic = self.find(target)
        elsewhere = None if to == ORIGIN else self.find(to)
        if elsewhere is topic:
            raise InvalidRequest("they are in this topic already", field="to")
        found = await self._look(topic, choice, offsets, after, limit)
        step = _Step()
        if dry_run:
            step.done.update(found.letters)
        elif elsewhere is not None:
            await self._send(topic, step, [*found.letters], elsewhere.name, None)
        else:
            await self._send_home(topic, step, found.letters)
        return _told(found, step, dry_run=dry_run)

    async def _send_home(self, topic: Topic, step: _Step, letters: dict[_Place, Result]) -> None:
        """Let the channels that gave letters up have them again, and only those."""
        homes: dict[tuple[str, str, str, int], list[_Place]] = defaultdict(list)
        for place, row in letters.items():
            if row["topic"] and row["origin_partition"] is not None:
                home = row["topic"], row["topic_id"] or "", row["channel"]
                homes[*home, row["origin_partition"]].append(place)
            else:
                step.fail([place], "it does not say where it comes from; send it to a topic")
        for (name, topic_id, channel, partition), places in homes.items():
            origin = self._registry.by_name.get(name)
            if origin is None:
                step.fail(places, f"there is no topic {name} any more; send it to another one")
            elif not channel:
                # No channel gave it up, an exchange did: it is routed anew.
                await self._send(topic, step, places, name, partition % origin.partitions)
            elif channel not in self._registry.channels_of(origin.id):
                step.fail(
                    places, f"{name} has no channel {channel} any more; send it to a topic by name"
                )
            elif origin.id.hex() != topic_id or partition >= origin.partitions:
                # Its record is not in this topic, which was made anew.
                await self._send(topic, step, places, name, partition % origin.partitions)
            else:
                revived = await self._revive(origin, channel, partition, places, letters)
                await self._revived(topic, step, origin, partition, revived)

    async def _revive(
        self,
        origin: Topic,
        channel: str,
        partition: int,
        places: list[_Place],
        letters: dict[_Place, Result],
    ) -> dict[str, Any]:
        """Let messages come again; say which letters are which, or why it was not done."""
        by_offset = {letters[place]["origin_offset"]: place for place in places}
        arguments = {
            "id": origin.id.hex(),
            "name": channel,
            "partition": partition,
            "letters": [[at, letters[each]["redriven"] + 1] for at, each in by_offset.items()],
        }
        try:
            answer = await self._ask_alone(origin.leader(partition), "node.revive", arguments)
        except (BrokerSilent, StateError, UnknownChannel) as error:
            return {"why": error.text, "places": places}
        told: dict[str, Any] = {
            key: [by_offset[at] for at in answer[key]] for key in ("there", "dying", "gone")
        }
        # Two letters of one message: the message comes again once.
        last = set(by_offset.values())
        twins = [each for each in places if each not in last]
        told["there"] += (
            each for each in twins if by_offset[letters[each]["origin_offset"]] in told["there"]
        )
        return told

    async def _revived(
        self, topic: Topic, step: _Step, origin: Topic, partition: int, told: dict[str, Any]
    ) -> None:
        if "why" in told:
            step.fail(told["places"], told["why"])
            return
        step.fail(told["dying"], "it is still on its way here; try again")
        await self._settle(topic, step, told["there"], dropped=False)
        if told["gone"]:
            # The record is gone from the log: this copy of it is the last one.
            await self._send(topic, step, told["gone"], origin.name, partition)

    async def _settle(
        self, topic: Topic, step: _Step, places: Iterable[_Place], *, dropped: bool
    ) -> None:
        """Settle letters where they lie."""
        for index, offsets in _by_partition(places).items():
            arguments = {
                "id": topic.id.hex(),
                "partition": index,
                "offsets": offsets,
                "dropped": dropped,
            }
            try:
                answer = await self._ask_alone(
                    topic.leader(index), "node.settle_letters", arguments
                )
            except WireError as error:
                step.fail([(index, at) for at in offsets], error.text)
            else:
                step.done.update((index, at) for at in answer["done"])

    async def _send(
        self, topic: Topic, step: _Step, places: Iterable[_Place], to: str, partition: int | None
    ) -> None:
        """Copy letters to a topic; each is settled when it is there."""
        for index, offsets in _by_partition(places).items():
            arguments: dict[str, Any] = {
                "id": topic.id.hex(),
                "partition": index,
                "offsets": offsets,
                "to": to,
            }
            if partition is not None:
                arguments["index"] = partition
            try:
                answer = await self._ask_alone(topic.leader(index), "node.send_letters", arguments)
            except WireError as error:
                step.fail([(index, at) for at in offsets], error.text)
            else:
                step.done.update((index, at) for at in answer["done"])
                step.failed.update({(index, at): why for at, why in answer["failed"]})

    async def drop(
        self,
        target: str,
        offsets: list[_Place] | None,
        limit: int,
        after: str,
        *,
        dry_run: bool,
        **choice: Any,
    ) -> Result:
        """Settle dead letters without doing anything with them, one step."""
        topic = self.find(target)
        found = await self._look(topic, choice, offsets, after, limit)
        step = _Step()
        if dry_run:
            step.done.update(found.letters)
        else:
            await self._settle(topic, step, found.letters, dropped=True)
        return _told(found, step, dry_run=dry_run)


def _told(found: _Found, step: _Step, *, dry_run: bool) -> Result:
    """What is told of a step."""
    return {
        "done": len(step.done),
        "skipped": found.covered - len(found.letters),
        "failed": [
            {"partition": index, "offset": offset, "why": why}
            for (index, offset), why in sorted(step.failed.items())
        ],
        "loops": sum(row["loop"] for row in found.letters.values()),
        "more": found.after is not None,
        "after": found.after,
        "silent": found.silent,
        "dry_run": dry_run,
    }


def _by_partition(places: Iterable[_Place]) -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for index, offset in sorted(places):
        found[index].append(offset)
    return found


def _place(after: str) -> _Place:
    """
    Read where a page begins: behind a place.

    Raises:
        InvalidRequest: It is none.
    """
    if not after:
        return 0, -1
    partition, colon, offset = after.partition(":")
    last = offset.removeprefix("-")
    if not (colon and after.isascii() and partition.isdigit() and last.isdigit()):
        raise InvalidRequest("after is what the page before said", field="after")
    return int(partition), int(offset)


def _before(index: int, offset: int) -> str:
    """Write the place behind which a page begins with an offset."""
    return f"{index}:{offset - 1}"


def _loop(name: str, sources: dict[str, set[tuple[str, str]]]) -> str:
    """Say how a dead letter could come back to the topic where it was given up first."""
    follows: dict[str, set[str]] = defaultdict(set)
    for target, found in sources.items():
        for topic, _ in found if not is_parking(target) else ():
            follows[topic].add(target)
    ways = [[name]]
    seen = {name}
    for way in ways:
        for target in sorted(follows[way[-1]]):
            if target == name:
                return f"{' -> '.join([*way, name])}: what comes round is parked, not sent on"
            if target not in seen:
                seen.add(target)
                ways.append([*way, target])
    return ""


def _shown(place: _Place, row: Result) -> Result:
    """What is told of one letter."""
    told = {key: value for key, value in row.items() if key != "topic_id"}
    return {"partition": place[0], **written(told, "key", "preview")}


DEAD_LETTER_OPERATIONS: Final[dict[str, Operation]] = table(
    PUBLIC["dlq.list"].by(DeadLetters.dead_letter_topics),
    PUBLIC["dlq.messages"].by(DeadLetters.dead_letter_messages),
    PUBLIC["dlq.redrive"].by(DeadLetters.redrive),
    PUBLIC["dlq.drop"].by(DeadLetters.drop),
    Operation(
        "meta.ensure_dead_letters",
        "cluster",
        True,
        (Parameter("origin", NAME), Parameter("name", NAME)),
        DeadLetters.ensure_dead_letters,
    ),
)
