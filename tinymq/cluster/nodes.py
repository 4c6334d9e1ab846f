"""Asking brokers, one by one: that of this process by a call, the others over the wire."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from attrs import frozen

from tinymq.client.client import Client
from tinymq.client.core.address import Address, url_of
from tinymq.client.core.config import ClientConfig
from tinymq.errors import BrokerSilent, ClosedError, ConfigError, ConnectionLost, NoBroker
from tinymq.meta.observers import Observer
from tinymq.meta.registry import Registry
from tinymq.node import Node
from tinymq.operation import Result
from tinymq.operations import run_on_node
from tinymq.stats import META_CLIENT

#: Makes a client of a URL and settings.
MakeClient = Callable[[str, ClientConfig], Client]

#: Seconds that a broker has to answer before it counts as silent.
ANSWER_SECONDS: Final = 3.0

_CONFIG: Final = ClientConfig(
    client_id=META_CLIENT,
    connect_timeout_s=ANSWER_SECONDS,
    request_timeout_s=ANSWER_SECONDS,
    deadline_s=ANSWER_SECONDS,
    wait_for_broker=False,
)


class Knowing(Protocol):
    """Knows where brokers are."""

    @property
    def registry(self) -> Registry:
        """What there is."""

    def watch(self, observer: Observer) -> Callable[[], None]:
        """Call an observer after every change."""


class LocalNode:
    """
    The one broker there is, in this process.

    Args:
        node: The broker.
    """

    def __init__(self, node: Node) -> None:
        self._node = node

    async def ask(self, broker_id: int, operation: str, arguments: Mapping[str, Any]) -> Result:
        """Ask the broker of this process by a plain call."""
        return await run_on_node(self._node, operation, arguments)


@frozen
class _Reach:
    """The way to one broker."""

    address: Address
    client: Client


class ClusterNodes:
    """
    Every broker of a cluster, each by a client of its own.

    Args:
        client: Makes a client of another process.
        meta: Knows where brokers are.
        own: The number of the broker in this process; 0 if it leads nothing, or None
            for one that asks others only.
        node: The broker of this process.
    """

    def __init__(self, client: MakeClient, meta: Knowing, own: int | None, node: Node) -> None:
        self._make_client = client
        self._meta = meta
        self._own = own
        self._here = LocalNode(node)
        self._reaches: dict[int, _Reach] = {}
        self._stopped = False
        self._unwatch = meta.watch(self._changed)

    async def ask(self, broker_id: int, operation: str, arguments: Mapping[str, Any]) -> Result:
        """Ask one broker."""
        if self._stopped:
            raise ConnectionLost("this process stops, and asks nobody any more")
        if broker_id == self._own:
            return await self._here.ask(broker_id, operation, arguments)
        client = self._client(broker_id)
        try:
            return await client.admin.operate(operation, **arguments)
        except ClosedError as error:  # by `_drop`, while it was asked
            raise ConnectionLost("it was taken for dead while it was asked") from error

    def _client(self, broker_id: int) -> Client:
        live = self._meta.registry.brokers.get(broker_id)
        if live is None:
            raise BrokerSilent(f"broker {broker_id} is not there", broker=broker_id)
        address = Address(live.host, live.port)
        reach = self._reaches.get(broker_id)
        if reach is None or reach.address != address:
            self._drop(broker_id)
            try:
                client = self._make_client(url_of([address]), _CONFIG)
            except ConfigError as error:  # of one that an earlier version let in
                raise NoBroker(str(error)) from error
            # One that took the address of a dead broker must not be asked in its place.
            client.expect(broker_id)
            reach = self._reaches[broker_id] = _Reach(address, client)
        return reach.client

    def _changed(self, before: Registry, after: Registry) -> None:
        if before.brokers is not after.brokers:
            for broker_id in self._reaches.keys() - after.brokers.keys():
                self._drop(broker_id)

    def _drop(self, broker_id: int) -> None:
        reach = self._reaches.pop(broker_id, None)
        if reach is not None:
            reach.client.close()

    async def stop(self) -> None:
        """Close every connection."""
        self._stopped = True
        self._unwatch()
        reaches, self._reaches = self._reaches, {}
        for reach in reaches.values():
            await reach.client.close()
