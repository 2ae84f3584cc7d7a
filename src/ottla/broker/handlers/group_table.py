"""The endpoints of a broker for groups: who coordinates them, their members, their offsets."""

from ottla.broker.handlers import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    streams_group_describe,
    streams_group_heartbeat,
    sync_group,
    txn_offset_commit,
)
from ottla.broker.requests.endpoint import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    find_coordinator.find_coordinator,
    offset_commit.offset_commit,
    offset_fetch.offset_fetch,
    offset_delete.offset_delete,
    txn_offset_commit.txn_offset_commit,
    join_group.join,
    sync_group.sync,
    heartbeat.heartbeat,
    leave_group.leave,
    describe_groups.describe_groups,
    list_groups.list_all_groups,
    delete_groups.delete_groups,
    consumer_group_heartbeat.consumer_group_heartbeat,
    consumer_group_describe.consumer_group_describe,
    streams_group_heartbeat.streams_group_heartbeat,
    streams_group_describe.streams_group_describe,
)
