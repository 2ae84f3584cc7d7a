"""The state of a cluster at a glance: active controller, brokers, partitions that need attention."""

import argparse
from typing import TYPE_CHECKING, NamedTuple

from ottla.cli.connecting import run_with_cluster
from ottla.cli.output import counted, print_json

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.client.cluster import Cluster

_MAX_NAMES = 5


class Status(NamedTuple):
    """The state of a cluster at one moment. Partitions are named `topic-number`."""

    cluster_id: str
    controller: int
    epoch: int
    voters: tuple[int, ...]
    in_service: tuple[int, ...]
    fenced: tuple[int, ...]
    topics: int
    partitions: int
    under_replicated: tuple[str, ...]
    offline: tuple[str, ...]

    @property
    def lines(self) -> list[str]:
        """The lines that people read."""
        voters = ", ".join(map(str, self.voters))
        in_service = ", ".join(map(str, self.in_service)) or "none"
        fenced = f"; fenced: {', '.join(map(str, self.fenced))}" if self.fenced else ""
        problems = f"under-replicated: {_list(self.under_replicated)}; offline: {_list(self.offline)}"
        return [
            f"quorum      node {self.controller} leads epoch {self.epoch}; voters: {voters}",
            f"brokers     in service: {in_service}{fenced}",
            f"partitions  {self.partitions:,} of {counted(self.topics, 'topic')}; {problems}",
        ]


async def status_of(admin: "Admin") -> Status:
    """Return the state of a cluster."""
    cluster = await admin.describe_cluster()
    quorum = await admin.quorum()
    topics = await admin.topics()
    partitions = [
        (f"{topic.name}-{number}", partition) for topic in topics for number, partition in topic.partitions.items()
    ]
    return Status(
        cluster_id=cluster.cluster_id,
        controller=quorum.leader_id,
        epoch=quorum.leader_epoch,
        voters=tuple(member.id for member in quorum.members if member.is_voter),
        in_service=tuple(broker.id for broker in cluster.brokers if not broker.is_fenced),
        fenced=tuple(broker.id for broker in cluster.brokers if broker.is_fenced),
        topics=len(topics),
        partitions=len(partitions),
        under_replicated=tuple(name for name, partition in partitions if len(partition.isr) < len(partition.replicas)),
        offline=tuple(name for name, partition in partitions if partition.leader < 0),
    )


def show_status(arguments: argparse.Namespace) -> None:
    """`ottla cluster status`."""
    from ottla.client.admin import Admin

    async def work(cluster: "Cluster") -> Status:
        return await status_of(Admin(cluster))

    status = run_with_cluster(arguments, work)
    if arguments.json:
        print_json(status._asdict())
        return
    print(f"Cluster {status.cluster_id}")
    for line in status.lines:
        print(line)


def _list(partitions: tuple[str, ...]) -> str:
    """Return the number of partitions and the names of the first few."""
    if not partitions:
        return "0"
    more = ", ..." if len(partitions) > _MAX_NAMES else ""
    return f"{len(partitions):,} ({', '.join(partitions[:_MAX_NAMES])}{more})"
