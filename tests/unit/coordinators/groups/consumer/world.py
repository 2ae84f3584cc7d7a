"""A group coordinator on virtual time: its machine, its log as bytes, its timers, and a cluster whose topics change."""

import hashlib
import struct
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from itertools import count
from typing import Any
from uuid import UUID

from ottla.config.settings.catalogue import broker_settings
from ottla.coordinators.groups.behaviour import GroupsBehaviour
from ottla.coordinators.groups.consumer.checking import check_heartbeat
from ottla.coordinators.groups.consumer.group import ConsumerGroup
from ottla.coordinators.groups.consumer.heartbeat import heartbeat
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.runtime.deadlines import Deadlines
from ottla.metadata.image.changes import Changes
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import ConfigResource, Partition, ResourceType, Topic
from ottla.protocol.errors import ApiError
from ottla.protocol.messages.rpc.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from ottla.protocol.wire.batch import read_batches
from ottla.storage.state_machine.decision import PARKED, Decision
from ottla.storage.state_machine.entries import Stored, batch_of, entries_of
from ottla.storage.state_machine.machine import Machine

START_MS = 1_700_000_000_000
GROUP = "g"


@cache
def default_of(name: str) -> Any:
    """Return the default of a broker setting."""
    setting = broker_settings()[name]
    assert setting.default is not None
    return setting.parse(setting.default)


def topic(name: str, partitions: int, number: int = 0) -> Topic:
    """Return a topic with replicas on broker 0."""
    topic_id = hashlib.md5(f"{name} {number}".encode()).digest()
    one = Partition((0,), (0,), (), (), 0, 0, 0, (bytes(16),), 0, (), ())
    return Topic(name, topic_id, (one,) * partitions)


class World:
    """One coordinator and its environment."""

    def __init__(self, topics: Mapping[str, int] | None = None, **settings: Any) -> None:
        self.now_ms = START_MS
        self.image = Image(offset=1)
        self.settings: dict[str, Any] = {name.replace("_", "."): value for name, value in settings.items()}
        self.hidden: set[str] = set()
        self.log: list[bytes] = []
        self.written: list[Stored] = []
        self._ids = count(1)
        self._versions = count(1)
        self._behaviour = GroupsBehaviour(self.context)
        for name, partitions in (topics or {}).items():
            self.image = self._with(topic(name, partitions, next(self._versions)))
        self._start(self._behaviour.empty_state())

    # -- environment --

    def setting(self, name: str) -> Any:
        return self.settings[name] if name in self.settings else default_of(name)

    def context(self, version: int = 1, client_id: str = "client") -> Context:
        return Context(
            now_ms=self.now_ms,
            image=self.image,
            settings=self.setting,
            new_id=lambda: str(UUID(int=next(self._ids))),
            client_id=client_id,
            client_host="/127.0.0.1",
            version=version,
            visible=lambda names: set(names) - self.hidden,
        )

    def id_of(self, name: str) -> bytes:
        found = self.image.topic(name)
        assert found is not None
        return found.id

    def name_of(self, topic_id: bytes) -> str:
        found = self.image.topic_by_id(topic_id)
        assert found is not None
        return found.name

    def set_topic(self, name: str, partitions: int) -> None:
        """Create a topic or change its partition count; 0 deletes it."""
        known = self.image.topic(name)
        if partitions == 0:
            assert known is not None
            self._publish(
                replace(
                    self.image,
                    topics=self.image.topics.delete(name),
                    topics_by_id=self.image.topics_by_id.delete(known.id),
                )
            )
        elif known is None:
            self._publish(self._with(topic(name, partitions, next(self._versions))))
        else:
            one = known.partitions[0]
            self._publish(self._with(known._replace(partitions=(one,) * partitions)))

    def configure(self, group_id: str, **settings: str) -> None:
        """Set a group's own settings."""
        resource = ConfigResource(ResourceType.GROUP, group_id)
        given = self.image.config(ResourceType.GROUP, group_id)
        for name, value in settings.items():
            given = given.set(name.replace("_", "."), value)
        self.image = replace(self.image, configs=self.image.configs.set(resource, given))

    def _with(self, new: Topic) -> Image:
        image = self.image
        return replace(image, topics=image.topics.set(new.name, new), topics_by_id=image.topics_by_id.set(new.id, new))

    def _publish(self, image: Image) -> None:
        old, self.image = self.image, replace(image, offset=self.image.offset + 1)
        decision = self._behaviour.on_metadata_changed(self.machine.state, Changes.between(old, self.image))
        if decision is not None:
            self._decide(lambda _: decision)

    # -- the coordinator --

    @property
    def state(self) -> GroupsState:
        return self.machine.state

    def group(self, group_id: str = GROUP) -> ConsumerGroup:
        group = self.state.groups[group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    def reload(self) -> None:
        """Let another coordinator load the log and take over."""
        state = self._behaviour.empty_state()
        for data in self.log:
            for pos, header in read_batches(data):
                state = self._behaviour.replay(state, entries_of(self._behaviour.kinds, data, pos, header), self.now_ms)
        self._start(state)

    def _start(self, state: GroupsState) -> None:
        self._deadlines = Deadlines()
        self.machine: Machine[GroupsState] = Machine(
            append=self._append,
            apply=lambda state, entries, _: self._behaviour.replay(state, entries, self.now_ms),
            now_ms=lambda: self.now_ms,
            clock_ns=lambda: 0,
            set_timers=self._set_timers,
        )
        self.machine.activate(state, len(self.log) - 1)
        self._decide(lambda loaded: self._behaviour.on_loaded(loaded, self.now_ms))

    def _append(self, entries: Sequence[Stored], atomic: bool) -> int:
        self.written += entries
        batch = batch_of(entries, timestamp=self.now_ms)
        struct.pack_into(">q", batch, 0, len(self.log))
        self.log.append(bytes(batch))
        return len(self.log) - 1

    def _set_timers(self, timers: Sequence[tuple[Hashable, int | None]]) -> None:
        for key, at_ms in timers:
            self._deadlines.set(key, at_ms)

    def _decide(self, decide: Any) -> Any:
        results: list[Any] = []
        self.machine.submit("test", decide, results.append)
        self.machine.committed(len(self.log))
        return results[0] if results else None

    def decide(self, decide: Any) -> Any:
        """Return the reply of a decision; raise its error."""
        result = self._decide(decide)
        if isinstance(result, ApiError):
            raise result
        return result

    def pass_time(self, ms: int) -> None:
        """Let time pass, and run the timers that expire."""
        until = self.now_ms + ms
        while (at_ms := self._deadlines.next_ms()) is not None and at_ms <= until:
            self.now_ms = max(self.now_ms, at_ms)
            for key in list(self._deadlines.due(self.now_ms)):
                self._decide(lambda state, key=key: self._behaviour.on_timer(state, key, self.now_ms))
        self.now_ms = until

    # -- requests --

    def heartbeat(
        self, request: ConsumerGroupHeartbeatRequest, version: int = 1, client_id: str = "client"
    ) -> ConsumerGroupHeartbeatResponse:
        context = self.context(version, client_id)
        check_heartbeat(request, context)
        reply = self.decide(lambda state: heartbeat(state, request, context))
        assert isinstance(reply, ConsumerGroupHeartbeatResponse)
        return reply

    def join(self, member: str, topics: Sequence[str] | None = ("t",), **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Send a first heartbeat."""
        names = None if topics is None else list(topics)
        request = ConsumerGroupHeartbeatRequest(
            **{
                "group_id": GROUP,
                "member_id": member,
                "member_epoch": 0,
                "rebalance_timeout_ms": 60_000,
                "subscribed_topic_names": names,
                "topic_partitions": [],
                **fields,
            }
        )
        return self.heartbeat(request)

    def beat(
        self, member: str, epoch: int, owned: Mapping[str, Sequence[int]] | None = None, **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        """Send a later heartbeat."""
        partitions = (
            None
            if owned is None
            else [
                TopicPartitions(topic_id=self.id_of(name), partitions=list(numbers)) for name, numbers in owned.items()
            ]
        )
        return self.heartbeat(
            ConsumerGroupHeartbeatRequest(
                **{
                    "group_id": GROUP,
                    "member_id": member,
                    "member_epoch": epoch,
                    "topic_partitions": partitions,
                    **fields,
                }
            )
        )

    def leave(self, member: str, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        return self.beat(member, -1, **fields)

    def assigned(self, reply: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]] | None:
        """Return the assignment of a response by topic name; None if it has none."""
        if reply.assignment is None:
            return None
        return {self.name_of(each.topic_id): each.partitions for each in reply.assignment.topic_partitions}


def nothing(decision: Decision[Any]) -> bool:
    """Whether a decision changes nothing."""
    return not decision.records and decision.state is None and decision.reply is not PARKED
