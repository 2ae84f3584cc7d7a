"""Members of a group with any clients share partitions, commit, leave, and take over from each other."""

import time
from contextlib import ExitStack
from itertools import chain

import pytest

from tests.conformance.clients.programs.lines import Record
from tests.conformance.clients.running import (
    AIOKAFKA,
    CLIENTS,
    FRANZ_GO,
    KAFKA_PYTHON,
    LIBRDKAFKA,
    SARAMA,
    Client,
    RunningClient,
)
from tests.conformance.clients.topics import create_topic, read_committed_offsets
from tests.support.ottla_node import OttlaNode

PARTITIONS = 4
RECORDS = 25
TIMEOUT_S = 60


class Member:
    """A client in a group, and the records that it has read."""

    def __init__(self, program: RunningClient, node: OttlaNode, topic: str, protocol: str) -> None:
        self._program = program
        self.records: list[Record] = []
        self.assigned: set[int] = set()
        program.ask("join", address=node.address, topic=topic, group=f"group-{topic}", protocol=protocol)

    def poll(self) -> None:
        answer = self._program.ask("poll", timeout_ms=200)
        self.records += answer.records
        self.assigned = set(answer.assigned)

    def commit(self) -> None:
        self._program.ask("commit")

    def leave(self) -> None:
        self._program.ask("leave")


def fill(node: OttlaNode, program: RunningClient, topic: str, first: int) -> list[Record]:
    records = [
        Record(partition, None, b"%d" % number)
        for partition in range(PARTITIONS)
        for number in range(first, first + RECORDS)
    ]
    program.ask("write", address=node.address, topic=topic, records=records)
    return records


def wait_until_shared(members: list[Member], records: list[Record]) -> None:
    """Wait until the members share all partitions, each has some, and all have read the records of their partitions."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        for member in members:
            member.poll()
        assigned = [sorted(member.assigned) for member in members]
        missing = [
            record
            for member in members
            for record in set(records).difference(member.records)
            if record.partition in member.assigned
        ]
        if all(assigned) and sorted(chain(*assigned)) == list(range(PARTITIONS)) and not missing:
            return
        assert time.monotonic() < deadline, f"assigned: {assigned}, not read: {len(missing)} of {len(records)}"


PAIRS = [
    *((client, client, protocol) for client in CLIENTS for protocol in client.protocols),
    (KAFKA_PYTHON, LIBRDKAFKA, "classic"),
    (SARAMA, AIOKAFKA, "classic"),
    (FRANZ_GO, LIBRDKAFKA, "consumer"),
]


@pytest.mark.parametrize(
    ("one", "other", "protocol"), PAIRS, ids=[f"{one.name}-{other.name}-{protocol}" for one, other, protocol in PAIRS]
)
def test_members_share_partitions_commit_and_take_over(
    node: OttlaNode, one: Client, other: Client, protocol: str
) -> None:
    topic = f"shared-{one.name}-{other.name}-{protocol}"
    create_topic(node, topic, PARTITIONS)
    with ExitStack() as ending:
        first, second, third = (ending.enter_context(client.running()) for client in (one, other, one))
        records = fill(node, first, topic, 0)
        members = [Member(program, node, topic, protocol) for program in (first, second)]
        wait_until_shared(members, records)
        for member in members:
            member.commit()
        members[0].leave()
        wait_until_shared(members[1:], [])
        records = fill(node, second, topic, RECORDS)
        wait_until_shared(members[1:], records)
        members[1].commit()
        assert read_committed_offsets(node, f"group-{topic}", topic, PARTITIONS) == [2 * RECORDS] * PARTITIONS
        members[1].leave()
        late = Member(third, node, topic, protocol)
        wait_until_shared([late], [])
        late.poll()
        assert not late.records  # all records were committed
        late.leave()
