"""Creates the coordinators of a broker: for groups, transactions and share partitions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

from ottla.config.node_settings import NodeSettings
from ottla.coordinators.groups.behaviour import GroupsBehaviour
from ottla.coordinators.groups.context import Context
from ottla.coordinators.groups.state import GroupsState
from ottla.coordinators.runtime.producer_ids import ProducerIds
from ottla.coordinators.runtime.shards import Shards
from ottla.coordinators.runtime.share.groups import ShareGroups
from ottla.coordinators.runtime.share.sharing import Sharing
from ottla.coordinators.runtime.transactions.transactions import Transactions
from ottla.metadata.image.changes import Changes
from ottla.protocol.wire.compression import Compression
from ottla.replication.partitions import Partitions
from ottla.replication.runtime import Runtime
from ottla.security.settings import SecurityProvider

Setting = Callable[[str], Any]
"""Returns the current value of a broker setting."""


def new_member_id() -> str:
    """Return the random part of a member id of the classic protocol."""
    return str(uuid4())


def group_context(partitions: Partitions, setting: Setting, now_ms: Callable[[], int]) -> Callable[[], Context]:
    """Return a factory of contexts for group decisions without a request."""
    return lambda: Context(now_ms=now_ms(), image=partitions.image, settings=setting, new_id=new_member_id)


def group_coordinators(
    partitions: Partitions,
    runtime: Runtime,
    *,
    setting: Setting,
    write_timeout_ms: int,
    compression: Compression = Compression.NONE,
) -> Shards[GroupsState]:
    """Return the coordinators of groups and their offsets."""
    return Shards(
        GroupsBehaviour(group_context(partitions, setting, runtime.now_ms)),
        partitions,
        runtime,
        write_timeout_ms=write_timeout_ms,
        compression=compression,
    )


class Coordinators:
    """All coordinators of a broker."""

    def __init__(
        self,
        settings: NodeSettings,
        partitions: Partitions,
        setting: Setting,
        runtime: Runtime,
        *,
        ask_controller: Callable[[Any], Awaitable[Any]],
        broker_epoch: Callable[[], int],
        security: SecurityProvider,
        in_thread: Callable[..., Awaitable[Any]],
    ) -> None:
        self.producer_ids = ProducerIds(settings.node_id, broker_epoch, ask_controller)
        self.groups = group_coordinators(
            partitions,
            runtime,
            setting=setting,
            write_timeout_ms=settings.number("offsets.commit.timeout.ms"),
            compression=Compression(settings.number("offsets.topic.compression.codec")),
        )
        self.transactions = Transactions(
            partitions,
            self.groups,
            self.producer_ids,
            setting,
            runtime,
            listener=settings.inter_broker_listener_name,
            timeout_ms=settings.number("request.timeout.ms"),
            security=security,
        )
        self.sharing = Sharing(
            partitions,
            setting,
            runtime,
            listener=settings.inter_broker_listener_name,
            timeout_ms=settings.number("request.timeout.ms"),
            write_timeout_ms=settings.number("share.coordinator.write.timeout.ms"),
            compression=Compression(settings.number("share.coordinator.state.topic.compression.codec")),
            security=security,
            in_thread=in_thread,
        )
        self.share_groups = ShareGroups(
            self.groups, self.sharing, partitions, group_context(partitions, setting, runtime.now_ms), runtime.spawn
        )
        self._all: tuple[Shards[Any], ...] = (self.groups, self.transactions.shards)

    def apply(self, changes: Changes) -> None:
        """Apply new metadata, after the partitions have applied it."""
        for shards in self._all:
            shards.apply(changes)
        self.sharing.apply(changes)

    def close(self) -> None:
        """Stop all coordinators when the broker stops."""
        for shards in self._all:
            shards.close()
        self.transactions.close()
        self.sharing.close()
