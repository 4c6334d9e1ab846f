"""The push endpoints of a broker, as the MetaServer's process asks for them."""

from __future__ import annotations

from collections.abc import Awaitable, Collection
from typing import Any, Final, Protocol

from tinymq.errors import InvalidRequest, StateError
from tinymq.operation import NAME, Operation, Parameter, Result, table
from tinymq.wire.fields import array, text

#: Topics that are asked for in one question.
_MOST_TOPICS: Final = 500


class Pushing(Protocol):
    """Sends messages to endpoints."""

    def figures(self, topic_ids: Collection[bytes]) -> list[dict[str, Any]]:
        """
        Tell of the endpoints of some topics what this broker did for them.

        Args:
            topic_ids: The topics.
        """

    def test(self, topic_id: bytes, channel: str) -> Awaitable[Result]:
        """
        Send one made-up message to an endpoint, and tell what it answers.

        Args:
            topic_id: The topic.
            channel: The channel.

        Raises:
            UnknownEndpoint: There is none.
        """


class Endpoints:
    """What this broker sends to endpoints."""

    pushes: Pushing | None

    def push_figures(self, ids: list[str]) -> Result:
        """Tell of the endpoints of some topics what this broker did for them."""
        rows = [] if self.pushes is None else self.pushes.figures([_id(each) for each in ids])
        return {"endpoints": rows}

    async def push_test(self, id: str, name: str) -> Result:  # noqa: A002 - the API's word
        """Send one made-up message to an endpoint."""
        if self.pushes is None:
            raise StateError("this process sends nothing to push endpoints")
        return await self.pushes.test(_id(id), name)


def _id(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise InvalidRequest("an id is 32 hex digits", field="id") from None


ENDPOINT_OPERATIONS: Final[dict[str, Operation]] = table(
    Operation(
        "node.push_figures",
        "cluster",
        False,
        (Parameter("ids", array(text(32), _MOST_TOPICS)),),
        Endpoints.push_figures,
    ),
    Operation(
        "node.push_test",
        "cluster",
        True,
        (Parameter("id", text(32)), Parameter("name", NAME)),
        Endpoints.push_test,
    ),
)
