"""Old clients do not know PRODUCER_FENCED: they are answered INVALID_PRODUCER_EPOCH, which they take for the same."""

import pytest

from ottla.broker.handlers.add_partitions_to_txn import add_partitions_to_txn_failed
from ottla.broker.handlers.init_producer_id import init_producer_id_failed
from ottla.protocol.errors import ApiError, InvalidProducerEpoch, ProducerFenced
from ottla.protocol.messages.rpc.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.rpc.init_producer_id import InitProducerIdRequest


@pytest.mark.parametrize(
    ("version", "expected"),
    [(0, InvalidProducerEpoch), (3, InvalidProducerEpoch), (4, ProducerFenced), (6, ProducerFenced)],
)
def test_a_fenced_producer_that_initializes_again(version: int, expected: type[ApiError]) -> None:
    answer = init_producer_id_failed(InitProducerIdRequest(transactional_id="t"), version, ProducerFenced())
    assert answer.error_code == expected.code


@pytest.mark.parametrize(
    ("version", "expected"),
    [(0, InvalidProducerEpoch), (1, InvalidProducerEpoch), (2, ProducerFenced), (3, ProducerFenced)],
)
def test_a_fenced_producer_that_adds_partitions(version: int, expected: type[ApiError]) -> None:
    topic = AddPartitionsToTxnTopic(name="t", partitions=[0])
    request = AddPartitionsToTxnRequest(v3_and_below_transactional_id="t", v3_and_below_topics=[topic])
    answer = add_partitions_to_txn_failed(request, version, ProducerFenced())
    (found,) = answer.results_by_topic_v3_and_below[0].results_by_partition
    assert found.partition_error_code == expected.code
