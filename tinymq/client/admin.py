"""Administrative operations, each a Deferred."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from twisted.internet.defer import Deferred
from typing_extensions import override

from tinymq.client.core.admin import AdminCalls
from tinymq.client.core.results import Result


class Admin(AdminCalls[Deferred[Result]]):
    """
    Administrative operations.

    Every Deferred ends in one of these ways:

    - with the operation's result, a map;
    - with the broker's error, a `tinymq.errors.WireError`;
    - with `ConnectionLost` when the link died after the request was written: an
      operation that changes something may then have been carried out, and is
      not repeated;
    - with `DeadlineExceeded` or `UnreachableError` after `ClientConfig.deadline_s`;
    - with `ClosedError` when the client is closed, `ForkedError` in another
      process, `CancelledError` when it is cancelled: the answer is then ignored.

    Args:
        call: Carries out an operation.
    """

    def __init__(self, call: Callable[[str, dict[str, Any]], Deferred[Result]]) -> None:
        self._call = call

    @override
    def operate(self, operation: str, /, **arguments: Any) -> Deferred[Result]:
        return self._call(
            operation, {name: value for name, value in arguments.items() if value is not None}
        )
