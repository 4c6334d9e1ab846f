"""Signatures of webhooks."""

from __future__ import annotations

from email import message_from_string
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinymq.webhook import (
    Delivery,
    VerificationError,
    new_secret,
    secret_bytes,
    sign,
    verify,
)

#: The example of the specification of Standard Webhooks.
SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ID = "msg_p5jXN8AQM9LWM0D4loKWxJek"
STAMP = 1614265330
BODY = b'{"test": 2432232314}'
SIGNATURE = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def headers(**changes: str) -> dict[str, str]:
    """The headers of the example."""
    found = {"id": ID, "timestamp": str(STAMP), "signature": SIGNATURE, **changes}
    return {f"webhook-{name}": value for name, value in found.items()}


def check(found: Any, body: bytes = BODY, secret: str = SECRET, now: float = STAMP) -> Delivery:
    """Verify at a time."""
    return verify(found, body, secret, now=lambda: now)


def test_example() -> None:
    """The signature of the specification's example is made and taken."""
    assert sign(SECRET, ID, STAMP, BODY) == SIGNATURE
    assert check(headers()) == (ID, STAMP)


@pytest.mark.parametrize(
    "shape",
    [
        lambda found: {name.title(): value for name, value in found.items()},
        lambda found: {name.encode(): value.encode() for name, value in found.items()},
        lambda found: {name.encode(): [value.encode()] for name, value in found.items()},
        lambda found: list(found.items()),
        lambda found: [(name.encode(), value.encode()) for name, value in found.items()],
        lambda found: message_from_string("".join(f"{k}: {v}\n" for k, v in found.items())),
    ],
)
def test_shapes(shape: Any) -> None:
    """Headers are taken as frameworks have them."""
    assert check(shape(headers())).id == ID


@pytest.mark.parametrize(
    "changes",
    [
        {"signature": SIGNATURE.replace("g", "h")},
        {"signature": "v1a," + SIGNATURE[3:]},
        {"signature": ""},
        {"signature": "v1,é"},
        {"id": "other"},
        {"id": ""},
        {"timestamp": str(STAMP + 1)},
        {"timestamp": "soon"},
        {"timestamp": "-5"},
        {"timestamp": "9" * 40},
        {"timestamp": "²"},
    ],
)
def test_forged(changes: dict[str, str]) -> None:
    """What is not as it was signed is refused."""
    with pytest.raises(VerificationError):
        check(headers(**changes))


def test_other_body_and_secret() -> None:
    """So are another body, and another secret."""
    changes: list[dict[str, Any]] = [{"body": BODY + b" "}, {"secret": new_secret(bytes(32))}]
    for changed in changes:
        with pytest.raises(VerificationError):
            check(headers(), **changed)


def test_old_and_early() -> None:
    """A request that is seen again later is refused, and one from the future."""
    for now in (STAMP + 301, STAMP - 301):
        with pytest.raises(VerificationError):
            check(headers(), now=now)
    assert check(headers(), now=STAMP + 299).id == ID


def test_several_signatures() -> None:
    """While a secret is changed there are several signatures, of which one fits."""
    assert check(headers(signature=f"v1,AAAA v2,x {SIGNATURE}")).id == ID
    with pytest.raises(VerificationError):
        check(headers(signature="v1,AAAA " * 50 + SIGNATURE))


@pytest.mark.parametrize("secret", ["", "whsec_", "whsec_AAAA", "whsec_!!!", "é", "A" * 200])
def test_wrong_secrets(secret: str) -> None:
    """What is no secret is refused, without being repeated."""
    with pytest.raises(ValueError, match="base64") as caught:
        check(headers(), secret=secret)
    assert secret in ("", "whsec_") or secret not in str(caught.value)


@given(st.binary(min_size=16, max_size=64), st.text(max_size=50), st.binary(max_size=200))
def test_round_trip(entropy: bytes, delivery: str, body: bytes) -> None:
    """Everything that is signed is taken."""
    secret = new_secret(entropy)
    assert secret_bytes(secret) == entropy
    name = "x" + "".join(each for each in delivery if each.isprintable() and each != "\ud800")
    found = headers(id=name, signature=sign(secret, name, STAMP, body))
    assert check(found, body, secret).id == name
