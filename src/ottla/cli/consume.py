"""`ottla consume`: print the records of a topic, up to its end or continuously."""

import argparse
import sys
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING

from ottla.cli.command import natural, positive
from ottla.cli.connecting import add_connection, run_with_cluster
from ottla.cli.start_position import parse_start

if TYPE_CHECKING:
    from collections.abc import Callable

    from ottla.client.cluster import Cluster
    from ottla.client.consumer import FromTimestamp
    from ottla.client.fetched_records import Chunk
    from ottla.protocol.wire.records import Record

EXAMPLES = """examples:
  ottla consume orders                             all records
  ottla consume orders --follow                    new records as they arrive
  ottla consume orders --from beginning --follow   both
  ottla consume orders --last 10                   the last 10 records of each partition
  ottla consume orders --partition 0 --from 42 --count 1
  ottla consume orders --from 2026-01-31T12:00 --format json
  ottla consume orders --from 15m --format value   the last quarter of an hour

--from takes beginning, end, an offset, a time (in UTC unless it has a zone), a duration before now (30s, 15m, 2h, 7d),
or @ and milliseconds since 1970."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--from", metavar="WHERE", dest="start", help="where to start (default: beginning; with --follow: end)"
    )
    where.add_argument("--last", metavar="N", type=positive, help="the last N offsets of each partition")
    parser.add_argument(
        "-p",
        "--partition",
        metavar="N",
        type=natural,
        action="append",
        help="read only this partition; may be repeated",
    )
    parser.add_argument("-n", "--count", metavar="N", type=positive, help="stop after N records")
    parser.add_argument("-f", "--follow", action="store_true", help="wait for new records at the end")
    parser.add_argument(
        "--format",
        choices=("text", "json", "value"),
        help="text: partition@offset, time, key, value, headers; json: one object a line; value: the value alone",
    )
    parser.add_argument("--null", metavar="TEXT", default="null", help="what --format value prints for null")
    parser.add_argument("--uncommitted", action="store_true", help="include records of open and aborted transactions")
    add_connection(parser)


def run(arguments: argparse.Namespace) -> None:
    arguments.format = arguments.format or ("json" if arguments.json else "text")
    start = "end" if arguments.follow else "beginning"
    parsed = parse_start(start if arguments.start is None else arguments.start, "--from")
    run_with_cluster(arguments, partial(_consume, arguments, parsed))


async def _consume(arguments: argparse.Namespace, start: "int | FromTimestamp", cluster: "Cluster") -> None:
    from ottla.client.consumer import Consumer, FromEnd

    wanted: int | FromTimestamp | FromEnd = start if arguments.last is None else FromEnd(arguments.last)
    consumer = Consumer(cluster, committed=not arguments.uncommitted, sessions=arguments.follow)
    await consumer.assign(arguments.topic, partitions=arguments.partition, start=wanted)
    write = _writer(arguments)
    out = sys.stdout.buffer
    left = arguments.count
    async with aclosing(consumer.chunks(follow=arguments.follow)) as chunks:
        async for chunk in chunks:
            records = chunk.records if left is None else chunk.records[:left]
            out.write(b"".join([write(chunk, record) for record in records]))
            out.flush()
            if left is not None:
                left -= len(records)
                if left == 0:
                    return


def _writer(arguments: argparse.Namespace) -> "Callable[[Chunk, Record], bytes]":
    from ottla.cli.record_text import record_json, record_text

    def as_json(chunk: "Chunk", record: "Record") -> bytes:
        kind = "append" if chunk.timestamp_type else "create"
        line = record_json(record, topic=chunk.topic, partition=chunk.partition, timestamp_type=kind)
        return line.encode() + b"\n"

    def as_text(chunk: "Chunk", record: "Record") -> bytes:
        return f"{chunk.partition}@{record.offset}  {record_text(record)}\n".encode()

    null = arguments.null.encode()

    def as_value(_: "Chunk", record: "Record") -> bytes:
        return (null if record.value is None else record.value) + b"\n"

    return {"json": as_json, "text": as_text, "value": as_value}[arguments.format]
