"""Errors between nodes: the active controller, the registration of nodes, changes of the ISR, and the Raft quorum."""

from ottla.protocol.errors.base import ApiError


class ControllerError(ApiError):
    """The controller cannot do what was asked, or the node asked is not the active one."""


class StaleControllerEpoch(ControllerError, code=11, name="STALE_CONTROLLER_EPOCH"):
    """The request comes from a controller that was replaced."""


class NotController(ControllerError, code=41, retriable=True, name="NOT_CONTROLLER"):
    """This node is not the active controller; the request should go to the one that is."""


class UnknownControllerId(ControllerError, code=116, name="UNKNOWN_CONTROLLER_ID"):
    """No controller of that id is registered."""


class FeatureUpdateFailed(ControllerError, code=96, name="FEATURE_UPDATE_FAILED"):
    """The finalized features could not be changed; some node does not support the level, or the step is not allowed."""


class RegistrationError(ControllerError):
    """A node's registration is refused, missing or outdated."""


class StaleBrokerEpoch(RegistrationError, code=77, name="STALE_BROKER_EPOCH"):
    """The broker registered again after it sent this; the request belongs to its earlier life."""


class DuplicateBrokerRegistration(RegistrationError, code=101, name="DUPLICATE_BROKER_REGISTRATION"):
    """Another running broker holds this id."""


class BrokerIdNotRegistered(RegistrationError, code=102, name="BROKER_ID_NOT_REGISTERED"):
    """No broker of that id is registered."""


class InvalidRegistration(RegistrationError, code=119, name="INVALID_REGISTRATION"):
    """The registration lacks something that the controller needs, or contradicts itself."""


class PartitionUpdateError(ControllerError):
    """The controller turned down a leader's change to its partition."""


class InvalidUpdateVersion(PartitionUpdateError, code=95, name="INVALID_UPDATE_VERSION"):
    """The partition changed since the leader last heard of it; the leader should catch up first."""


class IneligibleReplica(PartitionUpdateError, code=107, name="INELIGIBLE_REPLICA"):
    """A replica that the leader wants in the ISR is fenced, shutting down or restarted."""


class NewLeaderElected(PartitionUpdateError, code=108, name="NEW_LEADER_ELECTED"):
    """The change was made, and with it the leadership passed to another broker."""


class QuorumError(ControllerError):
    """The Raft quorum of the controllers cannot do what was asked."""


class InconsistentVoterSet(QuorumError, code=94, name="INCONSISTENT_VOTER_SET"):
    """Sender and receiver do not agree on who votes."""


class InconsistentClusterId(QuorumError, code=104, name="INCONSISTENT_CLUSTER_ID"):
    """The sender belongs to another cluster."""


class InvalidVoterKey(QuorumError, code=125, name="INVALID_VOTER_KEY"):
    """The request was meant for a voter of another id or another directory."""


class DuplicateVoter(QuorumError, code=126, name="DUPLICATE_VOTER"):
    """The voter to add is in the voter set already."""


class VoterNotFound(QuorumError, code=127, name="VOTER_NOT_FOUND"):
    """The voter to remove or update is not in the voter set."""


class SnapshotError(QuorumError):
    """A part of a metadata snapshot cannot be read; the follower should ask the leader for its latest snapshot."""


class SnapshotNotFound(SnapshotError, code=98, name="SNAPSHOT_NOT_FOUND"):
    """The leader no longer has that snapshot."""


class PositionOutOfRange(SnapshotError, code=99, name="POSITION_OUT_OF_RANGE"):
    """The position to read from lies outside the snapshot."""
