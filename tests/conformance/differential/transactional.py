"""A transactional producer on both nodes, request by request. Its ids differ between the nodes; its epochs must not."""

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
from tests.conformance.differential.harness import Answers, Both, Side
from tests.conformance.differential.requests import batch, produce

WAIT_S = 20.0
NOW_MS = int(time.time() * 1000)
"""Markers are of now: with records that are much older, they would begin segments."""
CONCURRENT = 51
NOT_FOUND = 105
IDS = ("*producer_id",)
"""What differs: who has which producer id."""


class Writer:
    """A producer with a transactional id; `same` in the name of nothing: all answers are compared."""

    def __init__(self, both: Both, transactional_id: str) -> None:
        self.both = both
        self.id = transactional_id
        self.epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}
        wait_for_coordinator(both, transactional_id)

    def producer_id(self, side: Side) -> int:
        """The id that this producer has on a side."""
        found: int = side.memory.get(self.id, -1)
        return found

    def init(
        self, version: int = 5, *, timeout_ms: int = 60_000, expect: bool = False, epoch: int | None = None
    ) -> int:
        """Take the id, as another would, or with `expect` as one that goes on; the error code."""

        def request(side: Side) -> InitProducerIdRequest:
            mine, its = self.producer_id(side), self.epoch if epoch is None else epoch
            return InitProducerIdRequest(
                transactional_id=self.id,
                transaction_timeout_ms=timeout_ms,
                producer_id=mine if expect else -1,
                producer_epoch=its if expect else -1,
            )

        answers = self.both.same(request, version, ignoring=IDS)
        if not answers.ottla.error_code:
            self._learn(answers)
        code: int = answers.ottla.error_code
        return code

    def start(self, version: int = 5, **how: Any) -> "Writer":
        """Take the id; it must be possible, if need be after an open transaction was aborted."""
        code = self.init(version, **how)
        if code == CONCURRENT:
            self.settle()
            code = self.init(version, **how)
        assert not code, code
        return self

    def add(self, version: int, *partitions: tuple[str, int], epoch: int | None = None, verify: bool = False) -> int:
        """Add partitions by request, or check them; the first partition's error code."""
        by_topic: dict[str, list[int]] = {}
        for topic, number in partitions:
            by_topic.setdefault(topic, []).append(number)

        def request(side: Side) -> AddPartitionsToTxnRequest:
            topics = [AddPartitionsToTxnTopic(name=name, partitions=numbers) for name, numbers in by_topic.items()]
            its = self.epoch if epoch is None else epoch
            if version < 4:
                return AddPartitionsToTxnRequest(
                    v3_and_below_transactional_id=self.id,
                    v3_and_below_producer_id=self.producer_id(side),
                    v3_and_below_producer_epoch=its,
                    v3_and_below_topics=topics,
                )
            one = AddPartitionsToTxnTransaction(
                transactional_id=self.id,
                producer_id=self.producer_id(side),
                producer_epoch=its,
                verify_only=verify,
                topics=topics,
            )
            return AddPartitionsToTxnRequest(transactions=[one])

        answer = self.both.same(request, version).ottla
        topics = answer.results_by_topic_v3_and_below if version < 4 else answer.results_by_transaction[0].topic_results
        code: int = topics[0].results_by_partition[0].partition_error_code
        return code

    def add_offsets(self, version: int, group: str, *, epoch: int | None = None) -> int:
        """Add a group's offsets; the error code."""
        answers = self.both.same(
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
        """Produce one record in the transaction; the error code."""
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

        # Kafka tells the first copy's timestamp as its time of appending.
        answers = self.both.same(request, version, ignoring=("log_append_time_ms",))
        code: int = answers.ottla.responses[0].partition_responses[0].error_code
        if not code and sequence is None:
            self._sequences[key] = number + 1
        return code

    def end(self, version: int, *, commit: bool, epoch: int | None = None) -> int:
        """End the transaction; the error code."""
        answers = self.both.same(
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
        """Wait until no transaction is being ended on either node: both must then be in the same state."""
        self.wait_for(lambda state: not state.startswith("Prepare"))

    def wait_for(self, reached: Callable[[str], bool]) -> str:
        """Wait until both are in such a state, and that the same."""
        request = DescribeTransactionsRequest(transactional_ids=[self.id])
        deadline = time.monotonic() + WAIT_S
        while True:
            found = [answer.transaction_states[0].transaction_state for answer in self.both.ask(request, 0)]
            if all(reached(state) for state in found):
                # Kafka has the partitions in any order.
                answers = self.both.same(request, 0, ignoring=(*IDS, "*.partitions?*"))
                state: str = answers.ottla.transaction_states[0].transaction_state
                return state
            assert time.monotonic() < deadline, found
            time.sleep(0.02)

    def _learn(self, answers: Answers) -> None:
        for side, answer in zip(self.both.sides, answers, strict=True):
            if side.memory.get(self.id) != answer.producer_id or self.epoch != answers.ottla.producer_epoch:
                self._sequences = {}
            side.memory[self.id] = answer.producer_id
        self.epoch = answers.ottla.producer_epoch


def wait_for_coordinator(both: Both, transactional_id: str) -> None:
    """Wait until both nodes have the topic of their coordinators, have loaded it, and have producer ids."""
    find = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
    describe = DescribeTransactionsRequest(transactional_ids=[transactional_id])
    deadline = time.monotonic() + WAIT_S
    while True:
        found = [answer.coordinators[0].error_code for answer in both.ask(find, 4)]
        given = [answer.error_code for answer in both.ask(InitProducerIdRequest(transactional_id=None), 0)]
        described = [answer.transaction_states[0].error_code for answer in both.ask(describe, 0)]
        if not any((*found, *given)) and {*described} <= {0, NOT_FOUND}:
            return
        assert time.monotonic() < deadline, (found, given, described)
        time.sleep(0.05)


def wait_for_group_coordinator(both: Both, group: str) -> None:
    """The same for a group."""
    find = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    fetch = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[])])
    deadline = time.monotonic() + WAIT_S
    while True:
        found = [answer.coordinators[0].error_code for answer in both.ask(find, 4)]
        fetched = [answer.groups[0].error_code for answer in both.ask(fetch, 8)]
        if not any((*found, *fetched)):
            return
        assert time.monotonic() < deadline, (found, fetched)
        time.sleep(0.05)
