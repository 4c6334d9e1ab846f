"""`tinymq log` over data folders made by storage itself."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.storage.batches import fill
from tinymq.meta.server import MetaServer
from tinymq.meta.store import Store
from tinymq.storage.folder import DataFolder
from tinymq.storage.log import Log


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a data folder with a topic of two partitions, one of which holds ten records."""
    path = tmp_path / "data of the brökers"
    folder = DataFolder.open(str(path))
    store = Store(path / "meta.sqlite")
    meta = MetaServer(store)
    meta.register(meta.new_broker_id(), "here", ("127.0.0.1", 7800), takeover=True)
    topic = meta.create_topic("orders", 2)
    folder.create_topic(topic.id, 2)
    for partition, batches in ((0, 5), (1, 0)):
        log = Log.open(folder.files, folder.partition_path(topic.id, partition))
        if batches:
            fill(log, batches, count=2)
        log.close()
    meta.close()
    store.close()
    folder.close()
    return path


def segment(data: Path) -> Path:
    """Find the one segment."""
    (found,) = data.glob("topics/*/0/data/*.log")
    return found


def test_verify_tells_what_each_topic_holds(data: Path, run: Run) -> None:
    """Whoever finds a data folder learns what is in it, by name."""
    result = run("log", "verify", str(data))
    assert result.exit_code == 0
    assert "orders/0" in result.output
    assert result.output.splitlines()[-1].startswith("orders  10 records in ")
    document = json.loads(run("log", "verify", str(data), "-o", "json").output)
    assert document["sound"] is True
    assert document["topics"][0]["records"] == 10


def test_verify_changes_nothing(data: Path, run: Run) -> None:
    """Looking leaves every byte and every name as it was."""

    def everything() -> dict[Path, bytes]:
        return {path: path.read_bytes() for path in data.rglob("*") if path.is_file()}

    before = everything()
    run("log", "verify", str(data))
    run("log", "dump", str(data))
    run("log", "repair", str(data), "--dry-run")
    assert everything() == before


def test_dump(data: Path, run: Run) -> None:
    """Each batch is a line."""
    lines = run("log", "dump", str(data), "--columns", "log,first,last,records").output.splitlines()
    assert [line.split() for line in lines] == [
        ["LOG", "FIRST", "LAST", "RECORDS"],
        *(["orders/0", str(base), str(base + 1), "2"] for base in range(0, 10, 2)),
    ]
    rows = [
        json.loads(line)
        for line in run("log", "dump", str(data), "-o", "ndjson").stdout.splitlines()
    ]
    assert [row["first"] for row in rows] == [0, 2, 4, 6, 8]
    assert rows[0]["codec"] == "none"


def test_a_torn_tail_is_no_damage(data: Path, run: Run) -> None:
    """A torn tail is told, and repaired when asked."""
    with segment(data).open("ab") as file:
        file.write(b"half a batch")
    result = run("log", "verify", str(data))
    assert result.exit_code == 0
    assert "torn tail" in result.output
    assert "torn tail" in run("log", "dump", str(data)).output
    dry = run("log", "repair", str(data), "--dry-run")
    assert "a torn tail of 12 bytes" in dry.output
    assert run("log", "repair", str(data)).exit_code == 2
    assert run("log", "repair", str(data), "--yes").exit_code == 0
    assert run("log", "repair", str(data), "--yes").output == "nothing to repair\n"
    assert b"half" not in segment(data).read_bytes()


def test_damage(data: Path, run: Run) -> None:
    """Damage has status 1, is named, and what lies behind it stays."""
    content = bytearray(segment(data).read_bytes())
    content[len(content) // 2] ^= 1
    segment(data).write_bytes(content)
    result = run("log", "verify", str(data))
    assert result.exit_code == 1
    assert "damaged 4..5" in result.stdout
    assert "2 missing" in result.stdout
    assert "hint: tinymq log repair --dry-run DIR" in result.stderr
    dump = run("log", "dump", str(data))
    assert dump.exit_code == 1
    assert "damaged, offset 4 expected" in dump.output


def test_names_are_not_needed(data: Path, run: Run) -> None:
    """Without a readable store of names, ids take their place."""
    (data / "meta.sqlite").write_bytes(b"nothing that SQLite knows")
    result = run("log", "verify", str(data))
    assert result.exit_code == 0
    assert "the names of topics are not known" in result.stderr
    (data / "meta.sqlite").unlink()
    assert run("log", "verify", str(data)).stderr == ""


def test_a_log_by_itself(data: Path, run: Run) -> None:
    """A single log's folder can be looked at too."""
    result = run("log", "dump", str(segment(data).parent), "-o", "name")
    assert result.output.split() == ["0", "2", "4", "6", "8"]


def test_not_a_data_folder(tmp_path: Path, run: Run) -> None:
    """A folder that is none, and one that is not there, are told plainly."""
    assert run("log", "verify", str(tmp_path / "absent")).exit_code == 2
    result = run("log", "verify", str(tmp_path))
    assert result.exit_code == 2
    assert "is neither a data folder of tinymq nor a log" in result.stderr


def test_repair_keeps_out_of_a_running_brokers_way(data: Path, run: Run) -> None:
    """Nothing is repaired under a broker that runs."""
    folder = DataFolder.open(str(data))
    result = run("log", "repair", str(data), "--yes")
    folder.close()
    assert result.exit_code == 2
    assert "is in use by the broker" in result.stderr
