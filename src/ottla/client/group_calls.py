"""Admin calls about groups: their members, their offsets, and changes to both."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Final, NamedTuple, TypeVar

from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.metadata import TopicPartition, partition_label
from ottla.client.retries import add_location, raise_for_code
from ottla.protocol.errors import ApiError, GroupIdNotFound, UnsupportedVersion
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from ottla.protocol.messages.rpc.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from ottla.protocol.messages.rpc.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from ottla.protocol.messages.rpc.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.messages.rpc.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsResponse,
)
from ottla.protocol.messages.rpc.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.rpc.list_groups import ListGroupsRequest, ListGroupsResponse
from ottla.protocol.messages.rpc.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from ottla.protocol.messages.rpc.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from ottla.protocol.messages.rpc.share_group_describe import Assignment as ShareAssignment
from ottla.protocol.messages.rpc.share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from ottla.protocol.messages.rpc.streams_group_describe import (
    Member,
    StreamsGroupDescribeRequest,
    StreamsGroupDescribeResponse,
)
from ottla.protocol.wire.codec import decode_from
from ottla.protocol.wire.errors import ProtocolError

T = TypeVar("T")

_FIRST_FOR_MANY_KEYS: Final = 4
_FIRST_FOR_MANY_GROUPS: Final = 8
_LAST_BY_NAME: Final = 9
"""Later versions of OffsetCommit and OffsetFetch name topics by id."""
_DEAD: Final = "Dead"


class ListedGroup(NamedTuple):
    """A group and its coordinator."""

    id: str
    kind: str
    """Such as classic, consumer, streams or share. Empty if the broker does not report it."""
    state: str
    protocol_type: str
    coordinator: int


class ShareGroupOffset(NamedTuple):
    """The start offset of a share group in a partition, and its lag. -1 means not yet known."""

    offset: int
    lag: int


class GroupMember(NamedTuple):
    id: str
    instance_id: str | None
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]
    """Its assignment, or nothing if it cannot be decoded."""


class DescribedGroup(NamedTuple):
    id: str
    kind: str
    state: str
    protocol: str
    """The assignor of a consumer group, or the protocol of a classic group."""
    coordinator: int
    members: tuple[GroupMember, ...]


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


class GroupCalls:
    """The calls of `Admin` about groups."""

    cluster: Cluster

    async def groups(self, *, states: Iterable[str] = (), kinds: Iterable[str] = ()) -> list[ListedGroup]:
        """Return the groups of all brokers, filtered by states and kinds, sorted by name."""
        request = ListGroupsRequest(states_filter=list(states), types_filter=list(kinds))

        async def ask(node: int) -> list[ListedGroup]:
            answer: ListGroupsResponse = await self.cluster.send(request, node=node)
            raise_for_code(answer.error_code, None, f"groups of broker {node}")
            return [
                ListedGroup(group.group_id, group.group_type, group.group_state, group.protocol_type, node)
                for group in answer.groups
            ]

        await self.cluster.retry(self.cluster.refresh)
        answers = await asyncio.gather(*(self.cluster.retry(partial(ask, node)) for node in sorted(self.cluster.nodes)))
        return sorted(group for groups in answers for group in groups)

    async def group(self, group_id: str) -> DescribedGroup:
        """Return a group with its members. Raise GroupIdNotFound."""

        async def ask(connection: Connection, node: int) -> DescribedGroup:
            for describe in (self._consumer_group, self._streams_group, self._share_group):
                try:
                    return await describe(connection, node, group_id)
                except (GroupIdNotFound, UnsupportedVersion):
                    continue
            return await self._classic_group(connection, node, group_id)

        return await self._ask_coordinator(group_id, ask)

    async def committed_offsets(self, group_id: str) -> dict[TopicPartition, CommittedOffset]:
        """Return all committed offsets of a group."""

        async def ask(connection: Connection, node: int) -> dict[TopicPartition, CommittedOffset]:
            version = connection.version_of(ApiKey.OFFSET_FETCH, at_most=_LAST_BY_NAME)
            request = OffsetFetchRequest(
                group_id=group_id, topics=None, groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)]
            )
            answer: OffsetFetchResponse = await connection.send(request, version=version)
            group = answer.groups[0] if version >= _FIRST_FOR_MANY_GROUPS else answer
            raise_for_code(group.error_code, None, f"group {group_id!r}")
            return {
                (topic.name, offset.partition_index): CommittedOffset(
                    offset.committed_offset, offset.committed_leader_epoch, offset.metadata or ""
                )
                for topic in group.topics
                for offset in topic.partitions
            }

        return await self._ask_coordinator(group_id, ask)

    async def share_group_offsets(self, group_id: str) -> dict[TopicPartition, ShareGroupOffset]:
        """Return the start offsets of a share group, for all its partitions."""

        async def ask(connection: Connection, node: int) -> dict[TopicPartition, ShareGroupOffset]:
            query = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
            answer: DescribeShareGroupOffsetsResponse = await connection.send(
                DescribeShareGroupOffsetsRequest(groups=[query])
            )
            (group,) = answer.groups
            raise_for_code(group.error_code, group.error_message, f"group {group_id!r}")
            return {
                (topic.topic_name, offset.partition_index): ShareGroupOffset(offset.start_offset, offset.lag)
                for topic in group.topics
                for offset in topic.partitions
            }

        return await self._ask_coordinator(group_id, ask)

    async def commit_offsets(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a group. Fails unless the group is empty."""
        topics: dict[str, OffsetCommitRequestTopic] = {}
        for (topic, index), offset in offsets.items():
            part = OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
            topics.setdefault(topic, OffsetCommitRequestTopic(name=topic)).partitions.append(part)
        request = OffsetCommitRequest(group_id=group_id, topics=list(topics.values()))

        async def ask(connection: Connection, node: int) -> None:
            version = connection.version_of(ApiKey.OFFSET_COMMIT, at_most=_LAST_BY_NAME)
            answer: OffsetCommitResponse = await connection.send(request, version=version)
            for topic in answer.topics:
                for partition in topic.partitions:
                    raise_for_code(partition.error_code, None, partition_label(topic.name, partition.partition_index))

        await self._ask_coordinator(group_id, ask)

    async def delete_group(self, group_id: str) -> None:
        """Delete an empty group and its offsets."""

        async def ask(connection: Connection, node: int) -> None:
            answer: DeleteGroupsResponse = await connection.send(DeleteGroupsRequest(groups_names=[group_id]))
            raise_for_code(answer.results[0].error_code, None, f"group {group_id!r}")

        await self._ask_coordinator(group_id, ask)

    async def _ask_coordinator(self, group_id: str, ask: Callable[[Connection, int], Awaitable[T]]) -> T:
        async def attempt() -> T:
            try:
                node = await self._coordinator_of_group(group_id)
                return await ask(await self.cluster.connection(node), node)
            except ApiError as error:
                raise add_location(error, f"group {group_id!r}") from error

        return await self.cluster.retry(attempt)

    async def _coordinator_of_group(self, group_id: str) -> int:
        connection = await self.cluster.any_connection()
        version = connection.version_of(ApiKey.FIND_COORDINATOR)
        request = FindCoordinatorRequest(key=group_id, coordinator_keys=[group_id])
        answer: FindCoordinatorResponse = await connection.send(request, version=version)
        coordinator = answer.coordinators[0] if version >= _FIRST_FOR_MANY_KEYS else answer
        raise_for_code(coordinator.error_code, None, f"group {group_id!r}")
        return coordinator.node_id

    async def _consumer_group(self, connection: Connection, node: int, group_id: str) -> DescribedGroup:
        answer: ConsumerGroupDescribeResponse = await connection.send(
            ConsumerGroupDescribeRequest(group_ids=[group_id])
        )
        (group,) = answer.groups
        raise_for_code(group.error_code, group.error_message, f"group {group_id!r}")
        members = (
            GroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                _partitions(member.assignment),
            )
            for member in group.members
        )
        return DescribedGroup(group_id, "consumer", group.group_state, group.assignor_name, node, tuple(members))

    async def _streams_group(self, connection: Connection, node: int, group_id: str) -> DescribedGroup:
        answer: StreamsGroupDescribeResponse = await connection.send(StreamsGroupDescribeRequest(group_ids=[group_id]))
        (group,) = answer.groups
        raise_for_code(group.error_code, group.error_message, f"group {group_id!r}")
        subtopologies = [] if group.topology is None else group.topology.subtopologies or []
        sources = {
            subtopology.subtopology_id: sorted(
                {*subtopology.source_topics, *(topic.name for topic in subtopology.repartition_source_topics)}
            )
            for subtopology in subtopologies
        }
        members = (
            GroupMember(
                member.member_id, member.instance_id, member.client_id, member.client_host, _tasks(member, sources)
            )
            for member in group.members
        )
        return DescribedGroup(group_id, "streams", group.group_state, "", node, tuple(members))

    async def _share_group(self, connection: Connection, node: int, group_id: str) -> DescribedGroup:
        answer: ShareGroupDescribeResponse = await connection.send(ShareGroupDescribeRequest(group_ids=[group_id]))
        (group,) = answer.groups
        raise_for_code(group.error_code, group.error_message, f"group {group_id!r}")
        members = (
            GroupMember(member.member_id, None, member.client_id, member.client_host, _partitions(member.assignment))
            for member in group.members
        )
        return DescribedGroup(group_id, "share", group.group_state, group.assignor_name, node, tuple(members))

    async def _classic_group(self, connection: Connection, node: int, group_id: str) -> DescribedGroup:
        answer: DescribeGroupsResponse = await connection.send(DescribeGroupsRequest(groups=[group_id]))
        (group,) = answer.groups
        if group.error_code == GroupIdNotFound.code or group.group_state == _DEAD:
            raise GroupIdNotFound(f"group {group_id!r}: there is no such group")
        raise_for_code(group.error_code, group.error_message, f"group {group_id!r}")
        members = (
            GroupMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                _assigned(member.member_assignment),
            )
            for member in group.members
        )
        return DescribedGroup(group_id, "classic", group.group_state, group.protocol_data, node, tuple(members))


def _partitions(assignment: Assignment | ShareAssignment) -> tuple[TopicPartition, ...]:
    return tuple(
        (topic.topic_name, index) for topic in assignment.topic_partitions for index in sorted(topic.partitions)
    )


def _tasks(member: Member, sources: Mapping[str, Iterable[str]]) -> tuple[TopicPartition, ...]:
    """Return the source partitions of a member's active tasks."""
    return tuple(
        (topic, index)
        for tasks in member.assignment.active_tasks
        for topic in sources.get(tasks.subtopology_id, ())
        for index in sorted(tasks.partitions)
    )


def _assigned(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions of a consumer's assignment, or nothing if the member is not a consumer."""
    if len(data) < 2:
        return ()
    try:
        assignment, _ = decode_from(ConsumerProtocolAssignment, 0, memoryview(data)[2:])
    except ProtocolError:
        return ()
    return tuple((topic.topic, index) for topic in assignment.assigned_partitions for index in sorted(topic.partitions))
