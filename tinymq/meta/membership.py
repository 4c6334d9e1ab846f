"""
The MetaServer's operations on brokers: who is live, and who takes new partitions.

A broker is live by a lease. While its link is open, no other process may use its
number; when the link ends it has `LOST_SECONDS` to come back, and any process that
registers under the number may take it over at once.
"""

from __future__ import annotations

from typing import Final

from tinymq.config import DEFAULT_CONFIG, Config
from tinymq.errors import InvalidRequest, StateError
from tinymq.meta.address import check_address
from tinymq.meta.entries import Delete, Put, Write
from tinymq.meta.following import Clocks, Following
from tinymq.meta.placement import Load, Standing
from tinymq.meta.registry import BrokerInfo
from tinymq.meta.store import Store
from tinymq.names import valid_name

#: Seconds after which a broker that says nothing is taken for dead.
BROKER_SECONDS: Final = 15.0

#: Seconds after which a broker whose link ended is taken for dead.
LOST_SECONDS: Final = 3.0

#: Brokers that are remembered, though they are gone and lead nothing: one that loses its
#: data folder at each start gets a new number each time.
MOST_KNOWN: Final = 500
_MOST_FORGOTTEN: Final = 10
_MOST_BROKER: Final = 2**31 - 1
#: How far a number may be ahead of those given out, which a backup may have forgotten.
_MOST_AHEAD: Final = 10_000
_MOST_VERSION: Final = 100


class Membership(Following):
    """
    The operations on brokers.

    Args:
        store: Where everything is kept; closed by its owner.
        config: The defaults of topics, and the limits.
        clocks: The sources of time and chance.
        history: How many revisions a watcher may be behind.
    """

    def __init__(
        self,
        store: Store,
        config: Config = DEFAULT_CONFIG,
        clocks: Clocks | None = None,
        history: int = 1000,
    ) -> None:
        super().__init__(store, config, clocks, history)
        #: Leases of brokers whose link ended; of all of them, when the MetaServer starts.
        self._lost = {broker.lease for broker in self.registry.brokers.values()}
        #: Leases of brokers that were not heard since the MetaServer started.
        self._unheard = set(self._lost)
        #: By what link each lease was renewed last.
        self._links: dict[int, object] = {}
        self._loads: dict[int, Load] = {}

    def new_broker_id(self) -> int:
        """Return a number for a broker that has no id file yet; never given out twice."""
        return self._count_up("brokers", 1) + 1

    def register(
        self,
        broker_id: int,
        name: str,
        address: tuple[str, int],
        *,
        zone: str = "",
        version: str = "",
        takeover: bool = False,
    ) -> BrokerInfo:
        """
        Let a broker be live, until it leaves or says nothing for `BROKER_SECONDS`.

        Two live brokers never have one name, since people tell them apart by it. A
        broker that was given no name (it has the default one) is called after its
        number, unless it runs in the MetaServer's own process.

        Args:
            broker_id: Its number, from its id file; 0 asks for a new one.
            name: Its name.
            address: Host and port where clients reach it.
            zone: Where it stands.
            version: The tinymq that it runs.
            takeover: The caller is the process of the MetaServer and holds the
                lock of the data folder: what was live under this number is not.

        Returns:
            The broker with its number, and its incarnation, higher than ever before.

        Raises:
            StateError: A live broker has this id (its data folder was copied, or it
                was killed a moment ago), or this name.
            InvalidName: The name or the zone breaks the rule for names.
            InvalidRequest: The number or the address cannot be one.
        """
        host, port = _checked(broker_id, address, zone)
        if not takeover and self.is_held(broker_id):
            self._refuse_id(broker_id)
        last = self._count("brokers")
        number = broker_id or last + 1
        if number > min(last + _MOST_AHEAD, _MOST_BROKER):
            raise InvalidRequest(
                f"{number} cannot be the number of a broker here: the last one is {last}; "
                "give the broker an empty data folder",
                field="id",
            )
        if valid_name(name) == DEFAULT_CONFIG.broker.name and not takeover:
            name = f"broker-{number}"
        self._check_free(number, name)
        before = self.registry.brokers.get(number)
        broker = BrokerInfo(
            id=number,
            name=name,
            host=host,
            port=port,
            incarnation=self._count(f"incarnation/{number}") + 1,
            started_ms=self._now_ms(),
            lease=self._store.grant(BROKER_SECONDS),
            zone=zone,
            version=version[:_MOST_VERSION],
        )
        self._enter(broker, new_number=number > last)
        self._loads[number] = Load()
        if before is not None:  # its number has the new lease: only the old one goes
            self._end_lease(before.lease)
        return broker

    def _enter(self, broker: BrokerInfo, *, new_number: bool) -> None:
        writes: list[Write] = [
            Put(f"incarnation/{broker.id}", str(broker.incarnation).encode()),
            Put(f"known/{broker.id}", broker.encode()),
            Put(f"broker/{broker.id}", broker.encode(), broker.lease),
        ]
        if new_number:  # one that we gave out, or from an id file from elsewhere
            writes.append(Put("brokers", str(broker.id).encode()))
            writes += self._forgettable(broker.id)
        try:
            self._write([], writes, vital=True)
        except BaseException:
            self._store.drop(broker.lease)
            raise

    def _forgettable(self, new: int) -> list[Write]:
        """Forget, a few at a time, who is gone and leads nothing, once there are many."""
        registry = self.registry
        if len(registry.known) < MOST_KNOWN:
            return []
        gone = registry.known.keys() - registry.brokers.keys() - registry.draining - {new}
        empty = sorted(each for each in gone if not registry.led.get(each))
        return [Delete(f"known/{each}") for each in empty[:_MOST_FORGOTTEN]]

    def _refuse_id(self, broker_id: int) -> None:
        live = self.registry.brokers[broker_id]
        raise StateError(
            f"broker {broker_id} is live at {live.host}:{live.port}; "
            "give each broker a data folder of its own, or wait until that one has ended",
            broker_id=broker_id,
        )

    def _check_free(self, broker_id: int, name: str) -> None:
        for other in self.registry.brokers.values():
            if other.name == name and other.id != broker_id and self._store.is_live(other.lease):
                raise StateError(
                    f"the name {name} is that of broker {other.id} at {other.host}:{other.port}; "
                    "give each broker a name of its own (broker.name), "
                    "or wait until that one has ended",
                    broker_id=other.id,
                )

    def member(self, broker_id: int, lease: int) -> BrokerInfo:
        """
        Return the broker that was registered under a number and a lease.

        Raises:
            StateError: It was taken for dead, or replaced: register again.
        """
        live = self.registry.brokers.get(broker_id)
        if live is None or live.lease != lease:
            raise StateError(f"broker {broker_id} is not registered; register again")
        return live

    def heartbeat(self, broker: BrokerInfo, load: Load | None = None, link: object = None) -> None:
        """
        Keep a broker live; costs no write.

        Args:
            broker: The broker.
            load: What it says of itself.
            link: What it said so over; the end of any other link means nothing then.

        Raises:
            StateError: It was taken for dead, or replaced: register again.
        """
        self._store.renew(self.member(broker.id, broker.lease).lease)
        self._lost.discard(broker.lease)
        self._unheard.discard(broker.lease)
        self._links[broker.lease] = link
        if load is not None:
            self._loads[broker.id] = load

    @property
    def has_heard_all(self) -> bool:
        """Whether every broker that was live when the MetaServer started was heard, or is gone."""
        return not self._unheard

    def standings(self) -> dict[int, Standing]:
        """
        Return the brokers that may lead new partitions.

        Those that refuse to be published to, or whose link ended a moment ago,
        count only where there is no other.

        Raises:
            StateError: All are draining, or none is there.
        """
        live = self.registry.brokers
        usable = live.keys() - self.registry.draining
        if live and not usable:
            raise StateError(
                "every broker is draining, so nobody takes new partitions; "
                "undo one's draining, or start another broker"
            )
        ready = {each for each in usable if self.is_held(each) and not self._is_refusing(each)}
        return {each: self._standing(each) for each in sorted(ready or usable)}

    def _is_refusing(self, broker_id: int) -> bool:
        load = self._loads.get(broker_id)
        return load is not None and load.refusing is not None

    def _standing(self, broker_id: int) -> Standing:
        load = self._loads.get(broker_id)
        return Standing(self.registry.led.get(broker_id, 0), load.bytes if load else 0)

    def is_held(self, broker_id: int) -> bool:
        """Whether a live broker with an open link has this number."""
        live = self.registry.brokers.get(broker_id)
        return live is not None and live.lease not in self._lost and self._store.is_live(live.lease)

    def lost_link(self, broker: BrokerInfo, link: object = None) -> None:
        """
        Hear that a link of a broker ended: it has `LOST_SECONDS` to come back.

        A later heartbeat, over another link, gives it the full time again.

        Args:
            broker: The broker, as it registered.
            link: The link, which decides if it is known: the broker may have been heard
                over another since, or registered again over this one.
        """
        live = self.registry.brokers.get(broker.id)
        if live is None:
            return
        held = self._links.get(live.lease)
        known = held is not None and link is not None
        if held is link if known else live.lease == broker.lease:
            self._store.shorten(live.lease, LOST_SECONDS)
            self._lost.add(live.lease)

    def leave(self, broker: BrokerInfo) -> None:
        """Let a broker be gone, at once."""
        self._end_lease(broker.lease)

    def _end_lease(self, lease: int) -> None:
        self._store.revoke(lease)
        self._forget_ended()

    def expire(self) -> None:
        """Let the silent brokers be gone; call it every second or so."""
        self._store.expire()
        self._forget_ended()

    def _forget_ended(self) -> None:
        live = {broker.lease for broker in self.registry.brokers.values()}
        self._lost &= live
        self._unheard &= live
        self._links = {lease: link for lease, link in self._links.items() if lease in live}

    def forgive(self) -> None:
        """Let the time of all brokers begin anew: it was this process that did not listen."""
        self._store.renew_all()

    def drain(self, broker_id: int, *, undo: bool = False, dry_run: bool = False) -> bool:
        """
        Give a broker no new partitions any more; what it leads stays where it is.

        It is remembered whether the broker is live or not, and across restarts.

        Args:
            broker_id: Its number.
            undo: Give it new partitions again.
            dry_run: Check everything, but write nothing.

        Returns:
            Whether that is a change.

        Raises:
            InvalidRequest: No broker of this number ever registered.
        """
        if self._count(f"incarnation/{broker_id}") == 0:
            raise InvalidRequest(f"there is no broker {broker_id}", field="broker")
        if (broker_id in self.registry.draining) != undo:
            return False
        if not dry_run:
            key = f"drain/{broker_id}"
            self._write([], [Delete(key) if undo else Put(key, b"1")])
        return True


def _checked(broker_id: int, address: tuple[str, int], zone: str) -> tuple[str, int]:
    """Return the address if all this could be a broker's."""
    host, port = address
    if not 0 <= broker_id <= _MOST_BROKER:
        raise InvalidRequest(f"{broker_id} is no broker's number", field="id")
    check_address(host, port, lowest=0)
    if zone:
        valid_name(zone)
    return host, port
