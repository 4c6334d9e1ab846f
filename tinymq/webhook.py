"""
Signatures of webhooks, for who sends and who gets them; needs nothing but Python.

What tinymq sends to a push endpoint is signed as `Standard Webhooks`_ say: the header
``webhook-signature`` holds the HMAC-SHA256 of ``ID.TIMESTAMP.BODY`` under a secret that
both sides know. A receiver calls `verify`::

    from tinymq.webhook import verify

    delivery = verify(request.headers, request.body, "whsec_...")

and answers with a status from 200 to 299 when it is done with the message.

.. _Standard Webhooks: https://www.standardwebhooks.com/
"""

from __future__ import annotations

import base64
import binascii
import hmac
import time
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, cast

#: What a secret begins with.
PREFIX: Final = "whsec_"
#: Bytes of a secret that is made here.
SECRET_BYTES: Final = 32
#: Bytes that a secret may have.
LEAST_SECRET: Final = 16
MOST_SECRET: Final = 64
#: Seconds that the clocks of both sides may differ, and a request may take.
TOLERANCE_S: Final = 300.0


class _Items(Protocol):
    """What is no mapping, but has its pairs, such as `email.message.Message`."""

    def items(self) -> Iterable[tuple[Any, Any]]: ...


#: Headers as frameworks have them: names to text, bytes or several of them; or pairs.
Headers: TypeAlias = (
    Mapping[str, object] | Mapping[bytes, object] | _Items | Iterable[tuple[object, object]]
)

_VERSION: Final = "v1"
#: Signatures in one header that are looked at: there are several while a secret is changed.
_MOST_SIGNATURES: Final = 16


class VerificationError(Exception):
    """A request is not from who knows the secret, or it is old."""


class Delivery(NamedTuple):
    """
    A request that was found to be genuine.

    Attributes:
        id: The same for each attempt at one message: ``TOPIC/PARTITION@OFFSET``.
        timestamp: When it was sent, in seconds since 1970.
    """

    id: str
    timestamp: int


def new_secret(entropy: bytes) -> str:
    """
    Write a secret.

    Args:
        entropy: Random bytes.
    """
    return PREFIX + base64.b64encode(entropy).decode()


def secret_bytes(secret: str) -> bytes:
    """
    Read a secret.

    Args:
        secret: ``whsec_`` and 16 to 64 bytes in base64.

    Raises:
        ValueError: It is none; the text does not repeat it.
    """
    try:
        found = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except (binascii.Error, ValueError):
        found = b""
    if not LEAST_SECRET <= len(found) <= MOST_SECRET:
        raise ValueError(f"{PREFIX} and {LEAST_SECRET} to {MOST_SECRET} bytes in base64")
    return found


def sign(secret: str, delivery_id: str, timestamp: int, body: bytes) -> str:
    """
    Make the header ``webhook-signature``.

    Args:
        secret: What both sides know.
        delivery_id: The header ``webhook-id``.
        timestamp: The header ``webhook-timestamp``, in seconds since 1970.
        body: The body.

    Raises:
        ValueError: The secret is none.
    """
    content = b"%s.%d.%s" % (delivery_id.encode(), timestamp, body)
    digest = hmac.digest(secret_bytes(secret), content, sha256)
    return f"{_VERSION},{base64.b64encode(digest).decode()}"


def verify(
    headers: Headers,
    body: bytes,
    secret: str,
    tolerance_s: float = TOLERANCE_S,
    *,
    now: Callable[[], float] = time.time,
) -> Delivery:
    """
    Make sure that a request comes from who knows the secret.

    Args:
        headers: Of the request, in any of the usual shapes.
        body: Of the request, byte by byte as it came.
        secret: As ``tinymq push set`` told it.
        tolerance_s: How old it may be: who has once seen a request could send it again later.
        now: Tells the time, in seconds since 1970.

    Returns:
        What the request says of itself.

    Raises:
        VerificationError: It is not genuine, or it is old. Answer 401.
        ValueError: The secret is none.
    """
    secret_bytes(secret)
    found = _lowered(headers)
    delivery_id, stamp, signatures = (
        found.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature")
    )
    if not delivery_id or not stamp or not signatures:
        raise VerificationError("webhook-id, webhook-timestamp or webhook-signature is missing")
    if not (stamp.isascii() and stamp.isdigit() and len(stamp) < 16):
        raise VerificationError("webhook-timestamp is no number of seconds")
    timestamp = int(stamp)
    if abs(now() - timestamp) > tolerance_s:
        raise VerificationError("the request is too old, or from the future")
    expected = sign(secret, delivery_id, timestamp, body).encode()
    for each in signatures.split(" ")[:_MOST_SIGNATURES]:
        # Compared in constant time, or one could find a signature byte by byte.
        if hmac.compare_digest(expected, each.encode()):
            return Delivery(delivery_id, timestamp)
    raise VerificationError("no signature fits: another secret, or another body")


def _lowered(headers: Headers) -> dict[str, str]:
    """Write headers as text under lower names; of several of one name the first counts."""
    found: dict[str, str] = {}
    # `http.server` has its headers as a message of e-mail, which is no Mapping.
    items = getattr(headers, "items", None)
    pairs = items() if items is not None else cast("Iterable[tuple[object, object]]", headers)
    for name, value in pairs:
        if isinstance(value, list | tuple):
            value = value[0] if value else ""  # noqa: PLW2901 - of several the first
        found.setdefault(_text(name).lower(), _text(value))
    return found


def _text(value: object) -> str:
    return value.decode("latin-1") if isinstance(value, bytes) else str(value)
