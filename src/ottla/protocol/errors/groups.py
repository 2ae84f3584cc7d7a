"""Errors of coordinators and groups: members and their epochs, committed offsets, topologies of streams groups.

`CoordinatorError` serves transactions and share partitions too: wait, or ask again who coordinates.
"""

from ottla.protocol.errors.base import ApiError


class CoordinatorError(ApiError):
    """The broker asked cannot coordinate the group, the transaction or the share partition now."""


class CoordinatorLoading(CoordinatorError, code=14, retriable=True, name="COORDINATOR_LOAD_IN_PROGRESS"):
    """The coordinator is still reading its state from the log; try again soon."""


class CoordinatorNotAvailable(CoordinatorError, code=15, retriable=True, name="COORDINATOR_NOT_AVAILABLE"):
    """No broker coordinates this key at the moment; the client should look for the coordinator again."""


class NotCoordinator(CoordinatorError, code=16, retriable=True, name="NOT_COORDINATOR"):
    """Another broker coordinates this key; the client should look for the coordinator again."""


class GroupError(ApiError):
    """The group cannot do what was asked."""


class InconsistentGroupProtocol(GroupError, code=23, name="INCONSISTENT_GROUP_PROTOCOL"):
    """The member shares no protocol with the rest of the group, or the group is of another type."""


class InvalidGroupId(GroupError, code=24, name="INVALID_GROUP_ID"):
    """The group's id is empty or otherwise not allowed here."""


class InvalidSessionTimeout(GroupError, code=26, name="INVALID_SESSION_TIMEOUT"):
    """The session timeout lies outside the range that the broker allows for groups."""


class NonEmptyGroup(GroupError, code=68, name="NON_EMPTY_GROUP"):
    """The group still has members, so it cannot be deleted or changed like that."""


class GroupIdNotFound(GroupError, code=69, name="GROUP_ID_NOT_FOUND"):
    """There is no group of that id, or it is of another type."""


class GroupMaxSizeReached(GroupError, code=81, name="GROUP_MAX_SIZE_REACHED"):
    """The group has as many members as it may have."""


class GroupSubscribedToTopic(GroupError, code=86, name="GROUP_SUBSCRIBED_TO_TOPIC"):
    """Members of the group still read the topic, so its offsets cannot be deleted."""


class UnsupportedAssignor(GroupError, code=112, name="UNSUPPORTED_ASSIGNOR"):
    """The broker does not have the assignor that the member asked for."""


class InvalidRegularExpression(GroupError, code=128, name="INVALID_REGULAR_EXPRESSION"):
    """The regular expression in the request cannot be parsed."""


class MemberError(GroupError):
    """The member is not, or no longer, the one that the group knows; most often it should join again."""


class IllegalGeneration(MemberError, code=22, name="ILLEGAL_GENERATION"):
    """The member speaks for a generation that is not the group's current one; it should join again."""


class UnknownMemberId(MemberError, code=25, name="UNKNOWN_MEMBER_ID"):
    """The group has no such member, perhaps because its session ran out; it should join again."""


class RebalanceInProgress(MemberError, code=27, name="REBALANCE_IN_PROGRESS"):
    """The group is rebalancing; the member should join again."""


class MemberIdRequired(MemberError, code=79, name="MEMBER_ID_REQUIRED"):
    """The member has just been given its id; it should join again with it."""


class FencedInstanceId(MemberError, code=82, name="FENCED_INSTANCE_ID"):
    """Another member took over the same group.instance.id; this one must stop."""


class FencedMemberEpoch(MemberError, code=110, name="FENCED_MEMBER_EPOCH"):
    """The coordinator gave up on this epoch of the member; it should drop its partitions and join again."""


class UnreleasedInstanceId(MemberError, code=111, name="UNRELEASED_INSTANCE_ID"):
    """The group.instance.id is still held by another member; it must leave first."""


class StaleMemberEpoch(MemberError, code=113, name="STALE_MEMBER_EPOCH"):
    """The request carries an older epoch than the member's; it should be sent again after the next heartbeat."""


class CommitError(GroupError):
    """Offsets cannot be committed, or cannot be read back yet."""


class OffsetMetadataTooLarge(CommitError, code=12, name="OFFSET_METADATA_TOO_LARGE"):
    """The text that goes with a committed offset is longer than the broker takes."""


class InvalidCommitOffsetSize(CommitError, code=28, name="INVALID_COMMIT_OFFSET_SIZE"):
    """The commit holds too much to be stored as one batch."""


class UnstableOffsetCommit(CommitError, code=88, retriable=True, name="UNSTABLE_OFFSET_COMMIT"):
    """A transaction that commits offsets of the partition is still open; try again when it has ended."""


class StreamsError(GroupError):
    """The topology of a streams group cannot be used."""


class StreamsInvalidTopology(StreamsError, code=130, name="STREAMS_INVALID_TOPOLOGY"):
    """The topology that the member sent contradicts itself."""


class StreamsInvalidTopologyEpoch(StreamsError, code=131, name="STREAMS_INVALID_TOPOLOGY_EPOCH"):
    """The topology's epoch does not follow from the one that the group has."""


class StreamsTopologyFenced(StreamsError, code=132, name="STREAMS_TOPOLOGY_FENCED"):
    """The member runs an older topology than the group; it must be upgraded."""
