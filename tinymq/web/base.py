"""What pages and actions share: the Klein app, and how errors become answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final
from urllib.parse import urlencode

from klein import Klein
from twisted.logger import Logger
from twisted.python.failure import Failure
from twisted.web.http import Request
from twisted.web.iweb import IRequest
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from tinymq import errors
from tinymq.operation import require
from tinymq.web.config import SiteConfig
from tinymq.web.history import ACTS, last_changes, readable
from tinymq.web.input import BadInput, form_of
from tinymq.web.port import Console
from tinymq.web.recent import Recent
from tinymq.web.render import Renderer
from tinymq.web.routes import ROUTES
from tinymq.web.security import foreign, token_fits

_STATUS: Final[tuple[tuple[type[errors.TinyMQError], int], ...]] = (
    (errors.UnknownTopic, 404),
    (errors.UnknownTopicId, 404),
    (errors.UnknownChannel, 404),
    (errors.UnknownExchange, 404),
    (errors.UnknownBinding, 404),
    (errors.UnknownPartition, 404),
    (errors.UnknownClient, 404),
    (errors.UnknownBroker, 404),
    (errors.UnknownDelayed, 404),
    (errors.UnknownSchedule, 404),
    (errors.UnknownEndpoint, 404),
    (errors.UnknownGroup, 404),
    (errors.UnknownMember, 404),
    (errors.OffsetOutOfRange, 404),
    (errors.Forbidden, 403),
    (errors.TopicExists, 409),
    (errors.ChannelExists, 409),
    (errors.NothingToUndo, 409),
    (errors.GroupBusy, 409),
    (errors.BatchTooLarge, 413),
    (errors.ValueTooLarge, 413),
    (errors.RequestError, 400),
    (errors.StateError, 503),
    (errors.StorageError, 503),
    (errors.DeadlineExceeded, 504),
    (errors.ClientError, 503),
)
#: Fields of errors that name none themselves.
_FIELDS: Final[tuple[tuple[type[errors.TinyMQError], str], ...]] = (
    (errors.InvalidName, "name"),
    (errors.UnknownChannel, "name"),
    (errors.UnknownGroup, "name"),
    (errors.UnknownMember, "member"),
    (errors.GroupBusy, "force"),
    (errors.UnknownPartition, "partition"),
    (errors.UnknownClient, "client"),
    (errors.UnknownBroker, "broker"),
    (errors.OffsetOutOfRange, "offset"),
    (errors.ValueTooLarge, "value"),
    (errors.EndpointRefused, "url"),
)
_TITLES: Final = {404: "Not found", 413: "Too large"}
_RETRY_SECONDS: Final = 5
#: Changes of a topic that settings know of, and that are listed at once.
MOST_CHANGES: Final = 100
_CHANGES: Final = 20


class Refused(Exception):
    """A change that must not be carried out: 403."""


class Answer:
    """
    What an exception says to the client.

    Attributes:
        status: The status code.
        title: The kind of error in a few words.
        detail: A sentence.
        field: The field that is wrong, or empty.
        kind: A stable word for programs.
    """

    _log: ClassVar[Logger] = Logger()

    def __init__(self, error: BaseException) -> None:
        self.status, self.title, self.detail = 500, "Internal error", "The broker's log says more."
        self.field, self.kind = "", "InternalError"
        if isinstance(error, BadInput):
            self._say(error.status, _TITLES.get(error.status, "Bad input"), error.text)
            self.field = error.field
        elif isinstance(error, Refused):
            self._say(403, "Refused", str(error))
        elif isinstance(error, HTTPException):
            name = error.name
            self._say(error.code or 500, name, "There is nothing at this address.")
            if isinstance(error, MethodNotAllowed):
                self.detail = "This address does not take this method. Nothing was changed."
        elif isinstance(error, errors.TinyMQError):
            self._from_tree(error)
        self.kind = type(error).__name__ if self.status != 500 else self.kind

    def _say(self, status: int, title: str, detail: str) -> None:
        self.status, self.title, self.detail = status, title, detail

    def _from_tree(self, error: errors.TinyMQError) -> None:
        for kind, status in _STATUS:
            if isinstance(error, kind):
                title = (type(error).__doc__ or "").strip().split("\n")[0].rstrip(".")
                self._say(status, title, str(error))
                named = getattr(error, "data", {}).get("field", "")
                self.field = str(named or next((f for k, f in _FIELDS if isinstance(error, k)), ""))
                return

    @classmethod
    def to(cls, request: Request, failure: Failure) -> Answer:
        """
        Judge a failure, set what the answer's head says, log what nobody expected.

        Args:
            request: What is answered.
            failure: Why.
        """
        error = failure.value or RuntimeError("no error")
        answer = cls(error)
        request.setResponseCode(answer.status)
        if isinstance(error, MethodNotAllowed) and error.valid_methods:
            request.setHeader("Allow", ", ".join(sorted(error.valid_methods)))
        if answer.status == 503:
            request.setHeader("Retry-After", str(_RETRY_SECONDS))
        if answer.status == 500:
            cls._log.failure(
                "Cannot answer {method} {uri}",
                failure,
                method=request.method,
                uri=request.uri[:200],
            )
        return answer


class Base:
    """
    The Klein app with what every page needs.

    Args:
        console: The broker.
        config: The settings of the web side.
        recent: What was just written.
    """

    app = Klein()

    def __init__(self, console: Console, config: SiteConfig, recent: Recent) -> None:
        self._console = console
        self._config = config
        self._renderer = Renderer(config, recent)

    def _form(self, request: Request, name: str = "") -> dict[str, str]:
        """
        Read the form of a change, after checking where it comes from.

        Args:
            request: Has the form.
            name: The route of the API that does the same; empty if none does.

        Raises:
            Forbidden: The caller's role does not allow it.
            Refused: It comes from a foreign page, or carries no fitting token.
        """
        if name:
            require(ROUTES[name].role, self._config.caller(request).role, name)
        reason = foreign(request)
        if reason:
            raise Refused(f"Nothing was changed: {reason}.")
        form = form_of(request, self._config.max_form)
        if not token_fits(request, form.pop("token", ""), self._config):
            raise Refused("Nothing was changed: this form is out of date. Open its page again.")
        return form

    async def _operate(
        self, request: Request, operation: str, /, **arguments: Any
    ) -> dict[str, Any]:
        """
        Carry out an operation for who asks.

        Args:
            request: Whose role counts.
            operation: Its name.
            **arguments: By name.
        """
        return await self._console.operate(operation, arguments, self._config.caller(request))

    async def _known(
        self, request: Request, operation: str, /, **arguments: Any
    ) -> dict[str, Any] | None:
        """
        Ask what a page can do without.

        Args:
            request: Whose role counts.
            operation: Its name.
            **arguments: By name.

        Returns:
            The result; None if it cannot be told just now.
        """
        try:
            return await self._operate(request, operation, **arguments)
        except (errors.WireError, errors.ClientError, errors.StorageError):
            return None

    async def _changes(self, request: Request, topic: str, after: str = "") -> dict[str, Any]:
        """
        Tell who changed what about a topic, for its settings.

        Args:
            request: Whose role counts.
            topic: Its name.
            after: Where the list begins; the settings know all changes that are kept.
        """
        whole = await self._known(request, "topic.history", name=topic, limit=MOST_CHANGES)
        listed = whole
        if whole is not None:
            asked = {"after": after} if after else {}
            listed = await self._known(
                request, "topic.history", name=topic, limit=_CHANGES, **asked
            )
        return {
            "history": listed,
            "last": last_changes((whole or {}).get("changes", ())),
            "acts": ACTS,
            "readable": readable,
        }

    @app.handle_errors(Exception)
    def failed(self, request: IRequest, failure: Failure) -> bytes:
        """Answer an error with a page that says what is wrong."""
        assert isinstance(request, Request)
        answer = Answer.to(request, failure)
        return self._renderer.page(request, "error.html", None, answer=answer, current="")


def redirect(request: Request, path: str, query: Mapping[str, object] | None = None) -> bytes:
    """
    Send the browser to another page of ours, after a change.

    Args:
        request: What is answered.
        path: Starts with one slash.
        query: Fields of its query.
    """
    request.setResponseCode(303)
    request.setHeader("Location", path + ("?" + urlencode(query) if query else ""))
    return b""
