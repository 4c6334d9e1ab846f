"""
The MetaServer: which topics and brokers there are, and who leads what.

::

    server.MetaServer    the operations: they check, write, and announce
        placement        which broker leads a new partition
        registry, draft  immutable snapshots, for everyone who reads
        store.Store      the durable table, in etcd's shape, on SQLite

Nothing here knows Twisted or waits: a write is one SQLite commit, one fsync,
so about as long as the disk takes for that and far too rare to matter.
"""

from __future__ import annotations

from tinymq.meta.registry import BrokerInfo, Registry, Topic
from tinymq.meta.server import MetaServer
from tinymq.meta.store import Store

__all__ = ["BrokerInfo", "MetaServer", "Registry", "Store", "Topic"]
