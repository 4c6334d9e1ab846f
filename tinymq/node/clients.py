"""The clients that are connected to a broker."""

from __future__ import annotations

import fnmatch
from typing import Final, Protocol

from attrs import asdict

from tinymq.errors import StateError
from tinymq.operation import DRY, FILTER, Operation, Parameter, Result, table
from tinymq.stats import ClientSnapshot
from tinymq.wire.fields import I64, integer, text


class Connected(Protocol):
    """The connections of a broker."""

    def clients(self) -> list[ClientSnapshot]:
        """List the clients."""

    def client(self, number: int) -> ClientSnapshot:
        """Look at one client; `UnknownClient` if it is not there."""

    def kick(self, number: int, reason: str) -> ClientSnapshot:
        """Close a client's connection; `UnknownClient` if it is not there."""


class Clients:
    """Who is connected here."""

    #: Set once there is something to connect to.
    connected: Connected | None = None

    def clients(self, filter: str) -> Result:  # noqa: A002 - the API's word
        """List the clients whose id, address or agent is like a pattern."""
        found = (each for each in self._connected.clients() if _matches(each, filter))
        return {"clients": [client_facts(each) for each in found]}

    def client(self, id: int) -> Result:  # noqa: A002 - the API's word
        """Describe one client."""
        return client_facts(self._connected.client(id))

    def kick(self, id: int, reason: str, *, dry_run: bool) -> Result:  # noqa: A002 - the API's word
        """Tell a client why, and end its connection."""
        if dry_run:
            return client_facts(self._connected.client(id))
        return client_facts(self._connected.kick(id, reason))

    @property
    def _connected(self) -> Connected:
        if self.connected is None:
            raise StateError("this broker takes no clients yet; try again in a moment")
        return self.connected


def client_facts(client: ClientSnapshot) -> Result:
    """Describe a client as a map."""
    facts = asdict(client, recurse=False)
    facts["counters"] = client.counters._asdict()
    facts["rates"] = client.rates._asdict()
    return facts


def _matches(client: ClientSnapshot, pattern: str) -> bool:
    texts = (client.client_id, client.address, client.agent)
    return not pattern or any(fnmatch.fnmatchcase(text, pattern) for text in texts)


_ID: Final = Parameter("id", integer(0, I64))

CLIENT_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation("node.clients", "cluster", False, (FILTER,), Clients.clients),
    Operation("node.client", "cluster", False, (_ID,), Clients.client),
    Operation(
        "node.kick", "cluster", True, (_ID, Parameter("reason", text(500)), DRY), Clients.kick
    ),
)
