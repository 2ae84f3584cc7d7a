"""KRaft as a pure step: votes, fetches, snapshots, voters. `Consensus` is the door; `effects` is the driver's work."""

from ottla.metadata.consensus.config import ConsensusConfig
from ottla.metadata.consensus.consensus import Consensus
from ottla.metadata.consensus.core import ConsensusBroken
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
from ottla.metadata.consensus.history import BOOTSTRAP_OFFSET, ControlHistory
from ottla.metadata.consensus.log_view import LogView, OffsetAndEpoch
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
