"""Members of share groups on both nodes: answers and acquired records must be equal.

members = ShareGroupMembers(both, group)
members.join("a", topic)      # waits until both nodes have assigned the topic's partitions
members.fetch("a", topic)     # fails unless both nodes return the same records
members.acknowledge("a", topic, (0, 4, [1]))
"""

import time
from typing import Any

from ottla.protocol.messages.rpc import share_acknowledge
from ottla.protocol.messages.rpc.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from ottla.protocol.messages.rpc.share_fetch import AcknowledgementBatch, FetchPartition, FetchTopic, ShareFetchRequest
from ottla.protocol.messages.rpc.share_group_describe import ShareGroupDescribeRequest
from ottla.protocol.messages.rpc.share_group_heartbeat import ShareGroupHeartbeatRequest
from tests.conformance.differential.consumer_groups import sort_partitions
from tests.conformance.differential.harness import ANSWER_TIMEOUT_S, Answers, NodePair, Side
from tests.conformance.differential.normalization import Messages
from tests.conformance.differential.requests import topic_id_of

Acknowledged = tuple[int, int, list[int]]
"""First and last offset, and the acknowledgement types."""


class ShareGroupMembers:
    """The members of one share group on both nodes."""

    def __init__(self, both: NodePair, group: str) -> None:
        self.both = both
        self.group = group
        self.epochs: dict[str, int] = {}
        self.sessions: dict[str, int] = {}

    def send_heartbeat(self, member: str, epoch: int, **fields: Any) -> Answers:
        """Send a heartbeat, and return the answers, which must be equal, messages included."""
        request = ShareGroupHeartbeatRequest(
            **{"group_id": self.group, "member_id": member, "member_epoch": epoch, **fields}
        )
        answers = self.both.ask(request, 1)
        for answer in answers:
            sort_partitions(answer.assignment)
        differences = self.both.differences(answers, 1, messages=Messages.EXACTLY)
        assert not differences, (request, differences)
        if not answers.ottla.error_code:
            self.epochs[member] = answers.ottla.member_epoch
        return answers

    def join(self, member: str, *topics: str) -> None:
        """Join, and send heartbeats until both nodes have initialized and assigned the partitions of all topics."""
        self.send_heartbeat(member, 0, subscribed_topic_names=list(topics))
        epochs = dict.fromkeys((side.name for side in self.both.sides), self.epochs[member])
        deadline = time.monotonic() + ANSWER_TIMEOUT_S

        def make(side: Side) -> ShareGroupHeartbeatRequest:
            return ShareGroupHeartbeatRequest(
                group_id=self.group,
                member_id=member,
                member_epoch=epochs[side.name],
                subscribed_topic_names=list(topics),
            )

        while True:
            answers = self.both.ask(make, 1)
            for side, answer in zip(self.both.sides, answers, strict=True):
                assert not answer.error_code, (side, answer)
                epochs[side.name] = answer.member_epoch
            assigned = [
                sum(len(topic.partitions) for topic in answer.assignment.topic_partitions) for answer in answers
            ]
            is_even = len(set(assigned)) == 1 and len(set(epochs.values())) == 1
            if is_even and all(len(answer.assignment.topic_partitions) == len(topics) for answer in answers):
                break
            assert time.monotonic() < deadline, answers
            time.sleep(0.05)
        self.epochs[member] = epochs["Ottla"]

    def compare_group(self) -> None:
        """Check that both nodes describe the group alike."""
        answers = self.both.ask(ShareGroupDescribeRequest(group_ids=[self.group]), 1)
        for answer in answers:
            for member in answer.groups[0].members:
                sort_partitions(member.assignment)
                member.subscribed_topic_names.sort()
        differences = self.both.differences(answers, 1, messages=Messages.EXACTLY)
        assert not differences, differences

    def fetch(
        self, member: str, *topics: str, version: int = 2, acks: tuple[Acknowledged, ...] = (), **fields: Any
    ) -> Answers:
        """Fetch partition 0 of topics in the member's share session; the records must be equal."""
        epoch = fields.pop("epoch", self.sessions.get(member, 0))

        def make(side: Side) -> ShareFetchRequest:
            batches = [
                AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                for first, last, types in acks
            ]
            part = FetchPartition(partition_index=fields.get("partition", 0), acknowledgement_batches=batches)
            fetch_topics = [FetchTopic(topic_id=topic_id_of(side, topic), partitions=[part]) for topic in topics]
            values = {
                "group_id": self.group,
                "member_id": member,
                "share_session_epoch": epoch,
                "max_wait_ms": 1000,
                "min_bytes": 1,
                "max_records": 500,
                "batch_size": 500,
                "topics": fetch_topics,
                **{name: value for name, value in fields.items() if name != "partition"},
            }
            return ShareFetchRequest(**values)

        answers = self.both.expect_same(make, version, messages=Messages.LOOSELY)
        if not answers.ottla.error_code:
            self.sessions[member] = epoch + 1
        return answers

    def acknowledge(self, member: str, topic: str, *acks: Acknowledged, version: int = 2, **fields: Any) -> Answers:
        """Acknowledge records of partition 0 in a request of its own."""
        epoch = fields.pop("epoch", self.sessions.get(member, 0))

        def make(side: Side) -> share_acknowledge.ShareAcknowledgeRequest:
            batches = [
                share_acknowledge.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                for first, last, types in acks
            ]
            part = share_acknowledge.AcknowledgePartition(
                partition_index=fields.get("partition", 0), acknowledgement_batches=batches
            )
            values = {
                "group_id": self.group,
                "member_id": member,
                "share_session_epoch": epoch,
                "topics": [share_acknowledge.AcknowledgeTopic(topic_id=topic_id_of(side, topic), partitions=[part])],
                **{name: value for name, value in fields.items() if name != "partition"},
            }
            return share_acknowledge.ShareAcknowledgeRequest(**values)

        answers = self.both.expect_same(make, version, messages=Messages.LOOSELY)
        if not answers.ottla.error_code:
            self.sessions[member] = epoch + 1
        return answers

    def offsets(self, *topics: str, partitions: tuple[int, ...] = (0,), version: int = 1) -> Answers:
        """Return the group's offsets on both nodes, by default of all its topics."""
        topic_requests = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=list(partitions)) for topic in topics
        ]
        group = DescribeShareGroupOffsetsRequestGroup(group_id=self.group, topics=topic_requests or None)
        return self.both.expect_same(DescribeShareGroupOffsetsRequest(groups=[group]), version)
