"""Errors between nodes: the active controller, the registration of nodes, changes of the ISR, and the Raft quorum."""

from ottla.protocol.errors.base import ApiError


class ControllerError(ApiError):
    """The controller cannot handle the request, or this node is not the active controller."""


class StaleControllerEpoch(ControllerError, code=11, name="STALE_CONTROLLER_EPOCH"):
    """The request comes from a controller that is no longer active."""


class NotController(ControllerError, code=41, retriable=True, name="NOT_CONTROLLER"):
    """This node is not the active controller; the request should go to the one that is."""


class UnknownControllerId(ControllerError, code=116, name="UNKNOWN_CONTROLLER_ID"):
    """No controller with this id is registered."""


class FeatureUpdateFailed(ControllerError, code=96, name="FEATURE_UPDATE_FAILED"):
    """The finalized features were not updated; a node does not support the level, or this change is not allowed."""


class RegistrationError(ControllerError):
    """A node's registration was rejected, is missing or is outdated."""


class StaleBrokerEpoch(RegistrationError, code=77, name="STALE_BROKER_EPOCH"):
    """The broker registered again after it sent this request, so its epoch is stale."""


class DuplicateBrokerRegistration(RegistrationError, code=101, name="DUPLICATE_BROKER_REGISTRATION"):
    """Another running broker is registered with this id."""


class BrokerIdNotRegistered(RegistrationError, code=102, name="BROKER_ID_NOT_REGISTERED"):
    """No broker with this id is registered."""


class InvalidRegistration(RegistrationError, code=119, name="INVALID_REGISTRATION"):
    """The registration lacks something that the controller needs, or contradicts itself."""


class PartitionUpdateError(ControllerError):
    """The controller rejected a leader's change to its partition."""


class InvalidUpdateVersion(PartitionUpdateError, code=95, name="INVALID_UPDATE_VERSION"):
    """The partition epoch of the request is outdated; the leader should catch up with the metadata first."""


class IneligibleReplica(PartitionUpdateError, code=107, name="INELIGIBLE_REPLICA"):
    """A replica in the proposed ISR is fenced, shutting down or was restarted."""


class NewLeaderElected(PartitionUpdateError, code=108, name="NEW_LEADER_ELECTED"):
    """The change was applied, and another broker is the leader now."""


class QuorumError(ControllerError):
    """The Raft quorum of the controllers cannot handle the request."""


class InconsistentVoterSet(QuorumError, code=94, name="INCONSISTENT_VOTER_SET"):
    """Sender and receiver have different voter sets."""


class InconsistentClusterId(QuorumError, code=104, name="INCONSISTENT_CLUSTER_ID"):
    """The sender belongs to another cluster."""


class InvalidVoterKey(QuorumError, code=125, name="INVALID_VOTER_KEY"):
    """The request is addressed to a voter with another id or another directory."""


class DuplicateVoter(QuorumError, code=126, name="DUPLICATE_VOTER"):
    """The voter to add is already in the voter set."""


class VoterNotFound(QuorumError, code=127, name="VOTER_NOT_FOUND"):
    """The voter to remove or update is not in the voter set."""


class SnapshotError(QuorumError):
    """A part of a metadata snapshot cannot be read; the follower should ask the leader for its latest snapshot."""


class SnapshotNotFound(SnapshotError, code=98, name="SNAPSHOT_NOT_FOUND"):
    """The leader no longer has the snapshot."""


class PositionOutOfRange(SnapshotError, code=99, name="POSITION_OUT_OF_RANGE"):
    """The position to read from is outside the snapshot."""
