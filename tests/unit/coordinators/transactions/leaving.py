"""A producer of transaction.version 1 that dies in its first transaction."""

import asyncio
import time

from ottla.client.connection import Connection
from ottla.protocol.messages.rpc.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.rpc.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.rpc.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.rpc.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.wire.records import Record, build_batch

PATIENCE_S = 60.0


def leave_open(address: str, topic: str, transactional_id: str) -> None:
    """Begin a transaction with one record, and exit."""
    asyncio.run(_leave_open(address, topic, transactional_id))


async def _leave_open(address: str, topic: str, transactional_id: str) -> None:
    host, port = address.split(":")
    connection = await Connection.connect(host, int(port))
    find = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
    deadline = time.monotonic() + PATIENCE_S
    while (await connection.send(find)).coordinators[0].error_code:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=600_000)
    made: InitProducerIdResponse = await connection.send(init)
    while made.error_code:
        assert time.monotonic() < deadline, made
        await asyncio.sleep(0.05)
        made = await connection.send(init)
    await connection.send(
        AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=made.producer_id,
            v3_and_below_producer_epoch=made.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
        ),
        version=3,
    )
    data = build_batch(
        [Record(0, int(time.time() * 1000), None, b"left")],
        producer_id=made.producer_id,
        producer_epoch=made.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
    part = PartitionProduceData(index=0, records=bytes(data))
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=10_000,
        topic_data=[TopicProduceData(name=topic, partition_data=[part])],
    )
    answer: ProduceResponse = await connection.send(request, version=9)
    assert not answer.responses[0].partition_responses[0].error_code, answer
    connection.close()
