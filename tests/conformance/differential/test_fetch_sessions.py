"""Fetch sessions (KIP-227): full, incremental and final requests, forgotten partitions, wrong epochs."""

from random import Random
from typing import Any

import pytest

from tests.conformance.differential.harness import Answers, NodePair
from tests.conformance.differential.requests import Part, batch, fetch

VERSIONS = (7, 9, 11, 12, 13, 15, 17, 18)


class Session:
    """A fetch session on both nodes, and its next epoch."""

    def __init__(self, both: NodePair, version: int) -> None:
        self.both = both
        self.version = version
        self.epoch = 0

    def open(self, *parts: Part, **fields: Any) -> Answers:
        for side in self.both.sides:
            side.memory["session"] = 0
        self.epoch = 0
        return self.ask(*parts, **fields)

    def ask(self, *parts: Part, epoch: int | None = None, version: int | None = None, **fields: Any) -> Answers:
        """Fetch in the session; with an explicit epoch or version, keep the session's next epoch."""
        used = self.version if version is None else version
        request = fetch(used, *parts, session="session", session_epoch=self.epoch if epoch is None else epoch, **fields)
        answers = self.both.expect_same(request, used)
        if epoch is None and version is None:
            self.epoch += 1
            for side, answer in zip(self.both.sides, answers, strict=True):
                if answer.session_id:
                    side.memory["session"] = answer.session_id
        return answers


@pytest.mark.parametrize("version", VERSIONS)
def test_only_changed_partitions_are_returned(both: NodePair, version: int) -> None:
    topic = both.new_topic(partitions=3)
    session = Session(both, version)
    session.open(*(Part(topic, index) for index in range(3)))
    session.ask()
    both.produce(topic, batch(2), partition=1)
    session.ask()
    session.ask()  # the consumer's positions are unchanged
    session.ask(Part(topic, 1, offset=2))
    both.produce(topic, batch(), partition=0)
    both.produce(topic, batch(), partition=1)
    session.ask()
    session.ask(Part(topic, 0, offset=1), Part(topic, 1, offset=3))
    session.ask()


@pytest.mark.parametrize("version", VERSIONS)
def test_partitions_are_added_and_removed(both: NodePair, version: int) -> None:
    topic, other = both.new_topic(partitions=2), both.new_topic()
    both.produce(other, batch())
    session = Session(both, version)
    session.open(Part(topic, 0))
    session.ask(Part(topic, 1), Part(other))
    session.ask(Part(other, offset=1), forgotten=[(topic, 0)])
    both.produce(topic, batch())
    session.ask()
    session.ask(forgotten=[(topic, 5), ("nowhere", 0)])
    session.ask(Part(topic, 0), forgotten=[(topic, 0)])
    session.ask()
    session.ask(forgotten=[(topic, 0), (topic, 1), (other, 0)])


@pytest.mark.parametrize("version", VERSIONS)
def test_wrong_epochs_and_unknown_sessions_are_refused(both: NodePair, version: int) -> None:
    topic = both.new_topic()
    session = Session(both, version)
    session.open(Part(topic))
    session.ask()
    for epoch in (1, 3, 17, -2, 2**31 - 1):
        session.ask(epoch=epoch)
        session.ask(Part(topic), epoch=epoch)
    session.ask()
    for unknown in (1, -7):
        for epoch in (1, 0, -1, 5):
            both.expect_same(fetch(version, Part(topic), session=unknown, session_epoch=epoch), version)
            both.expect_same(fetch(version, session=unknown, session_epoch=epoch), version)
    for epoch in (1, 5, -3):
        both.expect_same(fetch(version, Part(topic), session=0, session_epoch=epoch), version)


@pytest.mark.parametrize("version", VERSIONS)
def test_a_final_request_ends_the_session(both: NodePair, version: int) -> None:
    topic = both.new_topic()
    session = Session(both, version)
    session.open(Part(topic))
    session.ask(Part(topic), epoch=-1)
    session.ask()
    session.open(Part(topic))
    session.ask(epoch=-1)
    session.ask()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_full_request_replaces_the_session(both: NodePair, version: int) -> None:
    topic = both.new_topic(partitions=2)
    session = Session(both, version)
    session.open(Part(topic))
    old = [side.memory["session"] for side in both.sides]
    session.epoch = 0
    session.ask(Part(topic, 1))
    assert [side.memory["session"] for side in both.sides] != old
    session.ask()
    for side, number in zip(both.sides, old, strict=True):
        side.memory["session"] = number
    session.ask(epoch=1)


def test_sessions_with_failed_partitions_get_the_same_answers(both: NodePair) -> None:
    topic = both.new_topic(partitions=2)
    for version in VERSIONS:
        session = Session(both, version)
        session.open(Part(topic, 0), Part("nowhere"), Part(topic, 1, offset=50), Part(topic, 9))
        session.ask()
        session.ask(Part(topic, 1, offset=0))
        session.ask(Part(topic, 1, epoch=3))
        session.ask()
        session.ask(Part(topic, 1, epoch=0))
        session.ask()


def test_mixing_names_and_ids_in_a_session_gets_the_same_answers(both: NodePair) -> None:
    topic = both.new_topic()
    session = Session(both, 12)
    session.open(Part(topic))
    session.ask(Part(topic), epoch=1, version=13)
    session.ask(epoch=1, version=13)
    session = Session(both, 13)
    session.open(Part(topic))
    session.ask(Part(topic), epoch=1, version=12)
    session.ask(epoch=1, version=12)


@pytest.mark.parametrize("version", [12, 13, 18])
def test_sessions_with_a_recreated_topic_get_the_same_answers(both: NodePair, version: int) -> None:
    topic, other = both.new_topic(), both.new_topic()
    both.produce(topic, batch(3))
    session = Session(both, version)
    session.open(Part(topic), Part(other))
    session.ask(Part(topic, offset=3))
    both.delete_topic(topic)
    session.ask()
    session.ask()
    both.create_topic(topic)
    session.ask()
    session.ask(Part(topic))
    session.ask(forgotten=[(topic, 0)])
    session.ask()


def test_sessions_without_partitions_get_the_same_answers(both: NodePair) -> None:
    for version in VERSIONS:
        session = Session(both, version)
        session.open()
        session.ask()
        both.expect_same(fetch(version, session=0, session_epoch=-1), version)


@pytest.mark.parametrize("seed", range(6))
def test_random_sessions_get_the_same_answers(both: NodePair, seed: int) -> None:
    random = Random(seed)
    topics = [both.new_topic(partitions=3) for _ in range(2)]
    places = [(topic, index) for topic in topics for index in range(3)] + [("nowhere", 0)]
    session = Session(both, random.choice(VERSIONS))
    session.open(Part(*places[0]))
    ends: dict[tuple[str, int], int] = {}
    for _ in range(40):
        if random.random() < 0.4:
            topic, index = place = random.choice(places[:-1])
            both.produce(topic, batch(2, value=b"z" * random.randrange(100)), partition=index)
            ends[place] = ends.get(place, 0) + 2
        parts = [
            Part(*place, offset=random.choice((0, ends.get(place, 0), ends.get(place, 0) + 1)), max_bytes=300)
            for place in random.sample(places, random.choice((0, 0, 1, 2)))
        ]
        requested = [(part.topic, part.partition) for part in parts]
        forgotten = [
            place for place in random.sample(places[1:], random.choice((0, 0, 0, 1))) if place not in requested
        ]
        if random.random() < 0.1:
            session.ask(*parts, epoch=random.choice((1, session.epoch + 1)))
        elif random.random() < 0.1:
            session.open(Part(*places[0]), *(part for part in parts if (part.topic, part.partition) != places[0]))
        else:
            session.ask(*parts, forgotten=forgotten)
