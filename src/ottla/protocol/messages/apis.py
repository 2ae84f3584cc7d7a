"""The table of APIs: keys, versions, who serves them. The messages themselves are imported when first asked for.

Versions run from `oldest` to `latest`; those above `latest_stable` are served only where unstable versions are enabled.
Keys 4 to 7 (LeaderAndIsr, StopReplica, UpdateMetadata, ControlledShutdown) ended with ZooKeeper and have no version.
"""

import re
from dataclasses import dataclass
from enum import Flag
from importlib import import_module
from typing import Any


class Listeners(Flag):
    """Which kind of listener serves an API."""

    BROKER = 1
    CONTROLLER = 2
    BOTH = 3


BROKER, CONTROLLER, BOTH = Listeners.BROKER, Listeners.CONTROLLER, Listeners.BOTH


@dataclass(frozen=True, slots=True)
class Api:
    key: int
    name: str
    oldest: int
    latest: int
    latest_stable: int
    listeners: Listeners
    forwardable: bool = False
    """Brokers hand it on to the active controller (KIP-590)."""
    cluster_action: bool = False
    """Nodes send it to each other; it needs the right to act for the cluster."""

    @property
    def request(self) -> type[Any]:
        return self._message("Request")

    @property
    def response(self) -> type[Any]:
        return self._message("Response")

    def _message(self, kind: str) -> type[Any]:
        found: type[Any] = getattr(
            import_module(f"ottla.protocol.messages.rpc.{module_name(self.name)}"), self.name + kind
        )
        return found


def module_name(name: str) -> str:
    """FindCoordinator is declared in find_coordinator."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()


APIS: tuple[Api, ...] = (
    Api(0, "Produce", 3, 13, 13, BROKER),
    Api(1, "Fetch", 4, 18, 18, BOTH),
    Api(2, "ListOffsets", 1, 11, 11, BROKER),
    Api(3, "Metadata", 0, 13, 13, BROKER),
    Api(8, "OffsetCommit", 2, 10, 10, BROKER),
    Api(9, "OffsetFetch", 1, 10, 10, BROKER),
    Api(10, "FindCoordinator", 0, 6, 6, BROKER),
    Api(11, "JoinGroup", 0, 9, 9, BROKER),
    Api(12, "Heartbeat", 0, 4, 4, BROKER),
    Api(13, "LeaveGroup", 0, 5, 5, BROKER),
    Api(14, "SyncGroup", 0, 5, 5, BROKER),
    Api(15, "DescribeGroups", 0, 6, 6, BROKER),
    Api(16, "ListGroups", 0, 5, 5, BROKER),
    Api(17, "SaslHandshake", 0, 1, 1, BOTH),
    Api(18, "ApiVersions", 0, 5, 4, BOTH),
    Api(19, "CreateTopics", 2, 7, 7, BOTH, forwardable=True),
    Api(20, "DeleteTopics", 1, 6, 6, BOTH, forwardable=True),
    Api(21, "DeleteRecords", 0, 2, 2, BROKER),
    Api(22, "InitProducerId", 0, 6, 5, BROKER),
    Api(23, "OffsetForLeaderEpoch", 2, 4, 4, BROKER),
    Api(24, "AddPartitionsToTxn", 0, 5, 5, BROKER),
    Api(25, "AddOffsetsToTxn", 0, 4, 4, BROKER),
    Api(26, "EndTxn", 0, 5, 5, BROKER),
    Api(27, "WriteTxnMarkers", 1, 2, 2, BROKER, cluster_action=True),
    Api(28, "TxnOffsetCommit", 0, 5, 5, BROKER),
    Api(29, "DescribeAcls", 1, 3, 3, BOTH),
    Api(30, "CreateAcls", 1, 3, 3, BOTH, forwardable=True),
    Api(31, "DeleteAcls", 1, 3, 3, BOTH, forwardable=True),
    Api(32, "DescribeConfigs", 1, 4, 4, BOTH),
    Api(33, "AlterConfigs", 0, 2, 2, BOTH, forwardable=True),
    Api(34, "AlterReplicaLogDirs", 1, 2, 2, BROKER),
    Api(35, "DescribeLogDirs", 1, 5, 5, BROKER),
    Api(36, "SaslAuthenticate", 0, 2, 2, BOTH),
    Api(37, "CreatePartitions", 0, 3, 3, BOTH, forwardable=True),
    Api(38, "CreateDelegationToken", 1, 3, 3, BOTH, forwardable=True),
    Api(39, "RenewDelegationToken", 1, 2, 2, BOTH, forwardable=True),
    Api(40, "ExpireDelegationToken", 1, 2, 2, BOTH, forwardable=True),
    Api(41, "DescribeDelegationToken", 1, 3, 3, BOTH),
    Api(42, "DeleteGroups", 0, 2, 2, BROKER),
    Api(43, "ElectLeaders", 0, 2, 2, BOTH, forwardable=True),
    Api(44, "IncrementalAlterConfigs", 0, 1, 1, BOTH, forwardable=True),
    Api(45, "AlterPartitionReassignments", 0, 1, 1, BOTH, forwardable=True),
    Api(46, "ListPartitionReassignments", 0, 0, 0, BOTH, forwardable=True),
    Api(47, "OffsetDelete", 0, 0, 0, BROKER),
    Api(48, "DescribeClientQuotas", 0, 1, 1, BROKER),
    Api(49, "AlterClientQuotas", 0, 1, 1, BOTH, forwardable=True),
    Api(50, "DescribeUserScramCredentials", 0, 0, 0, BOTH),
    Api(51, "AlterUserScramCredentials", 0, 0, 0, BOTH, forwardable=True),
    Api(52, "Vote", 0, 2, 2, CONTROLLER, cluster_action=True),
    Api(53, "BeginQuorumEpoch", 0, 1, 1, CONTROLLER, cluster_action=True),
    Api(54, "EndQuorumEpoch", 0, 1, 1, CONTROLLER, cluster_action=True),
    Api(55, "DescribeQuorum", 0, 2, 2, BOTH, forwardable=True, cluster_action=True),
    Api(56, "AlterPartition", 2, 3, 3, CONTROLLER, cluster_action=True),
    Api(57, "UpdateFeatures", 0, 2, 2, BOTH, forwardable=True, cluster_action=True),
    Api(58, "Envelope", 0, 0, 0, CONTROLLER, cluster_action=True),
    Api(59, "FetchSnapshot", 0, 1, 1, CONTROLLER),
    Api(60, "DescribeCluster", 0, 2, 2, BOTH),
    Api(61, "DescribeProducers", 0, 0, 0, BROKER),
    Api(62, "BrokerRegistration", 0, 4, 4, CONTROLLER, cluster_action=True),
    Api(63, "BrokerHeartbeat", 0, 2, 2, CONTROLLER, cluster_action=True),
    Api(64, "UnregisterBroker", 0, 0, 0, BOTH, forwardable=True),
    Api(65, "DescribeTransactions", 0, 0, 0, BROKER),
    Api(66, "ListTransactions", 0, 2, 2, BROKER),
    Api(67, "AllocateProducerIds", 0, 0, 0, CONTROLLER, forwardable=True, cluster_action=True),
    Api(68, "ConsumerGroupHeartbeat", 0, 1, 1, BROKER),
    Api(69, "ConsumerGroupDescribe", 0, 1, 1, BROKER),
    Api(70, "ControllerRegistration", 0, 0, 0, CONTROLLER),
    Api(71, "GetTelemetrySubscriptions", 0, 0, 0, BROKER),
    Api(72, "PushTelemetry", 0, 0, 0, BROKER),
    Api(73, "AssignReplicasToDirs", 0, 0, 0, CONTROLLER),
    Api(74, "ListConfigResources", 0, 1, 1, BROKER),
    Api(75, "DescribeTopicPartitions", 0, 0, 0, BROKER),
    Api(76, "ShareGroupHeartbeat", 1, 1, 1, BROKER),
    Api(77, "ShareGroupDescribe", 1, 1, 1, BROKER),
    Api(78, "ShareFetch", 1, 2, 2, BROKER),
    Api(79, "ShareAcknowledge", 1, 2, 2, BROKER),
    Api(80, "AddRaftVoter", 0, 1, 1, BOTH, forwardable=True),
    Api(81, "RemoveRaftVoter", 0, 0, 0, BOTH, forwardable=True),
    Api(82, "UpdateRaftVoter", 0, 0, 0, CONTROLLER),
    Api(83, "InitializeShareGroupState", 0, 0, 0, BROKER, cluster_action=True),
    Api(84, "ReadShareGroupState", 0, 0, 0, BROKER, cluster_action=True),
    Api(85, "WriteShareGroupState", 0, 1, 1, BROKER, cluster_action=True),
    Api(86, "DeleteShareGroupState", 0, 0, 0, BROKER, cluster_action=True),
    Api(87, "ReadShareGroupStateSummary", 0, 1, 1, BROKER, cluster_action=True),
    Api(88, "StreamsGroupHeartbeat", 0, 0, 0, BROKER),
    Api(89, "StreamsGroupDescribe", 0, 0, 0, BROKER),
    Api(90, "DescribeShareGroupOffsets", 0, 1, 1, BROKER),
    Api(91, "AlterShareGroupOffsets", 0, 0, 0, BROKER),
    Api(92, "DeleteShareGroupOffsets", 0, 0, 0, BROKER),
)

BY_KEY: dict[int, Api] = {api.key: api for api in APIS}
