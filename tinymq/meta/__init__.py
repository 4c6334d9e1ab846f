"""
The MetaServer: which topics and brokers there are, and who leads what.

::

    server.MetaServer    operations on topics, and producer ids
        channels         operations on channels
        endpoints        operations on push endpoints
        schedules        operations on schedules
        membership       operations on brokers: who is live, who takes new partitions
        following        the snapshot that follows the store
        placement        which broker leads a new partition
        changes          what changed, told in pages
        registry, draft  immutable snapshots, for everyone who reads
        store.Store      the durable table, in etcd's shape, on SQLite
        ballast          given up on a full disk, so that topics can be deleted
    replica.Replica      the registry of a broker whose MetaServer is elsewhere
    lookup.Announcements which autonomous brokers have which topics

Nothing here knows Twisted or waits: a write is one SQLite commit, one fsync,
so about as long as the disk takes for that and far too rare to matter.
"""

from __future__ import annotations

from tinymq.meta.changes import Changes
from tinymq.meta.endpoint import Endpoint
from tinymq.meta.lookup import Announcements, Node
from tinymq.meta.placement import Load
from tinymq.meta.registry import BrokerInfo, ChannelInfo, Pause, Registry, Schedule, Start, Topic
from tinymq.meta.replica import Replica
from tinymq.meta.server import MetaServer
from tinymq.meta.store import Store

__all__ = [
    "Announcements",
    "BrokerInfo",
    "Changes",
    "ChannelInfo",
    "Endpoint",
    "Load",
    "MetaServer",
    "Node",
    "Pause",
    "Registry",
    "Replica",
    "Schedule",
    "Start",
    "Store",
    "Topic",
]
