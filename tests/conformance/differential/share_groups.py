"""Members of share groups beside both nodes: what they say and acquire must be equal.

walker = ShareWalker(both, group)
walker.join("a", topic)      # waits until both nodes have assigned the topic's partitions
walker.fetch("a", topic)     # fails unless both nodes give the same records
walker.acknowledge("a", topic, (0, 4, [1]))
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
from tests.conformance.differential.harness import ANSWER_TIMEOUT_S, Answers, Both, Side
from tests.conformance.differential.normal import Messages
from tests.conformance.differential.requests import id_of

Acked = tuple[int, int, list[int]]
"""First and last offset, and what became of the records."""


class ShareWalker:
    """Members of one share group, as both nodes know them."""

    def __init__(self, both: Both, group: str) -> None:
        self.both = both
        self.group = group
        self.epochs: dict[str, int] = {}
        self.sessions: dict[str, int] = {}

    def say(self, member: str, epoch: int, **fields: Any) -> Answers:
        """The answers to a heartbeat, which must be equal, messages included."""
        request = ShareGroupHeartbeatRequest(
            **{"group_id": self.group, "member_id": member, "member_epoch": epoch, **fields}
        )
        answers = self.both.ask(request, 1)
        for each in answers:
            sort_partitions(each.assignment)
        found = self.both.differences(answers, 1, messages=Messages.EXACTLY)
        assert not found, (request, found)
        if not answers.ottla.error_code:
            self.epochs[member] = answers.ottla.member_epoch
        return answers

    def join(self, member: str, *topics: str) -> None:
        """Join, and speak until both nodes have made the states of all topics, and assigned their partitions."""
        self.say(member, 0, subscribed_topic_names=list(topics))
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
            assigned = [sum(len(each.partitions) for each in answer.assignment.topic_partitions) for answer in answers]
            is_even = len(set(assigned)) == 1 and len(set(epochs.values())) == 1
            if is_even and all(len(answer.assignment.topic_partitions) == len(topics) for answer in answers):
                break
            assert time.monotonic() < deadline, answers
            time.sleep(0.05)
        self.epochs[member] = epochs["Ottla"]

    def look(self) -> None:
        """Both tell the same of the group."""
        answers = self.both.ask(ShareGroupDescribeRequest(group_ids=[self.group]), 1)
        for answer in answers:
            for member in answer.groups[0].members:
                sort_partitions(member.assignment)
                member.subscribed_topic_names.sort()
        found = self.both.differences(answers, 1, messages=Messages.EXACTLY)
        assert not found, found

    def fetch(
        self, member: str, *topics: str, version: int = 2, acks: tuple[Acked, ...] = (), **fields: Any
    ) -> Answers:
        """A share fetch of partition 0 of topics, in the member's session; it must bring the same."""
        epoch = fields.pop("epoch", self.sessions.get(member, 0))

        def make(side: Side) -> ShareFetchRequest:
            batches = [
                AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                for first, last, types in acks
            ]
            part = FetchPartition(partition_index=fields.get("partition", 0), acknowledgement_batches=batches)
            named = [FetchTopic(topic_id=id_of(side, topic), partitions=[part]) for topic in topics]
            how = {
                "group_id": self.group,
                "member_id": member,
                "share_session_epoch": epoch,
                "max_wait_ms": 1000,
                "min_bytes": 1,
                "max_records": 500,
                "batch_size": 500,
                "topics": named,
                **{name: value for name, value in fields.items() if name != "partition"},
            }
            return ShareFetchRequest(**how)

        answers = self.both.same(make, version, messages=Messages.LOOSELY)
        if not answers.ottla.error_code:
            self.sessions[member] = epoch + 1
        return answers

    def acknowledge(self, member: str, topic: str, *acks: Acked, version: int = 2, **fields: Any) -> Answers:
        """What became of records of partition 0, said on its own."""
        epoch = fields.pop("epoch", self.sessions.get(member, 0))

        def make(side: Side) -> share_acknowledge.ShareAcknowledgeRequest:
            batches = [
                share_acknowledge.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)
                for first, last, types in acks
            ]
            part = share_acknowledge.AcknowledgePartition(
                partition_index=fields.get("partition", 0), acknowledgement_batches=batches
            )
            how = {
                "group_id": self.group,
                "member_id": member,
                "share_session_epoch": epoch,
                "topics": [share_acknowledge.AcknowledgeTopic(topic_id=id_of(side, topic), partitions=[part])],
                **{name: value for name, value in fields.items() if name != "partition"},
            }
            return share_acknowledge.ShareAcknowledgeRequest(**how)

        answers = self.both.same(make, version, messages=Messages.LOOSELY)
        if not answers.ottla.error_code:
            self.sessions[member] = epoch + 1
        return answers

    def offsets(self, *topics: str, partitions: tuple[int, ...] = (0,), version: int = 1) -> Answers:
        """Where the group stands, on both; without topics in all that it knows."""
        named = [
            DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=list(partitions)) for topic in topics
        ]
        group = DescribeShareGroupOffsetsRequestGroup(group_id=self.group, topics=named or None)
        return self.both.same(DescribeShareGroupOffsetsRequest(groups=[group]), version)
