"""Assignors as a group coordinator asks them, of either language.

A decision about a group is made in one go, and so the answer is waited for, with all that the node's event loop does:
for a class of Java that is a fraction of a millisecond for a small group, and at most `TIMEOUT_S`.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, Final

from ottla.coordinators.groups.consumer import assignor as coordinator
from ottla.coordinators.groups.consumer.member import Target
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import Topic as KnownTopic
from ottla.plugins import AssignmentFailed, Group, Member, Topic
from ottla.plugins.jvm import Failed, Jvm, NoAnswer, Refused
from ottla.plugins.values import numbers
from ottla.protocol.errors import ApiError, CoordinatorLoading, UnknownServerError

logger = logging.getLogger(__name__)

TIMEOUT_S: Final = 5.0
"""Nothing else happens on the node meanwhile: it must be less than its session with the controller."""


class PythonAssignor:
    """An assignor that is a class of Python."""

    def __init__(self, name: str, plugin: Any) -> None:
        self.name = name
        self._plugin = plugin

    def assign(self, group: coordinator.GroupSpec, image: Image) -> dict[str, Target]:
        """The new targets by member; raises AssignmentFailed."""
        try:
            return _targets(self._plugin.assign(_seen(group, image)), image)
        except (AssignmentFailed, ApiError):
            raise
        except (Exception, SystemExit) as error:  # in whatever way it fails, the node goes on
            logger.error("the assignor %s failed", self.name, exc_info=error)
            raise UnknownServerError(f"The assignor {self.name} failed.") from error


def _seen(group: coordinator.GroupSpec, image: Image) -> Group:
    """The group by names: the plug-in knows no ids."""
    topics = {topic.name: topic for topic_id in group.partitions if (topic := image.topic_by_id(topic_id)) is not None}
    members = {
        member_id: Member(
            frozenset(_named(dict.fromkeys(reader.topics, ()), image)),
            _named(reader.target, image),
            reader.instance_id,
            reader.rack_id,
        )
        for member_id, reader in group.members.items()
    }
    racks = _racks_of_brokers(image)
    return Group(members, {name: Topic(len(topic.partitions), _racks(topic, racks)) for name, topic in topics.items()})


def _named(partitions: Mapping[bytes, tuple[int, ...]], image: Image) -> dict[str, tuple[int, ...]]:
    found = ((image.topic_by_id(topic_id), each) for topic_id, each in partitions.items())
    return {topic.name: each for topic, each in found if topic is not None}


def _targets(made: Mapping[str, Mapping[str, Iterable[int]]], image: Image) -> dict[str, Target]:
    """By ids again; raises AssignmentFailed for what is not there."""
    return {member_id: dict(_target(member_id, owned, image)) for member_id, owned in made.items()}


def _target(
    member_id: str, owned: Mapping[str, Iterable[int]], image: Image
) -> Iterable[tuple[bytes, tuple[int, ...]]]:
    for name, given in owned.items():
        topic, partitions = image.topic(name), tuple(sorted({*given}))
        if topic is None or any(topic.partition(number) is None for number in partitions):
            raise AssignmentFailed(f"it gives {member_id} partitions of {name} that are not there")
        if partitions:
            yield topic.id, partitions


class JavaAssignor:
    """An assignor that is a class of Java, asked in the JVM."""

    def __init__(self, name: str, jvm: Jvm, index: int) -> None:
        self.name = name
        self._jvm = jvm
        self._index = index

    def assign(self, group: coordinator.GroupSpec, image: Image) -> dict[str, Target]:
        """The new targets by member; raises AssignmentFailed, or CoordinatorLoading while nobody can be asked."""
        answer = self._jvm.ask(self._index, _told(group, image))
        try:
            made = answer.result(TIMEOUT_S)
        except Refused as refused:
            raise AssignmentFailed(str(refused)) from None
        except Failed as failed:
            logger.error("the assignor %s failed: %s", self.name, failed)
            raise UnknownServerError(f"The assignor {self.name} failed.") from None
        except TimeoutError:
            logger.error("the assignor %s did not answer within %d s: its JVM is ended", self.name, TIMEOUT_S)
            self._jvm.give_up()
            raise CoordinatorLoading(f"The assignor {self.name} did not answer in time.") from None
        except NoAnswer as error:
            raise CoordinatorLoading(f"The assignor {self.name} cannot be asked: {error}.") from None
        return {
            member_id: {topic_id: tuple(sorted(partitions)) for topic_id, partitions in owned.items() if partitions}
            for member_id, owned in made.items()
        }


def _told(group: coordinator.GroupSpec, image: Image) -> list[object]:
    """The group as it is sent: topics by their place in a list, and each set of racks once."""
    places = {topic_id: place for place, topic_id in enumerate(group.partitions)}
    sets: dict[frozenset[str], int] = {}
    racks = _racks_of_brokers(image)
    topics = []
    for topic_id, count in group.partitions.items():
        topic = image.topic_by_id(topic_id) if racks else None
        known = () if topic is None else _racks(topic, racks)
        topics.append([topic_id, count, numbers(sets.setdefault(each, len(sets)) for each in known)])
    members = [
        [
            member_id,
            reader.instance_id,
            reader.rack_id,
            numbers(places[topic_id] for topic_id in reader.topics),
            {topic_id: numbers(partitions) for topic_id, partitions in reader.target.items()},
        ]
        for member_id, reader in group.members.items()
    ]
    assigned: defaultdict[bytes, list[int]] = defaultdict(list)
    for topic_id, number in group.assigned:
        assigned[topic_id].append(number)
    taken = {topic_id: numbers(each) for topic_id, each in assigned.items()}
    return [int(group.is_uniform), members, topics, [sorted(each) for each in sets], taken]


def _racks_of_brokers(image: Image) -> dict[int, str]:
    return {broker.id: broker.rack for broker in image.brokers.values() if broker.rack is not None}


def _racks(topic: KnownTopic, racks: Mapping[int, str]) -> tuple[frozenset[str], ...]:
    """Where each partition has replicas, as far as their brokers say."""
    return tuple(
        frozenset(racks[broker] for broker in partition.replicas if broker in racks) for partition in topic.partitions
    )
