"""`tinymq lookup`: which nodes have a topic, as the MetaServers of lookup mode know it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Final

import click
from attrs import Factory, define

from tinymq.cli.failure import UNREACHABLE, Failed
from tinymq.cli.groups import Group
from tinymq.cli.operation import Arguments, complete, limit_option, operation_options
from tinymq.cli.output import Column, Listing, Row, key, list_options, note, show
from tinymq.cli.session import Session, remote
from tinymq.cli.values import host_port, iso
from tinymq.errors import TinyMQError

#: Topics asked for at once.
PAGE: Final = 500
#: Most MetaServers that are asked at the same time.
_AT_ONCE: Final = 16

Answer = dict[str, Any]


def _url(row: Row) -> str:
    return f"tinymq://{host_port(row['host'], row['port'])}"


def _known_by(row: Row) -> str:
    return ", ".join(row["known_by"])


TOPIC_COLUMNS: Final = (
    Column("TOPIC", key("name")),
    Column("KNOWN-BY", _known_by, wide=True),
)

NODE_COLUMNS: Final = (
    Column("NAME", key("name")),
    Column("ADDRESS", _url),
    Column("ZONE", lambda row: row.get("zone") or None),
    Column("SINCE", key("since_ms"), iso, wide=True),
    Column("NODE", key("node"), wide=True),
    Column("KNOWN-BY", _known_by, wide=True),
)

_meta = click.option(
    "--meta",
    "places",
    metavar="HOST:PORT,...",
    help="The MetaServers; if not given, the places of the URL.",
)


@click.group(cls=Group)
def lookup() -> None:
    """Ask MetaServers which nodes have a topic."""


@define
class Answers:
    """
    What several MetaServers said.

    Attributes:
        found: By place, those that answered.
        silent: By place, why the others did not.
    """

    found: dict[str, Answer] = Factory(dict)
    silent: dict[str, str] = Factory(dict)

    def check(self) -> None:
        """
        Name those that did not answer.

        Raises:
            Failed: Nobody answered.
        """
        if not self.found:
            why = "; ".join(f"{place}: {reason}" for place, reason in self.silent.items())
            raise Failed(
                f"no MetaServer answered: {why}", "--meta says where they are", UNREACHABLE
            )
        for place, reason in self.silent.items():
            note(f"{place} did not answer: {reason}")

    def document(self, name: str, rows: Sequence[Row]) -> Answer:
        """Give what JSON shows."""
        silent = [{"place": place, "reason": why} for place, why in self.silent.items()]
        return {name: rows, "asked": [*self.found, *self.silent], "silent": silent}


def ask_all(session: Session, places: Sequence[str], ask: Callable[[Session], Answer]) -> Answers:
    """
    Ask every MetaServer at the same time.

    Args:
        session: Whose settings are used.
        places: Where they are.
        ask: What is asked of each.
    """

    def one(place: str) -> Answer | TinyMQError:
        fresh = session.fresh(f"tinymq://{place}")
        try:
            return ask(fresh)
        except TinyMQError as error:
            return error
        finally:
            fresh.close()

    answers = Answers()
    with ThreadPoolExecutor(min(_AT_ONCE, len(places))) as pool:
        for place, answer in zip(places, pool.map(one, places), strict=True):
            if isinstance(answer, TinyMQError):
                answers.silent[place] = " ".join(str(answer).split())
            else:
                answers.found[place] = answer
    return answers


def places_of(session: Session, given: str | None) -> list[str]:
    """
    Give the places of the MetaServers, each once.

    Raises:
        ConfigError: One is no place.
    """
    from tinymq.client.core.address import parse_url  # noqa: PLC0415 - not needed for --help

    url = session.url if given is None else "tinymq://" + given.replace(" ", "")
    return list(dict.fromkeys(map(str, parse_url(url))))


@lookup.command("ls")
@operation_options("lookup.list", own={"limit": "limit"})
@limit_option
@_meta
@list_options
@remote
def list_topics(
    session: Session,
    arguments: Arguments,
    limit: int | None,
    places: str | None,
    columns: str,
    output: str,
) -> None:
    """List the topics that nodes announce."""
    answers = ask_all(session, places_of(session, places), partial(_topics, arguments))
    answers.check()
    known: dict[str, list[str]] = {}
    for place, answer in answers.found.items():
        for name in answer["topics"]:
            known.setdefault(name, []).append(place)
    rows = [{"name": name, "known_by": known[name]} for name in sorted(known)][:limit]
    show(Listing(rows, TOPIC_COLUMNS, answers.document("topics", rows)), output, columns)


def _topics(arguments: Arguments, session: Session) -> Answer:
    """Ask one MetaServer for page after page."""
    names: list[str] = []
    while True:
        after = {"after": names[-1]} if names else {}
        reply = session.operate("lookup.list", **{**arguments, **after, "limit": PAGE})
        names += reply["topics"]
        if not reply.get("more") or not reply["topics"]:
            return {"topics": names}


@lookup.command("find")
@operation_options("lookup.find")
@_meta
@list_options
@remote
def find(
    session: Session, arguments: Arguments, places: str | None, columns: str, output: str
) -> None:
    """
    Show the nodes that have a topic.

    With `-o name` each line is a URL for --url. The exit status is 1 when no
    node has it.
    """
    topic = arguments["name"]
    answers = ask_all(
        session, places_of(session, places), lambda each: each.operate("lookup.find", **arguments)
    )
    answers.check()
    nodes: dict[str, Answer] = {}
    for place, answer in answers.found.items():
        for row in answer["nodes"]:
            node = _text(row["node"])
            known = nodes.setdefault(node, {**row, "node": node, "known_by": []})
            known["known_by"].append(place)
            known["since_ms"] = min(known.get("since_ms") or 0, row.get("since_ms") or 0)
    if not nodes:
        raise Failed(f"no node announces the topic {topic}", "`tinymq lookup ls` lists the topics")
    rows = sorted(nodes.values(), key=lambda row: (row["name"], row["node"]))
    document = {"topic": topic, **answers.document("nodes", rows)}
    shown = [{**row, "url": _url(row)} for row in rows]
    show(Listing(shown, NODE_COLUMNS, document, "url"), output, columns)


def _text(node: Any) -> str:
    return node.hex() if isinstance(node, (bytes, bytearray)) else str(node)


complete(lookup)
