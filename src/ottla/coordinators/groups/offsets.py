"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete, decided on the state of one partition.

The group decides whether a member may commit. The first commit to a missing group creates it, unless the commit names a
generation: then it comes from a member of a group that was deleted.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from ottla.coordinators.groups.classic.group import ClassicGroup, ClassicGroupState
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.offset_records import offset_record, offset_tombstone
from ottla.coordinators.groups.state import (
    NO_EPOCH,
    NO_OFFSET,
    NO_OFFSETS,
    NO_TIMESTAMP,
    CommittedOffset,
    CommittedPartition,
    GroupsState,
    OffsetKey,
)
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.timers import session_timer
from ottla.metadata.image.values import Topic
from ottla.protocol.errors import (
    NONE,
    ApiError,
    GroupIdNotFound,
    GroupSubscribedToTopic,
    IllegalGeneration,
    OffsetMetadataTooLarge,
    StaleMemberEpoch,
    UnknownTopicId,
    UnknownTopicOrPartition,
    UnstableOffsetCommit,
)
from ottla.protocol.messages.rpc.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.rpc.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.protocol.messages.rpc.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.protocol.messages.rpc.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.protocol.wire.types import ZERO_UUID
from ottla.storage.state_machine.decision import Decision
from ottla.storage.state_machine.entries import Stored

_FIRST_WITH_TOPIC_IDS: Final = 10
_FIRST_WITH_GROUP_ID_NOT_FOUND: Final = 9
_DEFAULT_RETENTION: Final = -1

Timers = Sequence[tuple[Hashable, int | None]]


def commit_offsets(
    state: GroupsState, request: OffsetCommitRequest, context: Context
) -> Decision[OffsetCommitResponse]:
    """Store offsets. An unknown partition fails alone; an unknown member fails the whole request."""
    topics = [(requested, _requested_topic(requested, context)) for requested in request.topics]
    timers: Timers = ()
    refusal: ApiError | None = None
    if any(topic is not None for _, topic in topics):
        try:
            timers = _check_commit(state, request, context)
        except ApiError as error:
            refusal = error
    expire_ms = NO_TIMESTAMP
    if request.retention_time_ms != _DEFAULT_RETENTION:
        expire_ms = context.now_ms + request.retention_time_ms
    max_metadata_length = context.settings("offset.metadata.max.bytes")
    records: list[Stored] = []
    answers = []
    for requested, topic in topics:
        partition_answers = []
        for partition in requested.partitions:
            code = _commit_error(topic, partition, context.version, refusal, max_metadata_length)
            if code == NONE and topic is not None:
                topic_id = requested.topic_id if context.version >= _FIRST_WITH_TOPIC_IDS else topic.id
                committed = _new_commit(partition, context.now_ms, expire_ms, topic_id)
                key = OffsetKey(topic.name, partition.partition_index)
                records.append(offset_record(request.group_id, key, committed))
            partition_answers.append(
                OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            )
        answers.append(
            OffsetCommitResponseTopic(name=requested.name, topic_id=requested.topic_id, partitions=partition_answers)
        )
    return Decision(records, OffsetCommitResponse(topics=answers), atomic=True, timers=timers)


def commit_in_transaction(
    state: GroupsState, request: TxnOffsetCommitRequest, context: Context
) -> Decision[TxnOffsetCommitResponse]:
    """Store offsets that take effect when the producer's transaction is committed."""
    group = state.groups.get(request.group_id)
    if group is None:
        if request.generation_id >= 0:
            raise IllegalGeneration(f"group {request.group_id} does not exist")
    else:
        try:
            group.check_commit(
                request.member_id,
                request.group_instance_id,
                request.generation_id,
                version=context.version,
                in_transaction=True,
            )
            if isinstance(group, ConsumerGroup | StreamsGroup) and request.member_id:
                partitions = (
                    CommittedPartition(requested.name, _topic_id(context, requested.name), partition.partition_index)
                    for requested in request.topics
                    for partition in requested.partitions
                )
                group.check_partitions(request.member_id, request.generation_id, partitions)
        except StaleMemberEpoch as error:
            raise IllegalGeneration(error.message) from error
    max_metadata_length = context.settings("offset.metadata.max.bytes")
    records: list[Stored] = []
    answers = []
    for requested in request.topics:
        topic = context.image.topic(requested.name)
        partition_answers = []
        for partition in requested.partitions:
            code = _commit_error(topic, partition, context.version, None, max_metadata_length)
            if code == NONE and topic is not None:
                # Kafka stores no topic id here, either: these requests have topic names only.
                committed = _new_commit(partition, context.now_ms, NO_TIMESTAMP, ZERO_UUID)
                key = OffsetKey(requested.name, partition.partition_index)
                records.append(
                    offset_record(request.group_id, key, committed, request.producer_id, request.producer_epoch)
                )
            partition_answers.append(
                TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            )
        answers.append(TxnOffsetCommitResponseTopic(name=requested.name, partitions=partition_answers))
    return Decision(records, TxnOffsetCommitResponse(topics=answers), atomic=True)


def fetch_offsets(
    state: GroupsState, request: OffsetFetchRequestGroup, context: Context, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    """Return the offsets of the requested partitions, or of all partitions that have one.

    A missing partition has no offset. Unknown topics come last, as in Kafka.
    """
    group = state.groups.get(request.group_id)
    if group is not None:
        try:
            group.check_fetch(request.member_id, request.member_epoch)
        except GroupIdNotFound:
            group = None
    offsets = state.offsets.get(request.group_id, NO_OFFSETS) if group is not None else NO_OFFSETS
    if request.topics is None:
        by_topic: dict[str, list[int]] = {}
        for key in offsets:
            by_topic.setdefault(key.topic, []).append(key.partition)
        requested_topics = [
            OffsetFetchRequestTopics(name=topic, topic_id=_topic_id(context, topic), partition_indexes=partitions)
            for topic, partitions in by_topic.items()
        ]
    else:
        requested_topics = request.topics
    topics, unknown_topics = [], []
    for requested in requested_topics:
        name = requested.name
        if context.version >= _FIRST_WITH_TOPIC_IDS:
            topic = context.image.topic_by_id(requested.topic_id)
            if topic is None:
                if request.topics is not None:
                    unknown_topics.append(_failed_topic(requested, UnknownTopicId.code))
                continue
            name = topic.name
        partitions = []
        for index in requested.partition_indexes:
            key = OffsetKey(name, index)
            committed = offsets.get(key)
            if require_stable and state.has_pending(request.group_id, key):
                partitions.append(_no_offset(index, UnstableOffsetCommit.code))
            elif committed is None or _is_of_old_topic(committed, requested, context.version):
                partitions.append(_no_offset(index))
            else:
                partitions.append(
                    OffsetFetchResponsePartitions(
                        partition_index=index,
                        committed_offset=committed.offset,
                        committed_leader_epoch=committed.leader_epoch,
                        metadata=committed.metadata,
                    )
                )
        topics.append(OffsetFetchResponseTopics(name=name, topic_id=requested.topic_id, partitions=partitions))
    return OffsetFetchResponseGroup(group_id=request.group_id, topics=topics + unknown_topics)


def delete_offsets(
    state: GroupsState, request: OffsetDeleteRequest, context: Context
) -> Decision[OffsetDeleteResponse]:
    """Delete offsets of topics that no member is subscribed to."""
    group = state.groups.get(request.group_id)
    if group is None:
        raise GroupIdNotFound(f"Group {request.group_id} not found.")
    group.check_offset_delete()
    offsets = state.offsets.get(request.group_id, NO_OFFSETS)
    records: list[Stored] = []
    topics = []
    for topic in request.topics:
        answers = []
        for partition in topic.partitions:
            key, code = OffsetKey(topic.name, partition.partition_index), NONE
            if context.image.partition(*key) is None:
                code = UnknownTopicOrPartition.code
            elif group.is_subscribed_to(topic.name):
                code = GroupSubscribedToTopic.code
            elif key in offsets or state.has_pending(request.group_id, key):
                records.append(offset_tombstone(request.group_id, key))
            answers.append(OffsetDeleteResponsePartition(partition_index=key.partition, error_code=code))
        if answers:
            topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=answers))
    return Decision(records, OffsetDeleteResponse(topics=topics))


def _check_commit(state: GroupsState, request: OffsetCommitRequest, context: Context) -> Timers:
    """Raise unless the member may commit. Return the timers to set: a commit extends the session like a heartbeat."""
    epoch = request.generation_id_or_member_epoch
    group = state.groups.get(request.group_id)
    if group is None:
        if epoch < 0:
            return ()
        if context.version >= _FIRST_WITH_GROUP_ID_NOT_FOUND:
            raise GroupIdNotFound(f"Group {request.group_id} not found.")
        raise IllegalGeneration(f"group {request.group_id} does not exist")
    group.check_commit(
        request.member_id, request.group_instance_id, epoch, version=context.version, in_transaction=False
    )
    if isinstance(group, ConsumerGroup | StreamsGroup):
        group.check_partitions(request.member_id, epoch, _partitions(request, context))
    if isinstance(group, ClassicGroup) and group.state in (
        ClassicGroupState.STABLE,
        ClassicGroupState.PREPARING_REBALANCE,
    ):
        member = group.members[request.member_id]
        return ((session_timer(group.id, member.id), context.now_ms + member.session_timeout_ms),)
    return ()


def _partitions(request: OffsetCommitRequest, context: Context) -> Iterator[CommittedPartition]:
    for requested in request.topics:
        topic = _requested_topic(requested, context)
        if topic is not None:
            for partition in requested.partitions:
                yield CommittedPartition(topic.name, topic.id, partition.partition_index)


def _requested_topic(topic: OffsetCommitRequestTopic, context: Context) -> Topic | None:
    if context.version >= _FIRST_WITH_TOPIC_IDS:
        return context.image.topic_by_id(topic.topic_id)
    return context.image.topic(topic.name)


def _commit_error(
    topic: Topic | None,
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    version: int,
    refusal: ApiError | None,
    max_metadata_length: int,
) -> int:
    if topic is None:
        is_by_id = isinstance(partition, OffsetCommitRequestPartition) and version >= _FIRST_WITH_TOPIC_IDS
        return UnknownTopicId.code if is_by_id else UnknownTopicOrPartition.code
    if topic.partition(partition.partition_index) is None:
        return UnknownTopicOrPartition.code
    if refusal is not None:
        return refusal.code
    metadata = partition.committed_metadata
    if metadata is not None and len(metadata) > max_metadata_length:
        return OffsetMetadataTooLarge.code
    return NONE


def _new_commit(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    now_ms: int,
    expire_ms: int,
    topic_id: bytes,
) -> CommittedOffset:
    return CommittedOffset(
        partition.committed_offset,
        partition.committed_leader_epoch,
        partition.committed_metadata or "",
        now_ms,
        expire_ms,
        topic_id,
    )


def _topic_id(context: Context, name: str) -> bytes:
    topic = context.image.topic(name)
    return ZERO_UUID if topic is None else topic.id


def _is_of_old_topic(committed: CommittedOffset, requested: OffsetFetchRequestTopics, version: int) -> bool:
    """Whether an offset was committed for a topic that was deleted and recreated since."""
    return version >= _FIRST_WITH_TOPIC_IDS and ZERO_UUID != committed.topic_id != requested.topic_id != ZERO_UUID


def _no_offset(index: int, code: int = NONE) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NO_OFFSET, committed_leader_epoch=NO_EPOCH, error_code=code
    )


def _failed_topic(requested: OffsetFetchRequestTopics, code: int) -> OffsetFetchResponseTopics:
    partitions = [_no_offset(index, code) for index in requested.partition_indexes]
    return OffsetFetchResponseTopics(topic_id=requested.topic_id, partitions=partitions)
