"""What a step asks the driver to do, in the order in which it must be done.

    1. `persist`   write the quorum-state file and fsync it: a vote or an epoch must survive before anybody hears of it
    2. `writes`    change the log and its snapshots, one after the other, through to what the `LogView` shows
    3. `messages`  send requests and replies
    4. `changes`   tell the application: roles, high watermark

All of it is done before the next input is given. Only the fsync of the log may still be under way: it is asked for by
`flush` and reported by `Consensus.flushed`. No message depends on the flush of its own step. After any step with
writes the driver calls `Consensus.appended`, so that waiting fetches see them.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from ottla.metadata.consensus.log_view import OffsetAndEpoch
from ottla.metadata.consensus.voters import Node
from ottla.protocol.messages.records.raft_records import QuorumState


@dataclass(frozen=True, slots=True)
class Persist:
    """The quorum-state file's content. Version 1, from kraft.version 1 on, knows directories and not the voters."""

    state: QuorumState
    version: int


@dataclass(frozen=True, slots=True)
class Append:
    """Write these batches at the log's end. Offsets and leader epochs are already in them."""

    base_offset: int
    end_offset: int
    data: bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class Truncate:
    """Drop every record from this offset on: another leader wrote others there."""

    end_offset: int


@dataclass(frozen=True, slots=True)
class SnapshotChunk:
    """A piece of the leader's snapshot. Position 0 begins it anew.

    With the last piece the driver makes the snapshot durable, drops the whole log, lets it start at the snapshot's
    end, and then calls `Consensus.snapshot_installed`.
    """

    snapshot: OffsetAndEpoch
    position: int
    data: bytes | bytearray | memoryview
    last: bool


Write = Append | Truncate | SnapshotChunk


@dataclass(frozen=True, slots=True)
class Send:
    """A request to another node. Its answer comes back with the same `id`, to `Consensus.response` or `failed`."""

    id: int
    to: Node
    message: Any
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a request that was given with this ticket."""

    ticket: Hashable
    message: Any


Message = Send | Reply


@dataclass(frozen=True, slots=True)
class RoleChanged:
    """This node took another role; the application acts on leadership by it. `leader_id` is -1 when nobody leads."""

    role: str
    epoch: int
    leader_id: int


@dataclass(frozen=True, slots=True)
class HighWatermark:
    """Everything below is committed: it may be applied, and answered for."""

    offset: int


@dataclass(frozen=True, slots=True)
class Stopped:
    """Shutdown is over; `graceful` unless time ran out first."""

    graceful: bool


Change = RoleChanged | HighWatermark | Stopped


@dataclass(slots=True)
class Effects:
    """One step's work; see the module for the order."""

    persist: Persist | None = None
    writes: list[Write] = field(default_factory=list)
    flush: bool = False
    messages: list[Message] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.persist or self.writes or self.messages or self.changes)
