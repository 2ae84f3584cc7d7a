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
    """Give topics more partitions, with the replication factor that their first one has."""
    times = Counter(topic.name for topic in request.topics)
    records: list[object] = []
    results = []
    for topic in {each.name: each for each in request.topics}.values():
        result = CreatePartitionsTopicResult(name=topic.name)
        try:
            if times[topic.name] > 1:
                raise InvalidRequest("Duplicate topic name.")
            records += _more_partitions(view, topic, random, charge)
        except ApiError as error:  # one bad topic spoils only its own answer
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    decision = decide_atomically(records, CreatePartitionsResponse(results=results))
    return decision.without_records() if request.validate_only else decision


def _more_partitions(
    view: ControllerView, asked: CreatePartitionsTopic, random: Randomness, charge: Charge | None
) -> list[object]:
    topic = view.image.topic(asked.name)
    if topic is None:
        raise UnknownTopicOrPartition
    known = len(topic.partitions)
    if asked.count == known:
        raise InvalidPartitions(f"Topic already has {known} partition(s).")
    if asked.count < known:
        raise InvalidPartitions(
            f"The topic {topic.name} currently has {known} partition(s); {asked.count} would not be an increase."
        )
    additional = asked.count - known
    if additional > MAX_RECORDS:
        raise PolicyViolation("Unable to perform excessively large batch operation.")
    if asked.assignments is not None and len(asked.assignments) != additional:
        raise InvalidReplicaAssignment(
            f"Attempted to add {additional} additional partition(s), but only {len(asked.assignments)}"
            " assignment(s) were specified."
        )
    if charge is not None:
        charge(additional)
    factor = len(topic.partitions[0].replicas)
    if asked.assignments is not None:
        placed = [tuple(each.broker_ids) for each in asked.assignments]
        for number, replicas in enumerate(placed, known):
            validate_manual_assignment(view, replicas, factor)
            validate_manual_isr(view, replicas, number)
    else:
        placed = ReplicaPlacer(usable_brokers(view)).place(additional, factor, random)
    new_partitions = PartitionRecords(view)
    return [new_partitions.build(topic.id, number, replicas) for number, replicas in enumerate(placed, known)]
