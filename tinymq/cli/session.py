"""Where the broker is, and the one client that a verb uses."""

from __future__ import annotations

import functools
import logging
import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
from typing_extensions import override

from tinymq.cli.failure import of_partition
from tinymq.cli.output import note
from tinymq.cli.values import DURATION
from tinymq.cli.wrongport import explain
from tinymq.errors import DeadlineExceeded, UnreachableError

if TYPE_CHECKING:
    from tinymq.sync import Client

DEFAULT_URL: Final = "tinymq://127.0.0.1:7800"
#: Seconds that a request may take when nothing else is said.
DEFAULT_TIMEOUT: Final = 10.0

Connect = Callable[[str, float], "Client"]
_Function = TypeVar("_Function", bound=Callable[..., Any])


def connect(url: str, timeout: float) -> Client:
    """
    Make a client.

    Args:
        url: Such as ``tinymq://localhost:7800``.
        timeout: Seconds that a request may take.
    """
    from tinymq.sync import Client, ClientConfig  # noqa: PLC0415 - not needed for --help

    _hear()
    config = ClientConfig(
        client_id="tinymq-cli",
        connect_timeout_s=min(timeout, 5.0),
        request_timeout_s=timeout,
        deadline_s=timeout,
        wait_for_broker=False,
    )
    return Client(url, config)


class _Notes(logging.Handler):
    """Shows people what the client says: that a connection was lost, that it is back."""

    @override
    def emit(self, record: logging.LogRecord) -> None:
        """Show a line."""
        error = record.exc_info[1] if record.exc_info else None
        note(record.getMessage() + (f": {error}" if error else ""))


def _hear() -> None:
    """Let the client's log lines come to stderr, once, and so that they move no cursor."""
    log = logging.getLogger("tinymq.sync")
    if not any(isinstance(handler, _Notes) for handler in log.handlers):
        log.addHandler(_Notes())
        log.propagate = False


class Session:
    """
    One run of the command.

    Attributes:
        url: Where the broker is.
        given: Seconds that a request may take, if somebody said so.
        sleep: Waits so many seconds.
        clock: Tells seconds that never go back.

    Args:
        connect: Makes a client; tests give a fake.
        sleep: Waits so many seconds; tests do not.
        explain: Finds out who answers at a URL where no broker does.
    """

    def __init__(
        self,
        connect: Connect = connect,
        sleep: Callable[[float], None] = time.sleep,
        explain: Callable[[str], Exception | None] = explain,
    ) -> None:
        self.sleep = sleep
        self.explain = explain
        self.url = os.environ.get("TINYMQ_URL") or DEFAULT_URL
        self.clock = time.monotonic
        self.given: float | None = None
        self._connect = connect
        self._client: Client | None = None

    @property
    def timeout(self) -> float:
        """Seconds that a request may take."""
        return DEFAULT_TIMEOUT if self.given is None else self.given

    @property
    def client(self) -> Client:
        """The client; made when it is first asked for."""
        if self._client is None:
            self._client = self._connect(self.url, self.timeout)
        return self._client

    def fresh(self, url: str | None = None) -> Session:
        """
        Make a session of the same kind with a client of its own, for another thread.

        Args:
            url: Where its broker is, if that is another one.
        """
        session = Session(self._connect, self.sleep, self.explain)
        session.url, session.given = url or self.url, self.given
        return session

    def operate(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """Carry out one administrative operation."""
        reply: dict[str, Any] = self.client.admin.operate(name, **arguments)
        return reply

    def close(self) -> None:
        """Close the client, if one was made."""
        if self._client is not None:
            self._client.close()
            self._client = None


def _keep(attribute: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    """Store an option in the session, wherever on the line it was given."""

    def callback(context: click.Context, parameter: click.Parameter, value: Any) -> None:
        if value is not None:
            setattr(context.ensure_object(Session), attribute, value)

    return callback


def remote_options(function: _Function) -> _Function:
    """Add the options of everything that talks to a broker."""
    for option in (
        click.option(
            "--timeout",
            type=DURATION,
            metavar="TIME",
            expose_value=False,
            callback=_keep("given"),
            help="How long a request may take, such as 30s or 2m.  [default: 10s]",
        ),
        click.option(
            "--url",
            metavar="URL",
            expose_value=False,
            callback=_keep("url"),
            help=f"The broker; TINYMQ_URL says the same.  [default: {DEFAULT_URL}]",
        ),
    ):
        function = option(function)
    return function


def remote(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a verb one that talks to a broker: its first argument is the session."""

    @remote_options
    @click.pass_obj
    @functools.wraps(function)
    def verb(session: Session, /, *args: Any, **kwargs: Any) -> Any:
        try:
            return function(session, *args, **kwargs)
        except (DeadlineExceeded, UnreachableError) as error:
            if of_partition(error):
                raise
            raise session.explain(session.url) or error from error

    return verb
