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

_ADMINS: Final[dict[int, Guard]] = {
    19: admins.guard_create_topics,
    20: admins.guard_delete_topics,
    29: of_cluster(Operation.DESCRIBE),
    30: of_cluster(Operation.ALTER),
    31: of_cluster(Operation.ALTER),
    32: admins.guard_describe_configs,
    33: admins.guard_alter_configs,
    37: admins.guard_create_partitions,
    43: of_cluster(Operation.ALTER),
    44: admins.guard_incremental_alter_configs,
    45: of_cluster(Operation.ALTER),
    46: of_cluster(Operation.DESCRIBE),
    49: of_cluster(Operation.ALTER_CONFIGS),
    50: of_cluster(Operation.DESCRIBE),
    51: of_cluster(Operation.ALTER),
    55: of_cluster(Operation.DESCRIBE),
    57: of_cluster(Operation.ALTER),
    64: of_cluster(Operation.ALTER),
    80: of_cluster(Operation.ALTER),
    81: of_cluster(Operation.ALTER),
}
"""What a controller decides. A broker asks first, so that it hands on nothing in vain."""

OF_BROKERS: Final[dict[int, Guard]] = {
    **_ADMINS,
    0: data.guard_produce,
    2: data.guard_list_offsets,
    3: data.guard_metadata,
    8: groups.guard_offset_commit,
    9: groups.guard_offset_fetch,
    10: groups.guard_find_coordinator,
    11: of_group(Operation.READ),
    12: of_group(Operation.READ),
    13: of_group(Operation.READ),
    14: of_group(Operation.READ),
    15: groups.guard_describe_groups,
    16: groups.guard_list_groups,
    21: data.guard_delete_records,
    22: data.guard_init_producer_id,
    23: data.guard_offset_for_leader_epoch,
    24: groups.guard_add_partitions,
    25: groups.guard_add_offsets,
    26: groups.guard_end_txn,
    27: groups.guard_write_txn_markers,
    28: groups.guard_txn_offset_commit,
    34: of_cluster(Operation.ALTER),
    35: of_cluster(Operation.DESCRIBE),
    42: groups.guard_delete_groups,
    47: groups.guard_offset_delete,
    48: of_cluster(Operation.DESCRIBE_CONFIGS),
    61: data.guard_describe_producers,
    65: groups.guard_describe_transactions,
    66: groups.guard_list_transactions,
    68: groups.guard_group_heartbeat,
    69: groups.guard_consumer_group_describe,
    74: of_cluster(Operation.DESCRIBE_CONFIGS),
    76: groups.guard_group_heartbeat,
    77: groups.guard_share_group_describe,
    78: of_group(Operation.READ),
    79: of_group(Operation.READ),
    88: streams.guard_streams_group_heartbeat,
    89: streams.guard_streams_group_describe,
    90: groups.guard_describe_share_group_offsets,
    91: groups.guard_alter_share_group_offsets,
    92: groups.guard_delete_share_group_offsets,
    **dict.fromkeys((83, 84, 85, 86, 87), of_cluster(Operation.CLUSTER_ACTION)),
}

OF_CONTROLLERS: Final[dict[int, Guard]] = {
    **_ADMINS,
    **dict.fromkeys((1, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 82), of_cluster(Operation.CLUSTER_ACTION)),
    60: of_cluster(Operation.ALTER),
}
"""What nodes say to each other, besides."""
