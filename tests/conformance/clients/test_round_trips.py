"""Every client reads what each client writes: all compressions, headers, nulls, 10 MB records, 1000 partitions."""

from collections import defaultdict
from collections.abc import Iterable

import pytest

from tests.conformance.clients.programs.lines import Record
from tests.conformance.clients.running import ALL_CODECS, CLIENTS, Client, Programs
from tests.conformance.clients.topics import create_topic
from tests.support.ottla_node import OttlaNode

PARTITIONS = 3
LARGE_BYTES = 10_000_000


def group_by_partition(records: Iterable[Record]) -> dict[int, list[Record]]:
    """Group records by partition, because there is no order between partitions."""
    grouped: dict[int, list[Record]] = defaultdict(list)
    for record in records:
        grouped[record.partition].append(record)
    return dict(grouped)


def sample_records(client: Client, codec: str) -> list[Record]:
    """Return records of all kinds: keys, values and headers that are null, empty, large, or not text."""
    nothing = None if client.null_header_values else b""
    some = [
        Record(0, None, b"no key"),
        Record(0, b"no value", None),
        Record(0, b"", b""),
        Record(1, b"k", b"\x00\xff\xfe", (("a", b"1"), ("b", nothing), ("c", b""))),
        Record(1, b"k", b"twice", (("again", b"1"), ("again", b"2"))),
        Record(1, "schlüssel".encode(), "значение".encode(), (("名前", b"\x80"),)),
        Record(2, b"large", b"0123456789" * 20_000),
    ]
    if client.empty_records:
        some.append(Record(0, None, None))
    many = [Record(2, b"%d" % number, f"{client.name} {codec} {number}".encode() * 5) for number in range(300)]
    return some + many


@pytest.mark.parametrize("codec", ALL_CODECS)
@pytest.mark.parametrize("writer", CLIENTS, ids=lambda client: client.name)
def test_every_client_reads_the_records_of_every_other(
    node: OttlaNode, programs: Programs, writer: Client, codec: str
) -> None:
    if codec not in writer.codecs:
        pytest.skip(f"{writer.name} has no {codec}")
    topic = f"{writer.name}-{codec}"
    records = sample_records(writer, codec)
    create_topic(node, topic, PARTITIONS)
    programs[writer].ask("write", address=node.address, topic=topic, codec=codec, records=records)
    for reader in CLIENTS:
        if codec in reader.codecs and reader.is_installed:
            read = programs[reader].ask(
                "read", address=node.address, topic=topic, partitions=PARTITIONS, count=len(records)
            )
            assert group_by_partition(read.records) == group_by_partition(records), reader.name


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_records_of_ten_megabytes_are_read_back(node: OttlaNode, programs: Programs, client: Client) -> None:
    topic = f"large-{client.name}"
    create_topic(node, topic, max_message_bytes="16000000")
    records = [Record(0, None, bytes([number]) * LARGE_BYTES) for number in range(2)]
    for record in records:
        programs[client].ask("write", address=node.address, topic=topic, records=[record])
    read = programs[client].ask("read", address=node.address, topic=topic, partitions=1, count=len(records))
    assert read.records == tuple(records)


def test_clients_use_a_thousand_partitions(node: OttlaNode, programs: Programs) -> None:
    """Every client writes to all partitions, and reads all of them."""
    create_topic(node, "wide", 1000)
    written: list[Record] = []
    clients = [client for client in CLIENTS if client.is_installed]
    for client in clients:
        records = [Record(number, None, f"{client.name} {number}".encode()) for number in range(1000)]
        programs[client].ask("write", address=node.address, topic="wide", records=records)
        written += records
    for client in clients:
        read = programs[client].ask("read", address=node.address, topic="wide", partitions=1000, count=len(written))
        assert group_by_partition(read.records) == group_by_partition(written), client.name
