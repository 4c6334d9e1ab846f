"""
`tinymq log`: look into a data folder, without a broker.

Dumping and verifying change nothing and may be done beside a running broker;
repairing takes the folder's lock.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from tinymq.cli.confirm import change_options, confirm, yes_option
from tinymq.cli.failure import REFUSED
from tinymq.cli.groups import Group
from tinymq.cli.output import (
    Column,
    Listing,
    facts,
    key,
    list_options,
    note,
    output_option,
    show,
)
from tinymq.cli.values import human_size, iso
from tinymq.errors import TinyMQError
from tinymq.wire.batch import ABORTED, CONTROL, TRANSACTIONAL

if TYPE_CHECKING:
    from tinymq.storage.inspect import DumpedBatch, LogFacts, Place, Repair
    from tinymq.wire.batch import BatchHeader

#: The MetaServer's store in a data folder; it knows the names of topics.
_STORE: Final = "meta.sqlite"
#: Rows that are shown before the widths of columns are fixed.
_ROWS: Final = 1000

_CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")


BATCH_COLUMNS: Final = (
    Column("LOG", key("log")),
    Column("FILE", key("file"), wide=True),
    Column("POSITION", key("position"), right=True),
    Column("BYTES", key("bytes"), right=True),
    Column("FIRST", key("first"), right=True),
    Column("LAST", key("last"), right=True),
    Column("RECORDS", key("records"), right=True),
    Column("TIME", key("time_ms"), iso),
    Column("CODEC", key("codec")),
    Column("PRODUCER", key("producer"), right=True),
    Column("SEQUENCE", key("sequence"), right=True),
    Column("EPOCH", key("epoch"), right=True, wide=True),
    Column("TRANSACTION", key("transaction"), wide=True),
    Column("PROBLEM", key("problem")),
)

LOG_COLUMNS: Final = (
    Column("LOG", key("log")),
    Column("START", key("start"), right=True),
    Column("END", key("end"), right=True),
    Column("RECORDS", key("records"), right=True),
    Column("BYTES", key("bytes"), human_size, right=True),
    Column("FILES", key("segments"), right=True),
    Column("BATCHES", key("batches"), right=True, wide=True),
    Column("OLDEST", key("oldest_ms"), iso, wide=True),
    Column("NEWEST", key("newest_ms"), iso),
    Column("MISSING", key("missing"), right=True),
    Column("TORN", key("torn"), right=True),
    Column("STATE", key("state")),
)

REPAIR_COLUMNS: Final = (
    Column("ACTION", key("action")),
    Column("PATH", key("path")),
    Column("DETAIL", key("detail")),
)


@click.group(cls=Group)
def log() -> None:
    """Look into a data folder; needs no broker."""


_folder = click.argument(
    "folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path)
)


def names_of(folder: Path) -> dict[str, str]:
    """
    Map the ids of topics to their names.

    The store is copied first: opening it in its place would change it.

    Returns:
        Nothing when the folder has no store, or it cannot be read.
    """
    from tinymq.meta.entries import prefix  # noqa: PLC0415 - only this verb needs it
    from tinymq.meta.registry import Topic  # noqa: PLC0415
    from tinymq.meta.store import Store  # noqa: PLC0415

    if not (folder / _STORE).exists():
        return {}
    with tempfile.TemporaryDirectory(prefix="tinymq-log-") as place:
        try:
            for file in folder.glob(_STORE + "*"):
                shutil.copy(file, place)
            store = Store(Path(place, _STORE), create=False)
            try:
                entries = store.range(*prefix("topic/"))
            finally:
                store.close()
        except (TinyMQError, OSError) as error:
            note(f"the names of topics are not known: {error}")
            return {}
    ids = {entry.key.partition("/")[2]: entry.value for entry in entries}
    return {topic: Topic.decode(bytes.fromhex(topic), value).name for topic, value in ids.items()}


def _log_name(place: Place, names: dict[str, str]) -> str:
    """Name a log as people know it: topic and partition, else its path."""
    if place.partition < 0:
        return place.path
    kind = "" if place.kind == "data" else f" {place.kind}"
    return f"{names.get(place.topic, place.topic)}/{place.partition}{kind}"


@log.command("dump")
@_folder
@list_options
def dump(folder: Path, columns: str, output: str) -> int:
    """
    Show every batch, and every run of bytes that is none.

    The exit status is 1 when something is damaged.
    """
    from tinymq.storage.inspect import dump as dump_batches  # noqa: PLC0415

    names = names_of(folder)
    rows = []
    damaged = False
    for batch in dump_batches(os.fspath(folder)):
        rows.append(_batch_row(batch, _log_name(batch.place, names)))
        damaged |= batch.problem.startswith("damaged")
        if output == "ndjson" and len(rows) == _ROWS:
            show(Listing(rows, BATCH_COLUMNS, name="first"), output)
            rows = []
    show(Listing(rows, BATCH_COLUMNS, name="first"), output, columns)
    return REFUSED if damaged else 0


def _batch_row(batch: DumpedBatch, name: str) -> dict[str, Any]:
    row: dict[str, Any] = {
        "log": name,
        "file": batch.file,
        "position": batch.position,
        "bytes": batch.size,
        "problem": batch.problem or None,
        "first": None,
        "transaction": None,
    }
    header = batch.header
    if header is None:
        return row
    codec = header.attributes & 7
    return row | {
        "first": header.base_offset,
        "last": header.last_offset,
        "records": header.records,
        "time_ms": header.max_timestamp,
        "codec": _CODECS[codec] if codec < len(_CODECS) else str(codec),
        "producer": header.producer_id if header.producer_id >= 0 else None,
        "sequence": header.base_sequence if header.producer_id >= 0 else None,
        "epoch": header.leader_epoch,
        "transaction": _transaction(header),
    }


def _transaction(header: BatchHeader) -> str | None:
    """Say which transaction a batch belongs to, or how it ends it."""
    if not header.attributes & TRANSACTIONAL:
        return None
    identity = f"{header.producer_id}:{header.producer_epoch}"
    if not header.attributes & CONTROL:
        return identity
    return f"{identity} {'aborted' if header.attributes & ABORTED else 'committed'}"


@log.command("verify")
@_folder
@output_option
def verify(folder: Path, output: str) -> int:
    """
    Read and check everything; say what each topic holds.

    A torn tail is what a crash leaves, and no damage: the next start cuts it.
    The exit status is 1 when something is missing or wants repair.
    """
    from tinymq.storage.inspect import topics  # noqa: PLC0415 - only this verb needs it
    from tinymq.storage.inspect import verify as verify_logs  # noqa: PLC0415

    names = names_of(folder)
    found = list(verify_logs(os.fspath(folder)))
    rows = [_log_row(each, _log_name(each.place, names)) for each in found]
    sums = [
        {
            "topic": names.get(each.topic, each.topic),
            "id": each.topic,
            "partitions": each.partitions,
            "records": each.records,
            "bytes": each.size,
            "missing": each.missing,
        }
        for each in topics(iter(found))
    ]
    sound = all(each.sound for each in found)
    document = {"sound": sound, "topics": sums, "logs": rows}
    show(Listing(rows, LOG_COLUMNS, document, "log"), output)
    if output in {"table", "wide"}:
        click.echo()
        facts([(str(row["topic"] or "-"), _sum_text(row)) for row in sums])
    if not sound:
        note("error: something is damaged or missing (hint: tinymq log repair --dry-run DIR)")
    return 0 if sound else REFUSED


def _sum_text(row: dict[str, Any]) -> str:
    text = f"{row['records']} records in {row['partitions']} partitions, "
    text += human_size(row["bytes"])
    return text + (f", {row['missing']} missing" if row["missing"] else "")


def _log_row(found: LogFacts, name: str) -> dict[str, Any]:
    return {
        "log": name,
        "path": found.place.path,
        "start": found.start,
        "end": found.end,
        "records": found.records,
        "batches": found.batches,
        "bytes": found.size,
        "segments": found.segments,
        "oldest_ms": found.oldest if found.oldest >= 0 else None,
        "newest_ms": found.newest if found.newest >= 0 else None,
        "missing": sum(gap.offsets for gap in found.gaps),
        "gaps": [
            {"start": gap.start, "end": gap.end, "bytes": gap.size, "reason": gap.reason}
            for gap in found.gaps
        ],
        "torn": found.torn,
        "purged": found.purged,
        "unreadable": list(found.unreadable),
        "left_over": list(found.left_over),
        "state": _state(found),
    }


def _state(found: LogFacts) -> str:
    problems = [f"{gap.reason} {gap.start}..{gap.end - 1}" for gap in found.gaps]
    problems += [f"{Path(path).name} unreadable" for path in found.unreadable]
    if found.indexes[1]:
        problems.append(f"{found.indexes[1]} indexes do not fit")
    if found.torn:
        problems.append("torn tail")
    if found.left_over:
        problems.append("left-over files")
    return ", ".join(problems) or "sound"


@log.command("repair")
@_folder
@change_options
@yes_option
@output_option
def repair(folder: Path, dry_run: bool, yes: bool, output: str) -> None:
    """
    Cut torn tails, set damage aside, make indexes anew.

    Nothing that could be read is removed; damaged bytes are kept in files of
    their own. No broker may run on the folder.
    """
    from tinymq.storage.inspect import repair as repair_logs  # noqa: PLC0415

    if not dry_run:
        confirm(folder.name, f"the logs in {folder} will be repaired", yes=yes)
    rows = [_repair_row(each) for each in repair_logs(os.fspath(folder), dry_run=dry_run)]
    if not rows and output in {"table", "wide"}:
        click.echo("nothing to repair")
        return
    show(Listing(rows, REPAIR_COLUMNS, name="path"), output)


def _repair_row(done: Repair) -> dict[str, Any]:
    return {"action": done.action, "path": done.path, "detail": done.detail}
