"""Operations of a share group that need its group coordinator and the share coordinators of its share partitions.

Share partitions are initialized when a group begins to read a topic, altered and deleted on request, and deleted before
the group. The group coordinator records the start of each operation, the share coordinators execute it, and the group
coordinator records the result.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.describing import delete_group
from ottla.coordinators.groups.share import states as rules
from ottla.coordinators.groups.share.heartbeat import StatesToInitialize
from ottla.coordinators.groups.share.partitions import PartitionsByTopic
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.runtime.shards import Shards
from ottla.coordinators.runtime.share.sharing import Sharing
from ottla.coordinators.runtime.share.states import DELETE, INITIALIZE, SUMMARIZE
from ottla.coordinators.share.sessions import TopicIdPartition
from ottla.coordinators.share.state import SharePartitionKey
from ottla.metadata.image.image import Image
from ottla.protocol.errors import ApiError, LeaderNotAvailable, by_code
from ottla.protocol.messages.rpc import delete_share_group_state as deleting
from ottla.protocol.messages.rpc import initialize_share_group_state as initializing
from ottla.protocol.messages.rpc import read_share_group_state_summary as summarizing
from ottla.protocol.messages.rpc.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.replication.partitions import Partitions
from ottla.replication.runtime import Spawn
from ottla.storage.log.partition_log import Isolation
from ottla.storage.state_machine.decision import Ticket

logger = logging.getLogger(__name__)

_LATEST = -1


class ShareGroups:
    """Operations on the share partitions of groups."""

    def __init__(
        self,
        groups: Shards[GroupsState],
        sharing: Sharing,
        partitions: Partitions,
        context: Callable[[], Context],
        spawn: Spawn,
    ) -> None:
        self._groups = groups
        self._sharing = sharing
        self._partitions = partitions
        self._context = context
        self._spawn = spawn

    # -- initialization --

    def initialize(self, states: StatesToInitialize) -> None:
        """Initialize the share partitions that a group needs. Later heartbeats assign them."""
        self._spawn(self._initialize_in_background(states))

    async def _initialize_in_background(self, states: StatesToInitialize) -> None:
        await self._initialize(states)

    async def alter(self, group_id: str, topics: Sequence[Any]) -> rules.OffsetAlteration:
        """Set the start offsets of a group without members; the result has an error for each failed partition."""
        context = self._context()
        altered = await self._groups.shard_for(group_id).ask(
            "AlterShareGroupOffsets", lambda state: rules.alter_offsets(state, group_id, topics, context)
        )
        failed = await self._initialize(altered.states) if altered.states.offsets else {}
        for topic in altered.topics:
            for part in topic.partitions:
                error = failed.get((topic.topic_id, part.partition_index))
                if error is not None:
                    part.error_code, part.error_message = error.code, error.message
        return altered

    async def _initialize(self, states: StatesToInitialize) -> dict[TopicIdPartition, ApiError]:
        requests = [
            (
                SharePartitionKey(states.group_id, topic_id, number),
                initializing.PartitionData(partition=number, state_epoch=states.epoch, start_offset=start),
            )
            for topic_id, offsets in states.offsets.items()
            for number, start in offsets.items()
        ]
        results = await self._sharing.states.ask_all(INITIALIZE, requests)
        failed = _failures((key for key, _ in requests), results)
        topics = {topic_id: list(offsets) for topic_id, offsets in states.offsets.items()}
        if failed:
            logger.error(
                "cannot initialize share partitions of group %s: %s; the next heartbeat retries",
                states.group_id,
                next(iter(failed.values())),
            )
        await self._record_outcome(
            "InitializeStates", rules.record_failed if failed else rules.record_initialized, states.group_id, topics
        )
        return failed

    async def _record_outcome(
        self, name: str, decide: Callable[..., Any], group_id: str, topics: PartitionsByTopic
    ) -> None:
        context = self._context()
        try:
            shard = self._groups.shard_for(group_id)
            await shard.ask(name, lambda state: decide(state, group_id, topics, context))
        except ApiError as error:
            # The group coordinator has recorded the operation as in progress, and its successor continues it.
            logger.warning("cannot record the outcome of %s for share group %s: %s", name, group_id, error)

    # -- deletion --

    def delete(self, group_id: str, ticket: Ticket) -> None:
        """Delete a group and its share partitions; the ticket is answered as by `delete_group`."""
        self._spawn(self._delete(group_id, ticket))

    async def _delete(self, group_id: str, ticket: Ticket) -> None:
        context = self._context()
        try:
            shard = self._groups.shard_for(group_id)
            states = await shard.ask("DeleteStates", lambda state: rules.delete_states(state, group_id, context))
            failed = await self._delete_states(group_id, states or {})
            for error in failed.values():
                raise error
            result = await shard.ask("DeleteGroups", lambda state: delete_group(state, group_id))
        except ApiError as error:
            ticket.fail(error)
        else:
            ticket.answer(result)

    async def delete_offsets(
        self, group_id: str, names: Sequence[str]
    ) -> tuple[rules.Deletion, dict[TopicIdPartition, ApiError]]:
        """Delete topics from a group without members; return the deletion and the errors by partition."""
        context = self._context()
        deletion = await self._groups.shard_for(group_id).ask(
            "DeleteShareGroupOffsets", lambda state: rules.delete_offsets(state, group_id, names, context)
        )
        failed = await self._delete_states(group_id, deletion.states)
        deleted = set(deletion.states) - {topic_id for topic_id, _ in failed}
        if deleted:
            await self._record_outcome(
                "StatesDeleted",
                rules.record_deleted,
                group_id,
                {topic_id: deletion.states[topic_id] for topic_id in deleted},
            )
        return deletion, failed

    async def _delete_states(self, group_id: str, states: PartitionsByTopic) -> dict[TopicIdPartition, ApiError]:
        keys = [
            SharePartitionKey(group_id, topic_id, number) for topic_id, numbers in states.items() for number in numbers
        ]
        results = await self._sharing.states.ask_all(
            DELETE, [(key, deleting.PartitionData(partition=key.partition)) for key in keys]
        )
        return _failures(keys, results)

    # -- queries --

    async def initialized(self, group_id: str) -> dict[bytes, list[int]]:
        """Return the initialized partitions of a group."""
        return rules.initialized_partitions(self._groups.shard_for(group_id).state, group_id)

    async def summaries(self, group_id: str, topics: PartitionsByTopic) -> dict[TopicIdPartition, Any]:
        """Return a summary or an ApiError for each share partition."""
        keys = [
            SharePartitionKey(group_id, topic_id, number) for topic_id, numbers in topics.items() for number in numbers
        ]
        results = await self._sharing.states.ask_all(
            SUMMARIZE, [(key, summarizing.PartitionData(partition=key.partition)) for key in keys]
        )
        return {(key.topic_id, key.partition): result for key, result in zip(keys, results, strict=True)}

    async def end_offsets(
        self, image: Image, partitions: Iterable[TopicIdPartition]
    ) -> dict[TopicIdPartition, int | ApiError]:
        """Return the end offsets of partitions, from their leaders."""
        ends: dict[TopicIdPartition, int | ApiError] = {}
        elsewhere: dict[int, list[TopicIdPartition]] = {}
        for topic_id, number in partitions:
            topic = image.topic_by_id(topic_id)
            leader = -1 if topic is None else topic.partitions[number].leader
            if leader == self._partitions.broker_id:
                try:
                    partition = self._partitions.get_by_id(topic_id, number)
                    partition.check_leader()
                    partition.check_readable(Isolation.HIGH_WATERMARK)
                    ends[topic_id, number] = partition.log.high_watermark
                except ApiError as error:
                    ends[topic_id, number] = error
            elif leader < 0:
                ends[topic_id, number] = LeaderNotAvailable(
                    f"partition {number} of topic id {topic_id.hex()} has no leader"
                )
            else:
                elsewhere.setdefault(leader, []).append((topic_id, number))
        for leader, remote_partitions in elsewhere.items():
            ends.update(await self._end_offsets_at(leader, remote_partitions, image))
        return ends

    async def _end_offsets_at(
        self, leader: int, partitions: Sequence[TopicIdPartition], image: Image
    ) -> dict[TopicIdPartition, int | ApiError]:
        names = {
            topic.name: topic_id for topic_id, _ in partitions if (topic := image.topic_by_id(topic_id)) is not None
        }
        request = ListOffsetsRequest(
            replica_id=-1,
            topics=[
                ListOffsetsTopic(
                    name=name,
                    partitions=[
                        ListOffsetsPartition(partition_index=number, timestamp=_LATEST)
                        for partition_topic_id, number in partitions
                        if partition_topic_id == topic_id
                    ],
                )
                for name, topic_id in names.items()
            ],
        )
        try:
            response = await self._sharing.links.send(leader, request)
        except ApiError as error:
            return dict.fromkeys(partitions, error)
        return {
            (names[topic.name], part.partition_index): by_code(part.error_code)() if part.error_code else part.offset
            for topic in response.topics
            for part in topic.partitions
        }


def _failures(keys: Iterable[SharePartitionKey], results: Sequence[Any]) -> dict[TopicIdPartition, ApiError]:
    return {
        (key.topic_id, key.partition): result
        for key, result in zip(keys, results, strict=True)
        if isinstance(result, ApiError)
    }
