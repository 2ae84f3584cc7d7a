"""Properties of random histories: snapshots, deltas of any size, changes, placement."""

import random
from collections import Counter, defaultdict
from collections.abc import Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st

from ottla.metadata.image.changes import Changes
from ottla.metadata.image.delta import Delta
from ottla.metadata.image.encoding import decode_record, encode_record
from ottla.metadata.image.image import EMPTY, Image
from ottla.metadata.image.placement import build_placement, count_partitions
from ottla.metadata.image.snapshot import snapshot_records, versioned_snapshot_records
from ottla.metadata.image.values import NO_ENTRIES
from ottla.protocol.metadata_versions import METADATA_VERSIONS
from tests.unit.metadata.image.stories import BROKERS, Story, replay

sources = st.randoms(use_true_random=False)
levels = st.sampled_from(sorted(METADATA_VERSIONS))


def random_story(source: random.Random, steps: int, level: int = 30) -> list[list[object]]:
    return Story(source, level=level).steps(steps)


def without_order(changes: Sequence[object]) -> Counter[object]:
    """By equality: an enumeration's member and its number are one key, though they print as two."""
    return Counter(changes)


@given(sources, st.integers(0, 60), levels)
@settings(max_examples=40, deadline=None)
def test_a_snapshot_restores_the_image(source: random.Random, steps: int, level: int) -> None:
    image = replay([record for step in random_story(source, steps, level) for record in step])
    assert replay(list(snapshot_records(image))) == image
    assert replay([decode_record(encode_record(*pair))[0] for pair in versioned_snapshot_records(image)]) == image


@given(sources, st.integers(0, 60), st.integers(1, 9))
@settings(max_examples=40, deadline=None)
def test_deltas_of_any_size_give_the_same_image(source: random.Random, steps: int, size: int) -> None:
    story = random_story(source, steps)
    image: Image = EMPTY
    for start in range(0, len(story), size):
        image = replay([record for step in story[start : start + size] for record in step], image)
    assert image == replay([record for step in story for record in step])


@given(sources, st.integers(0, 60), st.integers(0, 20))
@example(random.Random(56), 40, 10)  # a topic with configs is removed together with other config changes
@settings(max_examples=40, deadline=None)
def test_a_delta_reports_its_changes(source: random.Random, before: int, size: int) -> None:
    story = random_story(source, before + size)
    old = replay([record for step in story[:before] for record in step])
    delta = Delta(old)
    for step in story[before:]:
        for record in step:
            delta.apply(record)
    new = delta.finish(offset=1, epoch=1, timestamp=1)
    ours, full = delta.changes, Changes.between(old, new)
    for part in (
        "topics_created",
        "topics_deleted",
        "partitions",
        "brokers",
        "controllers",
        "configs",
        "quotas",
        "acls",
        "scram",
        "tokens",
    ):
        assert without_order(getattr(ours, part)) == without_order(getattr(full, part)), part
    for broker in range(BROKERS):
        mine = {(change.topic.name, change.number) for change in ours.for_broker(broker).deleted}
        assert mine == {
            (change.topic.name, change.number)
            for change in full.partitions
            if change.old and broker in change.old.replicas and not (change.new and broker in change.new.replicas)
        }


@given(sources, st.integers(0, 60))
@settings(max_examples=40, deadline=None)
def test_the_placement_follows_the_partitions(source: random.Random, steps: int) -> None:
    image: Image = EMPTY
    assert image.placement == build_placement([])
    for step in random_story(source, steps):
        image = replay(step, image)
        if source.random() < 0.5:
            image.placement  # noqa: B018 (from its first use on, every delta updates it)
    assert image.placement == build_placement(image.topics_by_id.values())
    expected: dict[tuple[str, int], set[tuple[bytes, int]]] = defaultdict(set)
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            place = (topic.id, number)
            for broker in partition.replicas:
                expected["replica", broker].add(place)
            for broker in partition.isr:
                expected["isr", broker].add(place)
            for broker in partition.elr:
                expected["elr", broker].add(place)
            expected["leader", partition.leader].add(place)
            if partition.is_reassigning:
                expected["moving", 0].add(place)
            if partition.leader != partition.preferred_leader:
                expected["imbalanced", 0].add(place)
    for broker in range(BROKERS):
        for kind, found in (
            ("replica", image.partitions_with_replica(broker)),
            ("isr", image.partitions_in_isr(broker)),
            ("elr", image.partitions_in_elr(broker)),
            ("leader", image.partitions_of(image.placement.leaders.get(broker, NO_ENTRIES))),
        ):
            partitions = [(each.topic.id, each.number) for each in found]
            assert partitions == sorted(expected[kind, broker])
        assert count_partitions(image.placement.replicas.get(broker, NO_ENTRIES)) == len(expected["replica", broker])
    assert [(p.topic.id, p.number) for p in image.partitions_without_leader()] == sorted(expected["leader", -1])
    assert [(p.topic.id, p.number) for p in image.partitions_of(image.placement.reassigning)] == sorted(
        expected["moving", 0]
    )
    assert [(p.topic.id, p.number) for p in image.partitions_not_led_by_preferred()] == sorted(
        expected["imbalanced", 0]
    )
