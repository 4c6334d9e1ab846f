"""What brokers elsewhere ask of the MetaServer: to be registered, and what has changed."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from tinymq.broker.channels import MOST_LEASES
from tinymq.caller import Caller
from tinymq.meta.placement import Load
from tinymq.meta.registry import BrokerInfo
from tinymq.meta.replica import foreign
from tinymq.operation import Operation, Parameter, Result, table
from tinymq.operations.base import Base
from tinymq.operations.waiting import until
from tinymq.wire.fields import I32, I64, array, integer, mapping, text

#: Seconds that a broker's question for changes may wait; it is its sign of life, too.
MOST_WAIT_MS: Final = 5_000
#: Seconds that brokers have to be heard after a start of the MetaServer, before ids are given out.
HEARD_SECONDS: Final = 3.0


class Members(Base):
    """
    The brokers that live in other processes.

    A broker's questions for changes follow each other without a pause, and each
    is a sign of life; when the connection that carries them ends, the broker has
    a few seconds to come back.
    """

    def register(self, caller: Caller, **told: Any) -> Result:
        """
        Let a broker be live, as it describes itself.

        Raises:
            ForeignCluster: Its data folder is another cluster's; its number means
                nothing here, and may even be that of one of ours.
        """
        own = self._registry.cluster.hex()
        if told["cluster"] and told["cluster"] != own:
            raise foreign(told["cluster"], own)
        self._meta.skip_producers(told["producers"])
        info = self._meta.register(
            told["id"],
            told["name"],
            (told["host"], told["port"]),
            zone=told["zone"],
            version=told["version"],
        )
        self._heard(info, caller, None)
        self._has_followed(info.id, -1)
        self._log.info(
            "{name} (broker {id}) at {host}:{port} has registered",
            name=info.name,
            id=info.id,
            host=info.host,
            port=info.port,
        )
        self._note_namesake(info)
        return {
            "id": info.id,
            "name": info.name,
            "incarnation": info.incarnation,
            "lease": info.lease,
            "cluster": self._registry.cluster.hex(),
            "revision": self._revision,
        }

    def _note_namesake(self, info: BrokerInfo) -> None:
        """Say it when a broker has come back without what it led."""
        registry = self._registry
        for other in registry.known.values():
            led = registry.led.get(other.id, 0)
            if other.name == info.name and other.id not in registry.brokers and led:
                self._log.warn(
                    "{name} is broker {id} now; broker {other}, which had this name, is gone and "
                    "leads {led} partitions, which only its data folder can bring back",
                    name=info.name,
                    id=info.id,
                    other=other.id,
                    led=led,
                )

    async def follow(self, caller: Caller, **told: Any) -> Result:
        """Tell a broker what has changed since a cursor, waiting for something if need be."""
        info = self._meta.member(told["id"], told["lease"])
        self._meta.skip_producers(told["producers"])  # before anybody is given ids who waited
        self._heard(info, caller, Load.from_mapping(told["load"]))
        self._meta.use_channels(told["channels"])
        # Revisions of another history say nothing here, and all of this one is news.
        if not told["cursor"] or self._meta.knows_cursor(told["cursor"]):
            self._has_followed(info.id, told["revision"])
            await self._changed_since(told["revision"], told["wait_ms"] / 1000, caller)
        return self._meta.changes(told["cursor"]).to_mapping()

    def leave(self, id: int, lease: int) -> Result:  # noqa: A002 - the wire's word
        """Let a broker be gone."""
        info = self._meta.member(id, lease)
        self._has_followed(id, None)
        self._meta.leave(info)
        self._log.info("{name} (broker {id}) has left", name=info.name, id=id)
        return {}

    async def identities(self, caller: Caller) -> Result:
        """
        Give out producer ids that nobody else has or will have.

        Brokers say which they were given: after a start from an old backup, only they know.
        """
        meta, scheduler = self._meta, self._broker.scheduler
        await until(self._follow, lambda: meta.has_heard_all, HEARD_SECONDS, scheduler, caller)
        given = self._meta.producer_ids()
        return {"first": given.start, "count": len(given)}

    def _heard(self, info: BrokerInfo, caller: Caller, load: Load | None) -> None:
        """Note that a broker lives, and over which connection: its end may be the broker's."""
        known = self._links.get(info.id)
        if known is not caller:
            self._links[info.id] = caller
            caller.on_gone(partial(self._lost, info, caller), ("broker", info.id))
        self._meta.heartbeat(info, load, caller)

    def _lost(self, info: BrokerInfo, caller: Caller) -> None:
        if self._links.get(info.id) is not caller:
            return
        del self._links[info.id]
        self._has_followed(info.id, None)
        if self._registry.brokers.get(info.id) is not None:
            self._log.warn("{name} (broker {id}) has lost its link", name=info.name, id=info.id)
        self._meta.lost_link(info, caller)


_ID: Final = Parameter("id", integer(0, I32))
_LEASE: Final = Parameter("lease", integer(0, I64))
#: All producer ids that the broker was ever given are lower.
_PRODUCERS: Final = Parameter("producers", integer(0, I64), default=0)

MEMBER_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation(
        "meta.register",
        "cluster",
        True,
        (
            _ID,
            Parameter("name", text(200)),
            Parameter("host", text(255)),
            Parameter("port", integer(1, 65_535)),
            Parameter("zone", text(200), default=""),
            Parameter("version", text(100), default=""),
            Parameter("cluster", text(32), default=""),
            _PRODUCERS,
        ),
        Members.register,
        caller=True,
    ),
    Operation(
        "meta.watch",
        "cluster",
        False,
        (
            _ID,
            _LEASE,
            Parameter("cursor", text(2048), default=""),
            Parameter("revision", integer(-1, I64), default=-1),
            Parameter("wait_ms", integer(0, MOST_WAIT_MS), default=0),
            Parameter("load", mapping, default={}),
            _PRODUCERS,
            #: Leases of temporary channels that are in use there.
            Parameter("channels", array(integer(1, I64), MOST_LEASES), default=[]),
        ),
        Members.follow,
        caller=True,
    ),
    Operation("meta.leave", "cluster", True, (_ID, _LEASE), Members.leave),
    Operation("meta.producer_ids", "cluster", True, (), Members.identities, caller=True),
)
