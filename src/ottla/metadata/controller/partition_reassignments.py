"""AlterPartitionReassignments and ListPartitionReassignments.

A reassignment adds the new replicas to the old ones, and marks which are adding and which are removing. It completes
when all adding replicas are in sync (see `partition_change_builder.py`). Until then it can be cancelled or replaced.
"""

from collections.abc import Iterable

from ottla.metadata.controller.decision import Decision, decide_atomically, reject_duplicate
from ottla.metadata.controller.partition_assignments import validate_manual_assignment
from ottla.metadata.controller.partition_change_builder import Election, Target, build_partition_change
from ottla.metadata.controller.view import ControllerView
from ottla.metadata.image.image import TopicPartition
from ottla.metadata.image.placement import partition_numbers
from ottla.metadata.image.values import Partition, Topic
from ottla.protocol.errors import (
    ApiError,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignmentInProgress,
    UnknownTopicOrPartition,
)
from ottla.protocol.messages.records.metadata_records import PartitionChangeRecord
from ottla.protocol.messages.rpc.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from ottla.protocol.messages.rpc.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def alter_partition_reassignments(
    view: ControllerView, request: AlterPartitionReassignmentsRequest
) -> Decision[AlterPartitionReassignmentsResponse]:
    """Start, replace or, if the request names no replicas, cancel reassignments."""
    records: list[object] = []
    responses = []
    seen: set[tuple[str, int]] = set()
    for topic in request.topics:
        answers = []
        for target in topic.partitions:
            answer = ReassignablePartitionResponse(partition_index=target.partition_index, error_message=None)
            try:
                reject_duplicate(seen, topic.name, target.partition_index)
                topic_partition = _find(view, topic.name, target.partition_index)
                if target.replicas is None:
                    record = _cancel(view, topic_partition)
                else:
                    if not request.allow_replication_factor_change:
                        _check_factor_unchanged(topic_partition.partition, target.replicas)
                    record = _reassign(view, topic_partition, target.replicas)
            except ApiError as error:  # an invalid partition fails alone
                answer.error_code, answer.error_message = error.code, error.message
            else:
                records += [] if record is None else [record]
            answers.append(answer)
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=answers))
    reply = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=responses,
    )
    return decide_atomically(records, reply)


def list_partition_reassignments(
    view: ControllerView, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """List the ongoing reassignments, of all or of the named partitions."""
    reassigning = view.image.placement.reassigning
    requested: Iterable[tuple[Topic, Iterable[int]]]
    if request.topics is None:
        requested = [
            (view.image.topics_by_id[topic_id], partition_numbers(reassigning[topic_id]))
            for topic_id in sorted(reassigning)
        ]
    else:
        named = ((view.image.topic(topic.name), topic.partition_indexes) for topic in request.topics)
        requested = [(topic, numbers) for topic, numbers in named if topic is not None]
    topics = []
    for topic, numbers in requested:
        ongoing = [
            OngoingPartitionReassignment(
                partition_index=number,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding),
                removing_replicas=list(partition.removing),
            )
            for number in numbers
            if (partition := topic.partition(number)) is not None and partition.is_reassigning
        ]
        if ongoing:
            topics.append(OngoingTopicReassignment(name=topic.name, partitions=ongoing))
    return ListPartitionReassignmentsResponse(error_message=None, topics=topics)


def _find(view: ControllerView, name: str, number: int) -> TopicPartition:
    topic = view.image.topic(name)
    if topic is None:
        raise UnknownTopicOrPartition(f"Unable to find a topic named {name}.")
    partition = topic.partition(number)
    if partition is None:
        raise UnknownTopicOrPartition(f"Unable to find partition {name}:{number}.")
    return TopicPartition(topic, number, partition)


def _reassign(
    view: ControllerView, topic_partition: TopicPartition, new_replicas: list[int]
) -> PartitionChangeRecord | None:
    validate_manual_assignment(view, new_replicas)
    partition = topic_partition.partition
    removing = sorted({*partition.replicas} - {*new_replicas})
    # Replicas that a replaced reassignment is still adding stay adding.
    adding = sorted({*new_replicas} - {*partition.replicas} | {*partition.adding} & {*new_replicas})
    target = Target(replicas=[*new_replicas, *removing], removing=removing, adding=adding)
    return build_partition_change(view, topic_partition, target)


def _cancel(view: ControllerView, topic_partition: TopicPartition) -> PartitionChangeRecord | None:
    """Restore the original replicas. If none of them is in sync, this is an unclean election."""
    partition, topic = topic_partition.partition, topic_partition.topic
    if not partition.is_reassigning:
        raise NoReassignmentInProgress
    unclean = view.allows_unclean_election(topic)
    replicas = [replica for replica in partition.replicas if replica not in partition.adding]
    if not replicas:
        raise InvalidReplicaAssignment("Invalid replica assignment: addingReplicas contains all replicas.")
    isr = [replica for replica in partition.isr if replica not in partition.adding]
    if not isr:
        if not unclean:
            raise InvalidReplicaAssignment(
                f"Unable to revert partition assignment for {topic.name}:{topic_partition.number} because it would"
                " require an unclean leader election."
            )
        isr = replicas[:1]
    target = Target(isr=isr, replicas=replicas, removing=(), adding=())
    return build_partition_change(
        view, topic_partition, target, election=Election.UNCLEAN if unclean else Election.ONLINE
    )


def _check_factor_unchanged(partition: Partition, new_replicas: list[int]) -> None:
    target_replicas = {*partition.replicas, *partition.adding} - {*partition.removing}
    if len(target_replicas) != len(new_replicas):
        raise InvalidReplicationFactor(
            f"The replication factor is changed from {len(target_replicas)} to {len(new_replicas)}"
        )
