"""The cost of a new image in the group coordinator, as counts of executed Python lines."""

from dataclasses import replace
from itertools import count

import pytest
from immutables import Map

from ottla.coordinators.groups.behaviour import GroupsBehaviour
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.epoch_group import REFRESH_DUE, RefreshDeadline
from ottla.coordinators.groups.share.group import ShareGroup
from ottla.coordinators.groups.state import GroupsState
from ottla.metadata.image.changes import Changes
from ottla.metadata.image.image import Image
from tests.support.counting import count_lines
from tests.unit.coordinators.groups.consumer.world import topic

NOW_MS = 1_700_000_000_000
LOOKED_AT = RefreshDeadline(NOW_MS + 60_000, 1)


def with_topics(number: int, partitions: int = 1) -> Changes:
    """Return the changes of an image with new topics."""
    old, made = Image(offset=1), [topic(f"t{each}", partitions) for each in range(number)]
    new = replace(
        old,
        offset=2,
        topics=Map({each.name: each for each in made}),
        topics_by_id=Map({each.id: each for each in made}),
    )
    return Changes.between(old, new)


def context() -> Context:
    return Context(
        now_ms=NOW_MS,
        image=Image(),
        settings=lambda name: 0,
        new_id=count().__repr__,
        client_id="",
        client_host="",
        version=1,
        visible=lambda names: names,
    )


def groups(kind: type[ConsumerGroup] | type[ShareGroup], number: int, topic_name: str) -> GroupsState:
    """Return groups that are subscribed to one topic each, with current topic hashes."""
    names = Map({topic_name: 1})
    return GroupsState(
        Map(
            {
                f"g{each}": kind(f"g{each}", subscriber_counts=names, refresh_deadline=LOOKED_AT)
                for each in range(number)
            }
        )
    )


@pytest.mark.parametrize("kind", [ConsumerGroup, ShareGroup])
def test_created_topics_are_not_looked_up_in_each_group(kind: type[ConsumerGroup] | type[ShareGroup]) -> None:
    behaviour, state = GroupsBehaviour(context), groups(kind, 200, "another")
    few, many = (
        count_lines(lambda changes=changes: behaviour.on_metadata_changed(state, changes))  # type: ignore[misc]
        for changes in (with_topics(10), with_topics(400))
    )
    assert many < 2 * few + 10 * 400


def test_all_shards_share_one_scan_of_created_partitions() -> None:
    behaviour, changes = GroupsBehaviour(context), with_topics(1, partitions=2_000)
    first = count_lines(lambda: behaviour.on_metadata_changed(GroupsState(), changes))
    others = count_lines(lambda: [behaviour.on_metadata_changed(GroupsState(), changes) for _ in range(49)])
    assert others < first


@pytest.mark.parametrize("kind", [ConsumerGroup, ShareGroup])
@pytest.mark.parametrize("number", [1, 40])
def test_groups_notice_changes_of_their_topics(kind: type[ConsumerGroup] | type[ShareGroup], number: int) -> None:
    behaviour = GroupsBehaviour(context)
    decision = behaviour.on_metadata_changed(groups(kind, 1, "t0"), with_topics(number))
    assert decision is not None
    assert decision.state is not None
    noticed = decision.state.groups["g0"]
    assert isinstance(noticed, ConsumerGroup | ShareGroup)
    assert noticed.refresh_deadline == REFRESH_DUE
