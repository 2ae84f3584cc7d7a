"""CreatePartitions: add partitions to topics."""

from collections import Counter

from ottla.metadata.controller.decision import MAX_RECORDS, Charge, Decision, Randomness, decide_atomically
from ottla.metadata.controller.partition_assignments import (
    PartitionRecords,
    validate_manual_assignment,
    validate_manual_isr,
)
from ottla.metadata.controller.replica_placer import ReplicaPlacer, usable_brokers
from ottla.metadata.controller.view import ControllerView
from ottla.protocol.errors import (
    ApiError,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    PolicyViolation,
    UnknownTopicOrPartition,
)
from ottla.protocol.messages.rpc.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def create_partitions(
    view: ControllerView, request: CreatePartitionsRequest, *, random: Randomness, charge: Charge | None = None
) -> Decision[CreatePartitionsResponse]:
    """Add partitions to topics, with the replication factor of their first partition."""
    times = Counter(topic.name for topic in request.topics)
    records: list[object] = []
    results = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        result = CreatePartitionsTopicResult(name=topic.name)
        try:
            if times[topic.name] > 1:
                raise InvalidRequest("Duplicate topic name.")
            records += _add_partitions(view, topic, random, charge)
        except ApiError as error:  # an invalid topic fails alone
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    decision = decide_atomically(records, CreatePartitionsResponse(results=results))
    return decision.without_records() if request.validate_only else decision


def _add_partitions(
    view: ControllerView, request: CreatePartitionsTopic, random: Randomness, charge: Charge | None
) -> list[object]:
    topic = view.image.topic(request.name)
    if topic is None:
        raise UnknownTopicOrPartition
    current = len(topic.partitions)
    if request.count == current:
        raise InvalidPartitions(f"Topic already has {current} partition(s).")
    if request.count < current:
        raise InvalidPartitions(
            f"The topic {topic.name} currently has {current} partition(s); {request.count} would not be an increase."
        )
    additional = request.count - current
    if additional > MAX_RECORDS:
        raise PolicyViolation("Unable to perform excessively large batch operation.")
    if request.assignments is not None and len(request.assignments) != additional:
        raise InvalidReplicaAssignment(
            f"Attempted to add {additional} additional partition(s), but only {len(request.assignments)}"
            " assignment(s) were specified."
        )
    if charge is not None:
        charge(additional)
    factor = len(topic.partitions[0].replicas)
    if request.assignments is not None:
        assignments = [tuple(assignment.broker_ids) for assignment in request.assignments]
        for number, replicas in enumerate(assignments, current):
            validate_manual_assignment(view, replicas, factor)
            validate_manual_isr(view, replicas, number)
    else:
        assignments = ReplicaPlacer(usable_brokers(view)).place(additional, factor, random)
    new_partitions = PartitionRecords(view)
    return [new_partitions.build(topic.id, number, replicas) for number, replicas in enumerate(assignments, current)]
