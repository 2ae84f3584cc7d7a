"""Client activities without a client library. Each of them leaves the cluster as it was before.

    clients = Clients({1: 9092, 2: 9192}, [1, 2])
    clients.run_topics(50)             # creates 50 topics, writes to them, deletes them
    clients.run_groups(20, "topic")    # 20 groups of each of the four types

Activities never use a name again unless they say so, so that anything kept by name shows up as growth.
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

TIMEOUT_S: Final = 60.0
GROUP, TRANSACTION = 0, 1
"""The key types of FindCoordinator."""
_TOPIC = 2
"""The resource type of topic configs."""
_LEAVE = -1
_UNKNOWN_MEMBER, _MEMBER_ID_REQUIRED = 25, 79
_TRANSIENT: Final = (3, 5, 6, 7, 14, 15, 16, 19, 20, 51, 56, _MEMBER_ID_REQUIRED, 85)
"""Errors after which a client retries, because leadership or coordination is moving."""
_SESSION_OVER: Final = (22, 25, 110, 113)
"""Errors of a member whose session has expired."""
_TRIES = 3
_NON_EMPTY_GROUP, _NO_GROUP, _NO_REASSIGNMENT, _ELECTION_NOT_NEEDED = 68, 69, 85, 84


class Failed(AssertionError):
    """A request that must succeed failed."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class Clients:
    """The activities of clients, which run one after the other."""

    def __init__(self, ports: Mapping[int, int], replicas: Sequence[int]) -> None:
        self._ports = dict(ports)
        self._replicas = list(replicas)
        """The brokers that have the replicas of topics."""
        self._connections: dict[int, socket.socket] = {}
        self._numbers = count()
        self._leaders: dict[tuple[str, int], int] = {}
        self._activity = 0
        """The number in the client id, which changes with each activity."""

    # -- requests --

    def connect(self, node: int) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._ports[node]), TIMEOUT_S)

    def send(self, request: Any, version: int, node: int | None = None) -> Any:
        """Send a request to a node (default: the first) over a persistent connection, and return the response."""
        target = next(iter(self._ports)) if node is None else node
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            try:
                if target not in self._connections:
                    self._connections[target] = self.connect(target)
                client_id = f"life-{self._activity}"
                return send_request(self._connections[target], request, version, client_id=client_id)
            except (OSError, NoResponse):
                if target in self._connections:
                    self._connections.pop(target).close()
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def retry(self, attempt: Callable[[], int], name: str, *, accepted: Iterable[int] = ()) -> None:
        """Retry until the error code is zero or one of the accepted codes."""
        successes, deadline = {0, *accepted}, time.monotonic() + TIMEOUT_S
        while (code := attempt()) not in successes:
            if code not in _TRANSIENT:
                raise Failed(f"{name} got error {code}", code)
            if time.monotonic() > deadline:
                raise Failed(f"{name} still gets error {code} after {TIMEOUT_S:g} s")
            self._leaders.clear()
            time.sleep(0.05)

    def find_coordinator(self, key_type: int, key: str) -> int:
        node = [-1]

        def find() -> int:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            coordinator = self.send(request, 4).coordinators[0]
            node[0] = coordinator.node_id
            return int(coordinator.error_code)

        self.retry(find, f"FindCoordinator of {key}")
        return node[0]

    def find_leader(self, topic: str, part: int = 0) -> int:
        """Return the leader of a partition, or the first node if it is unknown."""
        if (topic, part) not in self._leaders:
            answer = self.send(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9)
            for partition in answer.topics[0].partitions:
                self._leaders[topic, partition.partition_index] = partition.leader_id
        leader = self._leaders.get((topic, part), -1)
        return leader if leader in self._ports else next(iter(self._ports))

    def change_client_id(self) -> None:
        """Use a new client id from now on."""
        self._activity += 1

    def fill_caches(self, keys: int) -> None:
        """Fill the caches that nodes have for a limited number of group names, so that these do not grow any more."""
        self.find_coordinator(GROUP, "cached")  # creates the offsets topic
        for node in self._ports:
            names = [f"cached-{number}" for number in range(keys)]
            self.send(FindCoordinatorRequest(key_type=GROUP, coordinator_keys=names), 4, node)

    def are_in_sync(self, topics: Sequence[str]) -> bool:
        """Whether all replicas of these topics are in sync and the preferred replicas lead."""
        answer = self.send(MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in topics]), 9)
        return all(
            len(part.isr_nodes) == len(part.replica_nodes) and part.leader_id == part.replica_nodes[0]
            for topic in answer.topics
            for part in topic.partitions
        )

    # -- topics --

    def create(
        self, name: str, partitions: int, replicas: Sequence[Sequence[int]] | None = None, **configs: str
    ) -> None:
        """Create a topic whose partitions take the given replica lists in turn."""
        replica_lists = replicas or [self._rotated_replicas(number) for number in range(len(self._replicas))]
        self._create([self._topic(name, partitions, replica_lists, configs)])

    def _topic(
        self, name: str, partitions: int, replica_lists: Sequence[Sequence[int]], configs: Mapping[str, str]
    ) -> CreatableTopic:
        return CreatableTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[
                CreatableReplicaAssignment(
                    partition_index=number, broker_ids=list(replica_lists[number % len(replica_lists)])
                )
                for number in range(partitions)
            ],
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )

    def _create(self, topics: list[CreatableTopic]) -> None:
        for topic in self.send(CreateTopicsRequest(topics=topics), 5).topics:
            if topic.error_code:
                raise Failed(f"cannot create topic {topic.name}: error {topic.error_code}, {topic.error_message}")

    def _rotated_replicas(self, number: int) -> list[int]:
        start = number % len(self._replicas)
        return self._replicas[start:] + self._replicas[:start]

    def run_topics(self, count: int) -> None:
        """Create topics, write to some of them, and delete all."""
        names = [f"temporary-{next(self._numbers)}" for _ in range(count)]
        configs = {"retention_ms": "3600000"}
        self._create(
            [self._topic(name, 1, [self._rotated_replicas(index)], configs) for index, name in enumerate(names)]
        )
        for name in names[::5]:
            self.produce(name, [(None, b"value")])
        self.send(MetadataRequest(topics=None), 9)
        for topic in self.send(DeleteTopicsRequest(topic_names=names, timeout_ms=30_000), 5).responses:
            if topic.error_code:
                raise Failed(f"cannot delete topic {topic.name}: error {topic.error_code}")
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
        """Produce one batch with acks=all."""
        now = time.time_ns() // 1_000_000
        batch = build_batch(
            [Record(index, now, key, value) for index, (key, value) in enumerate(pairs)],
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
            answer = self.send(request, version, self.find_leader(topic, part))
            return int(answer.responses[0].partition_responses[0].error_code)

        self.retry(attempt, f"Produce to {topic}-{part}", accepted=(46,))  # DUPLICATE_SEQUENCE_NUMBER

    def run_rewrites(self, topic: str, batches: int, keys: int) -> None:
        """Write the same keys repeatedly."""
        value = bytes(900)
        for batch in range(batches):
            self.produce(topic, [(b"key-%d" % ((batch * 64 + key) % keys), value) for key in range(64)])

    def delete_records(self, topic: str) -> None:
        """Delete all records of the first partition."""
        deletion = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=-1)])
        request = DeleteRecordsRequest(topics=[deletion], timeout_ms=30_000)

        def attempt() -> int:
            return int(self.send(request, 2, self.find_leader(topic)).topics[0].partitions[0].error_code)

        self.retry(attempt, f"DeleteRecords of {topic}")

    def reassign(self, topic: str, partitions: int) -> None:
        """Remove a replica of each partition, then add it again."""
        for replicas in (len(self._replicas) - 1, len(self._replicas)):
            reassignments = [
                ReassignablePartition(partition_index=number, replicas=self._rotated_replicas(number)[:replicas])
                for number in range(partitions)
            ]
            request = AlterPartitionReassignmentsRequest(
                topics=[ReassignableTopic(name=topic, partitions=reassignments)]
            )
            for part in self.send(request, 0).responses[0].partitions:
                if part.error_code:
                    raise Failed(f"the reassignment of {topic}-{part.partition_index} got error {part.error_code}")
            self.wait(lambda replicas=replicas: self._has_replicas(topic, replicas), f"{topic} has {replicas} replicas")  # type: ignore[misc]

    def _has_replicas(self, topic: str, replicas: int) -> bool:
        answer = self.send(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 9)
        return all(
            len(part.replica_nodes) == replicas and len(part.isr_nodes) == replicas
            for part in answer.topics[0].partitions
        )

    def elect_preferred_leaders(self) -> None:
        """Let the preferred replicas lead all partitions."""
        self.send(ElectLeadersRequest(topic_partitions=None, timeout_ms=30_000), 2)
        self._leaders.clear()

    # -- groups --

    def run_groups(self, count: int, topic: str) -> None:
        """Let members of groups of all four types join, commit and leave. Some members vanish without leaving."""
        for number in range(count):
            for run_group in (
                self._run_classic_group,
                self._run_consumer_group,
                self._run_share_group,
                self._run_streams_group,
            ):
                self._retry_expired(run_group, topic, vanishes=number % 5 == 0)

    def _retry_expired(self, run_group: Callable[..., None], topic: str, *, vanishes: bool) -> None:
        """Run a group, and retry with another name if its session expires, which happens on a busy machine."""
        for retries_left in reversed(range(_TRIES)):
            try:
                run_group(f"group-{next(self._numbers)}", topic, vanishes=vanishes)
                break
            except Failed as failed:
                if failed.code not in _SESSION_OVER or not retries_left:
                    raise

    def _run_classic_group(self, group: str, topic: str, *, vanishes: bool) -> None:
        node = self.find_coordinator(GROUP, group)
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
            joined = self.send(request, 5, node)
            member[0], generation[0] = joined.member_id, joined.generation_id
            if joined.error_code == _UNKNOWN_MEMBER:  # an empty group may be deleted before its first member joins
                member[0] = ""
                return _MEMBER_ID_REQUIRED
            return int(joined.error_code)

        self.retry(join, f"JoinGroup of {group}")
        sync = SyncGroupRequest(
            group_id=group,
            generation_id=generation[0],
            member_id=member[0],
            assignments=[SyncGroupRequestAssignment(member_id=member[0], assignment=b"all")],
        )
        self.retry(lambda: int(self.send(sync, 3, node).error_code), f"SyncGroup of {group}")
        self._commit(node, group, topic, member[0], generation[0])
        if not vanishes:
            leave = LeaveGroupRequest(group_id=group, member_id=member[0])
            self.retry(lambda: int(self.send(leave, 2, node).error_code), f"LeaveGroup of {group}")
            self._delete_group(node, group)

    def _run_consumer_group(self, group: str, topic: str, *, vanishes: bool) -> None:
        node = self.find_coordinator(GROUP, group)
        member = str(uuid4())
        epoch = [0]

        def heartbeat(member_epoch: int) -> int:
            joins = member_epoch == 0
            answer = self.send(
                ConsumerGroupHeartbeatRequest(
                    group_id=group,
                    member_id=member,
                    member_epoch=member_epoch,
                    rebalance_timeout_ms=2_000 if joins else -1,
                    subscribed_topic_names=[topic] if joins else None,
                    topic_partitions=[] if joins else None,
                ),
                1,
                node,
            )
            epoch[0] = answer.member_epoch
            return int(answer.error_code)

        self.retry(lambda: heartbeat(0), f"ConsumerGroupHeartbeat of {group}")
        self._commit(node, group, topic, member, epoch[0])
        if not vanishes:
            self.retry(lambda: heartbeat(_LEAVE), f"ConsumerGroupHeartbeat of {group}")
            self._delete_group(node, group)

    def _run_share_group(self, group: str, topic: str, *, vanishes: bool) -> None:
        """Ignore `vanishes`, because share sessions last longer than a round."""
        del vanishes
        node = self.find_coordinator(GROUP, group)
        member = str(uuid4())

        def heartbeat(member_epoch: int) -> int:
            request = ShareGroupHeartbeatRequest(
                group_id=group,
                member_id=member,
                member_epoch=member_epoch,
                subscribed_topic_names=[topic] if member_epoch == 0 else None,
            )
            return int(self.send(request, 1, node).error_code)

        # `delete_abandoned_groups` deletes it: the log of share states is pruned up to the last write of a group, and
        # only while there is a group.
        self.retry(lambda: heartbeat(0), f"ShareGroupHeartbeat of {group}")
        self.retry(lambda: heartbeat(_LEAVE), f"ShareGroupHeartbeat of {group}")

    def _run_streams_group(self, group: str, topic: str, *, vanishes: bool) -> None:
        node = self.find_coordinator(GROUP, group)
        member = str(uuid4())

        def heartbeat(member_epoch: int) -> int:
            joins = member_epoch == 0
            request = StreamsGroupHeartbeatRequest(
                group_id=group,
                member_id=member,
                member_epoch=member_epoch,
                rebalance_timeout_ms=2_000 if joins else -1,
                topology=Topology(subtopologies=[Subtopology(subtopology_id="0", source_topics=[topic])])
                if joins
                else None,
                process_id=member if joins else None,
                active_tasks=[] if joins else None,
                standby_tasks=[] if joins else None,
                warmup_tasks=[] if joins else None,
            )
            return int(self.send(request, 0, node).error_code)

        self.retry(lambda: heartbeat(0), f"StreamsGroupHeartbeat of {group}")
        if not vanishes:
            self.retry(lambda: heartbeat(_LEAVE), f"StreamsGroupHeartbeat of {group}")
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
            return int(self.send(request, 9, node).topics[0].partitions[0].error_code)

        self.retry(attempt, f"OffsetCommit of {group}")

    def _delete_group(self, node: int, group: str) -> None:
        request = DeleteGroupsRequest(groups_names=[group])
        self.retry(
            lambda: int(self.send(request, 2, node).results[0].error_code),
            f"DeleteGroups of {group}",
            accepted=(_NO_GROUP,),
        )

    def delete_abandoned_groups(self, kept: Iterable[str]) -> None:
        """Delete the groups whose members have vanished, after their sessions have expired."""
        kept = {*kept}

        def are_deleted() -> bool:
            for node in self._ports:
                for group in self.send(ListGroupsRequest(), 4, node).groups:
                    if group.group_id not in kept:
                        request = DeleteGroupsRequest(groups_names=[group.group_id])
                        code = self.send(request, 2, node).results[0].error_code
                        if code not in (0, _NO_GROUP, _NON_EMPTY_GROUP, *_TRANSIENT):
                            raise Failed(f"DeleteGroups of {group.group_id} got error {code}")
                        return False
            return True

        self.wait(are_deleted, "groups whose members have vanished are deleted")

    # -- producers --

    def run_producers(self, count: int, topic: str) -> None:
        """Write one batch with each of several idempotent producers."""
        for _ in range(count):
            answer = self.send(InitProducerIdRequest(transactional_id=None), 4)
            if answer.error_code:
                raise Failed(f"InitProducerId got error {answer.error_code}")
            self.produce(
                topic,
                [(None, b"value")],
                producer_id=answer.producer_id,
                producer_epoch=answer.producer_epoch,
                base_sequence=0,
            )

    def run_transactions(self, count: int, topic: str) -> None:
        """Commit a transaction and abort another with each of several ids, by both versions of the protocol."""
        for number in range(count):
            self._run_transactions_of(f"transaction-{next(self._numbers)}", topic, is_version_2=number % 2 == 0)

    def _run_transactions_of(self, name: str, topic: str, *, is_version_2: bool) -> None:
        node = self.find_coordinator(TRANSACTION, name)
        producer: list[int] = []
        """The producer id and epoch."""

        def begin() -> int:
            answer = self.send(InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=30_000), 4, node)
            producer[:] = [answer.producer_id, answer.producer_epoch]
            return int(answer.error_code)

        def end(*, commit: bool) -> int:
            request = EndTxnRequest(
                transactional_id=name, producer_id=producer[0], producer_epoch=producer[1], committed=commit
            )
            answer = self.send(request, 5 if is_version_2 else 3, node)
            if is_version_2 and not answer.error_code:
                producer[:] = [answer.producer_id, answer.producer_epoch]
            return int(answer.error_code)

        def add() -> int:
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=name,
                v3_and_below_producer_id=producer[0],
                v3_and_below_producer_epoch=producer[1],
                v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=[0])],
            )
            answer = self.send(request, 3, node)
            return int(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

        self.retry(begin, f"InitProducerId of {name}")
        for number, commit in enumerate((True, False)):
            if not is_version_2:
                self.retry(add, f"AddPartitionsToTxn of {name}")
            self.produce(
                topic,
                [(None, b"value")],
                transactional_id=name,
                version=12 if is_version_2 else 9,
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=0 if is_version_2 else number,
            )
            self.retry(lambda commit=commit: end(commit=commit), f"EndTxn of {name}")  # type: ignore[misc]

    # -- connections --

    def run_connections(self, count: int, topic: str) -> None:
        """Open connections and close them at once, after a response, within a request, or while a fetch waits."""
        fetch_topic = FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, partition_max_bytes=1 << 20)])
        fetch = FetchRequest(max_wait_ms=30_000, min_bytes=1 << 20, topics=[fetch_topic])
        for node in self._ports:
            for number in range(count):
                with self.connect(node) as connection:
                    name = f"life-{next(self._numbers)}"
                    if number % 4 == 1:
                        send_request(connection, ApiVersionsRequest(), 2, client_id=name)
                        request = GetTelemetrySubscriptionsRequest(client_instance_id=uuid4().bytes)
                        send_request(connection, request, 0, client_id=name)
                        # The client closes its fetch session; an abandoned one keeps a slot of the cache.
                        open_session = FetchRequest(session_epoch=0, topics=[fetch_topic])
                        session_id = send_request(connection, open_session, 12, client_id=name).session_id
                        close_session = FetchRequest(session_id=session_id, session_epoch=-1)
                        send_request(connection, close_session, 12, client_id=name)
                    elif number % 4 == 2:
                        connection.sendall(struct.pack(">i", 1 << 20) + bytes(1 << 16))
                    elif number % 4 == 3:
                        connection.sendall(encode_frame(fetch, 12, client_id=name))

    # -- settings and administration --

    def run_settings(self, count: int, topic: str) -> None:
        """Set and remove a config of a topic and quotas of clients."""
        for value in ("10485760", None):
            setting = AlterableConfig(name="retention.bytes", config_operation=0 if value else 1, value=value)
            resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=topic, configs=[setting])
            answer = self.send(IncrementalAlterConfigsRequest(resources=[resource]), 1)
            if answer.responses[0].error_code:
                raise Failed(f"the config of {topic} got error {answer.responses[0].error_code}")
        names = [f"client-{next(self._numbers)}" for _ in range(count)]
        for remove in (False, True):
            entries = [
                EntryData(
                    entity=[EntityData(entity_type="client-id", entity_name=name)],
                    ops=[OpData(key="producer_byte_rate", value=1e9, remove=remove)],
                )
                for name in names
            ]
            for entry in self.send(AlterClientQuotasRequest(entries=entries), 1).entries:
                if entry.error_code:
                    raise Failed(f"a quota got error {entry.error_code}")

    def run_admin_requests(self) -> None:
        """Send the requests of typical administration tools to all nodes."""
        for node in self._ports:
            self.send(MetadataRequest(topics=None), 12, node)
            self.send(DescribeLogDirsRequest(topics=None), 4, node)
            self.send(ListGroupsRequest(), 4, node)

    def wait(self, is_true: Callable[[], bool], condition: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while not is_true():
            if time.monotonic() > deadline:
                raise Failed(f"not true after {TIMEOUT_S:g} s: {condition}")
            time.sleep(0.05)
        self._leaders.clear()
