"""Admin calls about topics: make, look at, delete, give more partitions, move, elect."""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from ottla.client.cluster import Cluster
from ottla.client.metadata import Topic, TopicPartition, partition_label
from ottla.client.retries import error_from_code, raise_for_code
from ottla.protocol.errors import ApiError, ElectionNotNeeded, UnknownTopicOrPartition, by_code
from ottla.protocol.messages.rpc.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.rpc.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from ottla.protocol.messages.rpc.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.protocol.messages.rpc.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from ottla.protocol.messages.rpc.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from ottla.protocol.messages.rpc.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)

BROKER_DEFAULT = -1


class CreatedTopic(NamedTuple):
    """A topic as the cluster made it; counts are -1 where the broker does not say."""

    name: str
    id: bytes
    partitions: int
    replicas: int


class Reassignment(NamedTuple):
    """A partition whose replicas are moving."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class TopicCalls:
    """The part of `Admin` that is about topics."""

    cluster: Cluster

    async def topics(self) -> list[Topic]:
        """All topics, internal ones too, by name."""
        return await self.cluster.retry(self.cluster.topics)

    async def topic(self, name: str) -> Topic:
        """A topic as it is now; raises UnknownTopicOrPartition."""
        self.cluster.forget(name)
        return await self.cluster.topic(name)

    async def create_topic(
        self,
        name: str,
        *,
        partitions: int = BROKER_DEFAULT,
        replicas: int = BROKER_DEFAULT,
        assignment: Sequence[Sequence[int]] = (),
        settings: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> CreatedTopic:
        """Make a topic. `assignment` gives the brokers of each partition, and then says how many there are."""
        wanted = CreatableTopic(
            name=name,
            num_partitions=BROKER_DEFAULT if assignment else partitions,
            replication_factor=BROKER_DEFAULT if assignment else replicas,
            assignments=[
                CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                for index, brokers in enumerate(assignment)
            ],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in (settings or {}).items()],
        )

        async def attempt() -> CreatedTopic:
            request = CreateTopicsRequest(topics=[wanted], timeout_ms=self._timeout_ms, validate_only=validate_only)
            answer: CreateTopicsResponse = await self.cluster.send(request)
            (made,) = answer.topics
            _check_topic(name, made.error_code, made.error_message)
            return CreatedTopic(name, made.topic_id, made.num_partitions, made.replication_factor)

        self.cluster.forget(name)
        return await self.cluster.retry(attempt)

    async def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records."""

        async def attempt() -> None:
            request = DeleteTopicsRequest(
                topic_names=[name], topics=[DeleteTopicState(name=name)], timeout_ms=self._timeout_ms
            )
            answer: DeleteTopicsResponse = await self.cluster.send(request)
            (deleted,) = answer.responses
            _check_topic(name, deleted.error_code, deleted.error_message)

        await self.cluster.retry(attempt)
        self.cluster.forget(name)

    async def add_partitions(
        self, name: str, total: int, *, assignment: Sequence[Sequence[int]] = (), validate_only: bool = False
    ) -> None:
        """Give a topic more partitions, so that it has `total` of them. Keys then fall into other partitions."""
        brokers = [CreatePartitionsAssignment(broker_ids=list(each)) for each in assignment]
        wanted = CreatePartitionsTopic(name=name, count=total, assignments=brokers or None)

        async def attempt() -> None:
            request = CreatePartitionsRequest(topics=[wanted], timeout_ms=self._timeout_ms, validate_only=validate_only)
            answer: CreatePartitionsResponse = await self.cluster.send(request)
            (made,) = answer.results
            _check_topic(name, made.error_code, made.error_message)

        await self.cluster.retry(attempt)
        self.cluster.forget(name)

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, ApiError | None]:
        """Elect the preferred leader of partitions, or of all; the error of each, and None where it went well."""
        wanted = None
        if partitions is not None:
            wanted = [TopicPartitions(topic=name, partitions=indexes) for name, indexes in _by_topic(partitions)]

        async def attempt() -> dict[TopicPartition, ApiError | None]:
            request = ElectLeadersRequest(
                election_type=int(unclean), topic_partitions=wanted, timeout_ms=self._timeout_ms
            )
            answer: ElectLeadersResponse = await self.cluster.send(request)
            raise_for_code(answer.error_code, None, "leader election")
            return {
                (topic.topic, each.partition_id): (
                    error_from_code(
                        each.error_code, each.error_message, partition_label(topic.topic, each.partition_id)
                    )
                    if each.error_code not in (0, ElectionNotNeeded.code)
                    else None
                )
                for topic in answer.replica_election_results
                for each in topic.partition_result
            }

        return await self.cluster.retry(attempt)

    async def reassign(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, ApiError | None]:
        """Move partitions to these brokers; None cancels a move. The error of each, and None where it began."""
        topics: dict[str, ReassignableTopic] = {}
        for (name, index), brokers in replicas.items():
            wanted = ReassignablePartition(partition_index=index, replicas=None if brokers is None else list(brokers))
            topics.setdefault(name, ReassignableTopic(name=name)).partitions.append(wanted)

        async def attempt() -> dict[TopicPartition, ApiError | None]:
            request = AlterPartitionReassignmentsRequest(timeout_ms=self._timeout_ms, topics=list(topics.values()))
            answer: AlterPartitionReassignmentsResponse = await self.cluster.send(request)
            raise_for_code(answer.error_code, answer.error_message, "reassignment")
            return {
                (topic.name, each.partition_index): (
                    error_from_code(
                        each.error_code, each.error_message, partition_label(topic.name, each.partition_index)
                    )
                    if each.error_code
                    else None
                )
                for topic in answer.responses
                for each in topic.partitions
            }

        return await self.cluster.retry(attempt)

    async def reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The moves that are under way, of all partitions or of these."""
        wanted = None
        if partitions is not None:
            wanted = [
                ListPartitionReassignmentsTopics(name=name, partition_indexes=indexes)
                for name, indexes in _by_topic(partitions)
            ]

        async def attempt() -> dict[TopicPartition, Reassignment]:
            request = ListPartitionReassignmentsRequest(timeout_ms=self._timeout_ms, topics=wanted)
            answer: ListPartitionReassignmentsResponse = await self.cluster.send(request)
            raise_for_code(answer.error_code, answer.error_message, "reassignments")
            return {
                (topic.name, each.partition_index): Reassignment(
                    tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
                )
                for topic in answer.topics
                for each in topic.partitions
            }

        return await self.cluster.retry(attempt)

    @property
    def _timeout_ms(self) -> int:
        return int(self.cluster.request_timeout_s * 1000)


def _check_topic(name: str, code: int, message: str | None) -> None:
    # Brokers speak of themselves here ("does not host this topic-partition"), where a name was mistyped.
    if code == UnknownTopicOrPartition.code:
        message = "there is no such topic"
    elif code and message and repr(name) in message:
        raise by_code(code)(message)
    raise_for_code(code, message, f"topic {name!r}")


def _by_topic(partitions: Iterable[TopicPartition]) -> Iterable[tuple[str, list[int]]]:
    topics: dict[str, list[int]] = {}
    for name, index in partitions:
        topics.setdefault(name, []).append(index)
    return topics.items()
