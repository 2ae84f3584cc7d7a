"""The cost of images, as counts of executed Python lines: counts do not depend on the machine."""

from collections.abc import Callable
from functools import partial

import pytest

from ottla.metadata.image.image import Image
from ottla.protocol.messages.records.metadata_records import PartitionChangeRecord, PartitionRecord, TopicRecord
from tests.support.counting import count_lines
from tests.unit.metadata.image.stories import replay, uuid


def topic(number: int, partitions: int) -> list[object]:
    return [
        TopicRecord(name=f"t{number}", topic_id=uuid(number)),
        *(
            PartitionRecord(partition_id=index, topic_id=uuid(number), replicas=[0, 1, 2], isr=[0, 1, 2], leader=0)
            for index in range(partitions)
        ),
    ]


def topics(count: int, partitions: int = 1) -> list[object]:
    return [record for number in range(count) for record in topic(number, partitions)]


def test_partitions_with_the_same_replicas_share_them() -> None:
    image = replay(topics(2, 3))
    held = [partition for each in image.topics.values() for partition in each.partitions]
    assert len(held) == 6
    assert len({id(partition.replicas) for partition in held} | {id(partition.isr) for partition in held}) == 1
    assert len({id(partition.directories) for partition in held}) == 1


def change(image: Image) -> Image:
    return replay([PartitionChangeRecord(partition_id=0, topic_id=uuid(1), leader=1, isr=[1])], image)


@pytest.mark.parametrize("make", [lambda size: topic(1, size), topics], ids=["partitions", "topics"])
def test_a_large_creation_is_linear(make: Callable[[int], list[object]]) -> None:
    replay(make(1))  # compiles the records' constructors
    small, large = (count_lines(partial(replay, make(size))) for size in (200, 2000))
    assert large < 11 * small


@pytest.mark.parametrize("with_placement", [False, True])
def test_the_cost_of_a_change_does_not_depend_on_the_image(with_placement: bool) -> None:
    costs = []
    for size in (10, 5000):
        image = replay(topics(size))
        if with_placement:
            image.placement  # noqa: B018 (made, it is followed)
        change(image)  # compiles the record's constructor
        costs.append(count_lines(partial(change, image)))
    assert costs[0] == costs[1]
    assert costs[0] < 500


def test_only_a_used_placement_costs_time() -> None:
    image = replay(topics(3))
    costs = []
    for is_placed in (False, True):
        if is_placed:
            image.placement  # noqa: B018 (made, it is followed)
        records = list(topic(7, partitions=500))
        costs.append(count_lines(partial(replay, records, image)))
        after = replay(records, image)
    assert costs[1] - costs[0] < 50
    assert count_lines(lambda: after.placement) > 500
    assert count_lines(lambda: after.placement) < 10


def test_a_change_copies_its_own_topic_only() -> None:
    image = replay(topics(50, partitions=3))
    after = change(image)
    differing = [name for name in image.topics if after.topics[name] is not image.topics[name]]
    assert differing == ["t1"]
    old, new = image.topics["t1"], after.topics["t1"]
    assert [a is b for a, b in zip(old.partitions, new.partitions, strict=True)] == [False, True, True]
