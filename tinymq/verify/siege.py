"""
The sequence of events on a cluster: load, strike, look, start again, measure; case by case.

While something is away, what lives must go on, what is away must be named, and
every call must end. Afterwards everything must come back by itself. What was
acknowledged is compared with what is there at the very end.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from attrs import frozen

from tinymq.errors import DeadlineExceeded, MetaUnavailable, TinyMQError
from tinymq.verify import crowd, verdict
from tinymq.verify.beats import Beats
from tinymq.verify.checker import Checker
from tinymq.verify.clusterreport import ClusterReport, Entry
from tinymq.verify.clusterworks import ClusterWorks
from tinymq.verify.crowd import Crowd, Lead, Stage, Writer, named
from tinymq.verify.fleet import META, Fleet
from tinymq.verify.intruders import Intruders
from tinymq.verify.journal import Journal
from tinymq.verify.matrix import Case, rounds
from tinymq.verify.numbered import Place
from tinymq.verify.reading import feed, list_topics
from tinymq.verify.report import MOST_PROBLEMS

if TYPE_CHECKING:
    from tinymq.sync import Client

BROKERS: Final = ("b1", "b2", "b3")

#: Seconds without an acknowledgement or a record that living brokers may need when
#: another dies: records without a key that were on their way to it have a deadline.
MOST_GAP: Final = 5.0
#: The same when only the MetaServer is away: nothing may be felt but a busy machine.
MOST_GAP_WITHOUT_META: Final = 2.0
#: Seconds in which the partitions of a dead broker must be named.
NAMED_WITHIN: Final = 8.0
#: The same for one that stands still: nobody hears that it does.
NAMED_STILL_WITHIN: Final = 19.0
#: Seconds in which a broker that listens again must take and give records.
BACK_WITHIN: Final = 12.0
#: Seconds in which the brokers find a MetaServer that is back.
LINK_BACK: Final = 3.0
#: Seconds that the call of a probe may take.
PROBE_DEADLINE: Final = 3.0
_GLANCE: Final = 0.1


@frozen(kw_only=True)
class Siege:
    """
    How much is tried.

    Attributes:
        rounds: How often the whole matrix; 0 is its short form.
        seed: Chance begins here.
    """

    rounds: int = 1
    seed: int = 0


class ClusterTrial:
    """
    One run of `verify-cluster`.

    Args:
        siege: How much is tried.
        folder: Where data folders are made.
        tell: Told before each case how far the trial is.

    Attributes:
        report: What was found so far.
    """

    def __init__(self, siege: Siege, folder: Path, tell: Callable[[str], None]) -> None:
        self.report = ClusterReport(siege.seed)
        self._siege = siege
        self._tell = tell
        self._chance = random.Random(siege.seed)  # noqa: S311 - nothing secret
        self._fleet = Fleet(folder / "cluster", BROKERS, self._chance)
        self._beats = Beats()
        self._journal = Journal()
        self._intruders = Intruders(self._fleet, folder / "intruders", self._chance)

    def run(self) -> ClusterReport:
        """Do everything that was planned."""
        began = time.monotonic()
        try:
            self._intruders.prepare()
            self._fleet.start()
            self._try_all()
        except TinyMQError as error:
            self.report.problem(f"{type(error).__name__}: {error}")
        finally:
            self._intruders.kill()
            self._fleet.kill()
        for line in self._fleet.errors():
            self.report.problem(line)
        self.report.seconds = time.monotonic() - began
        return self.report

    def _try_all(self) -> None:
        with crowd.connect(self._fleet.url(), crowd.ADMIN_DEADLINE) as admin:
            lead = self._make_topics(admin)
            stage = Stage(self._fleet.url, self._journal, self._beats, lead, self._siege.seed)
            self._crowd = Crowd(stage, BROKERS)
            self._stage, self._admin = stage, admin
            self._works = ClusterWorks(stage, len(BROKERS), admin)
            with crowd.connect(self._fleet.url(1), PROBE_DEADLINE) as probing:
                self._probing = probing
                self._probe = Writer(stage, probing, "probe", PROBE_DEADLINE)
                for place in lead.leaders:
                    self._probe.send(place.topic, partition=place.partition)
                self._crowd.start()
                self._works.start()
                try:
                    self._strike_all()
                finally:
                    self._crowd.stop_writing()
                    self._works.stop_publishing()
            self._close()
        for line in self._fleet.stop():
            self.report.problem(line)

    def _make_topics(self, admin: Client) -> Lead:
        """Make the topics that are published to, and see that they are spread."""
        leaders: dict[Place, str] = {}
        for topic, sync in crowd.TOPICS:
            self._journal.topics_tried.add(topic)
            admin.admin.create_topic(topic, crowd.SHARE * len(BROKERS), {"sync": sync})
            self._journal.topics.add(topic)
            for row in _rows(admin, topic):
                leaders[Place(topic, row["partition"])] = row["leader"]
            counts = {name: list(leaders.values()).count(name) for name in BROKERS}
            if max(counts.values()) != min(counts.values()):
                self.report.problem(f"the partitions of {topic} are not spread: {counts}")
        return Lead(leaders)

    def _strike_all(self) -> None:
        self._await_all(self._beats.now())
        numbers = self._brokers()
        cases = list(rounds(BROKERS, self._siege.rounds, self._chance))
        self._intruders.begin(next(name for name in BROKERS if name not in cases[0].victims))
        if cases[0].strikes_meta:  # who could not refuse it
            self._intruders.judge(self.report)
        for case in cases:
            self._tell(f"{case.name}: {self._journal.acknowledged} acknowledged")
            self._carry_out(case)
            after = self._brokers(self._risen(case, numbers))
            self._compare(case, numbers, after)
            numbers = after
            self._intruders.judge(self.report)
            if len(self.report.problems) >= MOST_PROBLEMS:
                return
        self._intruders.refuse_others(self.report)

    # --- one case ----------------------------------------------------------------

    def _carry_out(self, case: Case) -> None:
        entry = Entry(case.name)
        self.report.entries.append(entry)
        self.report.figures["cases"] += 1
        began = self._beats.now()
        if case.how == "stop" and case.brokers:
            self._drain(case, undo=False)
        for name in case.victims:
            self._strike(case, name)
        if case.strikes_meta:
            self._probe_meta(case, entry)
        else:
            self._probe_named(case, entry)
        if case.how == "pause":
            # What was written to a broker that only stands still may be stored.
            self._probe_refused(case, entry, in_doubt=True)
            _sleep_until(began + case.seconds - PROBE_DEADLINE)
        self._probe_refused(case, entry)
        _sleep_until(began + case.seconds)
        entry.away = self._beats.now() - began
        gone = set(case.victims)
        for name in case.revived:
            self._revive(case, name, entry, others_gone=gone - {name})
            gone.discard(name)
        if case.how == "stop" and case.brokers:
            self._drain(case, undo=True)
        self._await_all(self._beats.now())
        if case.strikes_meta:  # a broker that is not back yet would be missed late
            time.sleep(LINK_BACK)
        self._judge_gaps(case, entry, began, self._beats.now())

    def _drain(self, case: Case, *, undo: bool) -> None:
        """Do as an operator does who takes a machine away for a while."""
        for name in case.brokers:
            self._admin.admin.operate("broker.drain", broker=name, undo=undo)

    def _strike(self, case: Case, name: str) -> None:
        process = self._fleet.processes[name]
        if case.how == "pause":
            process.pause()
        elif case.how == "kill":
            process.kill()
            self.report.figures["kills"] += 1
        elif (status := process.stop()) not in {0, -15}:
            self.report.problem(f"the exit status of {name} after SIGTERM was {status}")

    def _revive(self, case: Case, name: str, entry: Entry, others_gone: set[str]) -> None:
        process, since = self._fleet.processes[name], self._beats.now()
        if case.how == "pause":
            process.resume()
        else:
            process.launch()
            process.wait()
        listening = self._beats.now()
        entry.worst("start", listening - since)
        if name == META:
            entry.worst("admin", self._await(["desk"], listening, f"{name} was started again"))
            return
        what = f"{name} was started again"
        if META in others_gone:
            what += f" while {META} was away"
        entry.worst("writes", self._await([f"keyed {name}"], listening, what))
        entry.worst("reads", self._await([f"read {name}"], listening, what))
        entry.worst("takes", self._await([f"taken {name}"], listening, what))

    def _judge_gaps(self, case: Case, entry: Entry, start: float, end: float) -> None:
        living = [name for name in BROKERS if name not in case.brokers]
        beats = self._beats
        entry.unkeyed = beats.gap("unkeyed", start, end)
        entry.keyed = beats.longest_gap((f"keyed {name}" for name in living), start, end)
        entry.read = beats.longest_gap((f"read {name}" for name in living), start, end)
        entry.taken = beats.longest_gap((f"taken {name}" for name in living), start, end)
        most = MOST_GAP if case.brokers else MOST_GAP_WITHOUT_META
        for what in ("unkeyed", "keyed", "read", "taken"):
            if getattr(entry, what) > most:
                self.report.problem(
                    f"{case.name}: a gap of {getattr(entry, what):.1f} s of {what} on living "
                    f"brokers; at most {most:.1f} s are allowed"
                )

    # --- what is said while something is away --------------------------------------

    def _probe_named(self, case: Case, entry: Entry) -> None:
        """See that the partitions of dead brokers are named, and how soon."""
        since = self._beats.now()
        within = NAMED_STILL_WITHIN if case.how == "pause" else NAMED_WITHIN
        # A client that may ask a broker that stands still would itself have to wait.
        with crowd.connect(f"tinymq://{self._fleet.meta}", within) as asking:
            while missing := _unnamed(asking, case.brokers):
                if self._beats.now() - since > within:
                    self.report.problem(
                        f"{case.name}: not named within {within:.0f} s: {'; '.join(missing)}"
                    )
                    return
                time.sleep(_GLANCE)
        entry.named = self._beats.now() - since

    def _probe_refused(self, case: Case, entry: Entry, *, in_doubt: bool = False) -> None:
        """See that a call to a dead broker's partition ends in time and says what is wrong."""
        # A blocking client notices only within a call that a connection has ended.
        # What it wrote there before it noticed may be stored, and so is not retriable.
        with suppress(TinyMQError):
            self._probing.metadata([topic for topic, _ in crowd.TOPICS])
        for broker in case.brokers:
            place = self._chance.choice(self._stage.lead.of(broker))
            since = self._beats.now()
            try:
                self._probe.send(place.topic, partition=place.partition)
            except TinyMQError as error:
                text = str(error)
                words = (place.topic, f"partition {place.partition}", broker)
                doubtful = in_doubt and isinstance(error, DeadlineExceeded)
                if not (doubtful or getattr(error, "retriable", False)):
                    self.report.problem(f"{case.name}: not retriable: {error!r}")
                if missing := [word for word in words if word not in text]:
                    self.report.problem(f"{case.name}: {error!r} does not name {missing}")
                self._note(f"publishing to a dead broker says: {type(error).__name__}: {text}")
            else:
                self.report.problem(f"{case.name}: {place} of {broker} took a record")
            entry.worst("refused", self._beats.now() - since)

    def _probe_meta(self, case: Case, entry: Entry) -> None:
        """See that making a topic fails in time and says what to do."""
        with suppress(TinyMQError):  # see `_probe_refused`
            self._admin.metadata([crowd.TOPICS[0][0]])
        since = self._beats.now()
        self._journal.topics_tried.add("probe")
        try:
            self._admin.admin.create_topic("probe")
        except MetaUnavailable as error:
            self._note(f"making a topic without a MetaServer says: {error}")
        except TinyMQError as error:
            self.report.problem(f"{case.name}: making a topic failed with {error!r}")
        else:
            self.report.problem(f"{case.name}: a topic was made without a MetaServer")
        self._beats.took("create", since, crowd.ADMIN_DEADLINE)
        entry.worst("refused", self._beats.now() - since)

    def _note(self, text: str) -> None:
        """Keep the first words of each kind for people."""
        head = text.split(":", 1)[0]
        if not any(note.startswith(head) for note in self.report.notes):
            self.report.notes.append(text)

    # --- coming back -----------------------------------------------------------------

    def _await(self, names: Iterable[str], since: float, what: str) -> float:
        """Wait until everything has moved after a moment, and tell how long it took."""
        wanted, latest = list(names), since
        while wanted:
            moments = {name: self._beats.first(name, since) for name in wanted}
            latest = max([latest, *(each for each in moments.values() if each is not None)])
            wanted = [name for name, each in moments.items() if each is None]
            if wanted and self._beats.now() - since > BACK_WITHIN:
                self.report.problem(
                    f"{what}, and {', '.join(wanted)} did not go on within {BACK_WITHIN:.0f} s"
                )
                break
            time.sleep(_GLANCE / 10)
        return latest - since

    def _await_all(self, since: float) -> None:
        senders = [f"unkeyed {number}" for number in range(crowd.ANYWHERE)]
        taken = [f"taken {name}" for name in BROKERS]
        everything = [*senders, *self._crowd.streams(BROKERS), *taken, "desk"]
        self._await(everything, since, "everything runs")

    def _risen(self, case: Case, before: dict[str, dict[str, Any]]) -> dict[str, int]:
        """Tell the least incarnations that the brokers must have after a case."""
        struck = case.brokers if case.how != "pause" else ()
        return {name: row["incarnation"] + (name in struck) for name, row in before.items()}

    def _brokers(self, least: dict[str, int] | None = None) -> dict[str, dict[str, Any]]:
        """Wait until all brokers are ready and have these incarnations; tell their rows by name."""
        least = dict.fromkeys(BROKERS, 0) if least is None else least
        deadline = self._beats.now() + BACK_WITHIN
        while True:
            rows = {row["name"]: row for row in self._broker_rows()}
            if all(name in rows and _is_up(rows[name], least[name]) for name in BROKERS):
                return rows
            if self._beats.now() > deadline:
                states = {name: (row["state"], row["incarnation"]) for name, row in rows.items()}
                self.report.problem(f"the brokers do not become ready: {states}")
                return rows
            time.sleep(_GLANCE)

    def _broker_rows(self) -> list[dict[str, Any]]:
        return _broker_rows(self._admin)

    def _compare(self, case: Case, before: dict[str, Any], after: dict[str, Any]) -> None:
        """See that numbers stay and incarnations rise."""
        least = self._risen(case, before)
        if set(after) != set(before):
            self.report.problem(f"{case.name}: brokers were {sorted(before)}, are {sorted(after)}")
        for name in set(after) & set(before):
            old, new = before[name], after[name]
            if old["id"] != new["id"]:
                self.report.problem(f"{case.name}: {name} was {old['id']} and is {new['id']}")
            if new["incarnation"] < least[name]:
                self.report.problem(
                    f"{case.name}: the incarnation of {name} was {old['incarnation']} and is "
                    f"{new['incarnation']}"
                )

    # --- the end -----------------------------------------------------------------------

    def _close(self) -> None:
        """Compare what was acknowledged with what is there, read along and read anew."""
        report, journal = self.report, self._journal
        anew = {
            place: Checker(place, journal.tried, named=named(place.topic))
            for place in self._stage.lead.leaders
        }
        with crowd.connect(self._fleet.url(2), crowd.ADMIN_DEADLINE) as client:
            for topic, _ in crowd.TOPICS:
                parts = {
                    place.partition: each for place, each in anew.items() if place.topic == topic
                }
                for problem in feed(client, topic, parts):
                    report.problem(problem)
            verdict.judge_topics(report, journal, list_topics(client))
        self._await_reader({place: checker.position for place, checker in anew.items()})
        self._crowd.stop()
        verdict.judge_records(report, journal, self._crowd.readers)
        report.figures["read_along"] = sum(each.recovered for each in self._crowd.readers.values())
        verdict.judge_records(report, journal, anew)
        for checker in anew.values():
            report.add(checker)
        report.figures["acknowledged"] = journal.acknowledged
        report.figures["topics"] = len(journal.topics)
        verdict.judge_calls(report, self._stage)
        self._works.close(report)

    def _await_reader(self, ends: dict[Place, int]) -> None:
        deadline = self._beats.now() + BACK_WITHIN
        readers = self._crowd.readers
        while behind := [place for place, end in ends.items() if readers[place].position < end]:
            if self._beats.now() > deadline:
                places = ", ".join(str(place) for place in behind)
                self.report.problem(f"the reader does not come to the end of {places}")
                return
            time.sleep(_GLANCE)


def _rows(client: Client, topic: str) -> list[dict[str, Any]]:
    return list(client.admin.operate("topic.info", name=topic)["topic"]["partitions"])


def _broker_rows(client: Client) -> list[dict[str, Any]]:
    return list(client.admin.operate("broker.list")["brokers"])


def _unnamed(client: Client, dead: Sequence[str]) -> list[str]:
    """Say what should be named and is not."""
    missing = []
    try:
        for topic, _ in crowd.TOPICS:
            for row in _rows(client, topic):
                if row["leader"] not in dead:
                    continue
                if row["state"] != "offline" or row["leader"] not in row["reason"]:
                    missing.append(
                        f"{topic}/{row['partition']} of {row['leader']} is {row['state']} "
                        f"({row['reason']})"
                    )
        states = {row["name"]: row["state"] for row in _broker_rows(client)}
        missing += [
            f"{name} is {states.get(name)}" for name in dead if states.get(name) != "silent"
        ]
    except TinyMQError as error:
        missing.append(f"the MetaServer says {error!r}")
    return missing


def _is_up(row: dict[str, Any], least: int) -> bool:
    """Whether a broker is ready, and started again as often as it must be."""
    return bool(row["state"] == "ready" and row["incarnation"] >= least)


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))
