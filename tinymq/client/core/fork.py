"""
Clients do not survive a fork: two processes on one socket mix up their frames.

The process id is asked for once, and again by the child of each fork, so that
checking it costs a comparison and no system call.
"""

from __future__ import annotations

import os

from tinymq.errors import ForkedError


class Process:
    """
    The process that runs this code.

    Attributes:
        pid: Its id.
    """

    def __init__(self) -> None:
        self.pid = os.getpid()

    def forked(self) -> None:
        """Learn the id anew, in the child of a fork."""
        self.pid = os.getpid()


PROCESS = Process()
os.register_at_fork(after_in_child=PROCESS.forked)


class Home:
    """The process in which an object was made."""

    __slots__ = ("_pid", "_process")

    def __init__(self, process: Process = PROCESS) -> None:
        self._process = process
        self._pid = process.pid

    def check(self) -> None:
        """
        Refuse to work in another process.

        Raises:
            ForkedError: This is a child of the process that made the object.
        """
        if self._pid != self._process.pid:
            raise ForkedError(
                f"made in process {self._pid}, used in {self._process.pid}: "
                "make a new client after a fork"
            )
