"""Which guard stands before which API, on brokers and on controllers, as in Kafka."""

from __future__ import annotations

from typing import Final

from ottla.broker.authorization import admin_guards as admins
from ottla.broker.authorization import data_guards as data
from ottla.broker.authorization import group_guards as groups
from ottla.broker.authorization import streams_guards as streams
from ottla.broker.authorization.access_checks import of_cluster, of_group
from ottla.broker.authorization.actions import Operation
from ottla.broker.requests.dispatch import Guard
from ottla.protocol.messages.apis import ApiKey

_ADMINS: Final[dict[ApiKey, Guard]] = {
    ApiKey.CREATE_TOPICS: admins.guard_create_topics,
    ApiKey.DELETE_TOPICS: admins.guard_delete_topics,
    ApiKey.DESCRIBE_ACLS: of_cluster(Operation.DESCRIBE),
    ApiKey.CREATE_ACLS: of_cluster(Operation.ALTER),
    ApiKey.DELETE_ACLS: of_cluster(Operation.ALTER),
    ApiKey.DESCRIBE_CONFIGS: admins.guard_describe_configs,
    ApiKey.ALTER_CONFIGS: admins.guard_alter_configs,
    ApiKey.CREATE_PARTITIONS: admins.guard_create_partitions,
    ApiKey.ELECT_LEADERS: of_cluster(Operation.ALTER),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: admins.guard_incremental_alter_configs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: of_cluster(Operation.ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: of_cluster(Operation.DESCRIBE),
    ApiKey.ALTER_CLIENT_QUOTAS: of_cluster(Operation.ALTER_CONFIGS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: of_cluster(Operation.DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: of_cluster(Operation.ALTER),
    ApiKey.DESCRIBE_QUORUM: of_cluster(Operation.DESCRIBE),
    ApiKey.UPDATE_FEATURES: of_cluster(Operation.ALTER),
    ApiKey.UNREGISTER_BROKER: of_cluster(Operation.ALTER),
    ApiKey.ADD_RAFT_VOTER: of_cluster(Operation.ALTER),
    ApiKey.REMOVE_RAFT_VOTER: of_cluster(Operation.ALTER),
}
"""What a controller decides. A broker asks first, so that it hands on nothing in vain."""

OF_BROKERS: Final[dict[ApiKey, Guard]] = {
    **_ADMINS,
    ApiKey.PRODUCE: data.guard_produce,
    ApiKey.LIST_OFFSETS: data.guard_list_offsets,
    ApiKey.METADATA: data.guard_metadata,
    ApiKey.OFFSET_COMMIT: groups.guard_offset_commit,
    ApiKey.OFFSET_FETCH: groups.guard_offset_fetch,
    ApiKey.FIND_COORDINATOR: groups.guard_find_coordinator,
    ApiKey.JOIN_GROUP: of_group(Operation.READ),
    ApiKey.HEARTBEAT: of_group(Operation.READ),
    ApiKey.LEAVE_GROUP: of_group(Operation.READ),
    ApiKey.SYNC_GROUP: of_group(Operation.READ),
    ApiKey.DESCRIBE_GROUPS: groups.guard_describe_groups,
    ApiKey.LIST_GROUPS: groups.guard_list_groups,
    ApiKey.DELETE_RECORDS: data.guard_delete_records,
    ApiKey.INIT_PRODUCER_ID: data.guard_init_producer_id,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: data.guard_offset_for_leader_epoch,
    ApiKey.ADD_PARTITIONS_TO_TXN: groups.guard_add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: groups.guard_add_offsets,
    ApiKey.END_TXN: groups.guard_end_txn,
    ApiKey.WRITE_TXN_MARKERS: groups.guard_write_txn_markers,
    ApiKey.TXN_OFFSET_COMMIT: groups.guard_txn_offset_commit,
    ApiKey.ALTER_REPLICA_LOG_DIRS: of_cluster(Operation.ALTER),
    ApiKey.DESCRIBE_LOG_DIRS: of_cluster(Operation.DESCRIBE),
    ApiKey.DELETE_GROUPS: groups.guard_delete_groups,
    ApiKey.OFFSET_DELETE: groups.guard_offset_delete,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: of_cluster(Operation.DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_PRODUCERS: data.guard_describe_producers,
    ApiKey.DESCRIBE_TRANSACTIONS: groups.guard_describe_transactions,
    ApiKey.LIST_TRANSACTIONS: groups.guard_list_transactions,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: groups.guard_group_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: groups.guard_consumer_group_describe,
    ApiKey.LIST_CONFIG_RESOURCES: of_cluster(Operation.DESCRIBE_CONFIGS),
    ApiKey.SHARE_GROUP_HEARTBEAT: groups.guard_group_heartbeat,
    ApiKey.SHARE_GROUP_DESCRIBE: groups.guard_share_group_describe,
    ApiKey.SHARE_FETCH: of_group(Operation.READ),
    ApiKey.SHARE_ACKNOWLEDGE: of_group(Operation.READ),
    ApiKey.STREAMS_GROUP_HEARTBEAT: streams.guard_streams_group_heartbeat,
    ApiKey.STREAMS_GROUP_DESCRIBE: streams.guard_streams_group_describe,
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: groups.guard_describe_share_group_offsets,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: groups.guard_alter_share_group_offsets,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: groups.guard_delete_share_group_offsets,
    **dict.fromkeys(
        (
            ApiKey.INITIALIZE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE,
            ApiKey.WRITE_SHARE_GROUP_STATE,
            ApiKey.DELETE_SHARE_GROUP_STATE,
            ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
        ),
        of_cluster(Operation.CLUSTER_ACTION),
    ),
}

OF_CONTROLLERS: Final[dict[ApiKey, Guard]] = {
    **_ADMINS,
    **dict.fromkeys(
        (
            ApiKey.FETCH,
            ApiKey.VOTE,
            ApiKey.BEGIN_QUORUM_EPOCH,
            ApiKey.END_QUORUM_EPOCH,
            ApiKey.ALTER_PARTITION,
            ApiKey.ENVELOPE,
            ApiKey.FETCH_SNAPSHOT,
            ApiKey.BROKER_REGISTRATION,
            ApiKey.BROKER_HEARTBEAT,
            ApiKey.ALLOCATE_PRODUCER_IDS,
            ApiKey.CONTROLLER_REGISTRATION,
            ApiKey.ASSIGN_REPLICAS_TO_DIRS,
            ApiKey.UPDATE_RAFT_VOTER,
        ),
        of_cluster(Operation.CLUSTER_ACTION),
    ),
    ApiKey.DESCRIBE_CLUSTER: of_cluster(Operation.ALTER),
}
"""What nodes say to each other, besides."""
