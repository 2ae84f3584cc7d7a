"""Groups survive a change of the server: Ottla continues with groups that Kafka stored, and vice versa."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ottla.protocol.errors import NONE
from ottla.protocol.messages.rpc.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.rpc.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.rpc.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla.protocol.messages.rpc.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.rpc.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.rpc.share_fetch import AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest
from ottla.protocol.messages.rpc.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.rpc.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.conformance.differential.harness import Side, produce_request
from tests.conformance.differential.requests import batch
from tests.support.kafka_broker import SETTINGS, KafkaNode
from tests.support.ottla_node import OttlaNode

GROUP = "moving"
READY_S = 30


class Server:
    """The server that runs on the directory now."""

    def __init__(self, side: Side) -> None:
        self._side = side

    def ask(self, request: Any, version: int) -> Any:
        return self._side.ask(request, version)

    def heartbeat(self, member: str, epoch: int, **fields: Any) -> Any:
        """Send a heartbeat until the coordinator is ready, and return the answer."""
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member, member_epoch=epoch, **fields)
        deadline = time.monotonic() + READY_S
        while True:
            self.ask(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
            answer = self.ask(request, 1)
            if answer.error_code not in (14, 15, 16) or time.monotonic() > deadline:
                return answer
            time.sleep(0.05)

    def join(self, member: str, **fields: Any) -> Any:
        answer = self.heartbeat(member, 0, rebalance_timeout_ms=60_000, topic_partitions=[], **fields)
        assert answer.error_code == NONE, answer
        return answer

    def describe(self) -> Any:
        group = self.ask(ConsumerGroupDescribeRequest(group_ids=[GROUP]), 1).groups[0]
        group.members.sort(key=lambda member: member.member_id)
        for member in group.members:
            for assignment in (member.assignment, member.target_assignment):
                for topic in assignment.topic_partitions:
                    topic.partitions.sort()
        return group


@contextmanager
def kafka_on(folder: Path, *, is_new: bool = False) -> Iterator[Server]:
    node = KafkaNode(folder)
    if is_new:
        node.format()
    with node.running():
        side = Side("Kafka", {"PLAINTEXT": node.port}, node.log_tail)
        yield Server(side)
        side.close_all()


@contextmanager
def ottla_on(folder: Path) -> Iterator[Server]:
    node = OttlaNode(folder, SETTINGS)
    with node.running():
        side = Side("Ottla", node.ports, node.log_tail)
        yield Server(side)
        side.close_all()


def test_a_consumer_group_continues_on_the_other_server(tmp_path: Path) -> None:
    with kafka_on(tmp_path, is_new=True) as kafka:
        topic = CreatableTopic(name="read", num_partitions=4, replication_factor=1)
        created = kafka.ask(CreateTopicsRequest(topics=[topic]), 7)
        topic_id = created.topics[0].topic_id
        kafka.join("a", subscribed_topic_names=["read"], instance_id="i1", rack_id="r", server_assignor="range")
        before = kafka.describe()
    with ottla_on(tmp_path) as ottla:
        # The member still has its epoch, and nothing has changed for it: not even the hash of its topics.
        answer = ottla.heartbeat("a", 2, instance_id="i1")
        assert (answer.error_code, answer.member_epoch, answer.assignment) == (NONE, 2, None)
        assert ottla.describe() == before
        ottla.join("b", subscribed_topic_names=[], subscribed_topic_regex="re.d")
        answer = ottla.heartbeat("a", 2, instance_id="i1")
        deadline = time.monotonic() + READY_S
        while answer.assignment is None:
            assert time.monotonic() < deadline
            answer = ottla.heartbeat("a", 2, instance_id="i1")
            time.sleep(0.05)
        kept = answer.assignment.topic_partitions[0].partitions
        assert len(kept) == 2
        before = ottla.describe()
    with kafka_on(tmp_path) as kafka:
        owned = [TopicPartitions(topic_id=topic_id, partitions=kept)]
        answer = kafka.heartbeat("a", 2, instance_id="i1")
        assert (answer.error_code, answer.member_epoch) == (NONE, 2)
        assert kafka.describe() == before
        answer = kafka.heartbeat("a", 2, instance_id="i1", topic_partitions=owned)
        assert (answer.error_code, answer.member_epoch) == (NONE, 3)
        b = next(member for member in before.members if member.member_id == "b")
        answer = kafka.heartbeat("b", b.member_epoch)
        assert answer.error_code == NONE
        assert len(answer.assignment.topic_partitions[0].partitions) == 2


class ShareMember:
    """A member of a share group on the server that runs now."""

    def __init__(self, server: Server, topic_id: bytes) -> None:
        self._server = server
        self._topic_id = topic_id
        self._session = 0

    def join(self) -> None:
        """Join, or continue, and wait for the partition."""
        deadline = time.monotonic() + READY_S
        epoch = 0
        while True:
            self._server.ask(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
            request = ShareGroupHeartbeatRequest(
                group_id=GROUP, member_id="a", member_epoch=epoch, subscribed_topic_names=["read"]
            )
            answer = self._server.ask(request, 1)
            epoch = answer.member_epoch if answer.error_code == NONE else 0
            if answer.error_code == NONE and answer.assignment.topic_partitions:
                return
            assert time.monotonic() < deadline, answer
            time.sleep(0.05)

    def fetch(self, *acks: tuple[int, int, int], most: int = 100) -> list[tuple[int, int, int]]:
        """Fetch until the share partition is loaded, and return the acquired offsets."""
        batches = [
            AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[kind])
            for first, last, kind in acks
        ]
        part = FetchPartition(acknowledgement_batches=batches)
        deadline = time.monotonic() + READY_S
        while True:
            request = ShareFetchRequest(
                group_id=GROUP,
                member_id="a",
                share_session_epoch=self._session,
                max_wait_ms=500,
                min_bytes=1,
                max_records=most,
                batch_size=most,
                share_acquire_mode=1,
                topics=[FetchTopic(topic_id=self._topic_id, partitions=[part])],
            )
            answer = self._server.ask(request, 2)
            assert answer.error_code == NONE, answer
            self._session += 1
            parts = [part for response in answer.responses for part in response.partitions]
            assert not any(part.acknowledge_error_code for part in parts), parts
            runs = [
                (run.first_offset, run.last_offset, run.delivery_count)
                for part in parts
                for run in part.acquired_records
            ]
            if runs or acks:
                return runs
            assert time.monotonic() < deadline, answer

    def describe(self) -> tuple[Any, Any]:
        group = DescribeShareGroupOffsetsRequestGroup(group_id=GROUP, topics=None)
        offsets = self._server.ask(DescribeShareGroupOffsetsRequest(groups=[group]), 1)
        return self._server.ask(ShareGroupDescribeRequest(group_ids=[GROUP]), 1).groups, offsets.groups


def test_a_share_group_continues_on_the_other_server(tmp_path: Path) -> None:
    with kafka_on(tmp_path, is_new=True) as kafka:
        forever = CreatableTopicConfig(name="retention.ms", value="-1")  # the records are old
        topic = CreatableTopic(name="read", num_partitions=1, replication_factor=1, configs=[forever])
        topic_id = kafka.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0].topic_id
        config = AlterableConfig(name="share.auto.offset.reset", value="earliest")
        resource = AlterConfigsResource(resource_type=32, resource_name=GROUP, configs=[config])
        kafka.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
        kafka.ask(produce_request("read", batch(10)), 12)
        member = ShareMember(kafka, topic_id)
        member.join()
        assert member.fetch(most=6) == [(0, 5, 1)]
        assert not member.fetch((0, 1, 1), (2, 3, 2), (4, 4, 3), (5, 5, 2), most=0)
        before = member.describe()
    with ottla_on(tmp_path) as ottla:
        member = ShareMember(ottla, topic_id)
        member.join()
        assert member.describe() == before
        assert member.fetch(most=3) == [(2, 3, 2), (5, 5, 2)]
        assert not member.fetch((2, 2, 1), (3, 3, 2), (5, 5, 2), most=0)
        before = member.describe()
    with kafka_on(tmp_path) as kafka:
        member = ShareMember(kafka, topic_id)
        member.join()
        assert member.describe() == before
        assert member.fetch(most=1) == [(3, 3, 3)]
