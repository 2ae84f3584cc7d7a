"""KRaft as a pure step: votes, fetches, snapshots, voters. `Consensus` is the door; `effects` is the driver's work."""

from ottla.consensus.config import ConsensusConfig
from ottla.consensus.consensus import Consensus
from ottla.consensus.core import ConsensusBroken
from ottla.consensus.effects import (
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
from ottla.consensus.history import BOOTSTRAP_OFFSET, ControlHistory
from ottla.consensus.log_view import LogView, OffsetAndEpoch
from ottla.consensus.voters import Endpoint, Node, ReplicaKey, Voter, VoterSet

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
