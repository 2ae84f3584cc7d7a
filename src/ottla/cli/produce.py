"""`ottla produce`: write lines to a topic as records. Each line is sent as it arrives."""

import argparse
import asyncio
import os
import sys
import threading
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import TYPE_CHECKING

from ottla.cli.command import CommandFailed, InvalidUsage, natural, setting
from ottla.cli.connecting import add_connection, run_with_cluster
from ottla.cli.output import Progress, counted, print_json

if TYPE_CHECKING:
    from ottla.cli.record_text import Line
    from ottla.client.cluster import Cluster
    from ottla.client.producer_batches import Delivery

EXAMPLES = """examples:
  echo hello | ottla produce orders
  ottla produce orders --file orders.txt --key-separator : --compression zstd
  printf 'trace=7,kind=new\\tk1:v1\\n' | ottla produce orders --headers --key-separator :
  printf 'k1:NULL\\n' | ottla produce orders --key-separator : --null NULL
  ottla consume orders --format json | ottla produce copy --format json"""

_BLOCK_BYTES = 1 << 16
_BLOCKS_AHEAD = 16


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("-f", "--file", metavar="FILE", help="read a file instead of standard input")
    parser.add_argument("--whole", action="store_true", help="write the whole input as one record")
    parser.add_argument(
        "--format", choices=("text", "json"), default="text", help="the format of a line (default: text)"
    )
    parser.add_argument("-k", "--key", metavar="KEY", help="the key of every record")
    parser.add_argument(
        "-K", "--key-separator", metavar="SEP", help="split each line into key and value at SEP; \\t is a tab"
    )
    parser.add_argument("--headers", action="store_true", help="each line starts with name=value,name=value and a tab")
    parser.add_argument(
        "-H",
        "--header",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        type=setting,
        help="a header of every record; may be repeated",
    )
    parser.add_argument("--null", metavar="TEXT", help="write null for keys and values with this text")
    parser.add_argument("-p", "--partition", metavar="N", type=natural, help="default: chosen by the key, or any")
    parser.add_argument(
        "--acks", choices=("all", "1", "0"), default="all", help="acknowledgements to wait for (default: all)"
    )
    parser.add_argument("-z", "--compression", choices=("none", "gzip", "snappy", "lz4", "zstd"), default="none")
    add_connection(parser)


def run(arguments: argparse.Namespace) -> None:
    if arguments.key is not None and arguments.key_separator is not None:
        raise InvalidUsage("--key and --key-separator exclude each other: use one of them")
    try:
        file = os.open(arguments.file, os.O_RDONLY) if arguments.file else sys.stdin.fileno()
    except OSError as error:
        raise CommandFailed(f"{arguments.file} cannot be read: {error.strerror}") from None
    first, last, count = run_with_cluster(arguments, partial(_produce, arguments, file))
    if arguments.json:
        partitions = [
            {"partition": number, "first_offset": first[number], "last_offset": last[number]} for number in sorted(last)
        ]
        print_json({"topic": arguments.topic, "records": count, "partitions": partitions})
    elif sys.stderr.isatty():
        print(f"{counted(count, 'record')} written to {arguments.topic}.", file=sys.stderr)


async def _produce(
    arguments: argparse.Namespace, file: int, cluster: "Cluster"
) -> tuple[dict[int, int], dict[int, int], int]:
    """Write the records; return the first and last offset in each partition, and the number of records."""
    from ottla.cli.record_text import MalformedLine
    from ottla.client.producer import Producer
    from ottla.protocol.wire.compression import Compression

    parse = _parser(arguments)
    first: dict[int, int] = {}
    last: dict[int, int] = {}
    progress = Progress("record")
    waiting: list[Delivery] = []
    number = 0

    async def settle() -> None:
        for delivery in waiting:
            delivered = await delivery
            first.setdefault(delivered.partition, delivered.offset)
            last[delivered.partition] = delivered.offset
        waiting.clear()

    await cluster.topic(arguments.topic, create=True)  # a wrong name fails before anything is read
    try:
        async with Producer(
            cluster,
            acks={"all": -1, "1": 1, "0": 0}[arguments.acks],
            compression=Compression[arguments.compression.upper()],
            delivery_timeout_s=arguments.timeout,
        ) as producer:
            async for line in _whole(file) if arguments.whole else _lines(file):
                number += 1
                try:
                    key, value, headers, timestamp_ms = parse(line)
                except MalformedLine as error:
                    await producer.flush()
                    written = "; the lines before it were written" if number > 1 else ""
                    raise CommandFailed(f"line {number}: {error}{written}") from None
                waiting.append(
                    await producer.send(
                        arguments.topic,
                        value,
                        key=key,
                        headers=headers,
                        partition=arguments.partition,
                        timestamp_ms=timestamp_ms,
                    )
                )
                progress.update(number)
                if len(waiting) >= 100_000:
                    await settle()
            await producer.flush()
            await settle()
    finally:
        progress.clear()
    return first, last, number


def _parser(arguments: argparse.Namespace) -> "Callable[[bytes], Line]":
    from ottla.cli.record_text import parse_json, parse_text

    if arguments.format == "json":
        return parse_json
    separator = arguments.key_separator
    return partial(
        parse_text,
        key=None if arguments.key is None else arguments.key.encode(),
        key_separator=None if separator is None else separator.replace("\\t", "\t").encode(),
        headers=arguments.headers,
        null=None if arguments.null is None else arguments.null.encode(),
        more_headers=[(name, value.encode()) for name, value in arguments.header],
    )


async def _lines(file: int) -> AsyncIterator[bytes]:
    rest = b""
    async for block in _blocks(file):
        *whole, rest = (rest + block).split(b"\n")
        for line in whole:
            yield line.removesuffix(b"\r")
    if rest:
        yield rest


async def _whole(file: int) -> AsyncIterator[bytes]:
    yield b"".join([block async for block in _blocks(file)])


async def _blocks(file: int) -> AsyncIterator[bytes]:
    """Yield the blocks of a file as they arrive. A thread reads them, since a blocking read must not delay the end."""
    loop = asyncio.get_running_loop()
    blocks: asyncio.Queue[bytes] = asyncio.Queue()
    ahead = threading.Semaphore(_BLOCKS_AHEAD)

    def read() -> None:
        while True:
            ahead.acquire()
            block = os.read(file, _BLOCK_BYTES)
            try:
                loop.call_soon_threadsafe(blocks.put_nowait, block)
            except RuntimeError:  # the loop has ended
                return
            if not block:
                return

    threading.Thread(target=read, daemon=True).start()
    while block := await blocks.get():
        yield block
        ahead.release()
