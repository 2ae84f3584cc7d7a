"""BrokerHeartbeat: unfencing, fencing, and controlled shutdown of brokers."""

from enum import Enum

from ottla.metadata.controller.broker_transitions import (
    handle_broker_fenced,
    handle_broker_unfenced,
    handle_controlled_shutdown,
    handle_directories_cordoned,
    handle_directories_offline,
)
from ottla.metadata.controller.decision import Decision, apply_records
from ottla.metadata.controller.heartbeats import NEVER, Heartbeats
from ottla.metadata.controller.registration import check_broker_epoch
from ottla.metadata.controller.view import ControllerView
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import Broker
from ottla.protocol.messages.rpc.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.metadata_versions import CORDONED_LOG_DIRS


class BrokerControlState(Enum):
    """The state of a broker, with the names of Kafka's BrokerControlState."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


def process_broker_heartbeat(
    view: ControllerView, heartbeats: Heartbeats, request: BrokerHeartbeatRequest, *, now_ms: int, next_offset: int
) -> Decision[BrokerHeartbeatResponse]:
    """Record a heartbeat, and change the state of the broker if it is due.

    A broker is unfenced once it has applied its own registration. A controlled shutdown has two steps: other brokers
    take over its leaderships, then, when all remaining brokers have applied that, it may stop.
    """
    broker = check_broker_epoch(view, request.broker_id, request.broker_epoch)
    records: list[object] = []
    if view.assigns_directories:
        # First, so that no leader is elected in a directory that has just failed.
        records += handle_directories_offline(view, broker, request.offline_log_dirs)
    image = apply_records(view.image, records)
    broker = image.brokers[broker.id]
    caught_up = request.current_metadata_offset >= heartbeats.registration_offset(broker.id, broker.epoch)
    before = control_state(heartbeats, broker)
    after = next_control_state(image, heartbeats, broker, request, caught_up=caught_up)
    if before is not after:
        records += _transition(view.with_image(image), broker, after)
    if view.metadata_version >= CORDONED_LOG_DIRS:
        records += handle_directories_cordoned(broker, request.cordoned_log_dirs)
    _remember(heartbeats, request, after, now_ms=now_ms, last_offset=next_offset + len(records) - 1)
    reply = BrokerHeartbeatResponse(
        is_caught_up=caught_up,
        is_fenced=after in (BrokerControlState.FENCED, BrokerControlState.SHUTDOWN_NOW),
        should_shut_down=after is BrokerControlState.SHUTDOWN_NOW,
    )
    return Decision(tuple(records), reply)


def fence_stale_broker(view: ControllerView, heartbeats: Heartbeats, *, now_ms: int) -> Decision[bool]:
    """Fence the broker whose session expired first.

    Brokers are fenced one at a time, so that each decision sees the one before. The reply says whether to call again.
    """
    for broker_id in heartbeats.expired_brokers(now_ms):
        heartbeats.end_session(broker_id)
        broker = view.image.brokers.get(broker_id)
        if broker is not None and not broker.fenced:
            return Decision(tuple(handle_broker_fenced(view, broker)), True)
    return Decision((), False)


def control_state(heartbeats: Heartbeats, broker: Broker) -> BrokerControlState:
    if heartbeats.is_shutting_down(broker.id, broker.epoch):
        return BrokerControlState.CONTROLLED_SHUTDOWN
    return BrokerControlState.FENCED if broker.fenced else BrokerControlState.UNFENCED


def next_control_state(
    image: Image, heartbeats: Heartbeats, broker: Broker, request: BrokerHeartbeatRequest, *, caught_up: bool
) -> BrokerControlState:
    """Return the state of a broker after this heartbeat."""
    state = control_state(heartbeats, broker)
    is_leader = broker.id in image.placement.leaders
    match state:
        case BrokerControlState.FENCED if request.want_shut_down:
            return BrokerControlState.SHUTDOWN_NOW
        case BrokerControlState.FENCED:
            return BrokerControlState.UNFENCED if caught_up and not request.want_fence else BrokerControlState.FENCED
        case BrokerControlState.UNFENCED if request.want_fence:
            return BrokerControlState.SHUTDOWN_NOW if request.want_shut_down else BrokerControlState.FENCED
        case BrokerControlState.UNFENCED if request.want_shut_down:
            return BrokerControlState.CONTROLLED_SHUTDOWN if is_leader else BrokerControlState.SHUTDOWN_NOW
        case BrokerControlState.CONTROLLED_SHUTDOWN if not is_leader:
            lowest_offset = heartbeats.lowest_active_offset(image)
            shutdown_offset = heartbeats.shutdown_offset(broker.id, broker.epoch)
            return (
                BrokerControlState.SHUTDOWN_NOW
                if lowest_offset is None or shutdown_offset <= lowest_offset
                else BrokerControlState.CONTROLLED_SHUTDOWN
            )
    return state


def _transition(view: ControllerView, broker: Broker, after: BrokerControlState) -> list[object]:
    match after:
        case BrokerControlState.UNFENCED:
            return handle_broker_unfenced(view, broker)
        case BrokerControlState.CONTROLLED_SHUTDOWN:
            return handle_controlled_shutdown(view, broker)
        case _:
            return handle_broker_fenced(view, broker)


def _remember(
    heartbeats: Heartbeats, request: BrokerHeartbeatRequest, after: BrokerControlState, *, now_ms: int, last_offset: int
) -> None:
    broker_id, epoch = request.broker_id, request.broker_epoch
    heartbeats.record_heartbeat(broker_id, epoch, request.current_metadata_offset, now_ms)
    match after:
        case BrokerControlState.CONTROLLED_SHUTDOWN:
            heartbeats.record_controlled_shutdown(broker_id, epoch, last_offset)
        case BrokerControlState.FENCED:
            heartbeats.clear_controlled_shutdown(broker_id)
        case BrokerControlState.SHUTDOWN_NOW:
            # It stops now. Its next incarnation need not wait until this session expires.
            heartbeats.end_session(broker_id)
    assert after is BrokerControlState.CONTROLLED_SHUTDOWN or heartbeats.shutdown_offset(broker_id, epoch) == NEVER
