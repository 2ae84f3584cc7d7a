"""ShareFetch (key 78): acquire records of share partitions, and acknowledge earlier ones (KIP-932).

v2 a strict limit of records (KIP-1206); a request that renews locks fetches nothing (KIP-1222).
"""

from __future__ import annotations

from functools import partial
from typing import Final

from ottla.broker.authorization.access_checks import run_when_decided
from ottla.broker.authorization.actions import Operation as AclOperation
from ottla.broker.authorization.guards import of_group
from ottla.broker.handlers.leader_hints import endpoints_of, leader_of
from ottla.broker.handlers.share_acknowledge import (
    FIRST_WITH_RENEWAL,
    MOVED,
    Outcomes,
    acknowledge_all,
    readable_topics,
    session_key,
)
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import LATER, Call, Later
from ottla.broker.requests.endpoint import endpoint
from ottla.coordinators.runtime.share.fetching import FetchedPartition
from ottla.coordinators.runtime.share.reader import ShareReader
from ottla.coordinators.share.acquiring import AcquireRequest
from ottla.coordinators.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, Session, SessionKey, TopicIdPartition
from ottla.protocol.errors import (
    ApiError,
    InvalidRequest,
    InvalidShareSessionEpoch,
    ShareSessionLimitReached,
    TopicAuthorizationFailed,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.share_fetch import (
    AcquiredRecords,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    ShareFetchableTopicResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from ottla.replication.purgatory import Operation

_STRICT: Final = 1
_MODES: Final = (0, _STRICT)
_SLOTS: Final = "group.share.max.share.sessions"


def share_fetch_failed(request: ShareFetchRequest, version: int, error: ApiError) -> ShareFetchResponse:
    """Return the error alone; Kafka sends no message."""
    return ShareFetchResponse(error_code=error.code)


@endpoint(ApiKey.SHARE_FETCH, failed=share_fetch_failed, guard=of_group(AclOperation.READ))
def share_fetch(call: Call[BrokerNode], request: ShareFetchRequest) -> Later:
    """Acknowledge and fetch; the answer has the results of both."""
    key = session_key(call, request.group_id, request.member_id)
    is_renewal = call.version >= FIRST_WITH_RENEWAL and request.is_renew_ack
    if is_renewal:
        _check_renewal(request)
    if request.share_acquire_mode not in _MODES:
        raise InvalidRequest(f"there is no acquire mode {request.share_acquire_mode}")
    try:
        session = _session(call, request, key)
    except ShareSessionLimitReached as error:
        call.node.timer.add(_Refusal(call, request, error), request.max_wait_ms)
        return LATER
    _AcknowledgeAndFetch(call, request, key, session).run(is_renewal=is_renewal)
    return LATER


def _check_renewal(request: ShareFetchRequest) -> None:
    limits = {
        "maxBytes": request.max_bytes,
        "minBytes": request.min_bytes,
        "maxRecords": request.max_records,
        "maxWaitMs": request.max_wait_ms,
    }
    nonzero = "".join(f"{name} must be set to 0, " for name, value in limits.items() if value)
    if nonzero:
        raise InvalidRequest(f"{nonzero}if isRenewAck is true.")


def _session(call: Call[BrokerNode], request: ShareFetchRequest, key: SessionKey) -> Session:
    """Return the session that the request begins, continues or ends."""
    sharing, image, epoch = call.node.sharing, call.node.image, request.share_session_epoch
    requested = []
    for topic in request.topics:
        named_topic = image.topic_by_id(topic.topic_id)
        name = None if named_topic is None else named_topic.name
        requested += [((topic.topic_id, part.partition_index), name) for part in topic.partitions]
    if epoch == INITIAL_EPOCH:
        has_acks = any(part.acknowledgement_batches for topic in request.topics for part in topic.partitions)
        return sharing.begin_session(key, requested, call.client, has_acks=has_acks, slots=call.node.setting(_SLOTS))
    session = sharing.sessions.find(key, epoch)
    if epoch != FINAL_EPOCH:
        forgotten = [(topic.topic_id, index) for topic in request.forgotten_topics_data for index in topic.partitions]
        sharing.update_session(session, requested, forgotten)
        session.advance_epoch()
    return session


class _AcknowledgeAndFetch:
    """One request, answered when both its acknowledgements and its fetch are complete."""

    def __init__(self, call: Call[BrokerNode], request: ShareFetchRequest, key: SessionKey, session: Session) -> None:
        self.call = call
        self.request = request
        self.key = key
        self.session = session
        self.epoch = session.epoch
        """The epoch at the beginning: another request may raise the session's epoch meanwhile."""
        self.outcomes: Outcomes | None = None
        self.parts: dict[TopicIdPartition, FetchedPartition] | None = None
        self.refused: dict[TopicIdPartition, ApiError] = {}

    def run(self, *, is_renewal: bool) -> None:
        has_acks = any(part.acknowledgement_batches for topic in self.request.topics for part in topic.partitions)
        if has_acks:
            acknowledge = partial(acknowledge_all, self.call, self.key, self.request, self._acknowledged)
            run_when_decided(self.call, acknowledge)
        else:
            self.outcomes = {}
        if is_renewal or self.request.share_session_epoch == FINAL_EPOCH:
            self._fetched({})
        else:
            run_when_decided(self.call, self._fetch)

    def _fetch(self) -> None:
        call, request = self.call, self.request
        most = min(request.max_bytes, call.node.fetch_max_bytes)
        sharing, client, image = call.node.sharing, call.client, call.node.image
        acls = None if call.node.authorizer is None else image.acls
        reader = sharing.reader(self.session, (client, client.principal, acls))
        self._refuse(reader)
        sharing.fetch(
            reader,
            AcquireRequest(
                self.key.member_id,
                request.max_records,
                request.batch_size,
                call.version >= FIRST_WITH_RENEWAL and request.share_acquire_mode == _STRICT,
            ),
            refused=self.refused,
            max_wait_ms=request.max_wait_ms,
            min_bytes=min(request.min_bytes, most),
            max_bytes=most,
            done=self._fetched,
        )

    def _refuse(self, reader: ShareReader) -> None:
        """Find the errors of partitions that cannot be fetched; each fetch checks them again."""
        image, targets = self.call.node.image, self.session.partitions
        changed = {watch.topic_partition: targets[watch.topic_partition].name for watch in reader.changed_in_order()}
        readable = readable_topics(self.call, {name for name in changed.values() if name is not None})
        for where, name in changed.items():
            if name is None:
                self.refused[where] = UnknownTopicId()
            elif name not in readable:
                self.refused[where] = TopicAuthorizationFailed()
            elif image.partition(name, where[1]) is None:
                self.refused[where] = UnknownTopicOrPartition()

    def _acknowledged(self, outcomes: Outcomes) -> None:
        self.outcomes = outcomes
        self._finish()

    def _fetched(self, parts: dict[TopicIdPartition, FetchedPartition]) -> None:
        self.parts = parts
        self._finish()

    def _finish(self) -> None:
        """Answer when both parts are complete."""
        if self.outcomes is None or self.parts is None:
            return
        try:
            response = self._outcome(self.outcomes, self.parts)
        except Exception as error:  # noqa: BLE001 (any failure is answered)
            self.call.fail(error)
        else:
            self.call.answer(response)

    def _outcome(self, outcomes: Outcomes, parts: dict[TopicIdPartition, FetchedPartition]) -> ShareFetchResponse:
        epoch = self.request.share_session_epoch
        if epoch == FINAL_EPOCH:
            self.call.node.sharing.end_session(self.key)
        if epoch > INITIAL_EPOCH and self.session.epoch != self.epoch:
            raise InvalidShareSessionEpoch
        return self._response(outcomes, parts)

    def _response(self, outcomes: Outcomes, parts: dict[TopicIdPartition, FetchedPartition]) -> ShareFetchResponse:
        call = self.call
        response = ShareFetchResponse(acquisition_lock_timeout_ms=call.node.sharing.limits(self.key.group_id).lock_ms)
        topics: dict[bytes, ShareFetchableTopicResponse] = {}
        leaders: list[int] = []

        def add(where: TopicIdPartition, answer: PartitionData) -> None:
            topic = topics.get(where[0])
            if topic is None:
                topic = topics[where[0]] = ShareFetchableTopicResponse(topic_id=where[0])
                response.responses.append(topic)
            topic.partitions.append(answer)

        parts = {**parts, **{where: FetchedPartition(error=error) for where, error in self.refused.items()}}
        for where, part in parts.items():
            if self._must_tell(where, part) or where in outcomes:
                add(where, self._answer(where, part, outcomes, leaders))
        for where in outcomes:
            if where not in parts:
                add(where, self._answer(where, FetchedPartition(), outcomes, leaders))
        response.node_endpoints = endpoints_of(call.node.image, leaders, call.client.listener, NodeEndpoint)
        return response

    def _must_tell(self, where: TopicIdPartition, part: FetchedPartition) -> bool:
        if self.request.share_session_epoch <= INITIAL_EPOCH:
            return True
        return self.session.must_report(where, has_records=bool(part.acquired), has_error=part.error is not None)

    def _answer(
        self, where: TopicIdPartition, part: FetchedPartition, outcomes: Outcomes, leaders: list[int]
    ) -> PartitionData:
        answer = PartitionData(
            partition_index=where[1],
            error_code=0 if part.error is None else part.error.code,
            records=part.records,
            acquired_records=[
                AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
                for first, last, count in part.acquired
            ],
        )
        if where in outcomes:
            answer.acknowledge_error_code, answer.acknowledge_error_message = outcomes[where]
        if answer.error_code in MOVED:
            image = self.call.node.image
            topic = image.topic_by_id(where[0])
            if topic is not None:
                answer.current_leader = leader_of(image, topic.name, where[1], LeaderIdAndEpoch) or LeaderIdAndEpoch()
                leaders.append(answer.current_leader.leader_id)
        return answer


class _Refusal(Operation):
    """The refusal of a session beyond the limit. It is delayed, so that the member does not retry at once."""

    __slots__ = ("_call", "_error", "_request")

    def __init__(self, call: Call[BrokerNode], request: ShareFetchRequest, error: ApiError) -> None:
        super().__init__()
        self._call = call
        self._request = request
        self._error = error

    def try_complete(self) -> bool:
        return False

    def expire(self) -> None:
        self._call.answer(share_fetch_failed(self._request, self._call.version, self._error))
