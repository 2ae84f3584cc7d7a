"""The endpoints of a broker that look things up: offsets, epochs, producers, directories, the cluster."""

from ottla.broker.handlers import (
    alter_replica_log_dirs,
    delete_records,
    describe_cluster,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    init_producer_id,
    list_offsets,
    offset_for_leader_epoch,
    telemetry,
)
from ottla.broker.requests.endpoint import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    list_offsets.list_offsets,
    offset_for_leader_epoch.offset_for_leader_epoch,
    delete_records.delete_records,
    init_producer_id.init_producer_id,
    describe_producers.describe_producers,
    describe_log_dirs.describe_log_dirs,
    alter_replica_log_dirs.alter_replica_log_dirs,
    describe_topic_partitions.describe_topic_partitions,
    describe_cluster.describe_cluster,
    telemetry.get_telemetry_subscriptions,
    telemetry.push_telemetry,
)
