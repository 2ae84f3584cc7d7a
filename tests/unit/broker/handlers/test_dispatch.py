"""Dispatch: failing handlers on real sockets, and the order of answers."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.broker.handlers.produce import produce_failed
from ottla.broker.handlers.registry import BROKER_ENDPOINTS
from ottla.broker.requests.call import LATER, Call
from ottla.broker.requests.endpoint import Endpoint
from ottla.protocol.errors import ClusterAuthorizationFailed, UnknownServerError
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from ottla.protocol.messages.rpc.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.rpc.metadata import MetadataRequest
from ottla.protocol.messages.rpc.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.storage.log.partition_log import PartitionLog
from tests.support.broker import Broker, Exchange
from tests.support.logs_in_memory import batch
from tests.unit.broker.metrics.service import Handler, serving


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(test(), 20)

    asyncio.run(limited())


def fails(call: Call[None], request: Any) -> Any:
    raise ZeroDivisionError("a bug")


async def fails_later(call: Call[None], request: Any) -> Any:
    await asyncio.sleep(0)
    raise ZeroDivisionError("a bug")


def broken(*_: object) -> None:
    raise ZeroDivisionError("a bug")


def refuses(call: Call[None], request: Any) -> Any:
    raise ClusterAuthorizationFailed("no")


@pytest.mark.parametrize("handler", [fails, fails_later])
def test_a_bug_of_a_handler_is_answered_and_logged_and_keeps_the_connection(
    handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with serving({ApiKey.DESCRIBE_CLUSTER: handler}) as service:
            for _ in range(2):
                answer = await service.ask(DescribeClusterRequest(), ApiKey.DESCRIBE_CLUSTER, 1)
                assert answer.error_code == UnknownServerError.code

    run(test)
    errors = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert [record.getMessage().partition(": ")[0] for record in errors] == ["DescribeCluster v1 failed"] * 2
    assert all(record.exc_info is not None for record in errors)


def test_an_error_of_the_whole_request_becomes_its_code(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with serving({ApiKey.DESCRIBE_CLUSTER: refuses}) as service:
            answer = await service.ask(DescribeClusterRequest(), ApiKey.DESCRIBE_CLUSTER, 1)
            assert answer.error_code == ClusterAuthorizationFailed.code

    run(test)
    assert not caplog.records, "an error that a client is answered is no bug"


def test_a_handler_may_answer_long_after_it_returned() -> None:
    calls: list[Call[None]] = []

    def later(call: Call[None], request: Any) -> Any:
        calls.append(call)
        return LATER

    async def test() -> None:
        async with serving({ApiKey.DESCRIBE_CLUSTER: later}) as service:
            asking = asyncio.ensure_future(service.ask(DescribeClusterRequest(), ApiKey.DESCRIBE_CLUSTER, 1))
            while not calls:
                await asyncio.sleep(0.001)
            assert not asking.done()
            calls[0].answer(DescribeClusterResponse(cluster_id="later"))
            assert (await asking).cluster_id == "later"

    run(test)


def test_a_bug_in_a_produce_without_acks_closes_the_connection(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.create_topic("t")
    monkeypatch.setattr(PartitionLog, "append_unless_heavy", broken)
    part = PartitionProduceData(index=0, records=bytes(batch(b"v")))
    request = ProduceRequest(acks=0, topic_data=[TopicProduceData(name="t", partition_data=[part])])
    assert broker.send(request, 9).outcome.startswith("closed: Produce failed, and no answer is expected")


@pytest.mark.parametrize("endpoint", BROKER_ENDPOINTS.values(), ids=lambda endpoint: endpoint.api.name)
def test_every_failure_has_an_answer_except_of_a_produce_without_acks(endpoint: Endpoint) -> None:
    for version in range(endpoint.api.oldest, endpoint.api.latest + 1):
        request = ProduceRequest(acks=1) if endpoint.api.request is ProduceRequest else endpoint.api.request()
        assert endpoint.failed(request, version, UnknownServerError()) is not None
    assert produce_failed(ProduceRequest(acks=0), 9, UnknownServerError()) is None


def test_operations_that_a_request_completes_are_answered_before_the_next_request(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic("t")
    answered: list[str] = []
    end = Exchange._end

    def noted(self: Exchange, outcome: str) -> None:
        end(self, outcome)
        answered.append(type(self._request).__name__)

    monkeypatch.setattr(Exchange, "_end", noted)
    wanted = FetchTopic(topic="t", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])
    waiting = broker.send(FetchRequest(max_wait_ms=1000, min_bytes=1, max_bytes=1000, topics=[wanted]), 12)
    assert not waiting.outcome
    part = PartitionProduceData(index=0, records=bytes(batch(b"v")))
    produce = ProduceRequest(acks=1, topic_data=[TopicProduceData(name="t", partition_data=[part])])
    with monkeypatch.context() as together:
        together.setattr(broker, "step", lambda: None)  # both arrive in the same turn of the loop
        broker.begin(produce, 9)
        broker.begin(MetadataRequest(topics=[]), 9)
    broker.step()
    assert answered == ["ProduceRequest", "FetchRequest", "MetadataRequest"]
