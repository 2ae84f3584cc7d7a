"""`ottla cluster`: run a cluster on this machine; show the state, brokers, features and quorum of any cluster."""

import argparse
from typing import TYPE_CHECKING, TypeVar

from ottla.cli import cluster_start
from ottla.cli.cluster_status import show_status
from ottla.cli.command import Action, add_actions
from ottla.cli.connecting import add_connection, ask
from ottla.cli.output import counted, print_json, print_table, show_id, show_time

if TYPE_CHECKING:
    from ottla.client.cluster_calls import ClusterDescription

T = TypeVar("T")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_actions(parser, ACTIONS)


def _describe(arguments: argparse.Namespace) -> None:
    cluster = ask(arguments, lambda admin: admin.describe_cluster())
    if arguments.json:
        document = {
            "cluster_id": cluster.cluster_id,
            "controller": cluster.controller_id,
            "brokers": _brokers_json(cluster),
        }
        print_json(document)
        return
    print(f"Cluster {cluster.cluster_id}, {counted(len(cluster.brokers), 'broker')}")
    _print_brokers(cluster)


def _brokers(arguments: argparse.Namespace) -> None:
    cluster = ask(arguments, lambda admin: admin.describe_cluster())
    if arguments.json:
        print_json(_brokers_json(cluster))
    else:
        _print_brokers(cluster)


def _print_brokers(cluster: "ClusterDescription") -> None:
    rows = [
        (broker.id, str(broker.address), broker.rack, "fenced" if broker.is_fenced else "up")
        for broker in cluster.brokers
    ]
    print_table(("BROKER", "ADDRESS", "RACK", "STATE"), rows)


def _brokers_json(cluster: "ClusterDescription") -> list[dict[str, object]]:
    return [
        {
            "id": broker.id,
            "host": broker.address.host,
            "port": broker.address.port,
            "rack": broker.rack,
            "fenced": broker.is_fenced,
        }
        for broker in cluster.brokers
    ]


def _features(arguments: argparse.Namespace) -> None:
    features = ask(arguments, lambda admin: admin.features())
    if arguments.json:
        print_json([feature._asdict() for feature in features])
    else:
        print_table(
            ("FEATURE", "LEVEL", "LOWEST", "HIGHEST"), [(f.name, f.level, f.lowest, f.highest) for f in features]
        )


def _quorum(arguments: argparse.Namespace) -> None:
    quorum = ask(arguments, lambda admin: admin.quorum())
    if arguments.json:
        members = [{**member._asdict(), "directory_id": show_id(member.directory_id)} for member in quorum.members]
        print_json({**quorum._asdict(), "members": members})
        return
    print(f"Leader {quorum.leader_id} of epoch {quorum.leader_epoch}, high watermark {quorum.high_watermark}")
    end = max((member.log_end_offset for member in quorum.members), default=0)
    rows = [
        (
            member.id,
            _role(member.id, quorum.leader_id, is_voter=member.is_voter),
            member.log_end_offset,
            end - member.log_end_offset,
            show_time(member.last_caught_up_ms),
            show_id(member.directory_id),
        )
        for member in quorum.members
    ]
    print_table(("NODE", "ROLE", "END OFFSET", "BEHIND", "CAUGHT UP", "DIRECTORY"), rows)


def _role(node: int, leader: int, *, is_voter: bool) -> str:
    if node == leader:
        return "leader"
    return "voter" if is_voter else "observer"


ACTIONS = (
    Action(
        "start",
        "Run a cluster on this machine, with one process for each node.",
        cluster_start.add_arguments,
        cluster_start.run,
        cluster_start.EXAMPLES,
    ),
    Action(
        "status",
        "Show the quorum, the brokers, and partitions that are offline or under-replicated.",
        add_connection,
        show_status,
    ),
    Action("describe", "Show the cluster's id and its brokers.", add_connection, _describe),
    Action("brokers", "List the brokers.", add_connection, _brokers),
    Action("features", "Show the features of the cluster and their levels.", add_connection, _features),
    Action("quorum", "Show the leader of the metadata quorum and the lag of the other nodes.", add_connection, _quorum),
)
