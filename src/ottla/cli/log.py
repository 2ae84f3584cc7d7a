"""`ottla log`: show sizes and offsets of logs, delete old records, and dump segment files."""

import argparse
from typing import TYPE_CHECKING, Any

from ottla.cli import log_dump
from ottla.cli.command import Action, InvalidUsage, add_actions, natural
from ottla.cli.connecting import add_connection, run_with_cluster
from ottla.cli.output import print_json, print_table, show_bytes, show_time

if TYPE_CHECKING:
    from ottla.client.admin import Admin
    from ottla.client.cluster import Cluster
    from ottla.client.cluster_calls import LogDir
    from ottla.client.metadata import TopicPartition
    from ottla.client.offsets import ListedOffset


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_actions(parser, ACTIONS)


def _add_dirs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--broker", metavar="ID", type=natural, action="append", help="only this broker; may be repeated"
    )
    parser.add_argument("-t", "--topic", action="append", help="only partitions of this topic; may be repeated")
    parser.add_argument("--partitions", action="store_true", help="list each partition")
    add_connection(parser)


def _dirs(arguments: argparse.Namespace) -> None:
    from ottla.client.admin import Admin

    async def work(cluster: "Cluster") -> "dict[int, list[LogDir]]":
        return await Admin(cluster).log_dirs(brokers=arguments.broker, topics=arguments.topic)

    log_dirs = [(broker, log_dir) for broker, dirs in run_with_cluster(arguments, work).items() for log_dir in dirs]
    if arguments.json:
        print_json([_dir_json(broker, log_dir) for broker, log_dir in log_dirs])
    elif arguments.partitions:
        rows = [
            (f"{topic}-{partition}", broker, show_bytes(size), lag, log_dir.path)
            for broker, log_dir in log_dirs
            for (topic, partition), size, lag, _ in log_dir.replicas
        ]
        print_table(("PARTITION", "BROKER", "SIZE", "LAG", "DIRECTORY"), rows)
    else:
        dirs = [
            (
                broker,
                log_dir.path,
                len(log_dir.replicas),
                show_bytes(sum(replica.size_bytes for replica in log_dir.replicas)),
                show_bytes(log_dir.usable_bytes),
                log_dir.error.name if log_dir.error else "online",
            )
            for broker, log_dir in log_dirs
        ]
        print_table(("BROKER", "DIRECTORY", "PARTITIONS", "SIZE", "FREE", "STATE"), dirs)


def _dir_json(broker: int, log_dir: "LogDir") -> dict[str, Any]:
    return {
        "broker": broker,
        "path": log_dir.path,
        "error": None if log_dir.error is None else log_dir.error.name,
        "total_bytes": log_dir.total_bytes,
        "usable_bytes": log_dir.usable_bytes,
        "replicas": [
            {"topic": topic, "partition": partition, "size_bytes": size, "offset_lag": lag, "future": is_future}
            for (topic, partition), size, lag, is_future in log_dir.replicas
        ],
    }


def _add_offsets(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="TOPIC", nargs="*", help="default: all topics except internal ones")
    parser.add_argument(
        "-p", "--partition", metavar="N", type=natural, action="append", help="only this partition; may be repeated"
    )
    parser.add_argument(
        "--committed", action="store_true", help="show the last stable offset instead of the high watermark"
    )
    add_connection(parser)


def _offsets(arguments: argparse.Namespace) -> None:
    from ottla.client.admin import Admin

    async def work(cluster: "Cluster") -> "list[tuple[TopicPartition, tuple[ListedOffset, ...]]]":
        return await _list_offsets(Admin(cluster), arguments)

    offsets = run_with_cluster(arguments, work)
    if arguments.json:
        print_json(
            [
                {"topic": topic, "partition": partition, "earliest": first.offset, "latest": end.offset}
                | {"max_timestamp": newest.timestamp, "max_timestamp_offset": newest.offset}
                for (topic, partition), (first, end, newest) in offsets
            ]
        )
        return
    rows = [
        (topic, partition, first.offset, end.offset, end.offset - first.offset, show_time(newest.timestamp))
        for (topic, partition), (first, end, newest) in offsets
    ]
    print_table(("TOPIC", "PARTITION", "EARLIEST", "LATEST", "OFFSETS", "LATEST TIMESTAMP"), rows)


async def _list_offsets(
    admin: "Admin", arguments: argparse.Namespace
) -> "list[tuple[TopicPartition, tuple[ListedOffset, ...]]]":
    from ottla.client.offsets import EARLIEST, LATEST, MAX_TIMESTAMP

    if arguments.names:
        topics = [await admin.topic(name) for name in arguments.names]
    else:
        topics = [topic for topic in await admin.topics() if not topic.is_internal]
    chosen = arguments.partition
    keys = [(topic.name, number) for topic in topics for number in (topic.partitions if chosen is None else chosen)]
    answers = [
        await admin.offsets(dict.fromkeys(keys, position), committed=arguments.committed and position == LATEST)
        for position in (EARLIEST, LATEST, MAX_TIMESTAMP)
    ]
    return [(key, tuple(answer[key] for answer in answers)) for key in keys]


def _add_delete_records(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="TOPIC")
    parser.add_argument(
        "-p", "--partition", metavar="N", type=natural, action="append", help="default: all partitions; may be repeated"
    )
    parser.add_argument(
        "--before", metavar="OFFSET", required=True, help="the first offset to keep, or `end` to delete all records"
    )
    add_connection(parser)


def _delete_records(arguments: argparse.Namespace) -> None:
    from ottla.client.admin import HIGH_WATERMARK, Admin

    if arguments.before != "end" and not arguments.before.isdecimal():
        raise InvalidUsage(f"--before {arguments.before} must be an offset or `end`")
    before = HIGH_WATERMARK if arguments.before == "end" else int(arguments.before)

    async def work(cluster: "Cluster") -> "dict[TopicPartition, int]":
        admin = Admin(cluster)
        topic = await admin.topic(arguments.name)
        chosen = topic.partitions if arguments.partition is None else arguments.partition
        return await admin.delete_records({(topic.name, number): before for number in chosen})

    starts = sorted(run_with_cluster(arguments, work).items())
    if arguments.json:
        print_json([{"topic": topic, "partition": number, "earliest": low} for (topic, number), low in starts])
    else:
        print_table(("TOPIC", "PARTITION", "EARLIEST"), [(topic, number, low) for (topic, number), low in starts])


ACTIONS = (
    Action("dirs", "Show the log directories of brokers and their contents.", _add_dirs, _dirs),
    Action("offsets", "Show the first and last offsets of partitions.", _add_offsets, _offsets),
    Action(
        "delete-records",
        "Delete the records below an offset.",
        _add_delete_records,
        _delete_records,
        "examples:\n"
        "  ottla log delete-records orders --partition 0 --before 1000\n"
        "  ottla log delete-records orders --before end",
    ),
    Action("dump", "Show and verify segment files on disk.", log_dump.add_arguments, log_dump.run, log_dump.EXAMPLES),
)
