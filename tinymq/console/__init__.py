"""
The broker as the dashboard sees it: frozen snapshots out, operations in.

Implements `tinymq.web.port.Console`. What changes something goes through
`tinymq.operations`, as everywhere.
"""

from __future__ import annotations

from tinymq.console.changes import Changes
from tinymq.console.looking import Looking
from tinymq.console.messages import Messages

__all__ = ["BrokerConsole"]


class BrokerConsole(Looking, Messages, Changes):
    """One broker with its MetaServer, as a console."""
