"""A transactional producer that sends each request to both nodes; its producer ids may differ, its epochs not."""

import time
from collections.abc import Callable
from typing import Any

from ottla.protocol.messages.rpc.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.rpc.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.rpc.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.rpc.end_txn import EndTxnRequest
from ottla.protocol.messages.rpc.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.rpc.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.rpc.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.conformance.differential.harness import Answers, NodePair, Side
from tests.conformance.differential.requests import batch, produce

WAIT_S = 20.0
NOW_MS = int(time.time() * 1000)
"""The time of records: markers have the current time, and would roll segments after much older records."""
CONCURRENT = 51
NOT_FOUND = 105
IDS = ("*producer_id",)
"""The fields that differ between the nodes: producer ids."""


class TransactionalProducer:
    """A producer with a transactional id; it fails unless both nodes give the same answers."""

    def __init__(self, both: NodePair, transactional_id: str) -> None:
        self.both = both
        self.id = transactional_id
        self.epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}
        wait_for_coordinator(both, transactional_id)

    def producer_id(self, side: Side) -> int:
        """Return the producer id on a side."""
        producer_id: int = side.memory.get(self.id, -1)
        return producer_id

    def init(
        self, version: int = 5, *, timeout_ms: int = 60_000, expect: bool = False, epoch: int | None = None
    ) -> int:
        """Initialize the producer id, with `expect` from the current id and epoch, and return the error code."""

        def request(side: Side) -> InitProducerIdRequest:
            current_epoch = self.epoch if epoch is None else epoch
            return InitProducerIdRequest(
                transactional_id=self.id,
                transaction_timeout_ms=timeout_ms,
                producer_id=self.producer_id(side) if expect else -1,
                producer_epoch=current_epoch if expect else -1,
            )

        answers = self.both.expect_same(request, version, ignoring=IDS)
        if not answers.ottla.error_code:
            self._learn(answers)
        code: int = answers.ottla.error_code
        return code

    def start(self, version: int = 5, **fields: Any) -> "TransactionalProducer":
        """Initialize the producer id, which must succeed at the latest after an open transaction was aborted."""
        code = self.init(version, **fields)
        if code == CONCURRENT:
            self.settle()
            code = self.init(version, **fields)
        assert not code, code
        return self

    def add(self, version: int, *partitions: tuple[str, int], epoch: int | None = None, verify: bool = False) -> int:
        """Add or verify partitions by AddPartitionsToTxn, and return the first partition's error code."""
        by_topic: dict[str, list[int]] = {}
        for topic, number in partitions:
            by_topic.setdefault(topic, []).append(number)

        def request(side: Side) -> AddPartitionsToTxnRequest:
            topics = [AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in by_topic.items()]
            producer_epoch = self.epoch if epoch is None else epoch
            if version < 4:
                return AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self.id,
                    v3_and_below_producer_id=self.producer_id(side),
                    v3_and_below_producer_epoch=producer_epoch,
                    v3_and_below_topics=topics,
                )
            transaction = AddPartitionsToTxnTransaction(
                transactional_id=self.id,
                producer_id=self.producer_id(side),
                producer_epoch=producer_epoch,
                verify_only=verify,
                topics=topics,
            )
            return AddPartitionsToTxnRequest(transactions=[transaction])

        answer = self.both.expect_same(request, version).ottla
        topics = answer.results_by_topic_v3_and_below if version < 4 else answer.results_by_transaction[0].topic_results
        code: int = topics[0].results_by_partition[0].partition_error_code
        return code

    def add_offsets(self, version: int, group: str, *, epoch: int | None = None) -> int:
        """Add a group's offsets to the transaction, and return the error code."""
        answers = self.both.expect_same(
            lambda side: AddOffsetsToTxnRequest(
                transactional_id=self.id,
                producer_id=self.producer_id(side),
                producer_epoch=self.epoch if epoch is None else epoch,
                group_id=group,
            ),
            version,
        )
        code: int = answers.ottla.error_code
        return code

    def send(
        self, version: int, topic: str, partition: int = 0, *, epoch: int | None = None, sequence: int | None = None
    ) -> int:
        """Produce one record in the transaction, and return the error code."""
        key = topic, partition
        number = self._sequences.get(key, 0) if sequence is None else sequence

        def request(side: Side) -> Any:
            data = batch(
                producer_id=self.producer_id(side),
                producer_epoch=self.epoch if epoch is None else epoch,
                base_sequence=number,
                transactional=True,
                timestamp=NOW_MS,
            )
            return produce(version, (topic, partition, data), transactional_id=self.id)(side)

        # For a duplicate, Kafka returns the first copy's timestamp as log append time.
        answers = self.both.expect_same(request, version, ignoring=("log_append_time_ms",))
        code: int = answers.ottla.responses[0].partition_responses[0].error_code
        if not code and sequence is None:
            self._sequences[key] = number + 1
        return code

    def end(self, version: int, *, commit: bool, epoch: int | None = None) -> int:
        """End the transaction, and return the error code."""
        answers = self.both.expect_same(
            lambda side: EndTxnRequest(
                transactional_id=self.id,
                producer_id=self.producer_id(side),
                producer_epoch=self.epoch if epoch is None else epoch,
                committed=commit,
            ),
            version,
            ignoring=IDS,
        )
        code: int = answers.ottla.error_code
        if not code:
            self.settle()
            if version >= 5:
                self._learn(answers)
        return code

    def settle(self) -> None:
        """Wait until neither node is still ending a transaction; both must then be in the same state."""
        self.wait_for(lambda state: not state.startswith("Prepare"))

    def wait_for(self, reached: Callable[[str], bool]) -> str:
        """Wait until both nodes reach a state, which must be the same."""
        request = DescribeTransactionsRequest(transactional_ids=[self.id])
        deadline = time.monotonic() + WAIT_S
        while True:
            states = [answer.transaction_states[0].transaction_state for answer in self.both.ask(request, 0)]
            if all(reached(state) for state in states):
                # Kafka returns the partitions in any order.
                answers = self.both.expect_same(request, 0, ignoring=(*IDS, "*.partitions?*"))
                state: str = answers.ottla.transaction_states[0].transaction_state
                return state
            assert time.monotonic() < deadline, states
            time.sleep(0.02)

    def _learn(self, answers: Answers) -> None:
        for side, answer in zip(self.both.sides, answers, strict=True):
            if side.memory.get(self.id) != answer.producer_id or self.epoch != answers.ottla.producer_epoch:
                self._sequences = {}
            side.memory[self.id] = answer.producer_id
        self.epoch = answers.ottla.producer_epoch


def wait_for_coordinator(both: NodePair, transactional_id: str) -> None:
    """Wait until both nodes have created and loaded `__transaction_state`, and have producer ids."""
    find = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
    describe = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    deadline = time.monotonic() + WAIT_S
    while True:
        coordinators = [answer.coordinators[0].error_code for answer in both.ask(find, 4)]
        producer_ids = [answer.error_code for answer in both.ask(InitProducerIdRequest(transactional_id=None), 0)]
        described = [answer.transaction_states[0].error_code for answer in both.ask(describe, 0)]
        if not any((*coordinators, *producer_ids)) and {*described} <= {0, NOT_FOUND}:
            return
        assert time.monotonic() < deadline, (coordinators, producer_ids, described)
        time.sleep(0.05)


def wait_for_group_coordinator(both: NodePair, group: str) -> None:
    """Wait until both nodes have created and loaded `__consumer_offsets`."""
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[])])
    deadline = time.monotonic() + WAIT_S
    while True:
        coordinators = [answer.coordinators[0].error_code for answer in both.ask(find, 4)]
        fetched = [answer.groups[0].error_code for answer in both.ask(fetch, 8)]
        if not any((*coordinators, *fetched)):
            return
        assert time.monotonic() < deadline, (coordinators, fetched)
        time.sleep(0.05)
