"""What clients do in a life, without a client library: each activity leaves the cluster as it was before.

    clients = Clients({1: 9092, 2: 9192})
    clients.topics(50)         # makes 50 topics, writes to them, deletes them
    clients.groups(20)         # 20 groups of each of the four kinds

Names are never used again, except where it says so: a thing that is kept by its name shows.
"""

import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Final
from uuid import uuid4

from bench.harness.node_requests import NoResponse, encode_frame, send_request

from ottla.protocol.messages.rpc.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.rpc.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData
from ottla.protocol.messages.rpc.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest
from ottla.protocol.messages.rpc.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.rpc.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from ottla.protocol.messages.rpc.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.rpc.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.rpc.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.rpc.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.rpc.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.rpc.end_txn import EndTxnRequest
from ottla.protocol.messages.rpc.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.rpc.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.rpc.get_telemetry_subscriptions import GetTelemetrySubscriptionsRequest
from ottla.protocol.messages.rpc.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.rpc.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.rpc.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.rpc.leave_group import LeaveGroupRequest
from ottla.protocol.messages.rpc.list_groups import ListGroupsRequest
from ottla.protocol.messages.rpc.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.rpc.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.rpc.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.rpc.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla.protocol.messages.rpc.streams_group_heartbeat import StreamsGroupHeartbeatRequest, Subtopology, Topology
from ottla.protocol.messages.rpc.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from ottla.protocol.wire.records import Record, build_batch

PATIENCE_S: Final = 60.0
GROUP, TRANSACTION = 0, 1
"""The kinds of coordinators."""
_TOPIC = 2
"""The kind of resource that settings are of."""
_LEAVE = -1
_UNKNOWN_MEMBER, _MEMBER_ID_REQUIRED = 25, 79
_PASSING: Final = (3, 5, 6, 7, 14, 15, 16, 19, 20, 51, 56, _MEMBER_ID_REQUIRED, 85)
"""Errors that a client tries again after: something has just moved, or is about to."""
_SESSION_OVER: Final = (22, 25, 110, 113)
"""Errors of a member whose session has ended."""
_TRIES = 3
_NON_EMPTY_GROUP, _NO_GROUP, _NO_REASSIGNMENT, _ELECTION_NOT_NEEDED = 68, 69, 85, 84


class Failed(AssertionError):
    """Something that has to succeed did not."""

    def __init__(self, what: str, code: int = 0) -> None:
        super().__init__(what)
        self.code = code


class Clients:
    """All that happens on behalf of clients, one thing after the other."""

    def __init__(self, ports: Mapping[int, int], replicas: Sequence[int]) -> None:
        self._ports = dict(ports)
        self._replicas = list(replicas)
        """The brokers that topics are on."""
        self._connections: dict[int, socket.socket] = {}
        self._numbers = count()
        self._leaders: dict[tuple[str, int], int] = {}
        self._client = 0
        """A number in the client id: another one for each activity."""

    # -- asking --

    def open(self, node: int) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._ports[node]), PATIENCE_S)

    def ask(self, request: Any, version: int, node: int | None = None) -> Any:
        """The answer of a node, or of the first one; over a connection that stays open."""
        at = next(iter(self._ports)) if node is None else node
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                if at not in self._connections:
                    self._connections[at] = self.open(at)
                return send_request(self._connections[at], request, version, client_id=f"life-{self._client}")
            except (OSError, NoResponse):
                if at in self._connections:
                    self._connections.pop(at).close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def close(self) -> None:
        for each in self._connections.values():
            each.close()
        self._connections.clear()

    def insist(self, attempt: Callable[[], int], what: str, *, also_good: Iterable[int] = ()) -> None:
        """Try until there is no error, or one that is as good."""
        good, deadline = {0, *also_good}, time.monotonic() + PATIENCE_S
        while (code := attempt()) not in good:
            if code not in _PASSING:
                raise Failed(f"{what} got error {code}", code)
            if time.monotonic() > deadline:
                raise Failed(f"{what} still gets error {code} after {PATIENCE_S:g} s")
            self._leaders.clear()
            time.sleep(0.05)

    def coordinator(self, kind: int, key: str) -> int:
        node = [-1]

        def find() -> int:
            found = self.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4).coordinators[0]
            node[0] = found.node_id
            return int(found.error_code)

        self.insist(find, f"FindCoordinator of {key}")
        return node[0]

    def leader(self, topic: str, part: int = 0) -> int:
        """The leader of a partition; -1 if there is none."""
        if (topic, part) not in self._leaders:
            answer = self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9)
            for each in answer.topics[0].partitions:
                self._leaders[topic, each.partition_index] = each.leader_id
        found = self._leaders.get((topic, part), -1)
        return found if found in self._ports else next(iter(self._ports))

    def become_another(self) -> None:
        """Use another client id from now on."""
        self._client += 1

    def fill_caches(self, keys: int) -> None:
        """Have nodes compute what they remember of a limited number of groups, so that those caches grow no more."""
        self.coordinator(GROUP, "cached")  # there is no coordinator before the topic is made
        for node in self._ports:
            names = [f"cached-{number}" for number in range(keys)]
            self.ask(FindCoordinatorRequest(key_type=GROUP, coordinator_keys=names), 4, node)

    def in_sync(self, topics: Sequence[str]) -> bool:
        """Whether all replicas of some topics are in sync, and the preferred one leads."""
        answer = self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics]), 9)
        return all(
            len(part.isr_nodes) == len(part.replica_nodes) and part.leader_id == part.replica_nodes[0]
            for topic in answer.topics
            for part in topic.partitions
        )

    # -- topics --

    def create(
        self, name: str, partitions: int, replicas: Sequence[Sequence[int]] | None = None, **configs: str
    ) -> None:
        """A topic; its replicas are taken from those given in turn."""
        placed = replicas or [self._turned(number) for number in range(len(self._replicas))]
        self._create([self._topic(name, partitions, placed, configs)])

    def _topic(
        self, name: str, partitions: int, placed: Sequence[Sequence[int]], configs: Mapping[str, str]
    ) -> CreatableTopic:
        return CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(partition_index=number, broker_ids=list(placed[number % len(placed)]))
                for number in range(partitions)
            ],
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )

    def _create(self, topics: list[CreatableTopic]) -> None:
        for each in self.ask(CreateTopicsRequest(topics=topics), 5).topics:
            if each.error_code:
                raise Failed(f"{each.name} cannot be created: error {each.error_code}, {each.error_message}")

    def _turned(self, number: int) -> list[int]:
        at = number % len(self._replicas)
        return self._replicas[at:] + self._replicas[:at]

    def topics(self, many: int) -> None:
        """Topics that are created, written to and deleted, all at once."""
        names = [f"passing-{next(self._numbers)}" for _ in range(many)]
        configs = {"retention_ms": "3600000"}
        self._create([self._topic(name, 1, [self._turned(at)], configs) for at, name in enumerate(names)])
        for name in names[::5]:
            self.produce(name, [(None, b"value")])
        self.ask(MetadataRequest(topics=None), 9)
        for each in self.ask(DeleteTopicsRequest(topic_names=names, timeout_ms=30_000), 5).responses:
            if each.error_code:
                raise Failed(f"{each.name} cannot be deleted: error {each.error_code}")
        for name in names:
            self._leaders.pop((name, 0), None)

    def produce(
        self,
        topic: str,
        pairs: Sequence[tuple[bytes | None, bytes]],
        part: int = 0,
        *,
        transactional_id: str | None = None,
        version: int = 9,
        **producer: Any,
    ) -> None:
        """One batch, with acks=all."""
        now = time.time_ns() // 1_000_000
        batch = build_batch(
            [Record(at, now, key, value) for at, (key, value) in enumerate(pairs)],
            transactional=transactional_id is not None,
            **producer,
        )
        data = PartitionProduceData(index=part, records=bytes(batch))
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=topic, partition_data=[data])],
        )

        def attempt() -> int:
            answer = self.ask(request, version, self.leader(topic, part))
            return int(answer.responses[0].partition_responses[0].error_code)

        self.insist(attempt, f"Produce to {topic}-{part}", also_good=(46,))  # a repetition of what was written

    def compacted(self, topic: str, batches: int, keys: int) -> None:
        """Write the same keys again and again."""
        value = bytes(900)
        for at in range(batches):
            self.produce(topic, [(b"key-%d" % ((at * 64 + key) % keys), value) for key in range(64)])

    def delete_records(self, topic: str) -> None:
        """All that was written to the first partition."""
        wanted = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)])
        request = DeleteRecordsRequest(topics=[wanted], timeout_ms=30_000)

        def attempt() -> int:
            return int(self.ask(request, 2, self.leader(topic)).topics[0].partitions[0].error_code)

        self.insist(attempt, f"DeleteRecords of {topic}")

    def reassign(self, topic: str, partitions: int) -> None:
        """Each partition loses a replica, and gets it again."""
        for kept in (len(self._replicas) - 1, len(self._replicas)):
            wanted = [
                ReassignablePartition(partition_index=number, replicas=self._turned(number)[:kept])
                for number in range(partitions)
            ]
            request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=topic, partitions=wanted)])
            for part in self.ask(request, 0).responses[0].partitions:
                if part.error_code:
                    raise Failed(f"the reassignment of {topic}-{part.partition_index} got error {part.error_code}")
            self.wait(lambda kept=kept: self._has_replicas(topic, kept), f"{topic} has {kept} replicas")  # type: ignore[misc]

    def _has_replicas(self, topic: str, many: int) -> bool:
        answer = self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9)
        return all(
            len(part.replica_nodes) == many and len(part.isr_nodes) == many for part in answer.topics[0].partitions
        )

    def balance(self) -> None:
        """Let the preferred replicas lead."""
        self.ask(ElectLeadersRequest(topic_partitions=None, timeout_ms=30_000), 2)
        self._leaders.clear()

    # -- groups --

    def groups(self, many: int, topic: str) -> None:
        """Groups of all four kinds, whose members join, commit and leave; and some of whose members just disappear."""
        for number in range(many):
            for come_and_go in (self._classic, self._consumer, self._share, self._streams):
                self._in_time(come_and_go, topic, vanishes=number % 5 == 0)

    def _in_time(self, come_and_go: Callable[..., None], topic: str, *, vanishes: bool) -> None:
        """On a machine that is busy, sessions of a few seconds may end too early: then another group does the same."""
        for left in reversed(range(_TRIES)):
            try:
                come_and_go(f"group-{next(self._numbers)}", topic, vanishes=vanishes)
                break
            except Failed as failed:
                if failed.code not in _SESSION_OVER or not left:
                    raise

    def _classic(self, group: str, topic: str, *, vanishes: bool) -> None:
        node = self.coordinator(GROUP, group)
        member = [""]
        generation = [0]

        def join() -> int:
            request = JoinGroupRequest(
                group_id=group,
                session_timeout_ms=2_000,
                rebalance_timeout_ms=2_000,
                member_id=member[0],
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(10))],
            )
            joined = self.ask(request, 5, node)
            member[0], generation[0] = joined.member_id, joined.generation_id
            if joined.error_code == _UNKNOWN_MEMBER:  # a group whose first member has yet to join may be cleaned up
                member[0] = ""
                return _MEMBER_ID_REQUIRED
            return int(joined.error_code)

        self.insist(join, f"JoinGroup of {group}")
        sync = SyncGroupRequest(
            group_id=group,
            generation_id=generation[0],
            member_id=member[0],
            assignments=[SyncGroupRequestAssignment(member_id=member[0], assignment=b"all")],
        )
        self.insist(lambda: int(self.ask(sync, 3, node).error_code), f"SyncGroup of {group}")
        self._commit(node, group, topic, member[0], generation[0])
        if not vanishes:
            leave = LeaveGroupRequest(group_id=group, member_id=member[0])
            self.insist(lambda: int(self.ask(leave, 2, node).error_code), f"LeaveGroup of {group}")
            self._delete_group(node, group)

    def _consumer(self, group: str, topic: str, *, vanishes: bool) -> None:
        node = self.coordinator(GROUP, group)
        member = str(uuid4())
        epoch = [0]

        def beat(at: int) -> int:
            answer = self.ask(
                ConsumerGroupHeartbeatRequest(
                    group_id=group,
                    member_id=member,
                    member_epoch=at,
                    rebalance_timeout_ms=2_000 if at == 0 else -1,
                    subscribed_topic_names=[topic] if at == 0 else None,
                    topic_partitions=[] if at == 0 else None,
                ),
                1,
                node,
            )
            epoch[0] = answer.member_epoch
            return int(answer.error_code)

        self.insist(lambda: beat(0), f"ConsumerGroupHeartbeat of {group}")
        self._commit(node, group, topic, member, epoch[0])
        if not vanishes:
            self.insist(lambda: beat(_LEAVE), f"ConsumerGroupHeartbeat of {group}")
            self._delete_group(node, group)

    def _share(self, group: str, topic: str, *, vanishes: bool) -> None:
        """Its members do not just disappear: share sessions last longer than a round."""
        del vanishes
        node = self.coordinator(GROUP, group)
        member = str(uuid4())

        def beat(at: int) -> int:
            request = ShareGroupHeartbeatRequest(
                group_id=group,
                member_id=member,
                member_epoch=at,
                subscribed_topic_names=[topic] if at == 0 else None,
            )
            return int(self.ask(request, 1, node).error_code)

        # It is deleted with those whose members have disappeared: the log of share states is pruned up to what a group
        # has written last, and only while there is a group.
        self.insist(lambda: beat(0), f"ShareGroupHeartbeat of {group}")
        self.insist(lambda: beat(_LEAVE), f"ShareGroupHeartbeat of {group}")

    def _streams(self, group: str, topic: str, *, vanishes: bool) -> None:
        node = self.coordinator(GROUP, group)
        member = str(uuid4())

        def beat(at: int) -> int:
            joins = at == 0
            request = StreamsGroupHeartbeatRequest(
                group_id=group,
                member_id=member,
                member_epoch=at,
                rebalance_timeout_ms=2_000 if joins else -1,
                topology=Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic])])
                if joins
                else None,
                process_id=member if joins else None,
                active_tasks=[] if joins else None,
                standby_tasks=[] if joins else None,
                warmup_tasks=[] if joins else None,
            )
            return int(self.ask(request, 0, node).error_code)

        self.insist(lambda: beat(0), f"StreamsGroupHeartbeat of {group}")
        if not vanishes:
            self.insist(lambda: beat(_LEAVE), f"StreamsGroupHeartbeat of {group}")
            self._delete_group(node, group)

    def _commit(self, node: int, group: str, topic: str, member: str, epoch: int) -> None:
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="life")
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=epoch,
            member_id=member,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[part])],
        )

        def attempt() -> int:
            return int(self.ask(request, 9, node).topics[0].partitions[0].error_code)

        self.insist(attempt, f"OffsetCommit of {group}")

    def _delete_group(self, node: int, group: str) -> None:
        request = DeleteGroupsRequest(groups_names=[group])
        self.insist(
            lambda: int(self.ask(request, 2, node).results[0].error_code),
            f"DeleteGroups of {group}",
            also_good=(_NO_GROUP,),
        )

    def remove_left_groups(self, kept: Iterable[str]) -> None:
        """Delete the groups whose members have disappeared, once their sessions have ended."""
        kept = {*kept}

        def are_gone() -> bool:
            for node in self._ports:
                for each in self.ask(ListGroupsRequest(), 4, node).groups:
                    if each.group_id not in kept:
                        code = (
                            self.ask(DeleteGroupsRequest(groups_names=[each.group_id]), 2, node).results[0].error_code
                        )
                        if code not in (0, _NO_GROUP, _NON_EMPTY_GROUP, *_PASSING):
                            raise Failed(f"DeleteGroups of {each.group_id} got error {code}")
                        return False
            return True

        self.wait(are_gone, "groups whose members have disappeared are empty, and deleted")

    # -- producers --

    def producers(self, many: int, topic: str) -> None:
        """Idempotent producers that write a batch each, and are not heard of again."""
        for _ in range(many):
            answer = self.ask(InitProducerIdRequest(transactional_id=None), 4)
            if answer.error_code:
                raise Failed(f"InitProducerId got error {answer.error_code}")
            self.produce(
                topic,
                [(None, b"value")],
                producer_id=answer.producer_id,
                producer_epoch=answer.producer_epoch,
                base_sequence=0,
            )

    def transactions(self, many: int, topic: str) -> None:
        """Transactional ids that commit one transaction and abort another, by both versions of the protocol."""
        for number in range(many):
            self._transact(f"transaction-{next(self._numbers)}", topic, is_second=number % 2 == 0)

    def _transact(self, name: str, topic: str, *, is_second: bool) -> None:
        node = self.coordinator(TRANSACTION, name)
        given: list[int] = []

        def begin() -> int:
            answer = self.ask(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=30_000), 4, node)
            given[:] = [answer.producer_id, answer.producer_epoch]
            return int(answer.error_code)

        def end(*, commit: bool) -> int:
            request = EndTxnRequest(
                transactional_id=name, producer_id=given[0], producer_epoch=given[1], committed=commit
            )
            answer = self.ask(request, 5 if is_second else 3, node)
            if is_second and not answer.error_code:
                given[:] = [answer.producer_id, answer.producer_epoch]
            return int(answer.error_code)

        def add() -> int:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=given[0],
                v3_and_below_producer_epoch=given[1],
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
            )
            answer = self.ask(request, 3, node)
            return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

        self.insist(begin, f"InitProducerId of {name}")
        for number, commit in enumerate((True, False)):
            if not is_second:
                self.insist(add, f"AddPartitionsToTxn of {name}")
            self.produce(
                topic,
                [(None, b"value")],
                transactional_id=name,
                version=12 if is_second else 9,
                producer_id=given[0],
                producer_epoch=given[1],
                base_sequence=0 if is_second else number,
            )
            self.insist(lambda commit=commit: end(commit=commit), f"EndTxn of {name}")  # type: ignore[misc]

    # -- connections --

    def connections(self, many: int, topic: str) -> None:
        """Connections that close at once, after an answer, within a request, and while a fetch or a join waits."""
        wanted = FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])
        fetch = FetchRequest(max_wait_ms=30_000, min_bytes=1 << 20, topics=[wanted])
        for node in self._ports:
            for number in range(many):
                with self.open(node) as connection:
                    name = f"life-{next(self._numbers)}"
                    if number % 4 == 1:
                        send_request(connection, ApiVersionsRequest(), 2, client_id=name)
                        request = GetTelemetrySubscriptionsRequest(client_instance_id=uuid4().bytes)
                        send_request(connection, request, 0, client_id=name)
                        # A session, which its client ends: one that it leaves behind takes a slot of the cache.
                        opened = send_request(
                            connection, FetchRequest(session_epoch=0, topics=[wanted]), 12, client_id=name
                        )
                        ended = FetchRequest(session_id=opened.session_id, session_epoch=-1)
                        send_request(connection, ended, 12, client_id=name)
                    elif number % 4 == 2:
                        connection.sendall(struct.pack(">i", 1 << 20) + bytes(1 << 16))
                    elif number % 4 == 3:
                        connection.sendall(encode_frame(fetch, 12, client_id=name))

    # -- settings, and what operators look at --

    def settings(self, many: int, topic: str) -> None:
        """A setting of a topic, and quotas of users and clients, set and taken back."""
        for value in ("10485760", None):
            setting = AlterableConfig(name="retention.bytes", config_operation=0 if value else 1, value=value)
            resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=topic, configs=[setting])
            answer = self.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
            if answer.responses[0].error_code:
                raise Failed(f"the settings of {topic} got error {answer.responses[0].error_code}")
        names = [f"client-{next(self._numbers)}" for _ in range(many)]
        for remove in (False, True):
            entries = [
                EntryData(
                    entity=[EntityData(entity_type="client-id", entity_name=name)],
                    ops=[OpData(key="producer_byte_rate", value=1e9, remove=remove)],
                )
                for name in names
            ]
            for each in self.ask(AlterClientQuotasRequest(entries=entries), 1).entries:
                if each.error_code:
                    raise Failed(f"a quota got error {each.error_code}")

    def look(self) -> None:
        """What an operator's tools ask all the time."""
        for node in self._ports:
            self.ask(MetadataRequest(topics=None), 12, node)
            self.ask(DescribeLogDirsRequest(topics=None), 4, node)
            self.ask(ListGroupsRequest(), 4, node)

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            if time.monotonic() > deadline:
                raise Failed(f"after {PATIENCE_S:g} s still not: {what}")
            time.sleep(0.05)
        self._leaders.clear()
