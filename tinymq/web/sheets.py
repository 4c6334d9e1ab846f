"""What pages share that show plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from twisted.web.http import Request

from tinymq.errors import RequestError, StateError, StorageError
from tinymq.web.base import Answer, Base
from tinymq.web.format import Times
from tinymq.web.input import BadInput, text
from tinymq.web.render import view_of
from tinymq.web.sheet import Sheet

#: What a plan can show again with a word beside the field.
EXPECTED: Final = (BadInput, RequestError, StateError, StorageError)
_SECONDS: Final = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LONGEST_MS: Final = 365 * 86_400_000


def length_of(fields: Mapping[str, str], name: str) -> int | None:
    """
    Read a span of time such as 30m.

    Args:
        fields: Of a form or a query.
        name: Of the field.

    Returns:
        Milliseconds; None when nothing is said.
    """
    given = text(fields, name).strip().lower().replace(" ", "")
    if not given:
        return None
    amount, unit = given[:-1], given[-1]
    if unit not in _SECONDS or not amount.isascii() or not amount.isdigit() or len(amount) > 9:
        raise BadInput(name, "write a time such as 90s, 30m, 2h or 1d")
    found = int(amount) * _SECONDS[unit]
    if found > _LONGEST_MS:
        raise BadInput(name, "the time must be at most 365 days")
    return found


class Sheets(Base):
    """Shows plans."""

    def _sheet(self, request: Request, sheet: Sheet, error: Exception | None = None) -> bytes:
        """Show a plan, again with what is wrong if its form could not be carried out."""
        answer = None if error is None else Answer(error)
        if answer is not None:
            request.setResponseCode(answer.status)
        return self._renderer.page(
            request,
            "sheet.html",
            self._console.cluster(),
            current=sheet.current,
            query={},
            sheet=sheet,
            error=answer,
        )

    def _now(self, request: Request) -> Times:
        return view_of(request, self._config, self._console.cluster().taken_ms).times
