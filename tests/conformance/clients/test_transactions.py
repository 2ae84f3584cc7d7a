"""Every client's transactions: `read_committed` readers see only the committed records."""

import pytest

from tests.conformance.clients.programs.lines import Record
from tests.conformance.clients.running import CLIENTS, Client, Programs
from tests.conformance.clients.topics import create_topic, read_committed_offsets
from tests.support.ottla_node import OttlaNode


def numbered_records(word: str, count: int = 5) -> list[Record]:
    return [Record(0, None, f"{word} {number}".encode()) for number in range(count)]


@pytest.mark.parametrize("writer", CLIENTS, ids=lambda client: client.name)
def test_committed_records_are_read_and_aborted_ones_are_not(
    node: OttlaNode, programs: Programs, writer: Client
) -> None:
    topic = f"transacted-{writer.name}"
    create_topic(node, topic)
    words = ["kept", "dropped", "kept too"]
    for word in words:
        programs[writer].ask(
            "write",
            address=node.address,
            topic=topic,
            records=numbered_records(word),
            transactional_id=f"id-{writer.name}",
            abort=word == "dropped",
        )
    kept = numbered_records("kept") + numbered_records("kept too")
    everything = [record for word in words for record in numbered_records(word)]
    for reader in CLIENTS:
        if not reader.is_installed:
            continue
        for records, only_committed in ((kept, True), (everything, False)):
            read = programs[reader].ask(
                "read",
                address=node.address,
                topic=topic,
                partitions=1,
                count=len(records),
                committed=only_committed,
            )
            assert list(read.records) == records, reader.name


@pytest.mark.parametrize(
    "client", [client for client in CLIENTS if client.offsets_without_member], ids=lambda client: client.name
)
def test_offsets_are_committed_only_with_their_transaction(node: OttlaNode, programs: Programs, client: Client) -> None:
    topic, group = f"offsets-{client.name}", f"group-{client.name}"
    create_topic(node, topic)
    for count, abort, expected in ((3, False, 3), (5, True, 3), (7, False, 7)):
        programs[client].ask(
            "write",
            address=node.address,
            topic=topic,
            records=numbered_records("record", count),
            transactional_id=f"offsets-{client.name}",
            offsets_of=group,
            abort=abort,
        )
        assert read_committed_offsets(node, group, topic, 1) == [expected]
