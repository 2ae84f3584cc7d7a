"""Topics are deleted, or get more partitions."""

from collections import Counter

from ottla.metadata.controller.assignments import NewPartitions, check_assignment, check_manual_isr
from ottla.metadata.controller.decision import MAX_RECORDS, Chance, Charge, Decision, decide_all
from ottla.metadata.controller.placement import Racks, usable_brokers
from ottla.metadata.controller.view import View
from ottla.metadata.image.values import Topic
from ottla.protocol.errors import (
    ApiError,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidRequest,
    PolicyViolation,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.protocol.messages.records.metadata_records import RemoveTopicRecord
from ottla.protocol.messages.rpc.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from ottla.protocol.messages.rpc.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.wire.types import ZERO_UUID


def delete_topics(
    view: View, request: DeleteTopicsRequest, *, charge: Charge | None = None
) -> Decision[DeleteTopicsResponse]:
    """Delete topics by name or id."""
    if view.options.setting("delete.topic.enable") is False:
        raise TopicDeletionDisabled
    asked = [DeleteTopicState(name=name) for name in request.topic_names] + list(request.topics)
    names = Counter(each.name for each in asked if each.name is not None)
    ids = Counter(each.topic_id for each in asked if each.name is None)
    deleted: dict[bytes, RemoveTopicRecord] = {}
    results = []
    for state in {(each.name, each.topic_id): each for each in asked}.values():
        result = DeletableTopicResult(name=state.name, topic_id=state.topic_id)
        try:
            if names[state.name] > 1 if state.name is not None else ids[state.topic_id] > 1:
                raise InvalidRequest("Duplicate topic name." if state.name is not None else "Duplicate topic id.")
            topic = _find(view, state)
            if topic.id in deleted or (state.name is not None and topic.id in ids):
                raise InvalidRequest("The provided topic name maps to an ID that was already supplied.")
            if charge is not None:
                charge(len(topic.partitions))
        except ApiError as error:  # one bad topic spoils only its own answer
            result.error_code, result.error_message = error.code, error.message
        else:
            deleted[topic.id] = RemoveTopicRecord(topic_id=topic.id)
            result.name, result.topic_id = topic.name, topic.id
        results.append(result)
    return decide_all([*deleted.values()], DeleteTopicsResponse(responses=results))


def _find(view: View, state: DeleteTopicState) -> Topic:
    if state.name is None:
        if state.topic_id == ZERO_UUID:
            raise InvalidRequest("Neither topic name nor id were specified.")
        topic = view.image.topic_by_id(state.topic_id)
        if topic is None:
            raise UnknownTopicId
        return topic
    if state.topic_id != ZERO_UUID:
        raise InvalidRequest("You may not specify both topic name and topic id.")
    topic = view.image.topic(state.name)
    if topic is None:
        raise UnknownTopicOrPartition
    return topic


def create_partitions(
    view: View, request: CreatePartitionsRequest, *, chance: Chance, charge: Charge | None = None
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
            records += _more_partitions(view, topic, chance, charge)
        except ApiError as error:  # one bad topic spoils only its own answer
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
    decision = decide_all(records, CreatePartitionsResponse(results=results))
    return decision.without_records() if request.validate_only else decision


def _more_partitions(view: View, asked: CreatePartitionsTopic, chance: Chance, charge: Charge | None) -> list[object]:
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
            check_assignment(view, replicas, factor)
            check_manual_isr(view, replicas, number)
    else:
        placed = Racks(usable_brokers(view)).place(additional, factor, chance)
    made = NewPartitions(view)
    return [made.record(topic.id, number, replicas) for number, replicas in enumerate(placed, known)]
