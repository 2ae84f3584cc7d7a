"""Plug-ins of a node: what an operator names in `server.properties` to have a say in what the cluster does.

    create.topic.policy.class.name=shop.rules:NamedAfterTeams
    alter.config.policy.class.name=shop.rules:KeepsAWeek
    group.consumer.assignors=shop.assigning:Nearest,uniform

A value with a colon names a module and a class in it, which are imported when the node starts (`PYTHONPATH` says where
else to look). Any other is a class of Java, made for Apache Kafka, which runs in a JVM beside the node: `CLASSPATH` is
its class path, `JAVA_TOOL_OPTIONS` has its options.

    from ottla.plugins import NewTopic, PolicyViolation

    class NamedAfterTeams:
        def configure(self, settings):
            self.teams = settings["shop.teams"].split(",")

        def validate(self, request: NewTopic) -> None:
            if request.name.partition(".")[0] not in self.teams:
                raise PolicyViolation(f"{request.name} is named after no team")

A plug-in is made once, without arguments. It may have `configure(settings)`, which is given the node's configuration
file as it stands, and `close()`, called when the node stops. Policies are asked one question at a time, in a thread of
their own, on the active controller; an assignor is asked on the event loop of the group's coordinator, where all else
waits for it: it should take milliseconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from ottla.controller.view import NewTopic
from ottla.errors import PolicyViolation
from ottla.groups.consumer.assignor import AssignmentFailed

__all__ = [
    "AlterConfigPolicy",
    "AlteredConfigs",
    "AssignmentFailed",
    "Assignor",
    "CreateTopicPolicy",
    "Group",
    "Member",
    "NewTopic",
    "PolicyViolation",
    "Topic",
]


@dataclass(frozen=True, slots=True)
class AlteredConfigs:
    """Settings that somebody wants to alter, for a policy to judge."""

    resource_type: str
    """`TOPIC`, `BROKER`, `GROUP` or `CLIENT_METRICS`."""
    resource_name: str
    """Empty for the default of all brokers."""
    configs: Mapping[str, str | None]
    """Those that would change, with their new values; None takes a setting away."""


class CreateTopicPolicy(Protocol):
    """Judges topics before they are made, and requests that only ask whether they could be."""

    def validate(self, request: NewTopic) -> None:
        """Raise PolicyViolation if there must be no such topic; the client is told the message."""


class AlterConfigPolicy(Protocol):
    """Judges settings before they are altered, and those that new topics come with."""

    def validate(self, request: AlteredConfigs) -> None:
        """Raise PolicyViolation if they must not be altered so; the client is told the message."""


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic that some member of a group reads."""

    partitions: int
    racks: tuple[frozenset[str], ...]
    """The racks in which each partition has replicas."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member of a group, as an assignor sees it."""

    topics: frozenset[str]
    """What it wants to read."""
    partitions: Mapping[str, tuple[int, ...]]
    """What it should have had so far, by topic."""
    instance_id: str | None
    rack_id: str | None


@dataclass(frozen=True, slots=True)
class Group:
    """A consumer group, as an assignor sees it."""

    members: Mapping[str, Member]
    """By their ids."""
    topics: Mapping[str, Topic]
    """By their names: all that some member reads."""


class Assignor(Protocol):
    """Says who of a consumer group should read what. Members ask for it by its name (`group.remote.assignor`)."""

    name: str

    def assign(self, group: Group) -> Mapping[str, Mapping[str, Iterable[int]]]:
        """Partitions by topic, by member id. Whoever is left out gets nothing; raise AssignmentFailed if all should
        stay as it is and the member that speaks is to be told why."""
