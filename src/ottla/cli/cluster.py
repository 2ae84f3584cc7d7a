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
    found = ask(arguments, lambda admin: admin.describe_cluster())
    if arguments.json:
        document = {"cluster_id": found.cluster_id, "controller": found.controller_id, "brokers": _brokers_json(found)}
        print_json(document)
        return
    print(f"Cluster {found.cluster_id}, {counted(len(found.brokers), 'broker')}")
    _print_brokers(found)


def _brokers(arguments: argparse.Namespace) -> None:
    found = ask(arguments, lambda admin: admin.describe_cluster())
    if arguments.json:
        print_json(_brokers_json(found))
    else:
        _print_brokers(found)


def _print_brokers(found: "ClusterDescription") -> None:
    rows = [(each.id, str(each.address), each.rack, "fenced" if each.is_fenced else "up") for each in found.brokers]
    print_table(("BROKER", "ADDRESS", "RACK", "STATE"), rows)


def _brokers_json(found: "ClusterDescription") -> list[dict[str, object]]:
    return [
        {
            "id": each.id,
            "host": each.address.host,
            "port": each.address.port,
            "rack": each.rack,
            "fenced": each.is_fenced,
        }
        for each in found.brokers
    ]


def _features(arguments: argparse.Namespace) -> None:
    found = ask(arguments, lambda admin: admin.features())
    if arguments.json:
        print_json([each._asdict() for each in found])
    else:
        print_table(("FEATURE", "LEVEL", "LOWEST", "HIGHEST"), [(f.name, f.level, f.lowest, f.highest) for f in found])


def _quorum(arguments: argparse.Namespace) -> None:
    found = ask(arguments, lambda admin: admin.quorum())
    if arguments.json:
        members = [{**each._asdict(), "directory_id": show_id(each.directory_id)} for each in found.members]
        print_json({**found._asdict(), "members": members})
        return
    print(f"Leader {found.leader_id} of epoch {found.leader_epoch}, committed up to {found.high_watermark}")
    end = max((each.log_end_offset for each in found.members), default=0)
    rows = [
        (
            each.id,
            _role(each.id, found.leader_id, is_voter=each.is_voter),
            each.log_end_offset,
            end - each.log_end_offset,
            show_time(each.last_caught_up_ms),
            show_id(each.directory_id),
        )
        for each in found.members
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
