"""Heartbeats and their absence: brokers come into service, leave it in good order, or are found missing."""

from enum import Enum

from ottla.metadata.controller.decision import Decision, applied
from ottla.metadata.controller.departures import begin_shutdown, cordon_directories, fence, lose_directories, unfence
from ottla.metadata.controller.heartbeats import NEVER, Heartbeats
from ottla.metadata.controller.registration import registered
from ottla.metadata.controller.view import View
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import Broker
from ottla.protocol.messages.rpc.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.metadata_versions import CORDONED_LOG_DIRS


class BrokerState(Enum):
    """What a broker is to the controller. The last one is a fenced broker that may stop."""

    FENCED = "fenced"
    IN_SERVICE = "in service"
    SHUTTING_DOWN = "shutting down"
    RELEASED = "released"


def heartbeat(
    view: View, heartbeats: Heartbeats, request: BrokerHeartbeatRequest, *, now_ms: int, next_offset: int
) -> Decision[BrokerHeartbeatResponse]:
    """A broker is alive. It comes into service once it has read its own registration, and leaves it in two steps:
    others lead its partitions, then, when all who stay know that, it may stop."""
    broker = registered(view, request.broker_id, request.broker_epoch)
    records: list[object] = []
    if view.assigns_directories:
        # First, so that nothing is led from a directory that has just failed.
        records += lose_directories(view, broker, request.offline_log_dirs)
    image = applied(view.image, records)
    broker = image.brokers[broker.id]
    caught_up = request.current_metadata_offset >= heartbeats.registration_offset(broker.id, broker.epoch)
    before = broker_state(heartbeats, broker)
    after = next_state(image, heartbeats, broker, request, caught_up=caught_up)
    if before is not after:
        records += _transition(view.on(image), broker, after)
    if view.metadata_version >= CORDONED_LOG_DIRS:
        records += cordon_directories(broker, request.cordoned_log_dirs)
    _remember(heartbeats, request, after, now_ms=now_ms, last_offset=next_offset + len(records) - 1)
    reply = BrokerHeartbeatResponse(
        is_caught_up=caught_up,
        is_fenced=after in (BrokerState.FENCED, BrokerState.RELEASED),
        should_shut_down=after is BrokerState.RELEASED,
    )
    return Decision(tuple(records), reply)


def fence_one_expired(view: View, heartbeats: Heartbeats, *, now_ms: int) -> Decision[bool]:
    """Fence the broker that was not heard of for longest. One at a time, so that the next decision sees this one; the
    reply says whether to ask again at once."""
    for broker_id in heartbeats.expired(now_ms):
        heartbeats.end_session(broker_id)
        broker = view.image.brokers.get(broker_id)
        if broker is not None and not broker.fenced:
            return Decision(tuple(fence(view, broker)), True)
    return Decision((), False)


def broker_state(heartbeats: Heartbeats, broker: Broker) -> BrokerState:
    if heartbeats.is_shutting_down(broker.id, broker.epoch):
        return BrokerState.SHUTTING_DOWN
    return BrokerState.FENCED if broker.fenced else BrokerState.IN_SERVICE


def next_state(
    image: Image, heartbeats: Heartbeats, broker: Broker, request: BrokerHeartbeatRequest, *, caught_up: bool
) -> BrokerState:
    """What a broker becomes by what it asks for."""
    state = broker_state(heartbeats, broker)
    leads = broker.id in image.placement.leaders
    match state:
        case BrokerState.FENCED if request.want_shut_down:
            return BrokerState.RELEASED
        case BrokerState.FENCED:
            return BrokerState.IN_SERVICE if caught_up and not request.want_fence else BrokerState.FENCED
        case BrokerState.IN_SERVICE if request.want_fence:
            return BrokerState.RELEASED if request.want_shut_down else BrokerState.FENCED
        case BrokerState.IN_SERVICE if request.want_shut_down:
            return BrokerState.SHUTTING_DOWN if leads else BrokerState.RELEASED
        case BrokerState.SHUTTING_DOWN if not leads:
            slowest = heartbeats.lowest_active_offset(image)
            begun = heartbeats.shutdown_offset(broker.id, broker.epoch)
            return BrokerState.RELEASED if slowest is None or begun <= slowest else BrokerState.SHUTTING_DOWN
    return state


def _transition(view: View, broker: Broker, after: BrokerState) -> list[object]:
    match after:
        case BrokerState.IN_SERVICE:
            return unfence(view, broker)
        case BrokerState.SHUTTING_DOWN:
            return begin_shutdown(view, broker)
        case _:
            return fence(view, broker)


def _remember(
    heartbeats: Heartbeats, request: BrokerHeartbeatRequest, after: BrokerState, *, now_ms: int, last_offset: int
) -> None:
    broker_id, epoch = request.broker_id, request.broker_epoch
    heartbeats.heard(broker_id, epoch, request.current_metadata_offset, now_ms)
    match after:
        case BrokerState.SHUTTING_DOWN:
            heartbeats.begin_shutdown(broker_id, epoch, last_offset)
        case BrokerState.FENCED:
            heartbeats.fenced(broker_id)
        case BrokerState.RELEASED:
            # It will stop now: its next life need not wait until the session of this one ends.
            heartbeats.end_session(broker_id)
    assert after is BrokerState.SHUTTING_DOWN or heartbeats.shutdown_offset(broker_id, epoch) == NEVER
