"""ShareAcknowledge (key 79): a member acknowledges records that it acquired (KIP-932).

v2 can renew locks (KIP-1222).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from typing import Any, Final

from ottla.broker.authorization.access_checks import filter_allowed, run_when_decided
from ottla.broker.authorization.actions import Operation, ResourceType
from ottla.broker.authorization.guards import of_group
from ottla.broker.handlers.leader_hints import endpoints_of, leader_of
from ottla.broker.handlers.share_group_heartbeat import check_enabled
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import LATER, Call, Later
from ottla.broker.requests.endpoint import endpoint
from ottla.coordinators.groups.share.heartbeat import check_member_id
from ottla.coordinators.share.acknowledging import AcknowledgementBatch, check_acks
from ottla.coordinators.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, SessionKey, TopicIdPartition
from ottla.protocol.errors import (
    ApiError,
    FencedLeaderEpoch,
    InvalidRequest,
    InvalidShareSessionEpoch,
    NotLeader,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.share_acknowledge import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)

FIRST_WITH_RENEWAL: Final = 2
MOVED: Final = (NotLeader.code, FencedLeaderEpoch.code)
Outcome = tuple[int, str | None]
"""An error code and message; the code is 0 for success."""
SUCCESS: Final[Outcome] = (0, None)
Outcomes = dict[TopicIdPartition, Outcome]


def session_key(call: Call[BrokerNode], group_id: str | None, member_id: str | None) -> SessionKey:
    """Return the key of a request's session; raise if share groups are off, or if an id is malformed."""
    check_enabled(call)
    if group_id is None:
        raise InvalidRequest("Invalid group id in the request.")
    check_member_id(member_id)
    assert member_id is not None
    return SessionKey(group_id, member_id)


def readable_topics(call: Call[BrokerNode], names: Iterable[str]) -> Collection[str]:
    """Return the topics that the client may read."""
    return (
        filter_allowed(call, Operation.READ, ResourceType.TOPIC, names)
        if call.node.authorizer is not None
        else set(names)
    )


def acknowledge_failed(request: ShareAcknowledgeRequest, version: int, error: ApiError) -> ShareAcknowledgeResponse:
    """Return the error alone; Kafka sends no message."""
    return ShareAcknowledgeResponse(error_code=error.code)


@endpoint(ApiKey.SHARE_ACKNOWLEDGE, failed=acknowledge_failed, guard=of_group(Operation.READ))
def share_acknowledge(call: Call[BrokerNode], request: ShareAcknowledgeRequest) -> Later:
    """Acknowledge records. The answer is sent when the acknowledgements are stored."""
    key = session_key(call, request.group_id, request.member_id)
    sharing = call.node.sharing
    if request.share_session_epoch == INITIAL_EPOCH:
        raise InvalidShareSessionEpoch("a share session must begin with a ShareFetch request")
    session = sharing.sessions.find(key, request.share_session_epoch)
    is_final = request.share_session_epoch == FINAL_EPOCH
    if not is_final:
        session.advance_epoch()

    def finish(outcomes: Outcomes) -> None:
        if is_final:
            sharing.end_session(key)
        call.answer(_response(call, request, outcomes))

    run_when_decided(call, partial(acknowledge_all, call, key, request, finish))
    return LATER


def acknowledge_all(call: Call[BrokerNode], key: SessionKey, request: Any, finish: Callable[[Outcomes], None]) -> None:
    """Process the acknowledgements of a request; call `finish` when they are stored."""
    image, outcomes = call.node.image, Outcomes()
    names = {asked.topic_id: topic.name for asked in request.topics if (topic := image.topic_by_id(asked.topic_id))}
    readable = readable_topics(call, names.values())
    acks_by_partition: dict[TopicIdPartition, list[AcknowledgementBatch]] = {}
    without_acks: list[TopicIdPartition] = []
    for topic in request.topics:
        for part in topic.partitions:
            where = topic.topic_id, part.partition_index
            acks = [
                AcknowledgementBatch(batch.first_offset, batch.last_offset, batch.acknowledge_types)
                for batch in part.acknowledgement_batches
            ]
            try:
                _check(
                    call,
                    names.get(topic.topic_id),
                    part.partition_index,
                    acks,
                    readable,
                    is_renewal=_renews(call, request),
                )
            except ApiError as error:
                outcomes[where] = error.code, None
                continue
            if acks:
                acks_by_partition[where] = acks
            else:
                without_acks.append(where)
    if not acks_by_partition:
        finish(outcomes)
        return
    outcomes.update(dict.fromkeys(without_acks, SUCCESS))
    _acknowledge_each(call, key, acks_by_partition, outcomes, finish)


def _acknowledge_each(
    call: Call[BrokerNode],
    key: SessionKey,
    acks_by_partition: Mapping[TopicIdPartition, list[AcknowledgementBatch]],
    outcomes: Outcomes,
    finish: Callable[[Outcomes], None],
) -> None:
    missing = set(acks_by_partition)

    def done(where: TopicIdPartition, error: ApiError | None) -> None:
        outcomes[where] = SUCCESS if error is None else (error.code, error.message)
        missing.discard(where)
        if not missing:
            finish(outcomes)

    for where, acks in acks_by_partition.items():
        call.node.sharing.acknowledge(key, where, acks, partial(done, where))


def _renews(call: Call[BrokerNode], request: Any) -> bool:
    return call.version >= FIRST_WITH_RENEWAL and bool(request.is_renew_ack)


def _check(
    call: Call[BrokerNode],
    name: str | None,
    index: int,
    acks: Iterable[AcknowledgementBatch],
    readable: Collection[str],
    *,
    is_renewal: bool,
) -> None:
    if name is None:
        raise UnknownTopicId
    check_acks(acks, knows_renewal=call.version >= FIRST_WITH_RENEWAL, is_renewal=is_renewal)
    if name not in readable:
        raise TopicAuthorizationFailed
    if call.node.image.partition(name, index) is None:
        raise UnknownTopicOrPartition


def _response(call: Call[BrokerNode], request: ShareAcknowledgeRequest, outcomes: Outcomes) -> ShareAcknowledgeResponse:
    image, leaders = call.node.image, list[int]()
    response = ShareAcknowledgeResponse(
        acquisition_lock_timeout_ms=call.node.sharing.limits(request.group_id or "").lock_ms
    )
    topics: dict[bytes, ShareAcknowledgeTopicResponse] = {}
    for (topic_id, index), (code, message) in outcomes.items():
        topic = topics.get(topic_id)
        if topic is None:
            topic = topics[topic_id] = ShareAcknowledgeTopicResponse(topic_id=topic_id)
            response.responses.append(topic)
        answer = PartitionData(partition_index=index, error_code=code, error_message=message)
        named_topic = image.topic_by_id(topic_id)
        if code in MOVED and named_topic is not None:
            answer.current_leader = leader_of(image, named_topic.name, index, LeaderIdAndEpoch) or LeaderIdAndEpoch()
            leaders.append(answer.current_leader.leader_id)
        topic.partitions.append(answer)
    response.node_endpoints = endpoints_of(image, leaders, call.client.listener, NodeEndpoint)
    return response
