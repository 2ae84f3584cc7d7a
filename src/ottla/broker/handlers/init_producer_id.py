"""InitProducerId (key 22): an id and an epoch for an idempotent or transactional producer.

v3 has the producer's current id and epoch (KIP-360) · v4 PRODUCER_FENCED · v6 two-phase commit, not stable yet.
An idempotent producer always gets a new id. For a transactional producer, the transaction coordinator decides.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from ottla.broker.authorization.data_guards import guard_init_producer_id
from ottla.broker.handlers.transaction_errors import client_error
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call, Later
from ottla.broker.requests.coordinator_calls import CallTicket, submit_to_coordinator
from ottla.broker.requests.endpoint import endpoint
from ottla.coordinators.transactions.init_producer_id import ExpectedProducer, check_init, initialize_producer
from ottla.protocol.errors import ApiError, InvalidRequest
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_NONE = -1


def init_producer_id_failed(request: InitProducerIdRequest, version: int, error: ApiError) -> InitProducerIdResponse:
    """Return the error, without id and epoch."""
    code = client_error(error, version, fenced_since=4).code
    return InitProducerIdResponse(error_code=code, producer_id=_NONE, producer_epoch=_NONE)


@endpoint(ApiKey.INIT_PRODUCER_ID, failed=init_producer_id_failed, guard=guard_init_producer_id)
def init_producer_id(
    call: Call[BrokerNode], request: InitProducerIdRequest
) -> InitProducerIdResponse | Later | Coroutine[Any, Any, InitProducerIdResponse | Later]:
    """Return the next id. Waits for the controller only if this broker has no id left."""
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        raise InvalidRequest("a producer id needs an epoch, and an epoch a producer id")
    if request.transactional_id == "":
        raise InvalidRequest("a transactional id must not be empty")
    if request.transactional_id is not None:
        return _init_transactional(call, request, request.transactional_id)
    producer_id = call.node.producer_ids.take()
    if producer_id is None:
        return _wait(call)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def _wait(call: Call[BrokerNode]) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=await call.node.producer_ids.wait(), producer_epoch=0)


def _init_transactional(
    call: Call[BrokerNode], request: InitProducerIdRequest, transactional_id: str
) -> Later | Coroutine[Any, Any, Later]:
    timeout_ms = check_init(
        call.node.transactions.context(),
        request.transaction_timeout_ms,
        two_phase=request.enable2_pc,
        keep_prepared=request.keep_prepared_txn,
    )
    if not call.node.producer_ids.has_any:
        return _wait_and_decide(call, request, transactional_id, timeout_ms)
    return _decide(call, request, transactional_id, timeout_ms)


async def _wait_and_decide(
    call: Call[BrokerNode], request: InitProducerIdRequest, transactional_id: str, timeout_ms: int
) -> Later:
    await call.node.producer_ids.refill()
    return _decide(call, request, transactional_id, timeout_ms)


def _decide(call: Call[BrokerNode], request: InitProducerIdRequest, transactional_id: str, timeout_ms: int) -> Later:
    transactions = call.node.transactions
    expected = None if request.producer_id == _NONE else ExpectedProducer(request.producer_id, request.producer_epoch)
    return submit_to_coordinator(
        transactions.shards.shard_for(transactional_id),
        CallTicket(call, request),
        lambda state: initialize_producer(state, transactions.context(), transactional_id, timeout_ms, expected),
    )
