"""What a child that is forked off without `exec` keeps open."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes.disk import FaultyDisk
from tinymq.errors import ConfigError
from tinymq.storage.folder import DataFolder

_FORKS = """
import os, signal, sys
from tinymq.storage.folder import DataFolder

folder = DataFolder.open(sys.argv[1])
child = os.fork()
if not child:
    os.write(1, b"%d" % os.getpid())
    os.close(1)
    signal.pause()
os.close(1)
sys.stdin.read()
os._exit(0)
"""


def test_only_the_own_descriptor_goes(tmp_path: Path, disk: FaultyDisk) -> None:
    """What a child closes does not unlock the folder of its parent."""
    folder = DataFolder.open(str(tmp_path), disk)
    assert folder._lock is not None
    of_the_parent = os.dup(folder._lock)
    folder.forked()
    folder.forked()
    with pytest.raises(ConfigError, match="in use"):
        DataFolder.open(str(tmp_path), disk)
    os.close(of_the_parent)
    DataFolder.open(str(tmp_path), disk).close()


@pytest.mark.process
def test_a_child_that_outlives_its_parent(tmp_path: Path, disk: FaultyDisk) -> None:
    """A data folder is free when its process ends, whatever children that has left."""
    command = [sys.executable, "-c", _FORKS, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        assert parent.stdin is not None
        child = int(parent.stdout.read())
        try:
            with pytest.raises(ConfigError, match=f"process id {parent.pid}"):
                DataFolder.open(str(tmp_path), disk)
            parent.stdin.close()
            assert parent.wait(10) == 0
            DataFolder.open(str(tmp_path), disk).close()
        finally:
            os.kill(child, signal.SIGKILL)
