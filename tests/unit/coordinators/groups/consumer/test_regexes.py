"""Subscriptions by regular expression are resolved outside heartbeats, after topic creations, in bounded steps."""

import pytest

from ottla.coordinators.groups.consumer import regexes
from ottla.coordinators.groups.consumer.group import RegexResolution
from ottla.protocol.errors import InvalidRegularExpression
from ottla.protocol.messages.records.consumer_group_records import ConsumerGroupRegularExpressionKey
from tests.unit.coordinators.groups.consumer.consumers import SimulatedConsumer
from tests.unit.coordinators.groups.consumer.world import World

AT_ONCE = {"group_consumer_assignment_interval_ms": 0}


def test_the_first_response_does_not_wait_for_topic_matching() -> None:
    world = World({"t1": 1, "t2": 2, "other": 1}, **AT_ONCE)
    reply = world.join("a", None, subscribed_topic_regex="t[0-9]")
    assert (reply.member_epoch, world.assigned(reply)) == (1, {})
    assert world.group().regex_resolution is not None
    world.pass_time(0)
    assert world.group().regex_resolution is None
    assert world.group().resolved_regexes["t[0-9]"].topics == {"t1", "t2"}
    reply = world.beat("a", 1)
    assert (reply.member_epoch, world.assigned(reply)) == (2, {"t1": [0], "t2": [0, 1]})


def test_new_topics_are_matched_at_most_at_the_refresh_interval() -> None:
    world = World({"t1": 1}, **AT_ONCE)
    a = SimulatedConsumer(world, "a", [], regex="t.*")
    for _ in range(3):
        a.beat()
        world.pass_time(1)
    assert len(a.partitions()) == 1
    world.set_topic("t2", 1)
    for _ in range(3):
        a.beat()
        world.pass_time(1)
    assert len(a.partitions()) == 1
    world.pass_time(regexes.REFRESH_MIN_MS)
    for _ in range(3):
        a.beat()
        world.pass_time(1)
    assert len(a.partitions()) == 2
    world.set_topic("x", 1)  # looked at, and no reason for a new epoch
    world.pass_time(regexes.REFRESH_MIN_MS + 1)
    before = world.group().epoch
    for _ in range(3):
        a.beat()
        world.pass_time(1)
    assert world.group().epoch == before
    assert world.group().resolved_regexes["t.*"].version == world.image.offset


def test_an_expression_is_deleted_with_its_last_member() -> None:
    world = World({"t1": 1}, **AT_ONCE)
    world.join("a", None, subscribed_topic_regex="t.*")
    world.join("b", None, subscribed_topic_regex="t.*")
    world.pass_time(1)
    world.leave("a")
    assert "t.*" in world.group().resolved_regexes
    world.leave("b")
    assert not world.group().resolved_regexes
    keys = [entry.key for entry in world.written if entry.value is None]
    assert any(isinstance(key, ConsumerGroupRegularExpressionKey) for key in keys)


def test_topics_that_the_member_may_not_describe_do_not_match() -> None:
    world = World({"t1": 1, "t2": 1}, **AT_ONCE)
    world.hidden = {"t2"}
    world.join("a", None, subscribed_topic_regex="t.*")
    world.pass_time(1)
    assert world.group().resolved_regexes["t.*"].topics == {"t1"}


def test_names_and_expressions_combine() -> None:
    world = World({"t1": 1, "t2": 1, "x": 1}, **AT_ONCE)
    a = SimulatedConsumer(world, "a", ["x", "t1"], regex="t.*")
    for _ in range(4):
        a.beat()
        world.pass_time(1)
    assert len(a.partitions()) == 3


def test_an_empty_group_resolves_no_expressions() -> None:
    world = World({"t1": 1})
    world.join("a", None, subscribed_topic_regex="t.*")
    world.leave("a")
    world.pass_time(1)
    assert not world.group().resolved_regexes


def test_a_malformed_expression_is_rejected() -> None:
    world = World({"t1": 1})
    with pytest.raises(InvalidRegularExpression, match="missing closing"):
        world.join("a", None, subscribed_topic_regex="t(")
    assert not world.state.groups
    with pytest.raises(InvalidRegularExpression, match="pattern too large"):
        world.join("a", None, subscribed_topic_regex="x" * 500_000)


@pytest.mark.parametrize(
    "regex", ["(a*)*b", "(a|a)*b", "(a|aa)+$", "(.*)(.*)(.*)(.*)(.*)x", "((a{0,30}){0,30})b", "(x+x+)+y"]
)
def test_hostile_expressions_take_bounded_steps(regex: str) -> None:
    """Each step matches only as many names as the limit of instructions times characters allows."""
    names = tuple(f"{'a' * 200}{number}" for number in range(300))
    resolution = RegexResolution((regex,), names, {}, 1, 1, lambda names: names)
    cost = regexes.compile_regex(regex).programsize + 1
    most = regexes._STEP_COST // (cost * 200) + 1
    steps = 0
    while resolution.names:
        before = len(resolution.names)
        resolution = regexes._match_next_names(resolution)
        assert 0 < before - len(resolution.names) <= most
        steps += 1
    assert steps >= len(names) // most
    assert resolution.matches[regex] == frozenset()
