"""InitProducerId: ids are taken from blocks, each once, and an absent controller delays no producer for long."""

import asyncio
from typing import Any

from ottla.protocol.errors import CoordinatorLoading, NotController, NotCoordinator, StaleBrokerEpoch
from ottla.protocol.messages.rpc.allocate_producer_ids import AllocateProducerIdsResponse
from ottla.protocol.messages.rpc.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.support.broker import BROKER_EPOCH, ME, Broker, Exchange

REQUEST = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)


def ask(broker: Broker) -> InitProducerIdResponse:
    found: InitProducerIdResponse = broker.ask(REQUEST, 5)
    return found


def test_each_id_is_given_once_over_many_blocks(broker: Broker) -> None:
    assert [ask(broker).producer_id for _ in range(2500)] == list(range(2500))
    assert len(broker.controller_requests) == 3
    assert {(request.broker_id, request.broker_epoch) for request in broker.controller_requests} == {(ME, BROKER_EPOCH)}


def test_the_next_block_is_fetched_before_the_last_is_used_up(broker: Broker) -> None:
    for _ in range(900):
        ask(broker)
    assert len(broker.controller_requests) == 1
    ask(broker)
    assert len(broker.controller_requests) == 2


def test_the_producer_retries_after_a_refusal(broker: Broker) -> None:
    broker.controller = lambda _: AllocateProducerIdsResponse(error_code=StaleBrokerEpoch.code)
    exchange = broker.send(REQUEST, 5)
    broker.loop.run_until_complete(_until_answered(exchange))
    assert (exchange.response.error_code, exchange.response.producer_epoch) == (CoordinatorLoading.code, -1)


def test_the_producer_waits_for_an_absent_controller(broker: Broker) -> None:
    def refuse(_: Any) -> Any:
        raise NotController("none is active")

    broker.controller = refuse
    exchange = broker.send(REQUEST, 5)
    broker.loop.run_until_complete(_until_answered(exchange))
    assert exchange.response.error_code == CoordinatorLoading.code


def test_an_impossible_block_is_not_used(broker: Broker) -> None:
    broker.controller = lambda _: AllocateProducerIdsResponse(producer_id_start=(1 << 63) - 5, producer_id_len=1000)
    assert ask(broker).error_code == CoordinatorLoading.code


def test_transactional_ids_need_a_coordinator(broker: Broker) -> None:
    request = InitProducerIdRequest(transactional_id="t", transaction_timeout_ms=1000)
    assert broker.ask(request, 5).error_code == NotCoordinator.code


async def _until_answered(exchange: Exchange) -> None:
    async with asyncio.timeout(10):
        while not exchange.outcome:
            await asyncio.sleep(0.01)
