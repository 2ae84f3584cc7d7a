"""AllocateProducerIds: brokers get blocks of producer ids, so that no two producers share an id."""

from ottla.metadata.controller.decision import Decision
from ottla.metadata.controller.registration import check_broker_epoch
from ottla.metadata.controller.view import ControllerView
from ottla.protocol.errors import UnknownServerError
from ottla.protocol.messages.records.metadata_records import ProducerIdsRecord
from ottla.protocol.messages.rpc.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

BLOCK_SIZE = 1_000
_MAX_PRODUCER_ID = (1 << 63) - 1


def allocate_producer_ids(
    view: ControllerView, request: AllocateProducerIdsRequest
) -> Decision[AllocateProducerIdsResponse]:
    """Allocate the next block to the requesting broker."""
    check_broker_epoch(view, request.broker_id, request.broker_epoch)
    first = max(view.image.next_producer_id, 0)
    if first > _MAX_PRODUCER_ID - BLOCK_SIZE:
        raise UnknownServerError("Exhausted all producerIds")
    record = ProducerIdsRecord(
        broker_id=request.broker_id, broker_epoch=request.broker_epoch, next_producer_id=first + BLOCK_SIZE
    )
    return Decision((record,), AllocateProducerIdsResponse(producer_id_start=first, producer_id_len=BLOCK_SIZE))
