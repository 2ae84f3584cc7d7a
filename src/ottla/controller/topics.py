"""Topics are created."""

from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from ottla.controller.assignments import active_replicas, check_assignment, check_manual_isr, partition_record
from ottla.controller.config_checks import check_topic_settings
from ottla.controller.decision import MAX_RECORDS, Chance, Charge, Decision, decide_all
from ottla.controller.placement import place, usable_brokers
from ottla.controller.topic_names import METADATA_TOPIC, check_topic_name
from ottla.controller.view import NewTopic, View
from ottla.errors import (
    ApiError,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    PolicyViolation,
    TopicAlreadyExists,
    TopicAuthorizationFailed,
)
from ottla.image.values import ResourceType
from ottla.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.messages.metadata_records import ConfigRecord, TopicRecord

Describe = Callable[[Mapping[str, str]], list[CreatableTopicConfigs]]
"""Tells all settings of a topic that has these of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationContext:
    """What making topics needs from outside. `mentionable` are the topics whose settings the client may see (None:
    all), `may_create` what it may create."""

    chance: Chance
    new_id: Callable[[], bytes]
    charge: Charge | None = None
    mentionable: Container[str] | None = None
    may_create: Callable[[str], bool] | None = None


def create_topics(view: View, request: CreateTopicsRequest, context: CreationContext) -> Decision[CreateTopicsResponse]:
    """Each topic is made or gets its own error; one request makes no more than a batch of the log can hold."""
    _check_total(view, request)
    times = Counter(topic.name for topic in request.topics)
    collisions, describe = _collisions(view), _describer(view)
    records: list[object] = []
    results = []
    for topic in {each.name: each for each in request.topics}.values():
        try:
            if times[topic.name] > 1:
                raise InvalidRequest("Duplicate topic name.")
            made, result = _create(view, topic, context, collisions, describe)
        except ApiError as error:  # one bad topic spoils only its own answer
            result = CreatableTopicResult(name=topic.name, error_code=error.code, error_message=error.message)
            made = []
        records += made
        results.append(result)
    decision = decide_all(records, CreateTopicsResponse(topics=results))
    return decision.without_records() if request.validate_only else decision


def _check_total(view: View, request: CreateTopicsRequest) -> None:
    default = view.options.number("num.partitions")
    total = sum(
        len(topic.assignments) or (default if topic.num_partitions == -1 else max(topic.num_partitions, 0))
        for topic in request.topics
    )
    if total > MAX_RECORDS:
        raise PolicyViolation("Excessively large number of partitions per request.")


def _collisions(view: View) -> Callable[[str], str | None]:
    """Finds the topic whose metrics would have the same name, as metrics know no dots."""
    known: dict[str, str] = {}
    looked = False

    def find(name: str) -> str | None:
        nonlocal looked
        if "." not in name and "_" not in name:
            return None
        if not looked:
            looked = True
            known.update({_unified(each): each for each in view.image.topics if "." in each or "_" in each})
        return known.get(_unified(name))

    return find


def _unified(name: str) -> str:
    return name.replace(".", "_")


def _create(
    view: View,
    topic: CreatableTopic,
    context: CreationContext,
    collision: Callable[[str], str | None],
    describe: Describe,
) -> tuple[list[object], CreatableTopicResult]:
    """The records of one topic: it, its settings, its partitions."""
    may_create = context.may_create is None or context.may_create(topic.name)
    if topic.name == METADATA_TOPIC:
        raise InvalidRequest(f"Creation of internal topic {METADATA_TOPIC} is prohibited.")
    if not may_create:
        raise TopicAuthorizationFailed
    check_topic_name(topic.name)
    if topic.name in view.image.topics:
        raise TopicAlreadyExists(f"Topic '{topic.name}' already exists.")
    if other := collision(topic.name):
        raise InvalidTopic(f"Topic '{topic.name}' collides with existing topic: {other}")
    configs = _configs(view, topic)
    assignments = _assignments(view, topic, configs, context.chance)
    if context.charge is not None:
        context.charge(len(assignments))
    topic_id = context.new_id()
    records: list[object] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    records += [
        ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=value)
        for name, value in configs.items()
    ]
    records += [partition_record(view, topic_id, number, replicas) for number, replicas in enumerate(assignments)]
    result = CreatableTopicResult(name=topic.name, topic_id=topic_id, error_message=None)
    if context.mentionable is not None and topic.name not in context.mentionable:
        result.topic_config_error_code = TopicAuthorizationFailed.code
    else:
        result.num_partitions = len(assignments)
        result.replication_factor = len(assignments[0])
        result.configs = describe(configs)
    return records, result


def _describer(view: View) -> Describe:
    """Tells the settings of new topics, which often are the same for all of a request."""
    known: dict[frozenset[tuple[str, str]], list[CreatableTopicConfigs]] = {}

    def describe(configs: Mapping[str, str]) -> list[CreatableTopicConfigs]:
        key = frozenset(configs.items())
        if key not in known:
            known[key] = [
                CreatableTopicConfigs(
                    name=each,
                    value=None if effective.setting.is_sensitive else effective.text,
                    config_source=effective.source,
                    is_sensitive=effective.setting.is_sensitive,
                )
                for each, effective in sorted(view.topic_settings(configs).items())
                if not effective.setting.internal or each in configs
            ]
        return known[key]

    return describe


def _configs(view: View, topic: CreatableTopic) -> dict[str, str]:
    missing = [config.name for config in topic.configs if config.value is None]
    if missing:
        raise InvalidConfig(f"Null value not supported for topic configs: {','.join(missing)}")
    configs = {config.name: config.value for config in topic.configs if config.value is not None}
    check_topic_settings(view, configs)
    return configs


def _assignments(
    view: View, topic: CreatableTopic, configs: Mapping[str, str], chance: Chance
) -> list[tuple[int, ...]]:
    """The replicas of every partition, as the client says or as chance has it."""
    if topic.assignments:
        assignments = _manual_assignments(view, topic)
        by_number = dict(enumerate(assignments))
        _check_policy(view, NewTopic(topic.name, None, None, by_number, configs))
        return assignments
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise InvalidReplicationFactor("Replication factor must be larger than 0, or -1 to use the default value.")
    if topic.num_partitions < -1 or topic.num_partitions == 0:
        raise InvalidPartitions("Number of partitions was set to an invalid non-positive value.")
    options = view.options
    partitions = options.number("num.partitions") if topic.num_partitions == -1 else topic.num_partitions
    factor = topic.replication_factor
    if factor == -1:
        factor = options.number("default.replication.factor")
    try:
        assignments = place(usable_brokers(view), partitions, factor, chance)
        if not all(active_replicas(view, replicas) for replicas in assignments):
            raise InvalidReplicationFactor("All brokers are currently fenced or in controlled shutdown.")
    except InvalidReplicationFactor as error:
        raise InvalidReplicationFactor(f"Unable to replicate the partition {factor} time(s): {error.message}") from None
    _check_policy(view, NewTopic(topic.name, partitions, factor, None, configs))
    return assignments


def _manual_assignments(view: View, topic: CreatableTopic) -> list[tuple[int, ...]]:
    if topic.replication_factor != -1:
        raise InvalidRequest("A manual partition assignment was specified, but replication factor was not set to -1.")
    if topic.num_partitions != -1:
        raise InvalidRequest("A manual partition assignment was specified, but numPartitions was not set to -1.")
    found: dict[int, tuple[int, ...]] = {}
    factor = None
    for assignment in topic.assignments:
        number = assignment.partition_index
        if number in found:
            raise InvalidReplicaAssignment(f"Found multiple manual partition assignments for partition {number}")
        check_assignment(view, assignment.broker_ids, factor)
        check_manual_isr(view, assignment.broker_ids, number)
        factor = len(assignment.broker_ids)
        found[number] = tuple(assignment.broker_ids)
    if sorted(found) != list(range(len(found))):
        raise InvalidReplicaAssignment("partitions should be a consecutive 0-based integer sequence")
    return [found[number] for number in range(len(found))]


def _check_policy(view: View, topic: NewTopic) -> None:
    if view.options.create_topic_policy is not None:
        view.options.create_topic_policy(topic)
