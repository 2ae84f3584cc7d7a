"""InitProducerId (key 22): an id and an epoch for a producer whose batches are to be written exactly once.

v3 a producer tells the id and epoch that it has (KIP-360) · v4 PRODUCER_FENCED · v6 two-phase commit, not stable yet.
An idempotent producer gets a new id whatever it had; one with a transactional id is the transaction coordinator's.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from ottla.api.call import Call
from ottla.api.endpoint import endpoint
from ottla.api.node import BrokerNode
from ottla.errors import ApiError, InvalidRequest, NotCoordinator
from ottla.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_NONE = -1


def init_producer_id_failed(request: InitProducerIdRequest, version: int, error: ApiError) -> InitProducerIdResponse:
    """The error, and neither id nor epoch."""
    return InitProducerIdResponse(error_code=error.code, producer_id=_NONE, producer_epoch=_NONE)


@endpoint(22, failed=init_producer_id_failed)
def init_producer_id(
    call: Call[BrokerNode], request: InitProducerIdRequest
) -> InitProducerIdResponse | Coroutine[Any, Any, InitProducerIdResponse]:
    """Give out the next id; waits for the controller only when there is none."""
    if (request.producer_id == _NONE) != (request.producer_epoch == _NONE):
        raise InvalidRequest("a producer id and its epoch come together")
    if request.transactional_id == "":
        raise InvalidRequest("a transactional id must not be empty")
    if request.transactional_id is not None:
        raise NotCoordinator("this broker does not coordinate transactions")
    producer_id = call.node.producer_ids.take()
    if producer_id is None:
        return _wait(call)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def _wait(call: Call[BrokerNode]) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=await call.node.producer_ids.wait(), producer_epoch=0)
