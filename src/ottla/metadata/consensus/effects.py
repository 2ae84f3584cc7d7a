"""The effects of a step, which the driver carries out. The package docstring has the order and its reasons."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from ottla.metadata.consensus.log_view import OffsetAndEpoch
from ottla.metadata.consensus.voters import Node
from ottla.protocol.messages.records.raft_records import QuorumState


@dataclass(frozen=True, slots=True)
class Persist:
    """The content of the quorum-state file. From kraft.version 1 on it has version 1: directory ids, but no voters."""

    state: QuorumState
    version: int


@dataclass(frozen=True, slots=True)
class Append:
    """Append batches, whose offsets and leader epochs are set, at the end of the log."""

    base_offset: int
    end_offset: int
    data: bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Truncate:
    """Drop every record from this offset on: the current leader has other records there."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """A chunk of the leader's snapshot. Position 0 starts a new file.

    After the last chunk the driver makes the snapshot durable, replaces the whole log by an empty one that starts at
    the snapshot's end, and then calls `Consensus.report_snapshot_installed`.
    """

    snapshot: OffsetAndEpoch
    position: int
    data: bytes | bytearray | memoryview
    last: bool


Write = Append | Truncate | SnapshotChunk


@dataclass(frozen=True, slots=True)
class Send:
    """A request to another node. The driver passes its `id` to `Consensus.handle_response` or `handle_failure`."""

    id: int
    to: Node
    message: Any
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Reply:
    """The response to the request with this ticket."""

    ticket: Hashable
    message: Any


Message = Send | Reply


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """The role, epoch or leader changed. `leader_id` is -1 if no leader is known."""

    role: str
    epoch: int
    leader_id: int


@dataclass(frozen=True, slots=True)
class HighWatermark:
    """All records below this offset are committed: they can be applied, and their requests answered."""

    offset: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """Shutdown is complete. It was not `graceful` if it timed out before another leader was elected."""

    graceful: bool


Change = RoleChanged | HighWatermark | Stopped


@dataclass(slots=True)
class Effects:
    """The effects of one step."""

    persist: Persist | None = None
    writes: list[Write] = field(default_factory=list)
    flush: bool = False
    messages: list[Message] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.persist or self.writes or self.messages or self.changes)
