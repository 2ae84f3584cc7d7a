"""Errors of topics and partitions: changing them, and reaching them (who leads, in which epoch, on which disk).

Every member of `StaleMetadataError` tells a client the same: refresh the metadata, then try again.
"""

from ottla.protocol.errors.base import ApiError


class TopicError(ApiError):
    """A topic cannot be created, changed or deleted as asked."""


class InvalidTopic(TopicError, code=17, name="INVALID_TOPIC_EXCEPTION"):
    """The topic's name is not allowed, or the operation is not allowed on this topic."""


class TopicAlreadyExists(TopicError, code=36, name="TOPIC_ALREADY_EXISTS"):
    """A topic of this name exists, or its name differs from an existing one only in dots and underscores."""


class InvalidPartitions(TopicError, code=37, name="INVALID_PARTITIONS"):
    """The number of partitions is not above zero, or not above the number that the topic has."""


class InvalidReplicationFactor(TopicError, code=38, name="INVALID_REPLICATION_FACTOR"):
    """The replication factor is not above zero, or more than the brokers that can take a replica."""


class InvalidReplicaAssignment(TopicError, code=39, name="INVALID_REPLICA_ASSIGNMENT"):
    """The replicas listed by hand repeat a broker, name an unknown one, or leave partitions out."""


class TopicDeletionDisabled(TopicError, code=73, name="TOPIC_DELETION_DISABLED"):
    """The operator switched off the deletion of topics (delete.topic.enable)."""


class ReassignmentError(ApiError):
    """The replicas of a partition cannot be moved, or cannot stop moving, as asked."""


class ReassignmentInProgress(ReassignmentError, code=60, name="REASSIGNMENT_IN_PROGRESS"):
    """Replicas of the topic are moving; the change must wait until they have arrived."""


class NoReassignmentInProgress(ReassignmentError, code=85, name="NO_REASSIGNMENT_IN_PROGRESS"):
    """There is no move of this partition's replicas to cancel."""


class ElectionError(ApiError):
    """A leader election asked for by an operator did not change the leader."""


class PreferredLeaderNotAvailable(ElectionError, code=80, retriable=True, name="PREFERRED_LEADER_NOT_AVAILABLE"):
    """The preferred leader is offline or not in sync, so it cannot lead."""


class EligibleLeadersNotAvailable(ElectionError, code=83, retriable=True, name="ELIGIBLE_LEADERS_NOT_AVAILABLE"):
    """No replica that may become leader is online."""


class ElectionNotNeeded(ElectionError, code=84, retriable=True, name="ELECTION_NOT_NEEDED"):
    """The partition already has the leader that the election would bring."""


class PartitionError(ApiError):
    """A partition cannot be served here and now."""


class StaleMetadataError(PartitionError):
    """What the client knows of the partition is out of date, or soon will be; it should refresh its metadata."""


class UnknownTopicOrPartition(StaleMetadataError, code=3, retriable=True, name="UNKNOWN_TOPIC_OR_PARTITION"):
    """This broker does not know the topic or the partition."""


class LeaderNotAvailable(StaleMetadataError, code=5, retriable=True, name="LEADER_NOT_AVAILABLE"):
    """The partition has no leader at the moment; an election is due or under way."""


class NotLeader(StaleMetadataError, code=6, retriable=True, name="NOT_LEADER_OR_FOLLOWER"):
    """This broker does not lead the partition; the client should refresh its metadata."""


class ReplicaNotAvailable(StaleMetadataError, code=9, retriable=True, name="REPLICA_NOT_AVAILABLE"):
    """This broker should hold a replica of the partition but cannot serve it yet."""


class FencedLeaderEpoch(StaleMetadataError, code=74, retriable=True, name="FENCED_LEADER_EPOCH"):
    """The request carries an older leader epoch than this broker's; a newer leader was elected meanwhile."""


class UnknownTopicId(StaleMetadataError, code=100, retriable=True, name="UNKNOWN_TOPIC_ID"):
    """This broker does not know a topic of that id; it was deleted, or has not been heard of yet."""


class InconsistentTopicId(StaleMetadataError, code=103, retriable=True, name="INCONSISTENT_TOPIC_ID"):
    """The topic's id in the log differs from the id in the request; the topic was probably created anew."""


class UnknownLeaderEpoch(PartitionError, code=75, retriable=True, name="UNKNOWN_LEADER_EPOCH"):
    """The request carries a newer leader epoch than this broker's, which has yet to hear of it; try again soon."""


class ReplicationError(PartitionError):
    """Too few replicas are in sync for what the producer asked (acks=all, min.insync.replicas)."""


class NotEnoughReplicas(ReplicationError, code=19, retriable=True, name="NOT_ENOUGH_REPLICAS"):
    """Too few replicas are in sync, so nothing was written."""


class NotEnoughReplicasAfterAppend(ReplicationError, code=20, retriable=True, name="NOT_ENOUGH_REPLICAS_AFTER_APPEND"):
    """The records were written, but fewer replicas than required were in sync to take them; a retry may repeat them."""


class StorageError(ApiError):
    """A log directory of the broker failed, or is not there."""


class StorageFailed(StorageError, StaleMetadataError, code=56, retriable=True, name="KAFKA_STORAGE_ERROR"):
    """The disk under the partition's log failed; another replica will lead."""


class LogDirNotFound(StorageError, code=57, name="LOG_DIR_NOT_FOUND"):
    """The broker has no log directory of that path, or it is offline."""
