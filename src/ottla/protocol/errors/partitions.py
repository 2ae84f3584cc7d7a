"""Errors of topics and partitions: changes, leadership, leader epochs and log directories.

After any `StaleMetadataError` a client should refresh its metadata and try again.
"""

from ottla.protocol.errors.base import ApiError


class TopicError(ApiError):
    """The topic cannot be created, changed or deleted."""


class InvalidTopic(TopicError, code=17, name="INVALID_TOPIC_EXCEPTION"):
    """The topic's name is not allowed, or the operation is not allowed on this topic."""


class TopicAlreadyExists(TopicError, code=36, name="TOPIC_ALREADY_EXISTS"):
    """A topic with this name exists, or its name differs from an existing one only in dots and underscores."""


class InvalidPartitions(TopicError, code=37, name="INVALID_PARTITIONS"):
    """The number of partitions is not positive, or not greater than the topic's current number."""


class InvalidReplicationFactor(TopicError, code=38, name="INVALID_REPLICATION_FACTOR"):
    """The replication factor is not positive, or larger than the number of brokers that can take a replica."""


class InvalidReplicaAssignment(TopicError, code=39, name="INVALID_REPLICA_ASSIGNMENT"):
    """The manual replica assignment repeats a broker, names an unknown one, or leaves partitions out."""


class TopicDeletionDisabled(TopicError, code=73, name="TOPIC_DELETION_DISABLED"):
    """Topic deletion is disabled (delete.topic.enable)."""


class ReassignmentError(ApiError):
    """A reassignment of replicas cannot be started or cancelled."""


class ReassignmentInProgress(ReassignmentError, code=60, name="REASSIGNMENT_IN_PROGRESS"):
    """A reassignment of the topic's replicas is in progress; try again when it has finished."""


class NoReassignmentInProgress(ReassignmentError, code=85, name="NO_REASSIGNMENT_IN_PROGRESS"):
    """No reassignment of this partition is in progress."""


class ElectionError(ApiError):
    """A requested leader election did not change the leader."""


class PreferredLeaderNotAvailable(ElectionError, code=80, retriable=True, name="PREFERRED_LEADER_NOT_AVAILABLE"):
    """The preferred leader is offline or not in sync, so it cannot lead."""


class EligibleLeadersNotAvailable(ElectionError, code=83, retriable=True, name="ELIGIBLE_LEADERS_NOT_AVAILABLE"):
    """No replica that is eligible to become the leader is online."""


class ElectionNotNeeded(ElectionError, code=84, retriable=True, name="ELECTION_NOT_NEEDED"):
    """The partition already has the leader that the election would choose."""


class PartitionError(ApiError):
    """The partition cannot be served by this broker at the moment."""


class StaleMetadataError(PartitionError):
    """The client's metadata of the partition is or soon will be outdated; it should refresh its metadata."""


class UnknownTopicOrPartition(StaleMetadataError, code=3, retriable=True, name="UNKNOWN_TOPIC_OR_PARTITION"):
    """This broker does not know the topic or the partition."""


class LeaderNotAvailable(StaleMetadataError, code=5, retriable=True, name="LEADER_NOT_AVAILABLE"):
    """The partition has no leader at the moment; an election is pending or in progress."""


class NotLeader(StaleMetadataError, code=6, retriable=True, name="NOT_LEADER_OR_FOLLOWER"):
    """This broker does not lead the partition; the client should refresh its metadata."""


class ReplicaNotAvailable(StaleMetadataError, code=9, retriable=True, name="REPLICA_NOT_AVAILABLE"):
    """This broker should hold a replica of the partition but cannot serve it yet."""


class FencedLeaderEpoch(StaleMetadataError, code=74, retriable=True, name="FENCED_LEADER_EPOCH"):
    """The request carries an older leader epoch than this broker's; a newer leader was elected."""


class UnknownTopicId(StaleMetadataError, code=100, retriable=True, name="UNKNOWN_TOPIC_ID"):
    """This broker does not know a topic with this id; it was deleted, or its creation has not arrived yet."""


class InconsistentTopicId(StaleMetadataError, code=103, retriable=True, name="INCONSISTENT_TOPIC_ID"):
    """The topic's id in the log differs from the id in the request; the topic was probably recreated."""


class UnknownLeaderEpoch(PartitionError, code=75, retriable=True, name="UNKNOWN_LEADER_EPOCH"):
    """The request carries a newer leader epoch than this broker's; try again soon."""


class ReplicationError(PartitionError):
    """Too few replicas are in sync for acks=all (min.insync.replicas)."""


class NotEnoughReplicas(ReplicationError, code=19, retriable=True, name="NOT_ENOUGH_REPLICAS"):
    """Too few replicas are in sync, so nothing was written."""


class NotEnoughReplicasAfterAppend(ReplicationError, code=20, retriable=True, name="NOT_ENOUGH_REPLICAS_AFTER_APPEND"):
    """The records were written, but to fewer in-sync replicas than required; a retry may duplicate them."""


class StorageError(ApiError):
    """A log directory of the broker failed, or does not exist."""


class StorageFailed(StorageError, StaleMetadataError, code=56, retriable=True, name="KAFKA_STORAGE_ERROR"):
    """The log directory of the partition failed; another replica will become the leader."""


class LogDirNotFound(StorageError, code=57, name="LOG_DIR_NOT_FOUND"):
    """The broker has no log directory with this path, or it is offline."""
