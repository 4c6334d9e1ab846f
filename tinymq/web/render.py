"""
Turns snapshots into pages: Jinja2 with autoescape, and who is looking.
"""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64decode
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from typing import Any, Final, Literal
from urllib.parse import quote, urlencode

from attrs import frozen
from jinja2 import Environment, FileSystemLoader, StrictUndefined, pass_context
from jinja2.runtime import Context
from twisted.web.http import CACHED, Request

from tinymq.stats import ClusterSnapshot
from tinymq.web import format as write
from tinymq.web import marks
from tinymq.web.assets import packaged
from tinymq.web.brokers import STALE, silence
from tinymq.web.config import SiteConfig
from tinymq.web.groups import GROUP_WORDS
from tinymq.web.placement import led_here, ranges, reasons
from tinymq.web.plaintext import BIDI, one_line, to_text
from tinymq.web.port import Plan
from tinymq.web.recent import Recent
from tinymq.web.security import header, session_of, token_of
from tinymq.web.templates import find_templates
from tinymq.web.verdict import SKEW, skewed

Theme = Literal["", "light", "dark"]
#: Seconds between two refreshes that a person can choose.
INTERVALS: Final = (1, 2, 5, 30)
_DEFAULT_INTERVAL: Final = 5
_SMALL: Final = 1024
#: Columns whose smallest value comes first when a person first sorts by them.
RISING: Final = frozenset(
    {"name", "slow", "client_id", "address", "agent", "broker", "state", "version"}
    | {"group", "coordinator"}
)
#: Columns of sizes, whose heads say how large a unit is.
SIZED: Final = frozenset(
    {"Memory", "Disk", "Size", "Bytes", "Bytes /s", "Topic bytes", "Buffered", "For the disk"}
    | {"Before publishers are refused", "Used"}
)
UNITS: Final = "1 KB is 1,000 bytes"
#: Nothing that a name or a reason holds may cut a page off or turn its text round.
_MARKS: Final = {0: "\u2400", **BIDI}
_MARKED: Final = tuple(map(chr, _MARKS))
_PLAIN: Final = re.compile(r"[A-Za-z0-9._/@:=+][A-Za-z0-9._/@:=+-]*")
_HOST: Final = re.compile(r"[A-Za-z0-9.\-:\[\]]{1,255}")


def cookie(request: Request, name: str) -> str:
    """Read a cookie as text; empty when it is not there."""
    value = request.getCookie(name.encode("ascii"))
    return value.decode("latin-1") if value else ""


@frozen(kw_only=True)
class View:
    """
    How one person wants pages to look, from cookies.

    Attributes:
        path: The address of the page with its query.
        theme: Empty follows the system.
        zone: Name of the time zone; empty is UTC.
        times: Writes times in it.
        every: Seconds between refreshes.
        paused: Whether refreshing is paused.
        token: What forms must carry.
        fragment: Whether only the inside of the page is wanted.
    """

    path: str
    theme: Theme
    zone: str
    times: write.Times
    every: int
    paused: bool
    token: str
    fragment: bool


def view_of(request: Request, config: SiteConfig, now_ms: int) -> View:
    """
    Read who is looking, and how.

    Args:
        request: Where the cookies are; may be given a new one.
        config: Has the secret for the token.
        now_ms: The instant that ages are counted from.
    """
    theme = cookie(request, "tinymq-theme")
    zone = cookie(request, "tinymq-zone").replace("%2F", "/")
    every = cookie(request, "tinymq-every")
    return View(
        path=request.uri.decode("ascii", "replace"),
        theme="dark" if theme == "dark" else "light" if theme == "light" else "",
        zone="" if zone.upper() == "UTC" else zone,
        times=write.Times(now_ms, write.zone(zone)),
        every=int(every) if every in map(str, INTERVALS) else _DEFAULT_INTERVAL,
        paused=cookie(request, "tinymq-paused") == "1",
        token=token_of(session_of(request), config),
        fragment=header(request, "hx-request") == "true",
    )


def origin_of(request: Request) -> str:
    """Write the address that the client called us by, for commands to copy."""
    scheme = "https" if request.isSecure() else "http"
    host = header(request, "host") or "127.0.0.1:7801"
    return f"{scheme}://{host if _HOST.fullmatch(host) else '127.0.0.1:7801'}"


def segment(name: str) -> str:
    """Encode a name as one segment of a path."""
    return quote(name, safe="")


@pass_context
def _with_query(context: Context, **changes: object) -> str:
    """Write the query of this page with some fields changed."""
    fields = {**context.get("query", {}), **{k: str(v) for k, v in changes.items()}}
    return "?" + urlencode({key: value for key, value in fields.items() if value != ""})


def _settings_json(plan: Plan) -> str:
    """Write the settings of a plan as the body of the API's request."""
    return json.dumps({"config": {each.name: each.after for each in plan.changes}})


def shell_quoted(text: str) -> str:
    """Quote text for a POSIX shell, where it needs that."""
    if _PLAIN.fullmatch(text):
        return text
    return "'" + text.replace("'", "'\\''") + "'"


def one_text(text: str, encoding: str = "string", most: int = 120) -> str:
    """
    Write on one line what an operation tells of a key or a value.

    Args:
        text: As it is told.
        encoding: ``string``, or ``base64`` where it is no text.
        most: Most characters.
    """
    raw = text.encode("utf-8", "replace")
    return one_line(b64decode(raw) if encoding == "base64" else raw, most)


@cache
def _environment() -> Environment:
    """Make the environment of all templates, once: compiling them takes long."""
    assets = packaged()
    environment = Environment(
        loader=FileSystemLoader(find_templates()),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(
        number=write.number,
        rate=write.rate,
        size=write.size,
        duration=write.duration,
        segment=segment,
        one_line=one_line,
        one_text=one_text,
        to_text=to_text,
        shell=shell_quoted,
    )
    environment.globals.update(
        asset=assets.address,
        marks=marks,
        plural=write.plural,
        percent=write.percent,
        size_of=write.size_of,
        with_query=_with_query,
        skewed=skewed,
        settings_json=_settings_json,
        setting_hint=write.setting_hint,
        skew_limit=SKEW,
        rising=RISING,
        sized=SIZED,
        units=UNITS,
        reasons_of=reasons,
        ranges=ranges,
        led_here=led_here,
        group_words=GROUP_WORDS,
        intervals=INTERVALS,
    )
    return environment


def _counts(cluster: ClusterSnapshot | None, clients: int | None) -> dict[str, int]:
    """Count what the menu counts."""
    if cluster is None:
        return {}
    return {
        "topics": cluster.topics,
        "channels": cluster.channels,
        "groups": cluster.groups,
        "clients": cluster.clients if clients is None else clients,
        "brokers": sum(one.role != "meta" for one in cluster.brokers),
    }


class Renderer:
    """
    Renders templates.

    Args:
        config: The settings of the web side.
        recent: Is given the fragments that other tabs may want too.
    """

    def __init__(self, config: SiteConfig, recent: Recent) -> None:
        self._config = config
        self._recent = recent
        self._environment = _environment()

    def page(
        self,
        request: Request,
        template: str,
        cluster: ClusterSnapshot | None,
        *,
        keep: bool = False,
        silent: Iterable[str] | None = (),
        effect: str = STALE,
        **values: Any,
    ) -> bytes:
        """
        Render a page, or only its inside when the page refreshes itself.

        Args:
            request: Who asks.
            template: Name of the template.
            cluster: What the shell shows; None on pages about a failure.
            keep: Whether a browser may keep the page and ask whether it is
                still true. Not for pages that show messages.
            silent: Names of brokers without which its figures are partial;
                None for all that are silent.
            effect: What their silence means for the page.
            **values: What the template shows. A `client_count` among them is what the
                menu says, too: a page may know it better than `cluster`.
        """
        now_ms = cluster.taken_ms if cluster else 0
        view = view_of(request, self._config, now_ms)
        text = self._environment.get_template(template).render(
            layout="fragment.html" if view.fragment else "shell.html",
            view=view,
            times=view.times,
            cluster=cluster,
            silence=cluster and silence(cluster, view.times, silent, effect),
            origin=origin_of(request),
            counts=_counts(cluster, values.get("client_count")),
            **values,
        )
        if any(mark in text for mark in _MARKED):
            text = text.translate(_MARKS)
        request.setHeader("Content-Type", "text/html; charset=utf-8")
        body = deliver(request, text.encode("utf-8", "replace"), keep=keep)
        if keep and view.fragment and view.token not in text:
            self._recent.keep(request, body)
        return body


def deliver(request: Request, body: bytes, *, keep: bool = False) -> bytes:
    """
    Compress a body if the client can read that, and answer 304 if it has it.

    Args:
        request: What is answered.
        body: The whole body.
        keep: Whether the client may keep it, to be checked each time.
    """
    request.setHeader("Vary", "Accept-Encoding, Cookie, HX-Request")
    if keep:
        request.setHeader("Cache-Control", "private, no-cache")
        tag = f'W/"{sha256(body).hexdigest()[:24]}"'
        if request.setETag(tag.encode()) is CACHED:
            return b""
    if len(body) > _SMALL and "gzip" in (header(request, "accept-encoding") or ""):
        body = gzip.compress(body, 4, mtime=0)
        request.setHeader("Content-Encoding", "gzip")
    return body
