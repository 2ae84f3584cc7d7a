"""`ottla topic`: list, create, describe and delete topics, and add partitions."""

import argparse
from typing import TYPE_CHECKING, Any

from ottla.cli.command import Action, CommandFailed, add_actions, positive, setting
from ottla.cli.connecting import add_connection, run_with_cluster
from ottla.cli.delete_by_name import add_names, delete_named
from ottla.cli.describe_by_name import add_described, describe_named
from ottla.cli.output import counted, print_json, print_table, show_id

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.client.cluster import Cluster
    from ottla.client.metadata import Partition, Topic


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_actions(parser, ACTIONS)


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--internal", action="store_true", help="include internal topics")
    add_connection(parser)


def _list(arguments: argparse.Namespace) -> None:
    async def work(cluster: "Cluster") -> "list[Topic]":
        return await cluster.retry(cluster.topics)

    topics = [topic for topic in run_with_cluster(arguments, work) if arguments.internal or not topic.is_internal]
    if arguments.json:
        print_json([_summary(topic) for topic in topics])
    elif topics:
        rows = [(topic.name, len(topic.partitions), _replicas(topic)) for topic in topics]
        print_table(("TOPIC", "PARTITIONS", "REPLICAS"), rows)
    else:
        print("There are no topics.")


def _add_create(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="TOPIC", nargs="+")
    parser.add_argument("-p", "--partitions", metavar="N", type=positive, default=-1, help="default: the cluster's")
    parser.add_argument("-r", "--replicas", metavar="N", type=positive, default=-1, help="default: the cluster's")
    parser.add_argument(
        "-s",
        "--set",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=setting,
        dest="settings",
        help="a setting of the topic, such as retention.ms=3600000; may be repeated",
    )
    parser.add_argument("--if-not-exists", action="store_true", help="do nothing if the topic exists")
    parser.add_argument("--dry-run", action="store_true", help="only validate the request")
    add_connection(parser)


def _create(arguments: argparse.Namespace) -> None:
    from ottla.client.admin import Admin
    from ottla.client.topic_calls import CreatedTopic
    from ottla.protocol.errors import TopicAlreadyExists

    async def work(cluster: "Cluster") -> list[CreatedTopic]:
        created_topics = []
        for name in arguments.names:
            try:
                created = await Admin(cluster).create_topic(
                    name,
                    partitions=arguments.partitions,
                    replicas=arguments.replicas,
                    settings=dict(arguments.settings),
                    validate_only=arguments.dry_run,
                )
            except TopicAlreadyExists:
                if not arguments.if_not_exists:
                    raise
                if not arguments.json:
                    print(f"Topic {name} already exists.")
                continue
            created_topics.append(created)
            if not arguments.json:
                verb = "Would create" if arguments.dry_run else "Created"
                replicas = counted(created.replicas, "replica")
                print(f"{verb} topic {name}: {counted(created.partitions, 'partition')}, {replicas} each.")
        return created_topics

    created_topics = run_with_cluster(arguments, work)
    if arguments.json:
        print_json(
            [
                {
                    "name": topic.name,
                    "id": show_id(topic.id),
                    "partitions": topic.partitions,
                    "replicas": topic.replicas,
                }
                for topic in created_topics
            ]
        )


def _add_describe(parser: argparse.ArgumentParser) -> None:
    add_described(parser, "topic")


def _describe(arguments: argparse.Namespace) -> None:
    describe_named(arguments, _description, _show)


def _show(topic: dict[str, Any]) -> None:
    print(f"{topic['name']}: {counted(topic['partition_count'], 'partition')}, id {topic['id']}")
    for name, value in topic["settings"].items():
        print(f"  {name}={value}")
    rows = [
        (
            partition["partition"],
            _short(partition["state"], "Partition"),
            partition["leader"],
            partition["leader_epoch"],
            [f"{broker}:{_short(state, 'Replica')}" for broker, state in partition["replica_states"].items()],
            partition["in_sync"],
            partition["earliest"],
            partition["latest"],
        )
        for partition in topic["partitions"]
    ]
    print_table(("PARTITION", "STATE", "LEADER", "EPOCH", "REPLICAS", "IN SYNC", "EARLIEST", "LATEST"), rows)


def _short(state: str | None, kind: str) -> str:
    """Return `Online` for `OnlinePartition`, and a question mark for an unknown state."""
    return "?" if state is None else state.removesuffix(kind)


async def _description(admin: "Admin", name: str) -> dict[str, Any]:
    from ottla.cli.topic_states import adding_replicas, partition_state, replica_states
    from ottla.client.config_calls import ConfigResource, ConfigSource, ResourceType
    from ottla.client.offsets import EARLIEST, LATEST

    topic = await admin.topic(name)
    adding = await adding_replicas(admin, topic)
    settings = await admin.settings(ConfigResource(ResourceType.TOPIC, name))
    keys = [(name, number) for number, partition in topic.partitions.items() if partition.leader >= 0]
    first = await admin.offsets(dict.fromkeys(keys, EARLIEST))
    end = await admin.offsets(dict.fromkeys(keys, LATEST))
    partitions = [
        {
            **_partition(partition),
            "state": partition_state(partition),
            "replica_states": {str(broker): state for broker, state in replica_states(partition, adding).items()},
            "earliest": first[name, number].offset if partition.leader >= 0 else None,
            "latest": end[name, number].offset if partition.leader >= 0 else None,
        }
        for number, partition in topic.partitions.items()
    ]
    return {
        "name": name,
        "id": show_id(topic.id),
        "internal": topic.is_internal,
        "partition_count": len(topic.partitions),
        "settings": {setting.name: setting.value for setting in settings if setting.source is ConfigSource.TOPIC},
        "partitions": partitions,
    }


def _partition(partition: "Partition") -> dict[str, Any]:
    return {
        "partition": partition.number,
        "leader": partition.leader if partition.leader >= 0 else None,
        "leader_epoch": partition.leader_epoch,
        "replicas": list(partition.replicas),
        "in_sync": list(partition.isr),
        "offline": list(partition.offline),
    }


def _summary(topic: "Topic") -> dict[str, Any]:
    return {
        "name": topic.name,
        "id": show_id(topic.id),
        "internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "replicas": _replicas(topic),
    }


def _replicas(topic: "Topic") -> int:
    return max((len(partition.replicas) for partition in topic.partitions.values()), default=0)


def _add_delete(parser: argparse.ArgumentParser) -> None:
    add_names(parser, "topic")


def _delete(arguments: argparse.Namespace) -> None:
    from ottla.protocol.errors import UnknownTopicOrPartition

    delete_named(arguments, "topic", lambda admin, name: admin.delete_topic(name), UnknownTopicOrPartition)


def _add_add_partitions(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="TOPIC")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("--to", metavar="N", type=positive, help="the new number of partitions")
    how.add_argument("--by", metavar="N", type=positive, help="the number of partitions to add")
    add_connection(parser)


def _add_partitions(arguments: argparse.Namespace) -> None:
    from ottla.client.admin import Admin

    async def work(cluster: "Cluster") -> tuple[int, int]:
        admin = Admin(cluster)
        before = len((await admin.topic(arguments.name)).partitions)
        total = arguments.to or before + arguments.by
        if total <= before:
            raise CommandFailed(
                f"topic {arguments.name!r} already has {counted(before, 'partition')},"
                " and the partition count cannot be reduced"
            )
        await admin.add_partitions(arguments.name, total)
        return before, total

    before, total = run_with_cluster(arguments, work)
    if arguments.json:
        print_json({"name": arguments.name, "partitions": total, "before": before})
    else:
        print(f"Topic {arguments.name} now has {counted(total, 'partition')}; it had {before}.")
        print("New records may go to another partition than earlier ones with the same key.")


ACTIONS = (
    Action("list", "List the topics.", _add_list, _list),
    Action(
        "create",
        "Create topics.",
        _add_create,
        _create,
        "examples:\n"
        "  ottla topic create orders\n"
        "  ottla topic create orders --partitions 6 --replicas 3 --set cleanup.policy=compact",
    ),
    Action(
        "describe",
        "Show the partitions of topics with states, leaders and offsets, and their settings.",
        _add_describe,
        _describe,
    ),
    Action("delete", "Delete topics and all their records.", _add_delete, _delete),
    Action(
        "add-partitions",
        "Add partitions to a topic.",
        _add_add_partitions,
        _add_partitions,
        "examples:\n  ottla topic add-partitions orders --to 12",
    ),
)
