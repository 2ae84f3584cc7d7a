"""Brokers say in which of their directories replicas are (KIP-858)."""

from collections.abc import Iterator

from ottla.metadata.controller.broker_transitions import remove_from_isr
from ottla.metadata.controller.decision import Decision, apply_records, reject_duplicate
from ottla.metadata.controller.partition_change_builder import Target, build_partition_change
from ottla.metadata.controller.registration import check_broker_epoch
from ottla.metadata.controller.view import ControllerView, has_online_directory
from ottla.metadata.image.image import TopicPartition
from ottla.protocol.errors import ApiError, NotLeader, UnknownTopicId, UnknownTopicOrPartition, UnsupportedVersion
from ottla.protocol.messages.rpc.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    DirectoryData,
    ResponseDirectoryData,
    ResponsePartitionData,
    ResponseTopicData,
)


def assign_replicas_to_dirs(
    view: ControllerView, request: AssignReplicasToDirsRequest
) -> Decision[AssignReplicasToDirsResponse]:
    """Note where replicas are. One in a directory that is not online leaves the ISR."""
    if not view.assigns_directories:
        raise UnsupportedVersion("Directory assignment is not supported yet.")
    broker = check_broker_epoch(view, request.broker_id, request.broker_epoch)
    records: list[object] = []
    offline: list[TopicPartition] = []
    directories = []
    seen: set[tuple[bytes, int]] = set()
    for asked in request.directories:
        answered: dict[bytes, list[ResponsePartitionData]] = {}
        for topic_id, number in _replicas(asked):
            answer = ResponsePartitionData(partition_index=number)
            try:
                reject_duplicate(seen, topic_id, number)
                placed = _find(view, broker.id, topic_id, number)
            except ApiError as error:  # one bad partition spoils only its own answer
                answer.error_code = error.code
            else:
                record = build_partition_change(view, placed, Target(directories={broker.id: asked.id}))
                records += [] if record is None else [record]
                if not has_online_directory(broker, asked.id):
                    offline.append(placed)
            answered.setdefault(topic_id, []).append(answer)
        topics = [ResponseTopicData(topic_id=each, partitions=answers) for each, answers in answered.items()]
        directories.append(ResponseDirectoryData(id=asked.id, topics=topics))
    # Upon the image with the new directories, as the same partitions change again.
    after = apply_records(view.image, records)
    held = [_find(view.on(after), broker.id, each.topic.id, each.number) for each in offline]
    records += remove_from_isr(view.on(after), broker.id, held)
    return Decision(tuple(records), AssignReplicasToDirsResponse(directories=directories))


def _replicas(asked: DirectoryData) -> Iterator[tuple[bytes, int]]:
    return ((topic.topic_id, each.partition_index) for topic in asked.topics for each in topic.partitions)


def _find(view: ControllerView, broker_id: int, topic_id: bytes, number: int) -> TopicPartition:
    topic = view.image.topic_by_id(topic_id)
    if topic is None:
        raise UnknownTopicId
    partition = topic.partition(number)
    if partition is None:
        raise UnknownTopicOrPartition
    if broker_id not in partition.replicas:
        raise NotLeader
    return TopicPartition(topic, number, partition)
