"""DeleteTopics: delete topics by name or id."""

from collections import Counter

from ottla.metadata.controller.decision import Charge, Decision, decide_atomically
from ottla.metadata.controller.view import ControllerView
from ottla.metadata.image.values import Topic
from ottla.protocol.errors import (
    ApiError,
    InvalidRequest,
    TopicDeletionDisabled,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from ottla.protocol.messages.records.metadata_records import RemoveTopicRecord
from ottla.protocol.messages.rpc.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.protocol.wire.types import ZERO_UUID


def delete_topics(
    view: ControllerView, request: DeleteTopicsRequest, *, charge: Charge | None = None
) -> Decision[DeleteTopicsResponse]:
    """Delete topics by name or id."""
    if view.options.setting("delete.topic.enable") is False:
        raise TopicDeletionDisabled
    states = [DeleteTopicState(name=name) for name in request.topic_names] + list(request.topics)
    names = Counter(state.name for state in states if state.name is not None)
    ids = Counter(state.topic_id for state in states if state.name is None)
    deleted: dict[bytes, RemoveTopicRecord] = {}
    results = []
    for state in {(state.name, state.topic_id): state for state in states}.values():
        result = DeletableTopicResult(name=state.name, topic_id=state.topic_id)
        try:
            if names[state.name] > 1 if state.name is not None else ids[state.topic_id] > 1:
                raise InvalidRequest("Duplicate topic name." if state.name is not None else "Duplicate topic id.")
            topic = _find(view, state)
            if topic.id in deleted or (state.name is not None and topic.id in ids):
                raise InvalidRequest("The provided topic name maps to an ID that was already supplied.")
            if charge is not None:
                charge(len(topic.partitions))
        except ApiError as error:  # an invalid topic fails alone
            result.error_code, result.error_message = error.code, error.message
        else:
            deleted[topic.id] = RemoveTopicRecord(topic_id=topic.id)
            result.name, result.topic_id = topic.name, topic.id
        results.append(result)
    return decide_atomically([*deleted.values()], DeleteTopicsResponse(responses=results))


def _find(view: ControllerView, state: DeleteTopicState) -> Topic:
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
