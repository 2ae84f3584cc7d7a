"""Guards of what those ask who run the cluster: topics, settings, rules. The same on brokers and on controllers."""

from __future__ import annotations

from collections import Counter
from typing import Any

from ottla.broker.authorization.access_checks import TOPIC_REFUSED, allowed, answered_with, error_of, may
from ottla.broker.authorization.actions import Kind, Operation
from ottla.broker.requests.call import Call
from ottla.metadata.image.values import ResourceType
from ottla.protocol.errors import ApiError
from ottla.protocol.messages.rpc import alter_configs, create_partitions, create_topics, delete_topics, describe_configs
from ottla.protocol.messages.rpc import incremental_alter_configs as incremental
from ottla.protocol.wire.types import ZERO_UUID

_METADATA_TOPIC = "__cluster_metadata"
_KINDS = {ResourceType.TOPIC: Kind.TOPIC, ResourceType.GROUP: Kind.GROUP}


def guard_create_topics(call: Call[Any], request: create_topics.CreateTopicsRequest) -> None:
    """CREATE on the cluster or on each topic; DESCRIBE_CONFIGS to be told how the topic turned out."""
    asked = Counter(topic.name for topic in request.topics if topic.name != _METADATA_TOPIC)
    names = [name for name, count in asked.items() if count == 1]  # the others are wrong, whoever asks for them
    bad: set[str] = set()
    if not may(call, Operation.CREATE, Kind.CLUSTER, log_if_denied=False):
        creatable = allowed(call, Operation.CREATE, Kind.TOPIC, names)
        bad = {name for name in names if name not in creatable}
        request.topics = [topic for topic in request.topics if topic.name not in bad]
    describable = allowed(call, Operation.DESCRIBE_CONFIGS, Kind.TOPIC, names, log_if_denied=False)

    def amend(response: create_topics.CreateTopicsResponse) -> create_topics.CreateTopicsResponse:
        for topic in response.topics:
            if not topic.error_code and topic.name not in describable:
                topic.topic_config_error_code = TOPIC_REFUSED
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = []
        response.topics.extend(
            create_topics.CreatableTopicResult(
                name=name, error_code=TOPIC_REFUSED, error_message="Authorization failed."
            )
            for name in sorted(bad)
        )
        return response

    call.amend = amend


def guard_delete_topics(call: Call[Any], request: delete_topics.DeleteTopicsRequest) -> None:
    """DELETE on the cluster or on each topic; who may not describe a topic is not told that it is there."""
    if may(call, Operation.DELETE, Kind.CLUSTER, log_if_denied=False):
        return
    image = call.node.image
    by_name = [*request.topic_names, *(topic.name for topic in request.topics if topic.name is not None)]
    found = {topic.topic_id: image.topic_by_id(topic.topic_id) for topic in request.topics if topic.name is None}
    by_id = {topic_id: topic.name for topic_id, topic in found.items() if topic is not None}
    describable = allowed(call, Operation.DESCRIBE, Kind.TOPIC, [*by_name, *by_id.values()])
    deletable = allowed(call, Operation.DELETE, Kind.TOPIC, [*by_name, *by_id.values()])

    def is_refused(name: str) -> bool:
        return name not in describable or (name not in deletable and image.topic(name) is not None)

    repeated = {name for name in by_name if by_name.count(name) > 1}
    given_both = {topic.name for topic in request.topics if topic.name is not None and topic.topic_id != ZERO_UUID}
    bad = {name for name in by_name if is_refused(name)} - repeated - given_both
    bad_ids = {topic_id for topic_id, name in by_id.items() if name not in deletable}
    request.topic_names = [name for name in request.topic_names if name not in bad]
    request.topics = [
        topic
        for topic in request.topics
        if (topic.name is None and topic.topic_id not in bad_ids) or (topic.name is not None and topic.name not in bad)
    ]
    message = error_of(Kind.TOPIC).message
    answered_with(
        call,
        "responses",
        [
            *(
                delete_topics.DeletableTopicResult(name=name, error_code=TOPIC_REFUSED, error_message=message)
                for name in sorted(bad)
            ),
            *(
                delete_topics.DeletableTopicResult(
                    name=by_id[topic_id] if by_id[topic_id] in describable else None,
                    topic_id=topic_id,
                    error_code=TOPIC_REFUSED,
                    error_message=message,
                )
                for topic_id in sorted(bad_ids)
            ),
        ],
    )


def guard_create_partitions(call: Call[Any], request: create_partitions.CreatePartitionsRequest) -> None:
    """ALTER on each topic."""
    names = [topic.name for topic in request.topics]
    alterable = allowed(call, Operation.ALTER, Kind.TOPIC, names)
    bad = {name for name in names if name not in alterable and names.count(name) == 1}
    request.topics = [topic for topic in request.topics if topic.name not in bad]
    answered_with(
        call,
        "results",
        (create_partitions.CreatePartitionsTopicResult(name=name, error_code=TOPIC_REFUSED) for name in sorted(bad)),
    )


def guard_describe_configs(call: Call[Any], request: describe_configs.DescribeConfigsRequest) -> None:
    """DESCRIBE_CONFIGS on each topic and group; for all else on the cluster."""
    request.resources, bad = _split_resources(call, Operation.DESCRIBE_CONFIGS, request.resources)
    answered_with(
        call,
        "results",
        (
            describe_configs.DescribeConfigsResult(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, error in bad
        ),
    )


def guard_alter_configs(call: Call[Any], request: alter_configs.AlterConfigsRequest) -> None:
    """ALTER_CONFIGS on each topic and group; for all else on the cluster."""
    request.resources, bad = _split_resources(call, Operation.ALTER_CONFIGS, request.resources)
    answered_with(call, "responses", (_told(alter_configs.AlterConfigsResourceResponse, *each) for each in bad))


def guard_incremental_alter_configs(call: Call[Any], request: incremental.IncrementalAlterConfigsRequest) -> None:
    """ALTER_CONFIGS on each topic and group; for all else on the cluster."""
    request.resources, bad = _split_resources(call, Operation.ALTER_CONFIGS, request.resources)
    answered_with(call, "responses", (_told(incremental.AlterConfigsResourceResponse, *each) for each in bad))


def _split_resources(
    call: Call[Any], operation: Operation, resources: list[Any]
) -> tuple[list[Any], list[tuple[Any, ApiError]]]:
    known = frozenset(ResourceType) - {ResourceType.UNKNOWN}
    good, bad = [], []
    for resource in resources:
        kind = _KINDS.get(resource.resource_type)
        if resource.resource_type not in known:
            is_allowed = True  # what that is to be, the handler asks
        elif kind is None:
            is_allowed = may(call, operation, Kind.CLUSTER)
        else:
            is_allowed = may(call, operation, kind, resource.resource_name)
        if is_allowed:
            good.append(resource)
        else:
            bad.append((resource, error_of(kind or Kind.CLUSTER)))
    return good, bad


def _told(kind: Any, resource: Any, error: ApiError) -> Any:
    return kind(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
