"""Consumer groups outlive a change of the server: what Kafka wrote Ottla goes on with, and the other way round."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

from ottla.errors import NONE
from ottla.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from ottla.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.messages.find_coordinator import FindCoordinatorRequest
from ottla.wire.declare import schema_of
from tests.differential.harness import ANSWER_TIMEOUT_S, Side, decode_response, frame_of
from tests.differential.ottla_node import OttlaNode
from tests.interop.kafka_broker import SETTINGS, KafkaNode

GROUP = "moving"
READY_S = 30
correlation_ids = count(1)


class Server:
    """Whichever of the two runs on the directory now."""

    def __init__(self, side: Side) -> None:
        self._side = side

    def ask(self, request: Any, version: int) -> Any:
        correlation_id = next(correlation_ids)
        self._side.send(frame_of(request, version, correlation_id, "moving"), "PLAINTEXT")
        frame = self._side.receive("PLAINTEXT", ANSWER_TIMEOUT_S)
        assert isinstance(frame, bytes), frame
        return decode_response(schema_of(type(request)).key, version, frame)[1]

    def beat(self, member: str, epoch: int, **fields: Any) -> Any:
        """The answer to a heartbeat; asked again while the coordinator is not ready."""
        request = ConsumerGroupHeartbeatRequest(group_id=GROUP, member_id=member, member_epoch=epoch, **fields)
        deadline = time.monotonic() + READY_S
        while True:
            self.ask(FindCoordinatorRequest(coordinator_keys=[GROUP]), 4)
            answer = self.ask(request, 1)
            if answer.error_code not in (14, 15, 16) or time.monotonic() > deadline:
                return answer
            time.sleep(0.05)

    def join(self, member: str, **fields: Any) -> Any:
        answer = self.beat(member, 0, rebalance_timeout_ms=60_000, topic_partitions=[], **fields)
        assert answer.error_code == NONE, answer
        return answer

    def described(self) -> Any:
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
        side = Side("Kafka", {"PLAINTEXT": node.port})
        yield Server(side)
        side.close_all()


@contextmanager
def ottla_on(folder: Path) -> Iterator[Server]:
    node = OttlaNode(folder, SETTINGS)
    with node.running():
        side = Side("Ottla", node.ports)
        yield Server(side)
        side.close_all()


def test_a_group_goes_on_with_the_other_server(tmp_path: Path) -> None:
    with kafka_on(tmp_path, is_new=True) as kafka:
        topic = CreatableTopic(name="read", num_partitions=4, replication_factor=1)
        made = kafka.ask(CreateTopicsRequest(topics=[topic]), 7)
        topic_id = made.topics[0].topic_id
        kafka.join("a", subscribed_topic_names=["read"], instance_id="i1", rack_id="r", server_assignor="range")
        before = kafka.described()
    with ottla_on(tmp_path) as ottla:
        # It still has its epoch, and nothing has changed for it: not even the hash of its topics.
        answer = ottla.beat("a", 2, instance_id="i1")
        assert (answer.error_code, answer.member_epoch, answer.assignment) == (NONE, 2, None)
        assert ottla.described() == before
        ottla.join("b", subscribed_topic_names=[], subscribed_topic_regex="re.d")
        answer = ottla.beat("a", 2, instance_id="i1")
        deadline = time.monotonic() + READY_S
        while answer.assignment is None:
            assert time.monotonic() < deadline
            answer = ottla.beat("a", 2, instance_id="i1")
            time.sleep(0.05)
        kept = answer.assignment.topic_partitions[0].partitions
        assert len(kept) == 2
        before = ottla.described()
    with kafka_on(tmp_path) as kafka:
        owned = [TopicPartitions(topic_id=topic_id, partitions=kept)]
        answer = kafka.beat("a", 2, instance_id="i1")
        assert (answer.error_code, answer.member_epoch) == (NONE, 2)
        assert kafka.described() == before
        answer = kafka.beat("a", 2, instance_id="i1", topic_partitions=owned)
        assert (answer.error_code, answer.member_epoch) == (NONE, 3)
        b = next(member for member in before.members if member.member_id == "b")
        answer = kafka.beat("b", b.member_epoch)
        assert answer.error_code == NONE
        assert len(answer.assignment.topic_partitions[0].partitions) == 2
