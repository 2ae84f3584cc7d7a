"""KRaft: consensus on the metadata log, as a pure state machine. Imports `protocol` only.

The driver (`metadata/runtime/quorum_driver.py`) owns the clock, the sockets and the files. It passes each event to
`Consensus`: a request, a response, a failure, a tick, the end of a flush. Every call is one step and returns `Effects`,
which the driver carries out completely, in this order, before it passes the next event:

    1. `persist`   Write and fsync the quorum-state file. A vote or an epoch must be durable before any other node
                   learns of it.
    2. `writes`    Change the log and its snapshots, in the given order. The `LogView` shows each write at once.
    3. `flush`     Start an fsync of the log. It may end after later steps; the driver then calls `report_flushed`.
    4. `messages`  Send requests and replies. None depends on the flush of its own step, because a member counts its
                   own records, and fetches more, only after `report_flushed`.
    5. `changes`   Pass the new role and high watermark to the application.

After a step with writes the driver calls `report_appended`, so that waiting fetches see the new records. After the last
chunk of a snapshot it calls `report_snapshot_installed` instead.

The roles of a member, in Kafka's terms:

    Unattached ──election timeout──▶ Prospective ──majority──▶ Candidate ──majority──▶ Leader
      ▲  ▲                             ▲  │ pre-vote lost          │ timeout              │ no majority fetches,
      │  └─────────no leader known─────┼──┤                        ▼                      │ or shutdown
      │                                │  │                   Prospective                 ▼
      │     fetch timeout, lost leader │  │ leader known                               Resigned
      │                                │  ▼                                               │
      │                               Follower                                            │
      └─────────────────────────────election timeout, epoch + 1───────────────────────────┘

    a higher epoch without a known leader       any role ──▶ Unattached
    a leader of this epoch or of a higher one   any role ──▶ Follower

- Voted: Unattached (or Prospective) after this member granted its vote of the epoch to another one.
- Observer: a member that is no voter. It is only ever Unattached or Follower.
- Prospective: asks for pre-votes before it raises the epoch (KIP-996), so that a node that was cut off does not
  disturb the others when it returns.
- Resigned: a leader that stepped down, or restarted. It sends EndQuorumEpoch and cannot vote in its epoch.

Messages are those of Kafka 4.3, so that nodes of Ottla and Kafka can share a quorum.
"""

from ottla.metadata.consensus.config import ConsensusConfig
from ottla.metadata.consensus.consensus import Consensus
from ottla.metadata.consensus.control_history import BOOTSTRAP_OFFSET, ControlHistory
from ottla.metadata.consensus.effects import (
    Append,
    Effects,
    HighWatermark,
    Persist,
    Reply,
    RoleChanged,
    Send,
    SnapshotChunk,
    Stopped,
    Truncate,
)
from ottla.metadata.consensus.log_view import LogView, OffsetAndEpoch
from ottla.metadata.consensus.raft_state import ConsensusBroken
from ottla.metadata.consensus.voters import Endpoint, Node, ReplicaKey, Voter, VoterSet

__all__ = [
    "BOOTSTRAP_OFFSET",
    "Append",
    "Consensus",
    "ConsensusBroken",
    "ConsensusConfig",
    "ControlHistory",
    "Effects",
    "Endpoint",
    "HighWatermark",
    "LogView",
    "Node",
    "OffsetAndEpoch",
    "Persist",
    "ReplicaKey",
    "Reply",
    "RoleChanged",
    "Send",
    "SnapshotChunk",
    "Stopped",
    "Truncate",
    "Voter",
    "VoterSet",
]
