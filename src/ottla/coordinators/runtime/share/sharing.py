"""The entry point for share groups on a broker: share coordinators, their clients, sessions and led share partitions.

Without share groups there are no sessions, share partitions and coordinators, and hence no cost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Sequence
from typing import Any, Final, cast

from ottla.coordinators.runtime.broker_links import BrokerLinks
from ottla.coordinators.runtime.shards import Shards
from ottla.coordinators.runtime.share.fetching import FetchedPartition, ShareFetch
from ottla.coordinators.runtime.share.partition import Dependencies, Done, LedSharePartition
from ottla.coordinators.runtime.share.reader import ShareReader
from ottla.coordinators.runtime.share.states import ShareStateClient
from ottla.coordinators.share.acknowledging import AcknowledgementBatch
from ottla.coordinators.share.acquiring import AcquireRequest
from ottla.coordinators.share.behaviour import ShareStatesBehaviour
from ottla.coordinators.share.context import Context
from ottla.coordinators.share.partition import ShareLimits
from ottla.coordinators.share.sessions import Session, SessionKey, ShareSessions, TopicIdPartition
from ottla.coordinators.share.settings import reads_committed, share_limits, start_offset_policy
from ottla.coordinators.share.state import SharePartitionKey, ShareStates
from ottla.metadata.image.changes import Changes
from ottla.protocol.errors import ApiError, NotLeader, OffsetNotAvailable, UnknownTopicOrPartition
from ottla.protocol.metadata_versions import SHARE_VERSION
from ottla.protocol.wire.compression import Compression
from ottla.replication.partition import Partition
from ottla.replication.partitions import Partitions
from ottla.replication.runtime import Runtime
from ottla.security.settings import SecurityProvider, plaintext
from ottla.storage.log.partition_log import Isolation
from ottla.storage.log.reading import searches

logger = logging.getLogger(__name__)

Settings = Callable[[str], Any]
_FIRST_WITH_SHARE_GROUPS: Final = 1


class Sharing:
    """The share groups on a broker."""

    def __init__(
        self,
        partitions: Partitions,
        settings: Settings,
        runtime: Runtime,
        *,
        listener: str,
        timeout_ms: int,
        write_timeout_ms: int,
        compression: Compression = Compression.NONE,
        security: SecurityProvider = plaintext,
        in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread,
    ) -> None:
        self._partitions = partitions
        self._settings = settings
        self._in_thread = in_thread
        self._spawn = runtime.spawn
        self._timer = runtime.timer
        self._now_ms = runtime.now_ms
        node_id = partitions.broker_id
        self.links = BrokerLinks(
            f"broker-{node_id}-share",
            lambda: partitions.image,
            listener,
            timeout_s=timeout_ms / 1000,
            security=security,
        )
        self.shards: Shards[ShareStates] = Shards(
            ShareStatesBehaviour(self.context),
            partitions,
            runtime,
            write_timeout_ms=write_timeout_ms,
            compression=compression,
        )
        self.states = ShareStateClient(
            node_id,
            lambda: partitions.image,
            self.shards,
            self.links,
            runtime,
            context=self.context,
        )
        self.sessions = ShareSessions()
        self.led: dict[SharePartitionKey, LedSharePartition] = {}
        self._led_by_partition: dict[TopicIdPartition, list[LedSharePartition]] = {}
        """The led share partitions by partition, which several groups may read."""
        self._readers: dict[Session, ShareReader] = {}
        self._dependencies = Dependencies(self.states, runtime, self.limits, self._first_offset)

    @property
    def is_enabled(self) -> bool:
        """Whether the cluster's share.version enables share groups."""
        return self._partitions.image.features.level(SHARE_VERSION) >= _FIRST_WITH_SHARE_GROUPS

    def context(self) -> Context:
        """Return the inputs of a decision of the share coordinator made now."""
        settings = self._settings
        return Context(
            now_ms=self._now_ms(),
            image=self._partitions.image,
            prune=_Prune(self),
            updates_per_snapshot=settings("share.coordinator.snapshot.update.records.per.snapshot"),
            cold_ms=settings("share.coordinator.cold.partition.snapshot.interval.ms"),
            prune_ms=settings("share.coordinator.state.topic.prune.interval.ms"),
        )

    def limits(self, group_id: str) -> ShareLimits:
        """Return the limits of a group."""
        return share_limits(self._partitions.image, self._settings, group_id)

    def apply(self, changes: Changes) -> None:
        """Apply new metadata, after the replicas have."""
        self.shards.apply(changes)
        if not self.led and not self.sessions.sessions:
            return
        if not self.is_enabled:
            for reader in list(self._readers.values()):
                self._release(reader.session)
            self.sessions.clear()
            for led in list(self.led.values()):
                self.drop(led)
            return
        mine = changes.for_broker(self._partitions.broker_id)
        for change in (*mine.deleted, *mine.leading, *mine.following):
            for led in list(self._led_by_partition.get((change.topic.id, change.number), ())):
                partition = self._partitions.find_by_id(led.key.topic_id, led.key.partition)
                if partition is not led.partition or not led.is_current:
                    self.drop(led)

    def close(self) -> None:
        """Close everything because the broker stops."""
        self.shards.close()
        self.links.close()
        for led in list(self.led.values()):
            self.drop(led)

    # -- sessions --

    def begin_session(
        self,
        key: SessionKey,
        added: Sequence[tuple[TopicIdPartition, str | None]],
        client: Hashable,
        *,
        has_acks: bool,
        slots: int,
    ) -> Session:
        """Begin a session; it replaces the one that the member may have."""
        old = self.sessions.sessions.get(key)
        try:
            session = self.sessions.begin(key, added, client, has_acks=has_acks, slots=slots)
        finally:
            if old is not None and self.sessions.sessions.get(key) is not old:
                self._release(old)
        self._readers[session] = ShareReader(session, self._now_ms())
        return session

    def update_session(
        self,
        session: Session,
        added: Sequence[tuple[TopicIdPartition, str | None]],
        removed: Sequence[TopicIdPartition],
    ) -> None:
        """Apply the partitions that a request adds to a session and removes from it."""
        session.update(added, removed)
        self._readers[session].update([topic_partition for topic_partition, _ in added], removed)

    def reader(self, session: Session, fetch_inputs: object) -> ShareReader:
        """Return a session's reader; it checks all its share partitions again if the inputs of the fetch changed."""
        reader = self._readers[session]
        if reader.waiting is not None:
            # The member has abandoned an earlier fetch of this session, which still waits.
            cast(ShareFetch, reader.waiting).cancel()
        fetch_inputs = fetch_inputs, reads_committed(self._partitions.image, session.key.group_id)
        if reader.fetch_inputs != fetch_inputs:
            reader.fetch_inputs = fetch_inputs
            reader.mark_all()
        return reader

    def _release(self, session: Session) -> None:
        reader = self._readers.pop(session, None)
        if reader is not None:
            if reader.waiting is not None:
                cast(ShareFetch, reader.waiting).cancel()
            reader.release()

    # -- share partitions --

    def fetch(
        self,
        reader: ShareReader,
        request: AcquireRequest,
        *,
        refused: Collection[TopicIdPartition],
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        done: Callable[[dict[TopicIdPartition, FetchedPartition]], None],
    ) -> None:
        """Fetch records for a member, at once or when there are some; loading share partitions are left out."""
        session, key = reader.session, reader.session.key
        watches = [watch for watch in reader.changed_in_order() if watch.topic_partition not in refused]
        if not (watches or reader.has_quiet) or request.max_records == 0 or max_bytes == 0:
            done({})
            return
        failed: dict[TopicIdPartition, ApiError] = {}
        for watch in watches:
            try:
                led = self._get_led_partition(SharePartitionKey(key.group_id, *watch.topic_partition))
                if watch.led is not led:
                    watch.bind(led)
            except ApiError as error:
                failed[watch.topic_partition] = error
        committed = reads_committed(self._partitions.image, key.group_id)
        fetch = ShareFetch(
            reader,
            request,
            refused=refused,
            failed=failed,
            min_bytes=min_bytes,
            max_bytes=max_bytes,
            isolation=Isolation.LAST_STABLE if committed else Isolation.HIGH_WATERMARK,
            limits=lambda: self.limits(key.group_id),
            now_ms=self._now_ms,
            is_wanted=lambda: self.sessions.sessions.get(key) is session,
            fence=self.drop,
            done=done,
        )
        if len(failed) == len(watches) and not reader.has_quiet:
            fetch.expire()
        elif not fetch.begin():
            reader.waiting = fetch
            self._timer.add(fetch, max(max_wait_ms, 0))

    def acknowledge(
        self, key: SessionKey, topic_partition: TopicIdPartition, acks: Iterable[AcknowledgementBatch], done: Done
    ) -> None:
        """Acknowledge records that a member acquired."""
        led = self.led.get(SharePartitionKey(key.group_id, *topic_partition))
        if led is None:
            done(UnknownTopicOrPartition("This server does not host this topic-partition."))
        else:
            led.acknowledge(key.member_id, acks, done)

    def end_session(self, key: SessionKey) -> None:
        """End a member's session, and release the records that it acquired."""
        session = self.sessions.remove(key)
        if session is not None:
            self._release(session)
        for topic_partition in session.partitions if session is not None else ():
            led = self.led.get(SharePartitionKey(key.group_id, *topic_partition))
            if led is not None:
                led.release(key.member_id)

    def on_disconnect(self, client: object) -> None:
        """End the session that began on a closed connection."""
        ended, group_id = self.sessions.on_disconnect(client)
        if ended is not None:
            self.end_session(ended)
        if group_id is not None:
            for led in [led for led in self.led.values() if led.key.group_id == group_id]:
                self.drop(led)
        if ended is not None or group_id is not None:
            self._dependencies.runtime.completions.run()

    def drop(self, led: LedSharePartition) -> None:
        """Fence a share partition and forget it until the next fetch."""
        if self.led.get(led.key) is led:
            del self.led[led.key]
            topic_partition = led.key.topic_id, led.key.partition
            others = self._led_by_partition[topic_partition]
            others.remove(led)
            if not others:
                del self._led_by_partition[topic_partition]
        led.fence()

    def _get_led_partition(self, key: SharePartitionKey) -> LedSharePartition:
        partition = self._partitions.get_by_id(key.topic_id, key.partition)
        if not partition.is_leader:
            raise NotLeader(f"{partition} is not the leader")
        led = self.led.get(key)
        if led is not None and led.partition is partition and led.is_current:
            return led
        if led is not None:
            self.drop(led)
        led = self.led[key] = LedSharePartition(key, partition, self._dependencies, self.drop)
        self._led_by_partition.setdefault((key.topic_id, key.partition), []).append(led)
        self._spawn(led.load())
        return led

    async def _first_offset(self, group_id: str, partition: Partition) -> int:
        """Return where a group begins to read a new partition."""
        beginning, log = start_offset_policy(self._partitions.image, group_id), partition.log
        if beginning.is_latest:
            partition.check_readable(Isolation.HIGH_WATERMARK)
            return log.high_watermark
        if beginning.back_ms is None:
            return log.log_start_offset
        for search in searches(log, self._now_ms() - beginning.back_ms):
            await self._in_thread(search.walk)
            if search.location is not None and search.location.offset < log.high_watermark:
                return search.location.offset
        raise OffsetNotAvailable(f"{partition} has no record of the last {beginning.back_ms} ms")

    def _prune(self, key: SharePartitionKey, offset: int) -> None:
        try:
            partition = self.shards.shard_for(key.coordinator_key).partition
            if partition.log.log_start_offset < offset <= partition.log.high_watermark:
                partition.delete_records(offset)
        except (ApiError, OSError) as error:
            logger.warning("cannot prune the share coordinator's log of %s before offset %d: %s", key, offset, error)


class _Prune:
    """The ticket that deletes the part of a share coordinator's log that is no longer needed."""

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing

    def answer(self, response: tuple[SharePartitionKey, int], /) -> None:
        self._sharing._prune(*response)

    def fail(self, error: ApiError, /) -> None:
        """Do nothing: the next coordinator prunes the log."""
