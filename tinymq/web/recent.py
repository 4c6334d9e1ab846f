"""
Fragments that were just written, for the other tabs that ask for the same.

Twenty tabs that show one page refresh it twenty times in a few seconds. What
was written less than a second ago is sent again as it is, so that the cost of
a page hardly depends on how many look at it. Only the inside of pages is kept,
and never one that holds a form's token; every change forgets all of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from attrs import frozen
from twisted.web.http import CACHED, Request

from tinymq.web.security import header

#: How long a fragment is true enough. A person cannot refresh more often.
FRESH_SECONDS: Final = 1.0
#: Bounds of what is kept: answers, and bytes of one of them.
_MOST, _LONGEST = 64, 256 * 1024

Key = tuple[bytes, bytes | None, str | None, bool, bool]


@frozen
class _Answer:
    at: float
    body: bytes
    tag: bytes | None
    headers: tuple[tuple[str, str], ...]


class Recent:
    """
    Keeps answers for a moment.

    Args:
        seconds: The time, as the reactor tells it.
    """

    #: Headers that belong to a kept answer.
    _HEADERS: Final = ("Content-Type", "Vary", "Cache-Control", "Content-Encoding")

    def __init__(self, seconds: Callable[[], float]) -> None:
        self._seconds = seconds
        self._answers: dict[Key, _Answer] = {}

    def _key(self, request: Request) -> Key:
        """Everything that a fragment depends on, but for what it shows."""
        return (
            request.uri,
            request.getCookie(b"tinymq-zone"),
            header(request, "host"),
            request.isSecure(),
            "gzip" in (header(request, "accept-encoding") or ""),
        )

    def find(self, request: Request) -> bytes | None:
        """
        Answer from what was just written; None when there is no such thing.

        Args:
            request: What is answered.
        """
        if request.method != b"GET" or header(request, "hx-request") != "true":
            return None
        answer = self._answers.get(self._key(request))
        if answer is None or self._seconds() - answer.at >= FRESH_SECONDS:
            return None
        for name, value in answer.headers:
            request.setHeader(name, value)
        if answer.tag is not None and request.setETag(answer.tag) is CACHED:
            return b""
        return answer.body

    def keep(self, request: Request, body: bytes) -> None:
        """
        Keep an answer that is about to be sent.

        Args:
            request: What is answered; its headers are set.
            body: As it is sent.
        """
        if not body or len(body) > _LONGEST or request.method != b"GET":
            return
        now = self._seconds()
        if len(self._answers) >= _MOST:
            fresh = {k: a for k, a in self._answers.items() if now - a.at < FRESH_SECONDS}
            self._answers = fresh if len(fresh) < _MOST else {}
        sent = request.responseHeaders
        found = ((name, sent.getRawHeaders(name)) for name in self._HEADERS)
        headers = tuple((name, values[-1]) for name, values in found if values)
        self._answers[self._key(request)] = _Answer(now, body, request.etag, headers)

    def forget(self) -> None:
        """Forget everything: something was changed."""
        self._answers.clear()
