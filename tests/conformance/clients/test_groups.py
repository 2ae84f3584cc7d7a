"""Members of a group share its partitions, commit, leave, and take over from each other, whatever client they are."""

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
    Running,
)
from tests.conformance.clients.topics import committed, create
from tests.support.ottla_node import OttlaNode

PARTITIONS = 4
EACH = 25
TIMEOUT_S = 60


class Member:
    """A client in a group, and what it has read."""

    def __init__(self, program: Running, node: OttlaNode, topic: str, protocol: str) -> None:
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


def fill(node: OttlaNode, program: Running, topic: str, first: int) -> list[Record]:
    records = [
        Record(each, None, b"%d" % number) for each in range(PARTITIONS) for number in range(first, first + EACH)
    ]
    program.ask("write", address=node.address, topic=topic, records=records)
    return records


def share(members: list[Member], records: list[Record]) -> None:
    """Wait until members hold all partitions between them, each some, and have read what is in those that they hold."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        for member in members:
            member.poll()
        held = [sorted(member.assigned) for member in members]
        missing = [
            record
            for member in members
            for record in set(records).difference(member.records)
            if record.partition in member.assigned
        ]
        if all(held) and sorted(chain(*held)) == list(range(PARTITIONS)) and not missing:
            return
        assert time.monotonic() < deadline, f"held: {held}, not read: {len(missing)} of {len(records)}"


PAIRS = [
    *((each, each, protocol) for each in CLIENTS for protocol in each.protocols),
    (KAFKA_PYTHON, LIBRDKAFKA, "classic"),
    (SARAMA, AIOKAFKA, "classic"),
    (FRANZ_GO, LIBRDKAFKA, "consumer"),
]


@pytest.mark.parametrize(
    ("one", "other", "protocol"), PAIRS, ids=[f"{one.name}-{other.name}-{how}" for one, other, how in PAIRS]
)
def test_members_share_commit_and_take_over(node: OttlaNode, one: Client, other: Client, protocol: str) -> None:
    topic = f"shared-{one.name}-{other.name}-{protocol}"
    create(node, topic, PARTITIONS)
    with ExitStack() as ending:
        first, second, third = (ending.enter_context(each.running()) for each in (one, other, one))
        records = fill(node, first, topic, 0)
        members = [Member(each, node, topic, protocol) for each in (first, second)]
        share(members, records)
        for member in members:
            member.commit()
        members[0].leave()
        share(members[1:], [])
        records = fill(node, second, topic, EACH)
        share(members[1:], records)
        members[1].commit()
        assert committed(node, f"group-{topic}", topic, PARTITIONS) == [2 * EACH] * PARTITIONS
        members[1].leave()
        late = Member(third, node, topic, protocol)
        share([late], [])
        late.poll()
        assert not late.records  # all of it was committed
        late.leave()
