"""Errors of coordinators and groups: members and their epochs, committed offsets, topologies of streams groups.

`CoordinatorError` is also for transactions and share partitions. The client should wait, or look up the coordinator.
"""

from ottla.protocol.errors.base import ApiError


class CoordinatorError(ApiError):
    """This broker cannot coordinate the group, the transaction or the share partition now."""


class CoordinatorLoading(CoordinatorError, code=14, retriable=True, name="COORDINATOR_LOAD_IN_PROGRESS"):
    """The coordinator is still loading its state from the log; try again soon."""


class CoordinatorNotAvailable(CoordinatorError, code=15, retriable=True, name="COORDINATOR_NOT_AVAILABLE"):
    """No broker coordinates this key at the moment; the client should look for the coordinator again."""


class NotCoordinator(CoordinatorError, code=16, retriable=True, name="NOT_COORDINATOR"):
    """Another broker coordinates this key; the client should look for the coordinator again."""


class GroupError(ApiError):
    """The group cannot handle the request."""


class InconsistentGroupProtocol(GroupError, code=23, name="INCONSISTENT_GROUP_PROTOCOL"):
    """The member shares no protocol with the rest of the group, or the group is of another type."""


class InvalidGroupId(GroupError, code=24, name="INVALID_GROUP_ID"):
    """The group id is empty or otherwise invalid."""


class InvalidSessionTimeout(GroupError, code=26, name="INVALID_SESSION_TIMEOUT"):
    """The session timeout is outside the range that the broker allows for groups."""


class NonEmptyGroup(GroupError, code=68, name="NON_EMPTY_GROUP"):
    """The group still has members, so it cannot be deleted or changed in this way."""


class GroupIdNotFound(GroupError, code=69, name="GROUP_ID_NOT_FOUND"):
    """No group with this id exists, or it is of another type."""


class GroupMaxSizeReached(GroupError, code=81, name="GROUP_MAX_SIZE_REACHED"):
    """The group has reached its maximum size."""


class GroupSubscribedToTopic(GroupError, code=86, name="GROUP_SUBSCRIBED_TO_TOPIC"):
    """Members of the group still read the topic, so its offsets cannot be deleted."""


class UnsupportedAssignor(GroupError, code=112, name="UNSUPPORTED_ASSIGNOR"):
    """The broker does not support the assignor that the member requested."""


class InvalidRegularExpression(GroupError, code=128, name="INVALID_REGULAR_EXPRESSION"):
    """The regular expression in the request cannot be parsed."""


class MemberError(GroupError):
    """The group does not, or no longer, know the member in this form; usually it should join again."""


class IllegalGeneration(MemberError, code=22, name="ILLEGAL_GENERATION"):
    """The request is for a generation that is not the group's current one; the member should join again."""


class UnknownMemberId(MemberError, code=25, name="UNKNOWN_MEMBER_ID"):
    """The group has no such member, perhaps because its session expired; it should join again."""


class RebalanceInProgress(MemberError, code=27, name="REBALANCE_IN_PROGRESS"):
    """The group is rebalancing; the member should join again."""


class MemberIdRequired(MemberError, code=79, name="MEMBER_ID_REQUIRED"):
    """The member has just received its id; it should join again with the id."""


class FencedInstanceId(MemberError, code=82, name="FENCED_INSTANCE_ID"):
    """Another member took over the group.instance.id; this one must stop."""


class FencedMemberEpoch(MemberError, code=110, name="FENCED_MEMBER_EPOCH"):
    """The coordinator fenced this epoch of the member; it should give up its partitions and join again."""


class UnreleasedInstanceId(MemberError, code=111, name="UNRELEASED_INSTANCE_ID"):
    """Another member still uses the group.instance.id; that member must leave first."""


class StaleMemberEpoch(MemberError, code=113, name="STALE_MEMBER_EPOCH"):
    """The request carries an older epoch than the member's; send it again after the next heartbeat."""


class CommitError(GroupError):
    """Offsets cannot be committed, or cannot be read back yet."""


class OffsetMetadataTooLarge(CommitError, code=12, name="OFFSET_METADATA_TOO_LARGE"):
    """The metadata of a committed offset is longer than the broker allows."""


class InvalidCommitOffsetSize(CommitError, code=28, name="INVALID_COMMIT_OFFSET_SIZE"):
    """The commit is too large to be stored as one batch."""


class UnstableOffsetCommit(CommitError, code=88, retriable=True, name="UNSTABLE_OFFSET_COMMIT"):
    """A transaction that commits offsets of the partition is still open; try again when it has ended."""


class StreamsError(GroupError):
    """The topology of a streams group cannot be used."""


class StreamsInvalidTopology(StreamsError, code=130, name="STREAMS_INVALID_TOPOLOGY"):
    """The topology that the member sent contradicts itself."""


class StreamsInvalidTopologyEpoch(StreamsError, code=131, name="STREAMS_INVALID_TOPOLOGY_EPOCH"):
    """The topology's epoch is not the successor of the group's topology epoch."""


class StreamsTopologyFenced(StreamsError, code=132, name="STREAMS_TOPOLOGY_FENCED"):
    """The member runs an older topology than the group; it must be upgraded."""
