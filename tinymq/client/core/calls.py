"""What all administrative calls stand on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

#: What a call returns: a result, or what becomes one.
R = TypeVar("R")


class Calls(ABC, Generic[R]):
    """Administrative operations by their names."""

    @abstractmethod
    def operate(self, operation: str, /, **arguments: Any) -> R:
        """
        Carry out any operation by its name.

        Args:
            operation: Such as ``topic.create``.
            **arguments: Its arguments; None is left out.
        """
