"""Whole brokers in memory that send to servers in memory."""

from __future__ import annotations

from typing import Any

from tests.fakes.whole_cluster import Process, WholeCluster
from tests.push.net import Behaviour, Net, Request
from tinymq.client import Client

HOOK = "http://hook.example/in"
ADDRESS = "93.184.216.34"


class Town:
    """
    A cluster and the world outside.

    Args:
        cluster: The cluster; not started yet.
        behaviour: How the server of the endpoint behaves.
    """

    def __init__(self, cluster: WholeCluster, behaviour: Behaviour) -> None:
        self.cluster = cluster
        self.net = Net(names={"hook.example": [[ADDRESS]]}, servers={ADDRESS: behaviour})
        self.nets: dict[str, Net] = {}
        cluster.start()
        for process in cluster.processes.values():
            self.join(process)
        self.client: Client = cluster.client(*cluster.processes)

    def join(self, process: Process) -> None:
        """Let a process that was started see the world."""
        net = Net(
            clock=process.reactor,
            names=self.net.names,
            servers=self.net.servers,
            requests=self.net.requests,
        )
        service: Any = process.service
        guards = {service._pushes._world.guard, getattr(service.operations, "gate", None)}
        for guard in guards - {None}:
            guard.reactor, guard._resolve = net, net.resolve
        self.nets[process.name] = net

    def start(self, name: str) -> None:
        """Start a process that does not run."""
        self.cluster[name].start(settle=False)
        self.join(self.cluster[name])
        self.cluster.settle()

    def behave(self, behaviour: Behaviour) -> None:
        """Let the server behave otherwise."""
        self.net.servers[ADDRESS] = behaviour

    def operate(self, operation: str, /, **arguments: Any) -> dict[str, Any]:
        """Carry out an operation."""
        found: dict[str, Any] = self.cluster.run(self.client.admin.operate(operation, **arguments))
        return found

    def prepare(self, partitions: int = 1, config: dict[str, Any] | None = None, **how: Any) -> str:
        """Make the topic t with the channel c and its endpoint; return the secret."""
        self.operate("topic.create", name="t", partitions=partitions)
        self.operate("channel.create", topic="t", name="c", config=config or {})
        told = self.operate("push.set", topic="t", name="c", url=HOOK, **how)
        return str(told["secret"])

    def publish(self, *values: bytes, **place: Any) -> None:
        """Publish to the topic."""
        self.cluster.publish(self.client, "t", *values, **place)

    @property
    def requests(self) -> list[Request]:
        """What the server got."""
        return self.net.requests

    @property
    def bodies(self) -> list[bytes]:
        """The bodies of that."""
        return [each.body for each in self.requests]

    @property
    def row(self) -> dict[str, Any]:
        """The endpoint, as it is told."""
        found: dict[str, Any] = self.operate("push.info", topic="t", name="c")["endpoint"]
        return found

    @property
    def lag(self) -> int:
        """How many messages of the channel are not settled."""
        return int(self.operate("channel.info", topic="t", name="c")["channel"]["lag"])
