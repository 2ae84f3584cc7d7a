"""Consumer group assignors that are plug-ins, in Python or in Java.

A group decision is synchronous, so the event loop blocks until the assignor returns. A Java class takes a fraction of a
millisecond for a small group, and at most `TIMEOUT_S`.
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
"""The event loop blocks for this long at most: it must be less than the broker's session timeout."""


class PythonAssignor:
    """An assignor that is a Python class."""

    def __init__(self, name: str, plugin: Any) -> None:
        self.name = name
        self._plugin = plugin

    def assign(self, group: coordinator.GroupSpec, image: Image) -> dict[str, Target]:
        """Return the new target assignments by member. Raise AssignmentFailed."""
        try:
            return _targets_by_ids(self._plugin.assign(_group_by_names(group, image)), image)
        except (AssignmentFailed, ApiError):
            raise
        except (Exception, SystemExit) as error:  # a plug-in must not stop the node
            logger.error("the assignor %s failed", self.name, exc_info=error)
            raise UnknownServerError(f"The assignor {self.name} failed.") from error


def _group_by_names(group: coordinator.GroupSpec, image: Image) -> Group:
    """Return the group with topic names instead of ids."""
    topics = {topic.name: topic for topic_id in group.partitions if (topic := image.topic_by_id(topic_id)) is not None}
    members = {
        member_id: Member(
            frozenset(_by_names(dict.fromkeys(reader.topics, ()), image)),
            _by_names(reader.target, image),
            reader.instance_id,
            reader.rack_id,
        )
        for member_id, reader in group.members.items()
    }
    racks = _racks_of_brokers(image)
    return Group(members, {name: Topic(len(topic.partitions), _racks(topic, racks)) for name, topic in topics.items()})


def _by_names(partitions: Mapping[bytes, tuple[int, ...]], image: Image) -> dict[str, tuple[int, ...]]:
    pairs = ((image.topic_by_id(topic_id), numbers) for topic_id, numbers in partitions.items())
    return {topic.name: numbers for topic, numbers in pairs if topic is not None}


def _targets_by_ids(assignment: Mapping[str, Mapping[str, Iterable[int]]], image: Image) -> dict[str, Target]:
    """Return the assignment with topic ids. Raise AssignmentFailed for unknown partitions."""
    return {member_id: dict(_target_by_ids(member_id, owned, image)) for member_id, owned in assignment.items()}


def _target_by_ids(
    member_id: str, owned: Mapping[str, Iterable[int]], image: Image
) -> Iterable[tuple[bytes, tuple[int, ...]]]:
    for name, given in owned.items():
        topic, partitions = image.topic(name), tuple(sorted({*given}))
        if topic is None or any(topic.partition(number) is None for number in partitions):
            raise AssignmentFailed(f"it assigns partitions of {name} to {member_id} that do not exist")
        if partitions:
            yield topic.id, partitions


class JavaAssignor:
    """An assignor that is a Java class, called in the JVM."""

    def __init__(self, name: str, jvm: Jvm, index: int) -> None:
        self.name = name
        self._jvm = jvm
        self._index = index

    def assign(self, group: coordinator.GroupSpec, image: Image) -> dict[str, Target]:
        """Return the new target assignments by member. Raise AssignmentFailed, or CoordinatorLoading without a JVM."""
        answer = self._jvm.ask(self._index, _encode_group(group, image))
        try:
            assignment = answer.result(TIMEOUT_S)
        except Refused as refused:
            raise AssignmentFailed(str(refused)) from None
        except Failed as failed:
            logger.error("the assignor %s failed: %s", self.name, failed)
            raise UnknownServerError(f"The assignor {self.name} failed.") from None
        except TimeoutError:
            logger.error("the assignor %s did not answer within %d s; restarting its JVM", self.name, TIMEOUT_S)
            self._jvm.give_up()
            raise CoordinatorLoading(f"The assignor {self.name} did not answer in time.") from None
        except NoAnswer as error:
            raise CoordinatorLoading(f"The assignor {self.name} is not available: {error}.") from None
        return {
            member_id: {topic_id: tuple(sorted(partitions)) for topic_id, partitions in owned.items() if partitions}
            for member_id, owned in assignment.items()
        }


def _encode_group(group: coordinator.GroupSpec, image: Image) -> list[object]:
    """Encode the group for the JVM: topics by their index in a list, and each set of racks once."""
    places = {topic_id: place for place, topic_id in enumerate(group.partitions)}
    sets: dict[frozenset[str], int] = {}
    racks = _racks_of_brokers(image)
    topics = []
    for topic_id, count in group.partitions.items():
        topic = image.topic_by_id(topic_id) if racks else None
        partition_racks = () if topic is None else _racks(topic, racks)
        topics.append([topic_id, count, numbers(sets.setdefault(names, len(sets)) for names in partition_racks)])
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
    taken = {topic_id: numbers(partitions) for topic_id, partitions in assigned.items()}
    return [int(group.is_uniform), members, topics, [sorted(names) for names in sets], taken]


def _racks_of_brokers(image: Image) -> dict[int, str]:
    return {broker.id: broker.rack for broker in image.brokers.values() if broker.rack is not None}


def _racks(topic: KnownTopic, racks: Mapping[int, str]) -> tuple[frozenset[str], ...]:
    """Return the racks with replicas of each partition. Brokers without a rack do not count."""
    return tuple(
        frozenset(racks[broker] for broker in partition.replicas if broker in racks) for partition in topic.partitions
    )
