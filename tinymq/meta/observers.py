"""Who is told of each new snapshot."""

from __future__ import annotations

from collections.abc import Callable

from tinymq.meta.registry import Registry

#: Called with the snapshot before and the one after.
Observer = Callable[[Registry, Registry], None]


class Observers:
    """Those who are told."""

    def __init__(self) -> None:
        #: By what takes each back: there may be ten thousand who wait for a change.
        self._observers: dict[object, Observer] = {}

    def add(self, observer: Observer) -> Callable[[], None]:
        """Tell an observer from now on; calling what is returned ends it."""
        key = object()
        self._observers[key] = observer

        def cancel() -> None:
            self._observers.pop(key, None)

        return cancel

    def tell(self, before: Registry, after: Registry) -> None:
        """Tell all of them; one that fails does not keep the others from hearing."""
        errors: list[Exception] = []
        for observer in tuple(self._observers.values()):
            try:
                observer(before, after)
            except Exception as error:  # noqa: BLE001 - raised below, to the writer
                errors.append(error)
        if errors:
            raise errors[0]

    def clear(self) -> None:
        """Tell nobody any more."""
        self._observers.clear()
