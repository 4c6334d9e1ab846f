"""
The broker as the dashboard sees it: frozen snapshots out, operations in.

Implements `tinymq.web.port.Console`. What changes something goes through
`tinymq.operations`, as everywhere.
"""

from __future__ import annotations

from tinymq.console.changes import Changes
from tinymq.console.looking import Looking
from tinymq.console.messages import Messages
from tinymq.console.people import People
from tinymq.console.work import Work

__all__ = ["BrokerConsole"]


class BrokerConsole(Looking, Messages, Changes, People, Work):
    """One broker with its MetaServer, as a console."""
