"""AssignReplicasToDirs: brokers report the log directories of their replicas (KIP-858)."""

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
    """Record the directories of replicas. A replica in an offline directory leaves the ISR."""
    if not view.assigns_directories:
        raise UnsupportedVersion("Directory assignment is not supported yet.")
    broker = check_broker_epoch(view, request.broker_id, request.broker_epoch)
    records: list[object] = []
    offline: list[TopicPartition] = []
    directories = []
    seen: set[tuple[bytes, int]] = set()
    for directory in request.directories:
        answers_by_topic: dict[bytes, list[ResponsePartitionData]] = {}
        for topic_id, number in _replicas(directory):
            answer = ResponsePartitionData(partition_index=number)
            try:
                reject_duplicate(seen, topic_id, number)
                topic_partition = _find(view, broker.id, topic_id, number)
            except ApiError as error:  # an invalid partition fails alone
                answer.error_code = error.code
            else:
                record = build_partition_change(view, topic_partition, Target(directories={broker.id: directory.id}))
                records += [] if record is None else [record]
                if not has_online_directory(broker, directory.id):
                    offline.append(topic_partition)
            answers_by_topic.setdefault(topic_id, []).append(answer)
        topics = [
            ResponseTopicData(topic_id=topic_id, partitions=answers) for topic_id, answers in answers_by_topic.items()
        ]
        directories.append(ResponseDirectoryData(id=directory.id, topics=topics))
    # On the image with the new directories, because the same partitions change again.
    after = apply_records(view.image, records)
    held = [_find(view.with_image(after), broker.id, partition.topic.id, partition.number) for partition in offline]
    records += remove_from_isr(view.with_image(after), broker.id, held)
    return Decision(tuple(records), AssignReplicasToDirsResponse(directories=directories))


def _replicas(directory: DirectoryData) -> Iterator[tuple[bytes, int]]:
    return ((topic.topic_id, partition.partition_index) for topic in directory.topics for partition in topic.partitions)


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
