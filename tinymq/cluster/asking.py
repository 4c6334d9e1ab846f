"""A broker's questions to its MetaServer over one link, a bounded number of them at a time."""

from __future__ import annotations

from typing import Any, Final

from twisted.internet import defer
from twisted.internet.defer import CancelledError, Deferred, DeferredSemaphore
from twisted.internet.interfaces import IReactorTime

from tinymq.client.client import Client
from tinymq.errors import ClientError, MetaUnavailable, Overloaded
from tinymq.operation import Result

#: Questions on their way; fewer than the MetaServer takes of one connection.
MOST_ASKED: Final = 64
#: Seconds that a question waits for its turn.
TURN_SECONDS: Final = 8.0


class Asking:
    """
    The questions of one link.

    A MetaServer refuses more than a number of operations that wait on one
    connection. Whatever clients ask of a broker travels over its one link, so
    the broker lets them wait in turn.

    Args:
        reactor: The clock.
        client: Connects to the MetaServers, whichever answers.
        places: Where they are, for people.
    """

    def __init__(self, reactor: IReactorTime, client: Client, places: str) -> None:
        self._reactor = reactor
        self._client = client
        self._places = places
        self._turns = DeferredSemaphore(MOST_ASKED)

    async def ask(self, operation: str, /, **arguments: Any) -> Result:
        """
        Carry out an operation at the MetaServer.

        Args:
            operation: Its name.
            **arguments: By name.

        Raises:
            MetaUnavailable: It does not answer.
            Overloaded: Too many others wait for it.
            WireError: What the operation can fail with.
        """
        await self._turn()
        try:
            return await self._client.admin.operate(operation, **arguments)
        except ClientError as error:
            raise MetaUnavailable(
                f"the MetaServer at {self._places} does not answer ({error}); publishing and "
                "reading go on, but topics cannot be made, changed or listed until it is back"
            ) from error
        finally:
            self._turns.release()

    async def _turn(self) -> None:
        turn = self._turns.acquire()
        try:
            await turn.addTimeout(TURN_SECONDS, self._reactor)
        except (defer.TimeoutError, CancelledError) as error:
            raise Overloaded(
                f"many operations wait for the MetaServer at {self._places}; try again later"
            ) from error

    def close(self) -> Deferred[None]:
        """End the link."""
        return self._client.close()
