"""Partitions move to other brokers.

A move adds the new replicas to the old ones and marks who comes and who goes; it is done when all who come are in sync
(see `partition_change.py`). Until then it can be cancelled, or replaced by another.
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
    """Begin, replace or, with no replicas named, cancel moves of partitions."""
    records: list[object] = []
    responses = []
    seen: set[tuple[str, int]] = set()
    for asked in request.topics:
        answers = []
        for target in asked.partitions:
            answer = ReassignablePartitionResponse(partition_index=target.partition_index, error_message=None)
            try:
                reject_duplicate(seen, asked.name, target.partition_index)
                placed = _find(view, asked.name, target.partition_index)
                if target.replicas is None:
                    record = _cancel(view, placed)
                else:
                    if not request.allow_replication_factor_change:
                        _check_factor_unchanged(placed.partition, target.replicas)
                    record = _move(view, placed, target.replicas)
            except ApiError as error:  # one bad partition spoils only its own answer
                answer.error_code, answer.error_message = error.code, error.message
            else:
                records += [] if record is None else [record]
            answers.append(answer)
        responses.append(ReassignableTopicResponse(name=asked.name, partitions=answers))
    reply = AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_message=None,
        responses=responses,
    )
    return decide_atomically(records, reply)


def list_partition_reassignments(
    view: ControllerView, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """The moves under way, all or of some partitions; what does not move is not mentioned."""
    moving = view.image.placement.reassigning
    asked: Iterable[tuple[Topic, Iterable[int]]]
    if request.topics is None:
        asked = [(view.image.topics_by_id[each], partition_numbers(moving[each])) for each in sorted(moving)]
    else:
        found = ((view.image.topic(each.name), each.partition_indexes) for each in request.topics)
        asked = [(topic, numbers) for topic, numbers in found if topic is not None]
    topics = []
    for topic, numbers in asked:
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


def _move(view: ControllerView, placed: TopicPartition, wanted: list[int]) -> PartitionChangeRecord | None:
    validate_manual_assignment(view, wanted)
    partition = placed.partition
    removing = sorted({*partition.replicas} - {*wanted})
    # Who is still on the way from a move that this one replaces is on the way in this one too.
    adding = sorted({*wanted} - {*partition.replicas} | {*partition.adding} & {*wanted})
    target = Target(replicas=[*wanted, *removing], removing=removing, adding=adding)
    return build_partition_change(view, placed, target)


def _cancel(view: ControllerView, placed: TopicPartition) -> PartitionChangeRecord | None:
    """Back to the replicas of before. If none of these is in sync any more, that is an unclean election."""
    partition, topic = placed.partition, placed.topic
    if not partition.is_reassigning:
        raise NoReassignmentInProgress
    unclean = view.allows_unclean_election(topic)
    replicas = [each for each in partition.replicas if each not in partition.adding]
    if not replicas:
        raise InvalidReplicaAssignment("Invalid replica assignment: addingReplicas contains all replicas.")
    isr = [each for each in partition.isr if each not in partition.adding]
    if not isr:
        if not unclean:
            raise InvalidReplicaAssignment(
                f"Unable to revert partition assignment for {topic.name}:{placed.number} because it would require an"
                " unclean leader election."
            )
        isr = replicas[:1]
    target = Target(isr=isr, replicas=replicas, removing=(), adding=())
    return build_partition_change(view, placed, target, election=Election.UNCLEAN if unclean else Election.ONLINE)


def _check_factor_unchanged(partition: Partition, wanted: list[int]) -> None:
    heading_for = {*partition.replicas, *partition.adding} - {*partition.removing}
    if len(heading_for) != len(wanted):
        raise InvalidReplicationFactor(f"The replication factor is changed from {len(heading_for)} to {len(wanted)}")
