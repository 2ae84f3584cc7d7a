"""OffsetCommit, TxnOffsetCommit, OffsetFetch and OffsetDelete, decided on the state of one partition.

Whether a member may commit is for its group to say. A group that is not there comes into being with its first commit,
unless that names a generation: then it comes from a member of a group that is gone.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Final

from ottla.coordinators.groups.classic.group import ClassicGroup, State
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.offset_records import offset_record, offset_tombstone
from ottla.coordinators.groups.state import (
    NO_EPOCH,
    NO_OFFSET,
    NO_OFFSETS,
    NO_TIMESTAMP,
    Committed,
    CommittedPartition,
    GroupsState,
    OffsetKey,
)
from ottla.coordinators.groups.streams.group import StreamsGroup
from ottla.coordinators.groups.timers import session_of
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

_FIRST_BY_ID: Final = 10
_FIRST_TO_TELL_OF_MISSING_GROUPS: Final = 9
_DEFAULT_RETENTION: Final = -1

Timers = Sequence[tuple[Hashable, int | None]]


def commit_offsets(
    state: GroupsState, request: OffsetCommitRequest, context: Context
) -> Decision[OffsetCommitResponse]:
    """Store offsets. Partitions that do not exist are refused one by one, an unknown member as a whole."""
    topics = [(topic, _committed_topic(topic, context)) for topic in request.topics]
    timers: Timers = ()
    refusal: ApiError | None = None
    if any(found is not None for _, found in topics):
        try:
            timers = _check_commit(state, request, context)
        except ApiError as error:
            refusal = error
    expire_ms = NO_TIMESTAMP
    if request.retention_time_ms != _DEFAULT_RETENTION:
        expire_ms = context.now_ms + request.retention_time_ms
    longest = context.settings("offset.metadata.max.bytes")
    records: list[Stored] = []
    answers = []
    for asked, topic in topics:
        answered = []
        for partition in asked.partitions:
            code = _code_of(topic, partition, context.version, refusal, longest)
            if code == NONE and topic is not None:
                topic_id = asked.topic_id if context.version >= _FIRST_BY_ID else topic.id
                committed = _new_commit(partition, context.now_ms, expire_ms, topic_id)
                key = OffsetKey(topic.name, partition.partition_index)
                records.append(offset_record(request.group_id, key, committed))
            answered.append(OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code))
        answers.append(OffsetCommitResponseTopic(name=asked.name, topic_id=asked.topic_id, partitions=answered))
    return Decision(records, OffsetCommitResponse(topics=answers), atomic=True, timers=timers)


def commit_in_transaction(
    state: GroupsState, request: TxnOffsetCommitRequest, context: Context
) -> Decision[TxnOffsetCommitResponse]:
    """Store offsets that count when the producer's transaction is committed."""
    group = state.groups.get(request.group_id)
    if group is None:
        if request.generation_id >= 0:
            raise IllegalGeneration(f"there is no group {request.group_id}")
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
                named = (
                    CommittedPartition(asked.name, _topic_id(context, asked.name), partition.partition_index)
                    for asked in request.topics
                    for partition in asked.partitions
                )
                group.check_partitions(request.member_id, request.generation_id, named)
        except StaleMemberEpoch as error:
            raise IllegalGeneration(error.message) from error
    longest = context.settings("offset.metadata.max.bytes")
    records: list[Stored] = []
    answers = []
    for asked in request.topics:
        topic = context.image.topic(asked.name)
        answered = []
        for partition in asked.partitions:
            code = _code_of(topic, partition, context.version, None, longest)
            if code == NONE and topic is not None:
                # Kafka does not keep the topic's id here, either: such requests have names alone.
                committed = _new_commit(partition, context.now_ms, NO_TIMESTAMP, ZERO_UUID)
                key = OffsetKey(asked.name, partition.partition_index)
                records.append(
                    offset_record(request.group_id, key, committed, request.producer_id, request.producer_epoch)
                )
            answered.append(
                TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
            )
        answers.append(TxnOffsetCommitResponseTopic(name=asked.name, partitions=answered))
    return Decision(records, TxnOffsetCommitResponse(topics=answers), atomic=True)


def fetch_offsets(
    state: GroupsState, asked: OffsetFetchRequestGroup, context: Context, *, require_stable: bool
) -> OffsetFetchResponseGroup:
    """The offsets of some partitions, or of all that have one. What does not exist has no offset; topics that nobody
    knows come last, as Kafka has them."""
    group = state.groups.get(asked.group_id)
    if group is not None:
        try:
            group.check_fetch(asked.member_id, asked.member_epoch)
        except GroupIdNotFound:
            group = None
    offsets = state.offsets.get(asked.group_id, NO_OFFSETS) if group is not None else NO_OFFSETS
    if asked.topics is None:
        by_topic: dict[str, list[int]] = {}
        for key in offsets:
            by_topic.setdefault(key.topic, []).append(key.partition)
        wanted = [
            OffsetFetchRequestTopics(name=topic, topic_id=_topic_id(context, topic), partition_indexes=partitions)
            for topic, partitions in by_topic.items()
        ]
    else:
        wanted = asked.topics
    topics, strange = [], []
    for each in wanted:
        name = each.name
        if context.version >= _FIRST_BY_ID:
            topic = context.image.topic_by_id(each.topic_id)
            if topic is None:
                if asked.topics is not None:
                    strange.append(_refused_topic(each, UnknownTopicId.code))
                continue  # of a topic that is gone nobody can ask by its id
            name = topic.name
        partitions = []
        for index in each.partition_indexes:
            key = OffsetKey(name, index)
            committed = offsets.get(key)
            if require_stable and state.has_pending(asked.group_id, key):
                partitions.append(_no_offset(index, UnstableOffsetCommit.code))
            elif committed is None or _is_of_another(committed, each, context.version):
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
        topics.append(OffsetFetchResponseTopics(name=name, topic_id=each.topic_id, partitions=partitions))
    return OffsetFetchResponseGroup(group_id=asked.group_id, topics=topics + strange)


def delete_offsets(
    state: GroupsState, request: OffsetDeleteRequest, context: Context
) -> Decision[OffsetDeleteResponse]:
    """Delete offsets of topics that no member reads."""
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
    """Raise unless the member may commit; a commit keeps its session alive as a heartbeat does."""
    epoch = request.generation_id_or_member_epoch
    group = state.groups.get(request.group_id)
    if group is None:
        if epoch < 0:
            return ()
        if context.version >= _FIRST_TO_TELL_OF_MISSING_GROUPS:
            raise GroupIdNotFound(f"Group {request.group_id} not found.")
        raise IllegalGeneration(f"there is no group {request.group_id}")
    group.check_commit(
        request.member_id, request.group_instance_id, epoch, version=context.version, in_transaction=False
    )
    if isinstance(group, ConsumerGroup | StreamsGroup):
        group.check_partitions(request.member_id, epoch, _partitions(request, context))
    if isinstance(group, ClassicGroup) and group.state in (State.STABLE, State.PREPARING):
        member = group.members[request.member_id]
        return ((session_of(group.id, member.id), context.now_ms + member.session_timeout_ms),)
    return ()


def _partitions(request: OffsetCommitRequest, context: Context) -> Iterator[CommittedPartition]:
    for asked in request.topics:
        topic = _committed_topic(asked, context)
        if topic is not None:
            for partition in asked.partitions:
                yield CommittedPartition(topic.name, topic.id, partition.partition_index)


def _committed_topic(topic: OffsetCommitRequestTopic, context: Context) -> Topic | None:
    if context.version >= _FIRST_BY_ID:
        return context.image.topic_by_id(topic.topic_id)
    return context.image.topic(topic.name)


def _code_of(
    topic: Topic | None,
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    version: int,
    refusal: ApiError | None,
    longest: int,
) -> int:
    if topic is None:
        is_by_id = isinstance(partition, OffsetCommitRequestPartition) and version >= _FIRST_BY_ID
        return UnknownTopicId.code if is_by_id else UnknownTopicOrPartition.code
    if topic.partition(partition.partition_index) is None:
        return UnknownTopicOrPartition.code
    if refusal is not None:
        return refusal.code
    metadata = partition.committed_metadata
    if metadata is not None and len(metadata) > longest:
        return OffsetMetadataTooLarge.code
    return NONE


def _new_commit(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    now_ms: int,
    expire_ms: int,
    topic_id: bytes,
) -> Committed:
    return Committed(
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


def _is_of_another(committed: Committed, asked: OffsetFetchRequestTopics, version: int) -> bool:
    """Whether an offset is of a topic that was deleted and made again."""
    return version >= _FIRST_BY_ID and ZERO_UUID != committed.topic_id != asked.topic_id != ZERO_UUID


def _no_offset(index: int, code: int = NONE) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition_index=index, committed_offset=NO_OFFSET, committed_leader_epoch=NO_EPOCH, error_code=code
    )


def _refused_topic(asked: OffsetFetchRequestTopics, code: int) -> OffsetFetchResponseTopics:
    partitions = [_no_offset(index, code) for index in asked.partition_indexes]
    return OffsetFetchResponseTopics(topic_id=asked.topic_id, partitions=partitions)
