"""Who asks for an operation, and how to hear that they are gone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import define, field
from twisted.logger import Logger
from typing_extensions import override

from tinymq.operation import ROLES, Role

#: Who acts while nobody has to say who they are.
ANONYMOUS: Final = "anonymous"

#: Takes back what was asked to be told; may be called at any time, and twice.
Cancel = Callable[[], None]


@define(eq=False)
class Caller:
    """
    Who asks for an operation.

    Attributes:
        principal: On whose behalf.
        peer: Where they are, for people.
        role: What they may do; everything, while nobody has to say who they are.
    """

    _log = Logger()

    principal: str = ANONYMOUS
    peer: str = ""
    role: Role = ROLES[-1]
    _ended: bool = field(default=False, init=False)
    #: Made when somebody wants to be told: there are ten thousand connections.
    _callbacks: dict[object, Callable[[], None]] | None = field(default=None, init=False)

    def on_gone(self, callback: Callable[[], None], key: object = None) -> Cancel:
        """
        Be told when the caller's connection ends.

        Args:
            callback: Called once; at once if the connection has ended already.
            key: Replaces what was given under the same key; None replaces nothing.

        Returns:
            What takes it back.
        """
        if self._ended:
            self._tell(callback)
            return _nothing
        callbacks = self._callbacks
        if callbacks is None:
            callbacks = self._callbacks = {}
        if key is None:
            key = object()  # the same callback may be given twice
        callbacks[key] = callback

        def cancel() -> None:
            callbacks.pop(key, None)

        return cancel

    def gone(self) -> None:
        """Tell everybody who wants to know that the connection ended."""
        self._ended = True
        callbacks, self._callbacks = self._callbacks, None
        while callbacks:
            # One by one: a callback may take back those behind it.
            self._tell(callbacks.pop(next(iter(callbacks))))

    def _tell(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:  # noqa: BLE001 - the others must hear of it too
            self._log.failure("what follows the end of {peer} failed", peer=self.peer)


class _Local(Caller):
    """This process, which does not outlive itself."""

    @override
    def on_gone(self, callback: Callable[[], None], key: object = None) -> Cancel:
        return _nothing

    @override
    def gone(self) -> None:
        """Do nothing."""


def _nothing() -> None:
    """Take nothing back."""


#: For calls from this process: a caller that never ends.
LOCAL: Final[Caller] = _Local(peer="this process")
