"""Admin calls about topics: create, describe, delete, add partitions, elect leaders, reassign replicas."""

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
    """A topic as the cluster created it. Counts are -1 if the broker does not report them."""

    name: str
    id: bytes
    partitions: int
    replicas: int


class Reassignment(NamedTuple):
    """The reassignment of a partition's replicas."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class TopicCalls:
    """The calls of `Admin` about topics."""

    cluster: Cluster

    async def topics(self) -> list[Topic]:
        """Return all topics, including internal ones, sorted by name."""
        return await self.cluster.retry(self.cluster.topics)

    async def topic(self, name: str) -> Topic:
        """Return the current state of a topic. Raise UnknownTopicOrPartition."""
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
        """Create a topic. `assignment` lists the brokers of each partition, in place of `partitions` and `replicas`."""
        topic = CreatableTopic(
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
            request = CreateTopicsRequest(topics=[topic], timeout_ms=self._timeout_ms, validate_only=validate_only)
            answer: CreateTopicsResponse = await self.cluster.send(request)
            (created,) = answer.topics
            _check_topic(name, created.error_code, created.error_message)
            return CreatedTopic(name, created.topic_id, created.num_partitions, created.replication_factor)

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
        """Add partitions to a topic until it has `total`. This changes the partition of many keys."""
        brokers = [CreatePartitionsAssignment(broker_ids=list(replicas)) for replicas in assignment]
        topic = CreatePartitionsTopic(name=name, count=total, assignments=brokers or None)

        async def attempt() -> None:
            request = CreatePartitionsRequest(topics=[topic], timeout_ms=self._timeout_ms, validate_only=validate_only)
            answer: CreatePartitionsResponse = await self.cluster.send(request)
            (result,) = answer.results
            _check_topic(name, result.error_code, result.error_message)

        await self.cluster.retry(attempt)
        self.cluster.forget(name)

    async def elect_leaders(
        self, partitions: Iterable[TopicPartition] | None = None, *, unclean: bool = False
    ) -> dict[TopicPartition, ApiError | None]:
        """Elect the preferred leaders of partitions, or of all. Return the error of each, or None for success."""
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
                (topic.topic, result.partition_id): (
                    error_from_code(
                        result.error_code, result.error_message, partition_label(topic.topic, result.partition_id)
                    )
                    if result.error_code not in (0, ElectionNotNeeded.code)
                    else None
                )
                for topic in answer.replica_election_results
                for result in topic.partition_result
            }

        return await self.cluster.retry(attempt)

    async def reassign(
        self, replicas: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, ApiError | None]:
        """Move partitions to these brokers; None cancels a move. Return the error of each, or None for success."""
        topics: dict[str, ReassignableTopic] = {}
        for (name, index), brokers in replicas.items():
            wanted = ReassignablePartition(partition_index=index, replicas=None if brokers is None else list(brokers))
            topics.setdefault(name, ReassignableTopic(name=name)).partitions.append(wanted)

        async def attempt() -> dict[TopicPartition, ApiError | None]:
            request = AlterPartitionReassignmentsRequest(timeout_ms=self._timeout_ms, topics=list(topics.values()))
            answer: AlterPartitionReassignmentsResponse = await self.cluster.send(request)
            raise_for_code(answer.error_code, answer.error_message, "reassignment")
            return {
                (topic.name, result.partition_index): (
                    error_from_code(
                        result.error_code, result.error_message, partition_label(topic.name, result.partition_index)
                    )
                    if result.error_code
                    else None
                )
                for topic in answer.responses
                for result in topic.partitions
            }

        return await self.cluster.retry(attempt)

    async def reassignments(
        self, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return the reassignments in progress, of these partitions or of all."""
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
                (topic.name, result.partition_index): Reassignment(
                    tuple(result.replicas), tuple(result.adding_replicas), tuple(result.removing_replicas)
                )
                for topic in answer.topics
                for result in topic.partitions
            }

        return await self.cluster.retry(attempt)

    @property
    def _timeout_ms(self) -> int:
        return int(self.cluster.request_timeout_s * 1000)


def _check_topic(name: str, code: int, message: str | None) -> None:
    # The broker's own message ("This server does not host this topic-partition.") does not help with a mistyped name.
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
