"""`ottla group`: list, describe and delete groups, and reset their offsets."""

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ottla.cli.command import Action, CommandFailed, add_actions
from ottla.cli.connecting import add_connection, run_with_cluster
from ottla.cli.delete_by_name import add_names, delete_named
from ottla.cli.describe_by_name import add_described, describe_named
from ottla.cli.output import counted, print_json, print_table
from ottla.cli.start_position import parse_start

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.client.cluster import Cluster
    from ottla.client.group_calls import CommittedOffset, ListedGroup
    from ottla.client.metadata import TopicPartition


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_actions(parser, ACTIONS)


def _add_list(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        help="only groups in this state, such as Stable or Empty; may be repeated",
    )
    parser.add_argument(
        "--type",
        action="append",
        default=[],
        help="only groups of this type, such as classic or consumer; may be repeated",
    )
    add_connection(parser)


def _list(arguments: argparse.Namespace) -> None:
    from ottla.client.admin import Admin

    async def work(cluster: "Cluster") -> "list[ListedGroup]":
        return await Admin(cluster).groups(states=arguments.state, kinds=arguments.type)

    groups = run_with_cluster(arguments, work)
    if arguments.json:
        print_json(
            [
                {"group": group.id, "type": group.kind, "state": group.state, "coordinator": group.coordinator}
                for group in groups
            ]
        )
    elif groups:
        print_table(
            ("GROUP", "TYPE", "STATE", "COORDINATOR"),
            [(group.id, group.kind, group.state, group.coordinator) for group in groups],
        )
    else:
        print("There are no groups.")


def _add_describe(parser: argparse.ArgumentParser) -> None:
    add_described(parser, "group")


def _describe(arguments: argparse.Namespace) -> None:
    describe_named(arguments, _description, _show)


def _show(group: dict[str, Any]) -> None:
    assignor = f", {group['protocol']}" if group["protocol"] else ""
    print(f"{group['group']}: {group['type']}, {group['state']}{assignor}, {counted(len(group['members']), 'member')}")
    columns = ("topic", "partition", "offset", "end", "lag", "member", "client", "host")
    rows = [[partition[column] for column in columns] for partition in group["partitions"]]
    if rows:
        print_table(tuple(column.upper() for column in columns), rows)
    else:
        print("The group has no committed offsets.")


async def _description(admin: "Admin", name: str) -> dict[str, Any]:
    from ottla.client.offsets import LATEST
    from ottla.protocol.errors import UnknownTopicOrPartition

    group = await admin.group(name)
    starts = await admin.share_group_offsets(name) if group.kind == "share" else {}
    committed = await admin.committed_offsets(name) if group.kind != "share" else {}
    owners = {partition: member for member in group.members for partition in member.partitions}
    partitions = []
    for topic, index in sorted({*starts, *committed, *owners}):
        offset_and_metadata = committed.get((topic, index))
        try:
            end = (await admin.offsets({(topic, index): LATEST}))[topic, index].offset
        except UnknownTopicOrPartition:
            end = None
        owner = owners.get((topic, index))
        offset = None if offset_and_metadata is None else offset_and_metadata.offset
        lag = None if offset is None or end is None else max(end - offset, 0)
        if (start := starts.get((topic, index))) is not None:
            offset, lag = (None if number < 0 else number for number in start)
        partitions.append(
            {
                "topic": topic,
                "partition": index,
                "offset": offset,
                "end": end,
                "lag": lag,
                "member": None if owner is None else owner.id,
                "client": None if owner is None else owner.client_id,
                "host": None if owner is None else owner.host.removeprefix("/"),
            }
        )
    return {
        "group": name,
        "type": group.kind,
        "state": group.state,
        "protocol": group.protocol,
        "coordinator": group.coordinator,
        "members": [
            {
                "member": member.id,
                "instance": member.instance_id,
                "client": member.client_id,
                "host": member.host.removeprefix("/"),
                "partitions": [{"topic": topic, "partition": index} for topic, index in member.partitions],
            }
            for member in group.members
        ],
        "partitions": partitions,
    }


def _add_reset(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="GROUP")
    parser.add_argument("-t", "--topic", action="append", default=[], help="default: all topics with committed offsets")
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument(
        "--to", metavar="WHERE", help="beginning, end, an offset, a time, or a duration before now such as 15m"
    )
    how.add_argument("--by", metavar="N", type=int, help="move by N records, back if N is negative")
    parser.add_argument("--dry-run", action="store_true", help="only show the new offsets")
    add_connection(parser)


def _reset(arguments: argparse.Namespace) -> None:
    from ottla.client.admin import Admin

    async def work(cluster: "Cluster") -> "tuple[Mapping[TopicPartition, CommittedOffset], dict[TopicPartition, int]]":
        admin = Admin(cluster)
        before = await admin.committed_offsets(arguments.name)
        offsets = await _new_offsets(admin, arguments, before)
        if not arguments.dry_run:
            await admin.commit_offsets(arguments.name, offsets)
        return before, offsets

    before, offsets = run_with_cluster(arguments, work)
    rows = [
        {"topic": topic, "partition": index, "before": was.offset if (was := before.get((topic, index))) else None,
         "offset": offset}
        for (topic, index), offset in sorted(offsets.items())
    ]  # fmt: skip
    if arguments.json:
        print_json(rows)
        return
    verb = "Would reset" if arguments.dry_run else "Reset"
    print(f"{verb} the offsets of group {arguments.name}:")
    print_table(("TOPIC", "PARTITION", "BEFORE", "OFFSET"), [list(row.values()) for row in rows])


async def _new_offsets(
    admin: "Admin", arguments: argparse.Namespace, before: "Mapping[TopicPartition, CommittedOffset]"
) -> "dict[TopicPartition, int]":
    """Return the new offset of each partition, within the bounds of its log."""
    from ottla.client.consumer import FromTimestamp
    from ottla.client.offsets import EARLIEST, LATEST, NO_OFFSET

    wanted = list(before)
    if arguments.topic:
        topics = [await admin.topic(name) for name in arguments.topic]
        wanted = [(topic.name, index) for topic in topics for index in topic.partitions]
    if not wanted:
        raise CommandFailed(f"group {arguments.name!r} has no committed offsets; name the topics with --topic")
    first = await admin.offsets(dict.fromkeys(wanted, EARLIEST))
    end = await admin.offsets(dict.fromkeys(wanted, LATEST))
    if arguments.by is not None:
        missing = [key for key in wanted if key not in before]
        if missing:
            raise CommandFailed(
                f"group {arguments.name!r} has no committed offset in {missing[0][0]}-{missing[0][1]};"
                " use --to instead of --by"
            )
        targets = {key: before[key].offset + arguments.by for key in wanted}
    else:
        start = parse_start(arguments.to, "--to")
        if isinstance(start, FromTimestamp):
            by_time = await admin.offsets(dict.fromkeys(wanted, start.timestamp_ms))
            targets = {
                key: end[key].offset if result.offset == NO_OFFSET else result.offset for key, result in by_time.items()
            }
        elif start == EARLIEST:
            targets = {key: first[key].offset for key in wanted}
        elif start == LATEST:
            targets = {key: end[key].offset for key in wanted}
        else:
            targets = dict.fromkeys(wanted, start)
    return {key: min(max(target, first[key].offset), end[key].offset) for key, target in targets.items()}


def _add_delete(parser: argparse.ArgumentParser) -> None:
    add_names(parser, "group")


def _delete(arguments: argparse.Namespace) -> None:
    from ottla.protocol.errors import GroupIdNotFound

    delete_named(arguments, "group", lambda admin, name: admin.delete_group(name), GroupIdNotFound)


ACTIONS = (
    Action("list", "List the groups.", _add_list, _list),
    Action("describe", "Show the offsets, lag and members of groups.", _add_describe, _describe),
    Action(
        "reset-offsets",
        "Reset the committed offsets of a group without members.",
        _add_reset,
        _reset,
        "examples:\n"
        "  ottla group reset-offsets billing --to beginning\n"
        "  ottla group reset-offsets billing --topic orders --to 2026-01-31T12:00\n"
        "  ottla group reset-offsets billing --by -100 --dry-run",
    ),
    Action("delete", "Delete groups without members, and their offsets.", _add_delete, _delete),
)
