"""AlterPartition: leaders change the ISR of their partitions."""

from ottla.metadata.controller.decision import Decision, reject_duplicate
from ottla.metadata.controller.partition_change_builder import Election, Target, build_partition_change
from ottla.metadata.controller.registration import check_broker_epoch
from ottla.metadata.controller.view import ControllerView
from ottla.metadata.image.image import TopicPartition
from ottla.metadata.image.partition_records import LEADER_UNCHANGED, changed_partition
from ottla.metadata.image.values import LeaderRecovery, Partition, Topic
from ottla.protocol.errors import (
    ApiError,
    FencedLeaderEpoch,
    IneligibleReplica,
    InvalidRequest,
    InvalidUpdateVersion,
    NewLeaderElected,
    NotController,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.protocol.messages.records.metadata_records import PartitionChangeRecord
from ottla.protocol.messages.rpc.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)

_RECOVERIES = frozenset(LeaderRecovery)


def alter_partition(view: ControllerView, request: AlterPartitionRequest) -> Decision[AlterPartitionResponse]:
    """Apply each ISR change, or answer it with its own error.

    A change that completes a reassignment may end the leadership of the requesting broker. It is then applied, and
    answered with NEW_LEADER_ELECTED.
    """
    check_broker_epoch(view, request.broker_id, request.broker_epoch)
    records: list[object] = []
    topics = []
    seen: set[tuple[bytes, int]] = set()
    for topic_data in request.topics:
        topic = view.image.topic_by_id(topic_data.topic_id)
        answers = []
        for data in topic_data.partitions:
            try:
                if topic is None:
                    raise UnknownTopicId
                reject_duplicate(seen, topic.id, data.partition_index)
                record, answer = _alter(view, request.broker_id, topic, data)
            except ApiError as error:  # an invalid partition fails alone
                answer = ResponsePartitionData(partition_index=data.partition_index, error_code=error.code)
                record = None
            if record is not None:
                records.append(record)
            answers.append(answer)
        topics.append(ResponseTopicData(topic_id=topic_data.topic_id, partitions=answers))
    return Decision(tuple(records), AlterPartitionResponse(topics=topics))


def _alter(
    view: ControllerView, broker_id: int, topic: Topic, data: PartitionData
) -> tuple[PartitionChangeRecord | None, ResponsePartitionData]:
    number = data.partition_index
    partition = topic.partition(number)
    if partition is None:
        raise UnknownTopicOrPartition
    # Up to version 2 the ISR has no broker epochs.
    isr = data.new_isr_with_epochs or [BrokerState(broker_id=broker_id) for broker_id in data.new_isr]
    _check_epochs(broker_id, partition, data)
    _check_isr(partition, [member.broker_id for member in isr], data.leader_recovery_state)
    for member in isr:
        _check_eligible(view, member)
    election = Election.UNCLEAN if view.allows_unclean_election(topic) else Election.ONLINE
    target = Target(isr=[member.broker_id for member in isr], recovery=data.leader_recovery_state)
    record = build_partition_change(view, TopicPartition(topic, number, partition), target, election=election)
    if record is not None:
        partition = changed_partition(partition, record)
        if record.leader not in (broker_id, LEADER_UNCHANGED):
            return record, ResponsePartitionData(partition_index=number, error_code=NewLeaderElected.code)
    return record, ResponsePartitionData(
        partition_index=number,
        leader_id=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=list(partition.isr),
        leader_recovery_state=partition.leader_recovery,
        partition_epoch=partition.partition_epoch,
    )


def _check_epochs(broker_id: int, partition: Partition, data: PartitionData) -> None:
    # A leader with higher epochs has its state from a newer controller.
    if data.leader_epoch > partition.leader_epoch or data.partition_epoch > partition.partition_epoch:
        raise NotController
    if data.leader_epoch < partition.leader_epoch:
        raise FencedLeaderEpoch
    if broker_id != partition.leader:
        raise InvalidRequest
    if data.partition_epoch < partition.partition_epoch:
        raise InvalidUpdateVersion


def _check_isr(partition: Partition, isr: list[int], recovery: int) -> None:
    if not isr or len({*isr}) != len(isr) or not {*isr} <= {*partition.replicas}:
        raise InvalidRequest
    if partition.leader not in isr or recovery not in _RECOVERIES:
        raise InvalidRequest
    recovering = recovery == LeaderRecovery.RECOVERING
    if recovering and (len(isr) > 1 or partition.leader_recovery == LeaderRecovery.RECOVERED):
        raise InvalidRequest


def _check_eligible(view: ControllerView, member: BrokerState) -> None:
    """Raise unless the broker is unfenced, and still has the epoch in which it caught up (KIP-841, KIP-903)."""
    broker = view.image.brokers.get(member.broker_id)
    if broker is None or broker.in_controlled_shutdown or broker.fenced:
        raise IneligibleReplica
    if member.broker_epoch not in (-1, broker.epoch):
        raise IneligibleReplica
