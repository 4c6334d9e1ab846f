"""
Lives of brokers whose clients have transactions, with kills, power cuts and links that are cut.

Clients take messages of a channel, publish copies to several partitions, and settle and
publish together. Whatever dies when: every transaction counts in all of its partitions or in
none, nothing of an aborted one is ever seen, every message is copied exactly once, and no
partition stays closed to its readers.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from attrs import define, field

from tests.broker.transactions.ring import Member, Ring
from tests.broker.transactions.stage import committed, transactional
from tests.fakes.broker import batch
from tests.fakes.taking import Taken, Taker
from tinymq.broker.partition import Appended
from tinymq.broker.transactions.opened import Identity
from tinymq.broker.transactions.places import place_of
from tinymq.broker.transactions.producing import LAST_EPOCH
from tinymq.errors import (
    InvalidTransaction,
    ProducerFenced,
    TransactionAborted,
    UnknownProducer,
    WireError,
)
from tinymq.names import TRANSACTIONS
from tinymq.wire.frames import Bytes
from tinymq.wire.header import REPLY
from tinymq.wire.messages import (  # noqa: F401
    AHEAD,
    FINISH,
    EndTransaction,
    EndTransactionReply,
    Fetch,
    FetchReply,
    Hello,
    InitProducerReply,
    Settle,
    SettleReply,
    Subscribe,
    SubscribeReply,
    Topics,
)

#: Partitions of the topic that is read, and of the one that is written.
IN, OUT = 2, 4
TIMEOUT_MS = 8000


@define(eq=False)
class Work:
    """
    A transaction.

    Attributes:
        identity: Its own.
        values: What was published in it, by partition.
        commit: Whether it counts, once that is known.
        ending: Whether its client said that it is to end.
    """

    identity: Identity
    values: dict[int, list[bytes]] = field(factory=dict)
    commit: bool | None = None
    ending: bool | None = None

    @property
    def all(self) -> list[bytes]:
        """All that was published in it."""
        return [value for values in self.values.values() for value in values]


@define(eq=False)
class Parcel:
    """A batch or a settle on its way."""

    send: Callable[[], None]
    sent: bool = False


class Client:
    """
    A client that takes, copies and publishes in transactions.

    Args:
        lives: Where it lives.
        name: Its transactional id.
    """

    def __init__(self, lives: TransactionLives, name: str) -> None:
        self.lives = lives
        self.name = name
        self.work: Work | None = None
        self.dead = False
        #: What it asked the coordinator, until that is answered.
        self.asking = False
        #: What was not acknowledged yet.
        self.parcels: list[Parcel] = []
        self.sequences: Counter[int] = Counter()
        self.places: set[tuple[str, int]] = set()
        self.takers: dict[int, tuple[Member, int, Taker]] = {}
        #: What is to be committed before the present transaction, with its places.
        self.aside: list[tuple[Work, set[tuple[str, int]]]] = []
        #: Whether the coordinator was asked for that alone.
        self.committing_aside = False

    # --- the coordinator -------------------------------------------------------------

    @property
    def coordinator(self) -> Member | None:
        """Who decides, unless it is away."""
        topic = self.lives.ring.meta.registry.by_name.get(TRANSACTIONS)
        number = 1 if topic is None else topic.leader(place_of(self.name))
        member = self.lives.ring.members[number]
        return member if member.running else None

    def _hears(self, member: Member, told: Callable[[Any], None]) -> Callable[[Any], None]:
        """What is answered is heard, unless one of the two died, or the link was lost."""
        life = member.life

        def hear(found: Any) -> None:
            if self.dead or life != member.life:
                return
            if self.lives.rng.randrange(12) == 0:
                self.lives.done["answers lost"] += 1
                self.asking = False
                return
            told(found)

        return hear

    def go_on(self) -> None:
        """Do the next thing: get an identity, send again what was not acknowledged."""
        if self.work is None:
            self.init()
        elif self.committing_aside:
            self.end_aside()
        elif self.work.ending is not None:
            self.end(commit=self.work.ending)
        else:
            for parcel in tuple(self.parcels):
                parcel.send()

    def init(self) -> None:
        """Ask for an identity."""
        member = self.coordinator
        if member is None or self.asking:
            return
        self.asking = True
        self.lives.asked(member, self)

        def told(found: InitProducerReply | WireError) -> None:
            self.asking = False
            if self.work is None and isinstance(found, InitProducerReply):
                self._begin((found.producer_id, found.epoch))

        member.broker.transacting.init_producer(
            self.name, TIMEOUT_MS, "", self._hears(member, told)
        )

    def _begin(self, identity: Identity) -> None:
        self.work = self.lives.began(identity)
        self.parcels.clear()
        self.sequences.clear()
        self.places.clear()

    def set_aside(self) -> None:
        """Go on with the next transaction before this one is decided, which is to count."""
        work = self.work
        if work is None or work.ending is not None or self.parcels or not self.places:
            return
        if self.committing_aside or len(self.aside) >= AHEAD - 1 or work.identity[1] == LAST_EPOCH:
            return
        self.aside.append((work, {*self.places}))
        self.lives.done["set aside"] += 1
        self._begin((work.identity[0], work.identity[1] + 1))

    def end_aside(self) -> None:
        """Have all committed that was set aside, while the present transaction goes on."""
        member = self.coordinator
        if not self.aside or member is None or self.asking:
            return
        self.asking = self.committing_aside = True
        self._end(member, self.aside, commit=True)

    def _end(
        self, member: Member, run: Sequence[tuple[Work, set[tuple[str, int]]]], *, commit: bool
    ) -> None:
        """Say END_TRANSACTION of transactions that follow each other."""
        self.lives.asked(member, self)
        present, topics = self.work, [self._topics(places) for _, places in run]
        request = EndTransaction(
            transactional_id=self.name,
            transaction=run[0][0].identity,
            commit=commit,
            topics=topics[0],
            more=topics[1:],
        )

        def told(found: EndTransactionReply | WireError) -> None:
            self.asking = False
            if present is not self.work or run[0][0] is not (self.aside or run)[0][0]:
                return  # it asked twice, and this is the second answer
            if isinstance(found, EndTransactionReply):
                for work, _ in run:
                    self.lives.decided(work, commit=commit)
                alone = self.committing_aside
                self.aside, self.committing_aside = [], False
                if not alone:
                    self._begin(found.identity)
                else:
                    assert present is not None
                    assert found.identity == present.identity
            elif isinstance(found, (TransactionAborted, ProducerFenced)):
                self.lives.done[type(found).__name__] += 1
                gone, self.work = [*self.aside, *run], None
                self.aside, self.committing_aside = [], False
                if isinstance(found, ProducerFenced):
                    self.die()  # what became of an end that it said before, it never hears
                else:
                    for work, _ in gone:
                        self.lives.decided(work, commit=False)
                    if present is not None and present.commit is None:
                        self.lives.decided(present, commit=False)
            else:
                assert not isinstance(found, (UnknownProducer, InvalidTransaction)), found

        member.broker.transacting.end(request, self._hears(member, told))

    def _topics(self, places: set[tuple[str, int]]) -> Topics:
        found: dict[bytes, list[int]] = {}
        for name, index in sorted(places):
            found.setdefault(self.lives.ring.meta.describe(name).id, []).append(index)
        return [*found.items()]

    def end(self, *, commit: bool) -> None:
        """End the transaction, with what was set aside; an abort comes behind that."""
        work, member = self.work, self.coordinator
        if work is None or member is None or self.asking:
            return
        if work.ending is not None:
            commit = work.ending  # it may have been asked already
        if self.aside and (self.committing_aside or not commit):
            self.end_aside()
            return
        if not self.places and self.lives.rng.randrange(8):
            return  # it would be about nothing
        if work.ending is None and commit and self.parcels:
            return  # not everything was acknowledged
        work.ending = commit if work.ending is None else work.ending
        self.asking = True
        self._end(member, [*self.aside, (work, {*self.places})], commit=work.ending)

    # --- publishing -----------------------------------------------------------------

    def publish(self, *values: bytes) -> None:
        """Publish records in the transaction, to one partition."""
        work = self.work
        if work is None or work.ending is not None:
            return
        index = self.lives.rng.randrange(OUT)
        if any(name == "out" and at == index for name, at in self._waiting):
            return  # one batch at a time, so that it can be sent again
        work.values.setdefault(index, []).extend(values)
        sequence = self.sequences[index]
        self.sequences[index] += len(values)
        self.places.add(("out", index))
        data = transactional(*values, identity=work.identity, sequence=sequence)
        parcel = Parcel(lambda: None)
        parcel.send = partial(self._produce, work, parcel, index, data)
        self.parcels.append(parcel)
        self._where[id(parcel)] = ("out", index)
        parcel.send()

    @property
    def _waiting(self) -> list[tuple[str, int]]:
        return [self._where[id(each)] for each in self.parcels if id(each) in self._where]

    @property
    def _where(self) -> dict[int, tuple[str, int]]:
        found: dict[int, tuple[str, int]] = self.__dict__.setdefault("_places_of", {})
        return found

    def _produce(self, work: Work, parcel: Parcel, index: int, data: bytes) -> None:
        member = self.lives.ring.leader("out", index)
        if not member.running or work is not self.work:
            return

        def told(found: Appended | WireError) -> None:
            if work is not self.work or parcel not in self.parcels:
                return
            if isinstance(found, Appended):
                self.parcels.remove(parcel)
            elif isinstance(found, (ProducerFenced, TransactionAborted)):
                self.lives.done["refused in time"] += 1
                if work.ending is None:
                    self.end(commit=False)

        topic_id = self.lives.ring.meta.describe("out").id
        member.broker.produce(topic_id, index, data, self._hears(member, told))

    # --- taking ------------------------------------------------------------------------

    def take(self) -> None:
        """Take messages, and copy some of them in the transaction."""
        work = self.work
        if work is None or work.ending is not None:
            return
        index = self.lives.rng.randrange(IN)
        member = self.lives.ring.leader("in", index)
        known = self.takers.get(index)
        if not member.running:
            return
        if known is None or known[1] != member.life:
            taker = Taker(member, member.connect())  # type: ignore[arg-type]
            taker.connection.ask(Hello())
            self.takers[index] = (member, member.life, taker)
            taker.subscribe_soon("c", "in")
            return
        taker = known[2]
        taker.read()
        taken = taker.take()
        if not taken:
            return
        count = self.lives.rng.randint(1, len(taken))
        some, taker.messages = taken[:count], taken[count:] + taker.messages
        self.places.add(("in", index))
        parcel = Parcel(lambda: None)
        parcel.send = partial(self._settle, work, parcel, (member, member.life, taker), some)
        self.parcels.append(parcel)
        parcel.send()
        self.lives.done["taken"] += count
        mark = b" %d:%d" % work.identity
        copies = [(each.value or b"") + mark for each in some]
        self.publish(*copies)
        if copies[0] not in work.all:
            # Its partition had no room for them yet: the transaction cannot be committed.
            work.ending = False

    def _settle(
        self, work: Work, parcel: Parcel, where: tuple[Member, int, Taker], some: list[Taken]
    ) -> None:
        member, life, taker = where
        if work is not self.work:
            return
        if member.life != life:
            # The session is over with its broker; what was held comes again.
            work.ending = False if work.ending is None else work.ending
            return
        if parcel.sent:
            taker.read()
            for number in [each for each in taker.replies if each == self._posted(parcel)]:
                frame = taker.replies.pop(number)
                reply = (
                    SettleReply.from_meta(frame.split()[0])
                    if frame.type == Settle.type | REPLY
                    else None
                )
                if reply is None or reply.late:
                    work.ending = False if work.ending is None else work.ending
                if parcel in self.parcels:
                    self.parcels.remove(parcel)
            return
        parcel.sent = True
        rows: list[Any] = [(each.partition, FINISH, [(each.lease, each.bit)], {}) for each in some]
        number = taker.connection.post(
            Settle(subscription=taker.number, rows=rows, transaction=work.identity)
        )
        self.__dict__.setdefault("_numbers", {})[id(parcel)] = number

    def _posted(self, parcel: Parcel) -> int:
        found: dict[int, int] = self.__dict__.get("_numbers", {})
        return found.get(id(parcel), -1)

    def die(self) -> None:
        """Be gone without a word."""
        self.dead = True
        for member, life, taker in self.takers.values():
            if member.life == life:
                taker.connection.lose()
        if self in self.lives.clients:
            self.lives.clients.remove(self)


class TransactionLives:
    """
    All lives of some brokers.

    Args:
        home: Where everything lies.
        rng: What happens.
        power: Whether power is cut, too; then all is synced before it is acknowledged.

    Attributes:
        done: What was tried, and how often.
    """

    def __init__(self, home: Path, rng: Random, *, power: bool) -> None:
        self.rng = rng
        self.power = power
        self.done: Counter[str] = Counter()
        self.ring = Ring(home, rng)
        policy = "always" if power else rng.choice(("always", "os", "interval"))
        self.ring.topic("in", IN, sync=policy)
        self.ring.topic("out", OUT, sync=policy)
        self.ring.meta.ensure_channel("in", "c", "earliest", temporary=False)
        self.ring.meta.ensure_channel("out", "w", "earliest", temporary=False)
        self.works: dict[Identity, Work] = {}
        self.owners: dict[bytes, list[Work]] = {}
        self.clients: list[Client] = []
        self.published = 0
        self.acked: set[bytes] = set()
        self.plain = 0
        self.offsets: dict[int, int] = dict.fromkeys(range(OUT), 0)
        self.seen: dict[int, list[bytes]] = {index: [] for index in range(OUT)}
        self.names = ("a", "b", "c")
        #: Values that a channel of the topic that is written gave out.
        self.watched: set[bytes] = set()
        self.watchers: dict[int, tuple[int, Taker]] = {}

    # --- what clients tell ----------------------------------------------------------

    def asked(self, member: Member, client: Client) -> None:
        """Let a client ask again when there was no answer for long."""
        member.clock.callLater(2, setattr, client, "asking", False)

    def began(self, identity: Identity) -> Work:
        """Note a transaction."""
        assert identity not in self.works, f"{identity} was given twice"
        self.works[identity] = work = Work(identity)
        return work

    def decided(self, work: Work, *, commit: bool) -> None:
        """Note what became of a transaction."""
        assert work.commit in (None, commit), f"{work} was decided twice"
        work.commit = commit
        self.done["committed" if commit else "aborted"] += 1

    # --- acts ---------------------------------------------------------------------------

    def feed(self) -> None:
        """Publish messages for the channel, and plain ones between those in transactions."""
        index = self.rng.randrange(IN)
        member = self.ring.leader("in", index)
        if member.running:
            value = b"m%d" % self.published
            self.published += 1

            def told(found: Appended | WireError) -> None:
                if isinstance(found, Appended):
                    self.acked.add(value)

            topic_id = self.ring.meta.describe("in").id
            member.broker.produce(topic_id, index, batch(value), told)
        index = self.rng.randrange(OUT)
        member = self.ring.leader("out", index)
        if member.running and self.rng.randrange(2):
            topic_id = self.ring.meta.describe("out").id
            member.broker.produce(topic_id, index, batch(b"plain"), lambda found: None)

    def client(self) -> Client:
        """Choose a client; sometimes a new one, which may be another's rival."""
        if not self.clients or (len(self.clients) < 5 and self.rng.randrange(10) == 0):
            self.clients.append(Client(self, self.rng.choice(self.names)))
        return self.rng.choice(self.clients)

    def work(self) -> None:
        """Let a client do something."""
        client, rng = self.client(), self.rng
        act = rng.randrange(9)
        if act < 3:
            client.take()
        elif act < 5:
            client.publish(*(b"x%d" % rng.getrandbits(60) for _ in range(rng.randint(1, 3))))
        elif act < 7:
            client.go_on()
            if rng.randrange(2):
                client.set_aside()
            elif client.work is not None and client.work.ending is None and rng.randrange(4) == 0:
                client.end_aside()
        else:
            client.end(commit=rng.randrange(4) > 0)
            if rng.randrange(10) == 0:
                self.break_off(client)

    def break_off(self, client: Client) -> None:
        """Let a broker be gone while a transaction is decided, or its partitions are told."""
        member = client.coordinator
        if member is None:
            return
        others = self.ring.running
        steps: list[Callable[[], object]] = [
            partial(member.clock.advance, 0),
            member.sync,
            self.mail,
            *(partial(each.clock.advance, 0) for each in others),
            *(each.sync for each in others),
            self.mail,
        ]
        for step in steps[: self.rng.choice((1, 2, 2, 3, 3, 5, 6, 8, 9))]:
            step()
        self.crash(1, member if self.rng.randrange(3) else None)

    def watch(self) -> None:
        """Take what a channel of the topic that is written gives out."""
        for number, member in self.ring.members.items():
            if not member.running:
                continue
            life, taker = self.watchers.get(number, (-1, None))
            if life != member.life or taker is None or taker.connection.closed:
                taker = Taker(member, member.connect())  # type: ignore[arg-type]
                taker.connection.ask(Hello())
                self.watchers[number] = member.life, taker
                taker.subscribe_soon("w", "out", credit=1 << 30)
            taker.read()
            taken = taker.take()
            if taken:
                self.watched.update(each.value or b"" for each in taken)
                taker.post(FINISH, *taken)

    def quit(self) -> None:
        """Let a client be gone."""
        if self.clients and self.rng.randrange(4) == 0:
            self.rng.choice(self.clients).die()
            self.done["clients died"] += 1

    def sync(self) -> None:
        """Let what is on its way to one disk arrive there."""
        self.rng.choice(self.ring.running).sync()

    def turn(self) -> None:
        """Let one broker have its turn."""
        self.rng.choice(self.ring.running).clock.advance(0)

    def mail(self) -> None:
        """Let brokers talk to each other."""
        self.ring.deliver()

    def wait(self) -> None:
        """Let time pass."""
        self.ring.settle(self.rng.choice((0.01, 0.2, 1, 1, 3)))
        self.look()

    def links(self) -> None:
        """Cut a link between two brokers, or mend one."""
        one, two = self.rng.sample(list(self.ring.members), 2)
        self.ring.cut ^= {frozenset((one, two))}
        self.done["links"] += 1

    def crash(self, often: int = 3, victim: Member | None = None) -> None:
        """Let a broker be gone, or come back."""
        away = [each for each in self.ring.members.values() if not each.running]
        if away and self.rng.randrange(2):
            self.rng.choice(away).start()
        elif len(away) < 2 and self.rng.randrange(often) == 0:
            self.look()
            member = victim or self.rng.choice(self.ring.running)
            if self.power and self.rng.randrange(2):
                member.cut_power(self.rng.getrandbits(30))
                self.done["power cuts"] += 1
            else:
                member.kill()
                self.done["kills"] += 1
            if self.rng.randrange(2):
                member.start()

    def checkpoint(self) -> None:
        """Keep the next recovery of a broker short."""
        member = self.rng.choice(self.ring.running)
        for partition in member.broker.partitions():
            if partition.failure is None:
                member.broker.store.note(partition)
        self.done["checkpoints"] += 1

    def live(self, most: int) -> None:
        """Do this and that."""
        acts = (
            *[self.feed] * 4,
            *[self.work] * 16,
            *[self.sync] * 6,
            *[self.turn] * 8,
            *[self.mail] * 5,
            *[self.wait] * 3,
            *(self.watch, self.quit, self.links, self.crash, self.checkpoint),
        )
        for _ in range(self.rng.randint(most // 2, most)):
            self.rng.choice(acts)()
            self.done["steps"] += 1

    # --- looking ------------------------------------------------------------------------

    def look(self) -> None:
        """Read on in every partition, as one who sees what is committed."""
        topic_id = self.ring.meta.describe("out").id
        for index in range(OUT):
            member = self.ring.leader("out", index)
            if not member.running:
                continue
            answers: list[tuple[FetchReply, bytes]] = []

            def take(reply: FetchReply, pieces: list[Bytes], answers: list[Any] = answers) -> None:
                answers.append((reply, b"".join(pieces)))

            request = Fetch(topics=[(topic_id, [(index, self.offsets[index], -1)])], max_wait_ms=0)
            member.broker.fetch(request, take, lambda: False)
            ((reply, payload),) = answers
            row = reply.topics[0][1][0]
            assert row[5] is None, row
            self.offsets[index] = max(self.offsets[index], row[3])
            for value in committed(reply, payload, index):
                assert value is not None
                if value != b"plain":
                    self.seen[index].append(value)

    # --- the end ------------------------------------------------------------------------

    def rest(self, seconds: int) -> None:
        """Let time pass while nothing breaks."""
        for _ in range(seconds):
            self.ring.settle(1)
        self.ring.settle()
        self.look()

    def judge(self) -> None:
        """Let everything come to its end, and see that no promise was broken."""
        for client in tuple(self.clients):
            client.die()
        self.ring.cut.clear()
        for member in self.ring.members.values():
            if not member.running:
                member.start()
        # Sessions are kept for a while; then whoever wants has all that is left.
        self.rest(TIMEOUT_MS // 1000 + 30)
        self._check_free()
        last = Client(self, "last")
        self.clients.append(last)
        for _ in range(3000):
            if self.acked <= {value.split()[0] for each in self.seen.values() for value in each}:
                break
            last.take()
            self.ring.settle(0.05)
            last.go_on()
            self.ring.settle(0.05)
            last.end(commit=True)
            self.ring.settle(0.05)
            self.look()
        last.die()
        self.rest(TIMEOUT_MS // 1000 + 10)
        self._check_free()
        for number, (life, taker) in self.watchers.items():
            if life == self.ring.members[number].life:
                taker.connection.lose()
        self.watchers.clear()
        self.rest(12)  # until their leases are over
        seen = {value for values in self.seen.values() for value in values} - {b"plain"}
        for _ in range(200):  # what was lost with its holder comes again one by one
            if self.watched >= seen:
                break
            self.watch()
            self.ring.settle(0.1)
        self._check_works()
        self._check_copies()
        found = self.watched - {b"plain"}
        assert found <= seen, f"a channel gave out {found - seen}"
        assert found == seen, f"no channel gave out {seen - found}"

    def _check_free(self) -> None:
        for member in self.ring.members.values():
            for partition in member.broker.partitions():
                opened = partition.transactions.open
                assert not opened, f"{partition}: {opened} stay open"
                assert partition.stable_offset == partition.high_watermark
                hosted = member.broker.channels.hosted(*partition.key)
                assert hosted is None or not hosted.held(), f"{partition} holds settles"

    def _check_works(self) -> None:
        """All or nothing, and in order."""
        for work in self.works.values():
            seen = {
                index: [value for value in self.seen[index] if value in {*values}]
                for index, values in work.values.items()
            }
            if work.commit is None:
                work.commit = any(seen.values())  # nobody knows: then as any of it says
            nothing: dict[int, list[bytes]] = {index: [] for index in work.values}
            assert seen == (work.values if work.commit else nothing), work

    def _check_copies(self) -> None:
        """Every message was copied exactly once."""
        copies = Counter(
            value.split()[0]
            for values in self.seen.values()
            for value in values
            if value[:1] == b"m"
        )
        twice = {value: count for value, count in copies.items() if count > 1}
        assert not twice, f"copied more than once: {twice}"
        missing = self.acked - copies.keys()
        assert not missing, f"never copied: {missing}"
        self.done["copied"] += len(copies)


def play(seed: int, *, power: bool, most: int = 300) -> Counter[str]:
    """
    Live, die and judge.

    Args:
        seed: Decides what happens.
        power: Whether power is cut, too.
        most: Most acts.

    Returns:
        What was done.
    """
    home = Path(tempfile.mkdtemp())
    try:
        lives = TransactionLives(home, Random(seed), power=power)
        lives.live(most)
        lives.judge()
        lives.ring.close()
    finally:
        shutil.rmtree(home)
    return lives.done
