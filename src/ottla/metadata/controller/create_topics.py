"""CreateTopics."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from ottla.metadata.controller.config_validation import validate_topic_configs
from ottla.metadata.controller.decision import MAX_RECORDS, Charge, Decision, Randomness, decide_atomically
from ottla.metadata.controller.partition_assignments import (
    PartitionRecords,
    validate_manual_assignment,
    validate_manual_isr,
)
from ottla.metadata.controller.replica_placer import ReplicaPlacer, usable_brokers
from ottla.metadata.controller.topic_names import METADATA_TOPIC, check_topic_name
from ottla.metadata.controller.view import ControllerView, NewTopic
from ottla.metadata.image.values import ConfigResource, ResourceType
from ottla.protocol.errors import (
    ApiError,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    PolicyViolation,
    TopicAlreadyExists,
)
from ottla.protocol.messages.records.metadata_records import ConfigRecord, TopicRecord
from ottla.protocol.messages.rpc.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

Configs = dict[str, str]
"""The configs that a request sets on a topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationContext:
    """What creating topics needs beside the view."""

    random: Randomness
    new_id: Callable[[], bytes]
    charge: Charge | None = None


def create_topics(
    view: ControllerView, request: CreateTopicsRequest, context: CreationContext
) -> Decision[CreateTopicsResponse]:
    """Create each topic, or answer it with its own error. The records of one request fit one batch."""
    _check_total(view, request)
    topics = {topic.name: topic for topic in request.topics}
    times = Counter(topic.name for topic in request.topics) if len(topics) < len(request.topics) else {}
    creation = _Creation(view, context)
    records: list[object] = []
    results = []
    for name, topic in topics.items():
        try:
            if times and times[name] > 1:
                raise InvalidRequest("Duplicate topic name.")
            topic_records, result = creation.create(topic)
        except ApiError as error:  # an invalid topic fails alone
            results.append(CreatableTopicResult(name=name, error_code=error.code, error_message=error.message))
        else:
            records += topic_records
            results.append(result)
    decision = decide_atomically(records, CreateTopicsResponse(topics=results))
    return decision.without_records() if request.validate_only else decision


def _check_total(view: ControllerView, request: CreateTopicsRequest) -> None:
    default = view.options.number("num.partitions")
    total = sum(
        len(topic.assignments) or (default if topic.num_partitions == -1 else max(topic.num_partitions, 0))
        for topic in request.topics
    )
    if total > MAX_RECORDS:
        raise PolicyViolation("Excessively large number of partitions per request.")


class _Creation:
    """Creates the topics of one request, and computes what they have in common once."""

    def __init__(self, view: ControllerView, context: CreationContext) -> None:
        self._view = view
        self._context = context
        self._racks = ReplicaPlacer(usable_brokers(view))
        self._partitions = PartitionRecords(view)
        self._settings: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]] = {}
        """By a topic's own configs, if valid: all its configs, as the response describes them."""

    def create(self, topic: CreatableTopic) -> tuple[list[object], CreatableTopicResult]:
        """Return the records of one topic: the topic, its configs, its partitions."""
        context, name = self._context, topic.name
        self._check_name(name)
        configs = _configs(topic) if topic.configs else {}
        settings = self._checked_settings(configs)
        policy = self._view.options.alter_config_policy
        if configs and policy is not None:
            # As in Kafka, the policy for alterations also checks the configs of a new topic, before the policy for
            # topics does.
            policy(ConfigResource(ResourceType.TOPIC, name), configs)
        assignments = self._assignments(topic, configs)
        if context.charge is not None:
            context.charge(len(assignments))
        topic_id = context.new_id()
        records: list[object] = [TopicRecord(name=name, topic_id=topic_id)]
        for key, value in configs.items():
            records.append(ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=name, name=key, value=value))
        build_partition = self._partitions.build
        for number, replicas in enumerate(assignments):
            records.append(build_partition(topic_id, number, replicas))
        return records, CreatableTopicResult(
            name=name,
            topic_id=topic_id,
            error_message=None,
            num_partitions=len(assignments),
            replication_factor=len(assignments[0]),
            configs=settings,
        )

    def _check_name(self, name: str) -> None:
        if name == METADATA_TOPIC:
            raise InvalidRequest(f"Creation of internal topic {METADATA_TOPIC} is prohibited.")
        check_topic_name(name)
        if name in self._view.image.topics:
            raise TopicAlreadyExists(f"Topic '{name}' already exists.")
        if ("." in name or "_" in name) and (other := self._unified_names.get(_unified(name))):
            raise InvalidTopic(f"Topic '{name}' collides with existing topic: {other}")

    @cached_property
    def _unified_names(self) -> dict[str, str]:
        """Topics by the name of their metrics, where a dot becomes an underscore, so that names could collide."""
        return {_unified(name): name for name in self._view.image.topics if "." in name or "_" in name}

    def _checked_settings(self, configs: Configs) -> list[CreatableTopicConfigs]:
        """Validate a topic's own configs, and return the description of all its configs."""
        key = frozenset(configs.items())
        described = self._settings.get(key)
        if described is None:
            validate_topic_configs(self._view, configs)
            described = self._settings[key] = _describe_configs(self._view, configs)
        return described

    def _assignments(self, topic: CreatableTopic, configs: Configs) -> list[tuple[int, ...]]:
        """Return the replicas of every partition: the manual assignment, or a placement."""
        view = self._view
        policy = view.options.create_topic_policy
        if topic.assignments:
            assignments = _manual_assignments(view, topic)
            if policy is not None:
                policy(NewTopic(topic.name, None, None, dict(enumerate(assignments)), configs))
            return assignments
        partitions, factor = topic.num_partitions, topic.replication_factor
        if factor < -1 or factor == 0:
            raise InvalidReplicationFactor("Replication factor must be larger than 0, or -1 to use the default value.")
        if partitions < -1 or partitions == 0:
            raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
        if partitions == -1:
            partitions = view.options.number("num.partitions")
        if factor == -1:
            factor = view.options.number("default.replication.factor")
        try:
            assignments = self._racks.place(partitions, factor, self._context.random)
        except InvalidReplicationFactor as error:
            raise InvalidReplicationFactor(
                f"Unable to replicate the partition {factor} time(s): {error.message}"
            ) from None
        if policy is not None:
            policy(NewTopic(topic.name, partitions, factor, None, configs))
        return assignments


def _unified(name: str) -> str:
    return name.replace(".", "_")


def _configs(topic: CreatableTopic) -> Configs:
    missing = [config.name for config in topic.configs if config.value is None]
    if missing:
        raise InvalidConfig(f"Null value not supported for topic configs: {','.join(missing)}")
    return {config.name: config.value for config in topic.configs if config.value is not None}


def _describe_configs(view: ControllerView, configs: Configs) -> list[CreatableTopicConfigs]:
    return [
        CreatableTopicConfigs(
            name=name,
            value=None if effective.setting.is_sensitive else effective.text,
            config_source=effective.source,
            is_sensitive=effective.setting.is_sensitive,
        )
        for name, effective in sorted(view.topic_settings(configs).items())
        if not effective.setting.internal or name in configs
    ]


def _manual_assignments(view: ControllerView, topic: CreatableTopic) -> list[tuple[int, ...]]:
    if topic.replication_factor != -1:
        raise InvalidRequest("A manual partition assignment was specified, but replication factor was not set to -1.")
    if topic.num_partitions != -1:
        raise InvalidRequest("A manual partition assignment was specified, but numPartitions was not set to -1.")
    assignments: dict[int, tuple[int, ...]] = {}
    factor = None
    for assignment in topic.assignments:
        number = assignment.partition_index
        if number in assignments:
            raise InvalidReplicaAssignment(f"Found multiple manual partition assignments for partition {number}")
        validate_manual_assignment(view, assignment.broker_ids, factor)
        validate_manual_isr(view, assignment.broker_ids, number)
        factor = len(assignment.broker_ids)
        assignments[number] = tuple(assignment.broker_ids)
    if sorted(assignments) != list(range(len(assignments))):
        raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")
    return [assignments[number] for number in range(len(assignments))]
