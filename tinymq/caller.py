"""Who asks for an operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import define, field

#: Who acts while nobody has to say who they are.
ANONYMOUS: Final = "anonymous"


@define(eq=False)
class Caller:
    """
    One connection as the operations see it, or somebody in this process.

    Attributes:
        principal: On whose behalf it asks.
        peer: Where it is, for logs.
    """

    principal: str = ANONYMOUS
    peer: str = ""
    _gone: list[Callable[[], None]] = field(factory=list)

    def on_gone(self, callback: Callable[[], None]) -> Callable[[], None]:
        """
        Be told once when the connection has ended.

        Args:
            callback: What to call.

        Returns:
            What takes the wish back.
        """
        self._gone.append(callback)

        def cancel() -> None:
            if callback in self._gone:
                self._gone.remove(callback)

        return cancel

    def gone(self) -> None:
        """Tell that the connection has ended."""
        callbacks, self._gone = self._gone, []
        for callback in callbacks:
            callback()


#: Somebody in this process, who never goes.
LOCAL: Final = Caller()
