"""The changes that a broker applies to its replicas."""

from ottla.metadata.image.changes import Changes, PartitionChange
from ottla.metadata.image.image import Image
from ottla.protocol.messages.records.metadata_records import (
    AccessControlEntryRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.unit.metadata.image.stories import replay, uuid

TOPIC = uuid(1)


def partitions(*replicas: list[int]) -> Image:
    """Return a topic whose partitions have these replicas and are led by the first."""
    return replay(
        [
            TopicRecord(name="t", topic_id=TOPIC),
            *(
                PartitionRecord(partition_id=number, topic_id=TOPIC, replicas=each, isr=each, leader=each[0])
                for number, each in enumerate(replicas)
            ),
        ]
    )


def numbers(changes: tuple[PartitionChange, ...]) -> list[int]:
    return [change.number for change in changes]


def after(image: Image, *records: object) -> Changes:
    return Changes.between(image, replay(records, image))


def test_new_partitions_are_led_or_followed() -> None:
    changes = Changes.between(replay([]), partitions([1, 2], [2, 1], [3])).for_broker(1)
    assert (numbers(changes.leading), numbers(changes.elected), numbers(changes.following)) == ([0], [0], [1])
    assert numbers(changes.moved) == [0, 1]
    assert changes.deleted == ()


def test_a_leader_is_elected_when_its_epoch_is_new() -> None:
    image = partitions([1, 2], [1, 2], [2, 1])
    changes = after(
        image,
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC, isr=[1]),
        PartitionChangeRecord(partition_id=1, topic_id=TOPIC, leader=2),
        PartitionChangeRecord(partition_id=2, topic_id=TOPIC, leader=1),
    ).for_broker(1)
    assert (numbers(changes.leading), numbers(changes.elected), numbers(changes.following)) == ([0, 2], [2], [1])
    assert changes.moved == ()


def test_a_replica_moves_to_another_directory() -> None:
    image = partitions([1, 2], [1, 2])
    changes = after(
        image,
        PartitionChangeRecord(partition_id=0, topic_id=TOPIC, directories=[uuid(9), uuid(0)]),
        PartitionChangeRecord(partition_id=1, topic_id=TOPIC, directories=[uuid(0), uuid(9)]),
    )
    assert (numbers(changes.for_broker(1).moved), numbers(changes.for_broker(2).moved)) == ([0], [1])


def test_replicas_are_deleted_with_their_topic_or_alone() -> None:
    image = partitions([1, 2], [2, 3], [1])
    moved = after(image, PartitionChangeRecord(partition_id=0, topic_id=TOPIC, replicas=[2, 3])).for_broker(1)
    assert numbers(moved.deleted) == [0]
    deletion = after(image, RemoveTopicRecord(topic_id=TOPIC))
    assert numbers(deletion.for_broker(1).deleted) == [0, 2]
    assert [topic.name for topic in deletion.topics_deleted] == ["t"]


def test_partitions_of_a_name_include_a_recreated_topic() -> None:
    image = partitions([1], [2])
    other = [TopicRecord(name="u", topic_id=uuid(2)), PartitionRecord(partition_id=0, topic_id=uuid(2), replicas=[1])]
    again = [TopicRecord(name="t", topic_id=uuid(3)), PartitionRecord(partition_id=0, topic_id=uuid(3), replicas=[1])]
    assert after(image, *other).partitions_of("t") == ()
    changes = after(image, RemoveTopicRecord(topic_id=TOPIC), *other, *again).partitions_of("t")
    assert sorted((change.topic.id, change.number, change.new is None) for change in changes) == [
        (TOPIC, 0, True),
        (TOPIC, 1, True),
        (uuid(3), 0, False),
    ]


def test_an_addition_that_is_undone_is_no_change() -> None:
    changes = after(replay([]), AccessControlEntryRecord(id=TOPIC), RemoveAccessControlEntryRecord(id=TOPIC))
    assert changes.acls == ()
