"""Guards of the APIs for administrators: topics, configurations, ACLs. Brokers and controllers share them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any

from ottla.broker.authorization.access_checks import (
    TOPIC_DENIED,
    append_denied,
    authorization_error,
    filter_allowed,
    is_allowed,
)
from ottla.broker.authorization.actions import CLUSTER_NAME, Operation, ResourceType
from ottla.broker.requests.call import Call
from ottla.metadata.image.values import ResourceType as ConfigResourceType
from ottla.protocol.messages.rpc import alter_configs, create_partitions, create_topics, delete_topics, describe_configs
from ottla.protocol.messages.rpc import incremental_alter_configs as incremental
from ottla.protocol.wire.types import ZERO_UUID

_METADATA_TOPIC = "__cluster_metadata"
_TYPES = {ConfigResourceType.TOPIC: ResourceType.TOPIC, ConfigResourceType.GROUP: ResourceType.GROUP}
"""Resources with rights of their own. For the settings of all others, rights to the cluster count."""
_CONFIG_TYPES = frozenset(ConfigResourceType) - {ConfigResourceType.UNKNOWN}


def guard_create_topics(call: Call[Any], request: create_topics.CreateTopicsRequest) -> None:
    """Require CREATE on the cluster or on each topic; show the new topic's settings only with DESCRIBE_CONFIGS."""
    counts = Counter(topic.name for topic in request.topics if topic.name != _METADATA_TOPIC)
    names = [name for name, count in counts.items() if count == 1]  # the handler rejects repeated names for any client
    denied: set[str] = set()
    if not is_allowed(call, Operation.CREATE, ResourceType.CLUSTER, log_if_denied=False):
        creatable = filter_allowed(call, Operation.CREATE, ResourceType.TOPIC, names)
        denied = {name for name in names if name not in creatable}
        request.topics = [topic for topic in request.topics if topic.name not in denied]
    describable = filter_allowed(call, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, names, log_if_denied=False)

    def amend(response: create_topics.CreateTopicsResponse) -> create_topics.CreateTopicsResponse:
        for topic in response.topics:
            if not topic.error_code and topic.name not in describable:
                topic.topic_config_error_code = TOPIC_DENIED
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = []
        response.topics.extend(
            create_topics.CreatableTopicResult(
                name=name, error_code=TOPIC_DENIED, error_message="Authorization failed."
            )
            for name in sorted(denied)
        )
        return response

    call.amend = amend


def guard_delete_topics(call: Call[Any], request: delete_topics.DeleteTopicsRequest) -> None:
    """Require DELETE on the cluster or on each topic; without DESCRIBE, hide whether the topic exists."""
    if is_allowed(call, Operation.DELETE, ResourceType.CLUSTER, log_if_denied=False):
        return
    image = call.node.image
    names = [*request.topic_names, *(topic.name for topic in request.topics if topic.name is not None)]
    topics = {topic.topic_id: image.topic_by_id(topic.topic_id) for topic in request.topics if topic.name is None}
    names_by_id = {topic_id: topic.name for topic_id, topic in topics.items() if topic is not None}
    describable = filter_allowed(call, Operation.DESCRIBE, ResourceType.TOPIC, [*names, *names_by_id.values()])
    deletable = filter_allowed(call, Operation.DELETE, ResourceType.TOPIC, [*names, *names_by_id.values()])

    def is_denied(name: str) -> bool:
        return name not in describable or (name not in deletable and image.topic(name) is not None)

    repeated = {name for name in names if names.count(name) > 1}
    with_name_and_id = {
        topic.name for topic in request.topics if topic.name is not None and topic.topic_id != ZERO_UUID
    }
    denied = {name for name in names if is_denied(name)} - repeated - with_name_and_id
    denied_ids = {topic_id for topic_id, name in names_by_id.items() if name not in deletable}
    request.topic_names = [name for name in request.topic_names if name not in denied]
    request.topics = [
        topic
        for topic in request.topics
        if (topic.topic_id not in denied_ids if topic.name is None else topic.name not in denied)
    ]
    message = authorization_error(ResourceType.TOPIC).message
    results = [
        delete_topics.DeletableTopicResult(name=name, error_code=TOPIC_DENIED, error_message=message)
        for name in sorted(denied)
    ]
    results += [
        delete_topics.DeletableTopicResult(
            name=names_by_id[topic_id] if names_by_id[topic_id] in describable else None,
            topic_id=topic_id,
            error_code=TOPIC_DENIED,
            error_message=message,
        )
        for topic_id in sorted(denied_ids)
    ]
    append_denied(call, "responses", results)


def guard_create_partitions(call: Call[Any], request: create_partitions.CreatePartitionsRequest) -> None:
    """Require ALTER on each topic. The handler rejects repeated names for any client."""
    names = [topic.name for topic in request.topics]
    alterable = filter_allowed(call, Operation.ALTER, ResourceType.TOPIC, names)
    denied = {name for name in names if name not in alterable and names.count(name) == 1}
    request.topics = [topic for topic in request.topics if topic.name not in denied]
    append_denied(
        call,
        "results",
        (create_partitions.CreatePartitionsTopicResult(name=name, error_code=TOPIC_DENIED) for name in sorted(denied)),
    )


@dataclass(frozen=True, kw_only=True)
class ConfigGuard:
    """Requires an operation on each topic and group, and on the cluster for all other resources with settings."""

    operation: Operation
    results: str
    """The field of the response that lists the results."""
    result_type: type[Any]
    """The class of a result."""

    def __call__(self, call: Call[Any], request: Any) -> None:
        """Guard a request."""
        allowed, denied = [], []
        for resource in request.resources:
            config_type = resource.resource_type
            if config_type not in _CONFIG_TYPES:  # the handler rejects it
                allowed.append(resource)
                continue
            resource_type = _TYPES.get(config_type, ResourceType.CLUSTER)
            name = resource.resource_name if config_type in _TYPES else CLUSTER_NAME
            if is_allowed(call, self.operation, resource_type, name):
                allowed.append(resource)
                continue
            error = authorization_error(resource_type)
            denied.append(
                self.result_type(
                    error_code=error.code,
                    error_message=error.message,
                    resource_type=config_type,
                    resource_name=resource.resource_name,
                )
            )
        request.resources = allowed
        append_denied(call, self.results, denied)


guard_describe_configs = ConfigGuard(
    operation=Operation.DESCRIBE_CONFIGS, results="results", result_type=describe_configs.DescribeConfigsResult
)
guard_alter_configs = ConfigGuard(
    operation=Operation.ALTER_CONFIGS, results="responses", result_type=alter_configs.AlterConfigsResourceResponse
)
guard_incremental_alter_configs = ConfigGuard(
    operation=Operation.ALTER_CONFIGS, results="responses", result_type=incremental.AlterConfigsResourceResponse
)
