"""
What every answer and every change is checked for.

Headers go on every answer, errors included, because they are set before the
request is looked at. A change is refused when it comes from a foreign page:
browsers say so in ``Sec-Fetch-Site`` and ``Origin``. A form must besides
carry a token that belongs to a cookie which only our own pages can read.
"""

from __future__ import annotations

import hmac
import secrets
from hashlib import sha256
from typing import Final
from urllib.parse import urlsplit

from twisted.web.http import Request

from tinymq.web.config import SiteConfig

POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS: Final = (
    ("Content-Security-Policy", POLICY),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Cache-Control", "no-store"),
    ("Server", "tinymq"),
)
COOKIE: Final = b"tinymq-session"
_COOKIE_BYTES: Final = 32


def set_headers(request: Request) -> None:
    """Set the headers of every answer. A page may later allow itself to be kept."""
    for name, value in HEADERS:
        request.setHeader(name, value)


def header(request: Request, name: str) -> str | None:
    """Read one header; None when it is not there."""
    value = request.requestHeaders.getRawHeaders(name)
    return value[-1] if value else None


def host_allowed(request: Request, config: SiteConfig) -> bool:
    """Whether the ``Host`` header is one of ours."""
    if not config.hosts:
        return True
    try:
        parts = urlsplit("//" + (header(request, "host") or ""))
        name = parts.hostname or ""
    except ValueError:
        return False
    return (f"[{name}]" if ":" in name else name) in config.hosts


def foreign(request: Request) -> str | None:
    """
    Find out whether a change was asked for by a foreign page.

    Returns:
        The reason to refuse it, or None. A request without any of the
        headers does not come from a browser's page.
    """
    site = header(request, "sec-fetch-site")
    if site not in {None, "same-origin", "none"}:
        return f"the request comes from another site (Sec-Fetch-Site: {site})"
    origin = header(request, "origin")
    # A page cannot set Sec-Fetch-Site itself; with it, a proxy may change host and scheme.
    if origin is None or site == "same-origin":
        return None
    scheme = "https" if request.isSecure() else "http"
    if origin.lower() != f"{scheme}://{header(request, 'host') or ''}".lower():
        return "the request comes from a page of another origin"
    return None


def session_of(request: Request) -> bytes:
    """
    Read the cookie that form tokens belong to, or set a new one.

    Returns:
        Its value.
    """
    held: bytes | None = request.getCookie(COOKIE)
    if held and len(held) == 2 * _COOKIE_BYTES and held.isalnum():
        return held
    made = secrets.token_hex(_COOKIE_BYTES).encode()
    request.addCookie(COOKIE, made, path=b"/", httpOnly=True, sameSite="strict")
    return made


def token_of(session: bytes, config: SiteConfig) -> str:
    """Make the token that a form of this session carries."""
    return hmac.new(config.secret, session, sha256).hexdigest()


def token_fits(request: Request, token: str, config: SiteConfig) -> bool:
    """Whether a form's token belongs to the cookie that came with it."""
    held = request.getCookie(COOKIE)
    if not held:
        return False
    return hmac.compare_digest(token_of(held, config).encode(), token.encode())
