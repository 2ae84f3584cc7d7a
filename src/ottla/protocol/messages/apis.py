"""The table of APIs: their keys, versions and listeners. Messages are imported on first use.

Versions run from `oldest` to `latest`. Versions above `latest_stable` are served only if unstable versions are enabled.
Keys 4 to 7 (LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown) were removed with ZooKeeper.
"""

import re
from dataclasses import dataclass
from enum import Flag, IntEnum
from importlib import import_module
from typing import Any


class ApiKey(IntEnum):
    """The number by which a request header names its API.

    As a dictionary key a member costs what an int costs (12 ns for a look-up, Python 3.11); naming one, `ApiKey.FETCH`,
    costs 30 ns. Code that runs once a request therefore binds the members that it needs as globals.
    """

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    BROKER_REGISTRATION = 62
    BROKER_HEARTBEAT = 63
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    CONTROLLER_REGISTRATION = 70
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    ASSIGN_REPLICAS_TO_DIRS = 73
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class Listeners(Flag):
    """The types of listeners that serve an API."""

    BROKER = 1
    CONTROLLER = 2
    BOTH = 3


BROKER, CONTROLLER, BOTH = Listeners.BROKER, Listeners.CONTROLLER, Listeners.BOTH


@dataclass(frozen=True, slots=True)
class Api:
    key: ApiKey
    name: str
    oldest: int
    latest: int
    latest_stable: int
    listeners: Listeners
    forwardable: bool = False
    """Brokers forward it to the active controller (KIP-590)."""
    cluster_action: bool = False
    """Nodes send it to each other. It needs the operation CLUSTER_ACTION on the cluster."""

    @property
    def request(self) -> type[Any]:
        return self._message("Request")

    @property
    def response(self) -> type[Any]:
        return self._message("Response")

    def _message(self, kind: str) -> type[Any]:
        module = import_module(f"ottla.protocol.messages.rpc.{module_name(self.name)}")
        message: type[Any] = getattr(module, self.name + kind)
        return message


def module_name(name: str) -> str:
    """Return the module that declares an API: `find_coordinator` for FindCoordinator."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


APIS: tuple[Api, ...] = (
    Api(ApiKey.PRODUCE, "Produce", 3, 13, 13, BROKER),
    Api(ApiKey.FETCH, "Fetch", 4, 18, 18, BOTH),
    Api(ApiKey.LIST_OFFSETS, "ListOffsets", 1, 11, 11, BROKER),
    Api(ApiKey.METADATA, "Metadata", 0, 13, 13, BROKER),
    Api(ApiKey.OFFSET_COMMIT, "OffsetCommit", 2, 10, 10, BROKER),
    Api(ApiKey.OFFSET_FETCH, "OffsetFetch", 1, 10, 10, BROKER),
    Api(ApiKey.FIND_COORDINATOR, "FindCoordinator", 0, 6, 6, BROKER),
    Api(ApiKey.JOIN_GROUP, "JoinGroup", 0, 9, 9, BROKER),
    Api(ApiKey.HEARTBEAT, "Heartbeat", 0, 4, 4, BROKER),
    Api(ApiKey.LEAVE_GROUP, "LeaveGroup", 0, 5, 5, BROKER),
    Api(ApiKey.SYNC_GROUP, "SyncGroup", 0, 5, 5, BROKER),
    Api(ApiKey.DESCRIBE_GROUPS, "DescribeGroups", 0, 6, 6, BROKER),
    Api(ApiKey.LIST_GROUPS, "ListGroups", 0, 5, 5, BROKER),
    Api(ApiKey.SASL_HANDSHAKE, "SaslHandshake", 0, 1, 1, BOTH),
    Api(ApiKey.API_VERSIONS, "ApiVersions", 0, 5, 4, BOTH),
    Api(ApiKey.CREATE_TOPICS, "CreateTopics", 2, 7, 7, BOTH, forwardable=True),
    Api(ApiKey.DELETE_TOPICS, "DeleteTopics", 1, 6, 6, BOTH, forwardable=True),
    Api(ApiKey.DELETE_RECORDS, "DeleteRecords", 0, 2, 2, BROKER),
    Api(ApiKey.INIT_PRODUCER_ID, "InitProducerId", 0, 6, 5, BROKER),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, "OffsetForLeaderEpoch", 2, 4, 4, BROKER),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, "AddPartitionsToTxn", 0, 5, 5, BROKER),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, "AddOffsetsToTxn", 0, 4, 4, BROKER),
    Api(ApiKey.END_TXN, "EndTxn", 0, 5, 5, BROKER),
    Api(ApiKey.WRITE_TXN_MARKERS, "WriteTxnMarkers", 1, 2, 2, BROKER, cluster_action=True),
    Api(ApiKey.TXN_OFFSET_COMMIT, "TxnOffsetCommit", 0, 5, 5, BROKER),
    Api(ApiKey.DESCRIBE_ACLS, "DescribeAcls", 1, 3, 3, BOTH),
    Api(ApiKey.CREATE_ACLS, "CreateAcls", 1, 3, 3, BOTH, forwardable=True),
    Api(ApiKey.DELETE_ACLS, "DeleteAcls", 1, 3, 3, BOTH, forwardable=True),
    Api(ApiKey.DESCRIBE_CONFIGS, "DescribeConfigs", 1, 4, 4, BOTH),
    Api(ApiKey.ALTER_CONFIGS, "AlterConfigs", 0, 2, 2, BOTH, forwardable=True),
    Api(ApiKey.ALTER_REPLICA_LOG_DIRS, "AlterReplicaLogDirs", 1, 2, 2, BROKER),
    Api(ApiKey.DESCRIBE_LOG_DIRS, "DescribeLogDirs", 1, 5, 5, BROKER),
    Api(ApiKey.SASL_AUTHENTICATE, "SaslAuthenticate", 0, 2, 2, BOTH),
    Api(ApiKey.CREATE_PARTITIONS, "CreatePartitions", 0, 3, 3, BOTH, forwardable=True),
    Api(ApiKey.CREATE_DELEGATION_TOKEN, "CreateDelegationToken", 1, 3, 3, BOTH, forwardable=True),
    Api(ApiKey.RENEW_DELEGATION_TOKEN, "RenewDelegationToken", 1, 2, 2, BOTH, forwardable=True),
    Api(ApiKey.EXPIRE_DELEGATION_TOKEN, "ExpireDelegationToken", 1, 2, 2, BOTH, forwardable=True),
    Api(ApiKey.DESCRIBE_DELEGATION_TOKEN, "DescribeDelegationToken", 1, 3, 3, BOTH),
    Api(ApiKey.DELETE_GROUPS, "DeleteGroups", 0, 2, 2, BROKER),
    Api(ApiKey.ELECT_LEADERS, "ElectLeaders", 0, 2, 2, BOTH, forwardable=True),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, "IncrementalAlterConfigs", 0, 1, 1, BOTH, forwardable=True),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "AlterPartitionReassignments", 0, 1, 1, BOTH, forwardable=True),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, "ListPartitionReassignments", 0, 0, 0, BOTH, forwardable=True),
    Api(ApiKey.OFFSET_DELETE, "OffsetDelete", 0, 0, 0, BROKER),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, "DescribeClientQuotas", 0, 1, 1, BROKER),
    Api(ApiKey.ALTER_CLIENT_QUOTAS, "AlterClientQuotas", 0, 1, 1, BOTH, forwardable=True),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "DescribeUserScramCredentials", 0, 0, 0, BOTH),
    Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "AlterUserScramCredentials", 0, 0, 0, BOTH, forwardable=True),
    Api(ApiKey.VOTE, "Vote", 0, 2, 2, CONTROLLER, cluster_action=True),
    Api(ApiKey.BEGIN_QUORUM_EPOCH, "BeginQuorumEpoch", 0, 1, 1, CONTROLLER, cluster_action=True),
    Api(ApiKey.END_QUORUM_EPOCH, "EndQuorumEpoch", 0, 1, 1, CONTROLLER, cluster_action=True),
    Api(ApiKey.DESCRIBE_QUORUM, "DescribeQuorum", 0, 2, 2, BOTH, forwardable=True, cluster_action=True),
    Api(ApiKey.ALTER_PARTITION, "AlterPartition", 2, 3, 3, CONTROLLER, cluster_action=True),
    Api(ApiKey.UPDATE_FEATURES, "UpdateFeatures", 0, 2, 2, BOTH, forwardable=True, cluster_action=True),
    Api(ApiKey.ENVELOPE, "Envelope", 0, 0, 0, CONTROLLER, cluster_action=True),
    Api(ApiKey.FETCH_SNAPSHOT, "FetchSnapshot", 0, 1, 1, CONTROLLER),
    Api(ApiKey.DESCRIBE_CLUSTER, "DescribeCluster", 0, 2, 2, BOTH),
    Api(ApiKey.DESCRIBE_PRODUCERS, "DescribeProducers", 0, 0, 0, BROKER),
    Api(ApiKey.BROKER_REGISTRATION, "BrokerRegistration", 0, 4, 4, CONTROLLER, cluster_action=True),
    Api(ApiKey.BROKER_HEARTBEAT, "BrokerHeartbeat", 0, 2, 2, CONTROLLER, cluster_action=True),
    Api(ApiKey.UNREGISTER_BROKER, "UnregisterBroker", 0, 0, 0, BOTH, forwardable=True),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, "DescribeTransactions", 0, 0, 0, BROKER),
    Api(ApiKey.LIST_TRANSACTIONS, "ListTransactions", 0, 2, 2, BROKER),
    Api(
        ApiKey.ALLOCATE_PRODUCER_IDS, "AllocateProducerIds", 0, 0, 0, CONTROLLER, forwardable=True, cluster_action=True
    ),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, "ConsumerGroupHeartbeat", 0, 1, 1, BROKER),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, "ConsumerGroupDescribe", 0, 1, 1, BROKER),
    Api(ApiKey.CONTROLLER_REGISTRATION, "ControllerRegistration", 0, 0, 0, CONTROLLER),
    Api(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, "GetTelemetrySubscriptions", 0, 0, 0, BROKER),
    Api(ApiKey.PUSH_TELEMETRY, "PushTelemetry", 0, 0, 0, BROKER),
    Api(ApiKey.ASSIGN_REPLICAS_TO_DIRS, "AssignReplicasToDirs", 0, 0, 0, CONTROLLER),
    Api(ApiKey.LIST_CONFIG_RESOURCES, "ListConfigResources", 0, 1, 1, BROKER),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "DescribeTopicPartitions", 0, 0, 0, BROKER),
    Api(ApiKey.SHARE_GROUP_HEARTBEAT, "ShareGroupHeartbeat", 1, 1, 1, BROKER),
    Api(ApiKey.SHARE_GROUP_DESCRIBE, "ShareGroupDescribe", 1, 1, 1, BROKER),
    Api(ApiKey.SHARE_FETCH, "ShareFetch", 1, 2, 2, BROKER),
    Api(ApiKey.SHARE_ACKNOWLEDGE, "ShareAcknowledge", 1, 2, 2, BROKER),
    Api(ApiKey.ADD_RAFT_VOTER, "AddRaftVoter", 0, 1, 1, BOTH, forwardable=True),
    Api(ApiKey.REMOVE_RAFT_VOTER, "RemoveRaftVoter", 0, 0, 0, BOTH, forwardable=True),
    Api(ApiKey.UPDATE_RAFT_VOTER, "UpdateRaftVoter", 0, 0, 0, CONTROLLER),
    Api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, "InitializeShareGroupState", 0, 0, 0, BROKER, cluster_action=True),
    Api(ApiKey.READ_SHARE_GROUP_STATE, "ReadShareGroupState", 0, 0, 0, BROKER, cluster_action=True),
    Api(ApiKey.WRITE_SHARE_GROUP_STATE, "WriteShareGroupState", 0, 1, 1, BROKER, cluster_action=True),
    Api(ApiKey.DELETE_SHARE_GROUP_STATE, "DeleteShareGroupState", 0, 0, 0, BROKER, cluster_action=True),
    Api(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, "ReadShareGroupStateSummary", 0, 1, 1, BROKER, cluster_action=True),
    Api(ApiKey.STREAMS_GROUP_HEARTBEAT, "StreamsGroupHeartbeat", 0, 0, 0, BROKER),
    Api(ApiKey.STREAMS_GROUP_DESCRIBE, "StreamsGroupDescribe", 0, 0, 0, BROKER),
    Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "DescribeShareGroupOffsets", 0, 1, 1, BROKER),
    Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, "AlterShareGroupOffsets", 0, 0, 0, BROKER),
    Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, "DeleteShareGroupOffsets", 0, 0, 0, BROKER),
)

BY_KEY: dict[int, Api] = {api.key: api for api in APIS}
