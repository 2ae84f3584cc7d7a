"""Metadata, CreateTopics and DeleteTopics: all versions, accepted and refused requests."""

from collections.abc import Callable
from random import Random

import pytest

from ottla.protocol.messages.rpc.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.rpc.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla.protocol.messages.rpc.metadata import MetadataRequest, MetadataRequestTopic
from tests.conformance.differential.harness import Answers, NodePair, Side
from tests.conformance.differential.normalization import Messages
from tests.conformance.differential.requests import NO_TOPIC_ID, UNKNOWN_ID

METADATA_VERSIONS = range(14)
CREATE_VERSIONS = range(2, 8)
DELETE_VERSIONS = range(1, 7)
BAD_NAMES = ("", ".", "..", "a b", "a/b", "ä", "x" * 249, "x" * 250, "a.b_c-d", "a\0")


def topic_names(*names: str | None) -> list[MetadataRequestTopic]:
    return [MetadataRequestTopic(name=name) for name in names]


@pytest.mark.parametrize("version", METADATA_VERSIONS)
def test_metadata_of_topics_is_the_same(both: NodePair, version: int) -> None:
    topic, other = both.new_topic(partitions=3), both.new_topic()
    both.expect_same(MetadataRequest(topics=topic_names(topic)), version)
    both.expect_same(MetadataRequest(topics=topic_names(topic, other, topic, "nowhere")), version)
    both.expect_same(
        MetadataRequest(topics=topic_names(*BAD_NAMES), allow_auto_topic_creation=version % 2 > 0), version
    )
    both.expect_same(MetadataRequest(topics=topic_names("__consumer_offsets")), version)
    both.expect_same(
        MetadataRequest(
            topics=topic_names(topic),
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        ),
        version,
    )


@pytest.mark.parametrize("version", METADATA_VERSIONS)
def test_metadata_of_all_topics_and_of_none_is_the_same(both: NodePair, version: int) -> None:
    both.new_topic(partitions=2)
    answers = both.ask(MetadataRequest(topics=[] if version == 0 else None), version)
    # Other tests create topics that one of the two refuses.
    names = [{topic.name for topic in answer.topics} for answer in answers]
    for answer in answers:
        answer.topics = [topic for topic in answer.topics if topic.name in names[0] & names[1]]
    assert both.differences(answers, version) == []
    both.expect_same(MetadataRequest(topics=[]), version) if version else None


@pytest.mark.parametrize("version", range(10, 14))
def test_metadata_by_topic_id_is_the_same(both: NodePair, version: int) -> None:
    topic = both.new_topic()

    def request_for(*ids: Callable[[Side], bytes], name: str | None = None) -> Callable[[Side], MetadataRequest]:
        return lambda side: MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=topic_id(side), name=name) for topic_id in ids]
        )

    both.expect_same(request_for(lambda side: side.id_of(topic)), version)
    both.expect_same(request_for(lambda side: UNKNOWN_ID), version)
    both.expect_same(request_for(lambda side: side.id_of(topic), lambda side: UNKNOWN_ID), version)
    both.expect_same(request_for(lambda side: NO_TOPIC_ID), version)
    both.expect_same(request_for(lambda side: side.id_of(topic), name=topic), version)
    both.expect_same(request_for(lambda side: side.id_of(topic), name="nowhere"), version)
    both.expect_same(request_for(lambda side: UNKNOWN_ID, name=topic), version)


def learn(both: NodePair, answers: Answers) -> None:
    for side, answer in zip(both.sides, answers, strict=True):
        if not isinstance(answer, str):
            for topic in answer.topics:
                if topic.topic_id != NO_TOPIC_ID:
                    side.learn(topic.name, topic.topic_id)


def create(both: NodePair, version: int, *topics: CreatableTopic, validate_only: bool = False) -> Answers:
    """Create topics on both nodes; the answers must be equal except for ids."""
    request = CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)
    answers = both.ask(request, version)
    learn(both, answers)
    differences = both.differences(answers, version, messages=Messages.LOOSELY)
    assert not differences, f"{request} v{version}:\n  " + "\n  ".join(differences)
    return answers


def topic(name: str, partitions: int = 1, factor: int = 1, **configs: str | None) -> CreatableTopic:
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, configs=settings)


def assigned(name: str, *replicas: list[int], partitions: int = -1, factor: int = -1, first: int = 0) -> CreatableTopic:
    entry = topic(name, partitions, factor)
    entry.assignments = [
        CreatableReplicaAssignment(partition_index=first + index, broker_ids=ids) for index, ids in enumerate(replicas)
    ]
    return entry


CREATED: dict[str, Callable[[str], list[CreatableTopic]]] = {
    "plain": lambda name: [topic(name)],
    "defaults": lambda name: [topic(name, -1, -1)],
    "several": lambda name: [topic(f"{name}-a"), topic(f"{name}-b", 3)],
    "twice in one request": lambda name: [topic(name), topic(name, 2), topic(f"{name}-c")],
    "three times": lambda name: [topic(name), topic(name), topic(name)],
    "no partitions": lambda name: [topic(name, 0)],
    "negative partitions": lambda name: [topic(name, -2)],
    "no replicas": lambda name: [topic(name, 1, 0)],
    "negative replicas": lambda name: [topic(name, 1, -2)],
    "more replicas than brokers": lambda name: [topic(name, 1, 2)],
    "assigned": lambda name: [assigned(name, [1], [1])],
    "assigned to an unknown broker": lambda name: [assigned(name, [2])],
    "assigned twice to a broker": lambda name: [assigned(name, [1, 1])],
    "assigned to no broker": lambda name: [assigned(name, [])],
    "assigned with a count": lambda name: [assigned(name, [1], partitions=1)],
    "assigned with a factor": lambda name: [assigned(name, [1], factor=1)],
    "assigned from partition 1": lambda name: [assigned(name, [1], first=1)],
    "assigned with a gap": lambda name: [assigned(name, [1], [1], first=5)],
    "settings": lambda name: [topic(name, retention_ms="1000", cleanup_policy="compact", min_insync_replicas="2")],
    "a setting listed only if set": lambda name: [topic(name, internal_segment_bytes="1000")],
    "a setting that does not exist": lambda name: [topic(name, no_such="1")],
    "a value that is not a number": lambda name: [topic(name, retention_ms="soon")],
    "a value out of range": lambda name: [topic(name, segment_bytes="1")],
    "a null value": lambda name: [topic(name, retention_ms=None)],
    "an empty value": lambda name: [topic(name, cleanup_policy="")],
    "the same setting twice": lambda name: [
        CreatableTopic(
            name=name,
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name="retention.ms", value=value) for value in ("1", "2")],
        )
    ],
    "a valid and an invalid topic": lambda name: [topic(name), topic(f"{name} bad")],
}


@pytest.mark.parametrize("name", CREATED)
def test_topics_are_created_or_refused_the_same_way(both: NodePair, name: str) -> None:
    for version in CREATE_VERSIONS:
        topics = CREATED[name](f"made-{name.replace(' ', '-')}-{version}")
        create(both, version, *topics, validate_only=True)
        create(both, version, *topics)
        create(both, version, *topics)
        names = [entry.name for entry in topics]
        both.expect_same_soon(MetadataRequest(topics=topic_names(*names), allow_auto_topic_creation=False), 9)


@pytest.mark.parametrize("version", CREATE_VERSIONS)
def test_invalid_topic_names_are_refused(both: NodePair, version: int) -> None:
    for number, name in enumerate(BAD_NAMES):
        unique_name = name if number < 6 or "\0" in name else f"{name[:-2]}{version:02d}" if len(name) == 249 else name
        create(both, version, topic(unique_name))
    create(both, version, topic(f"clash.{version}"))
    create(both, version, topic(f"clash_{version}"))
    create(both, version, topic("__consumer_offsets" if version == 2 else f"__own-{version}"))
    create(both, version)


def by_name(version: int, *names: str | None) -> DeleteTopicsRequest:
    if version >= 6:
        return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=10_000)
    return DeleteTopicsRequest(topic_names=[name for name in names if name is not None], timeout_ms=10_000)


@pytest.mark.parametrize("version", DELETE_VERSIONS)
def test_topics_are_deleted_by_name_the_same_way(both: NodePair, version: int) -> None:
    first, second, third = (both.new_topic() for _ in range(3))
    for names in ((first,), (first,), ("nowhere", second), (second, third, third), (), ("",), ("a b",)):
        both.expect_same(by_name(version, *names), version, messages=Messages.LOOSELY)
    both.expect_same_soon(MetadataRequest(topics=topic_names(first, second, third), allow_auto_topic_creation=False), 9)


def test_topics_are_deleted_by_id_the_same_way(both: NodePair) -> None:
    first, second, third = (both.new_topic() for _ in range(3))

    def request_for(*states: tuple[str | None, str | bytes]) -> Callable[[Side], DeleteTopicsRequest]:
        return lambda side: DeleteTopicsRequest(
            timeout_ms=10_000,
            topics=[
                DeleteTopicState(name=name, topic_id=side.id_of(topic_id) if isinstance(topic_id, str) else topic_id)
                for name, topic_id in states
            ],
        )

    for states in (
        [(None, first)],
        [(None, first)],
        [(None, UNKNOWN_ID), (None, second)],
        [(None, NO_TOPIC_ID)],
        [(third, third)],
        [("nowhere", NO_TOPIC_ID), (None, NO_TOPIC_ID)],
    ):
        both.expect_same(request_for(*states), 6, messages=Messages.LOOSELY)
    both.expect_same_soon(MetadataRequest(topics=topic_names(first, second, third), allow_auto_topic_creation=False), 9)


def test_a_topic_by_name_and_id_in_one_request_gets_the_same_answer(both: NodePair) -> None:
    name = both.new_topic()
    both.expect_same(
        lambda side: DeleteTopicsRequest(
            topics=[DeleteTopicState(name=name), DeleteTopicState(name=None, topic_id=side.id_of(name))]
        ),
        6,
    )


@pytest.mark.parametrize("seed", range(3))
def test_random_creations_and_deletions_give_the_same_topics(both: NodePair, seed: int) -> None:
    random = Random(seed)
    names = [f"life-{seed}-{number}" for number in range(4)]
    for _ in range(30):
        chosen = random.sample(names, random.randint(1, 3))
        if random.random() < 0.5:
            settings = random.choice(({}, {"retention_ms": "5"}, {"cleanup_policy": "neither"}))
            entries = [
                topic(name, random.choice((1, 2, 0, -1)), random.choice((1, 1, -1, 3)), **settings) for name in chosen
            ]
            create(both, random.choice(CREATE_VERSIONS), *entries, validate_only=random.random() < 0.2)
        else:
            version = random.choice(DELETE_VERSIONS)
            both.expect_same(by_name(version, *chosen), version, messages=Messages.LOOSELY, ignoring=("topic_id",))
        request = MetadataRequest(topics=topic_names(*names), allow_auto_topic_creation=False)
        both.expect_same_soon(request, random.randrange(4, 10))
