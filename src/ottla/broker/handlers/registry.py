"""The endpoints of a node. Importing this module imports every handler, and each handler registers its endpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ottla.broker.handlers import (  # noqa: F401 (each registers its endpoints)
    acls,
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    alter_replica_log_dirs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    controller_decisions,
    delegation_tokens,
    delete_groups,
    delete_records,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    end_txn,
    envelope,
    fetch,
    find_coordinator,
    heartbeat,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    quorum,
    sasl,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    share_group_offsets,
    share_states,
    streams_group_describe,
    streams_group_heartbeat,
    sync_group,
    telemetry,
    txn_offset_commit,
    write_txn_markers,
)
from ottla.broker.requests.endpoint import Endpoint, registered
from ottla.protocol.messages.apis import Api, ApiKey, Listeners

BROKER_ENDPOINTS: Final[Mapping[ApiKey, Endpoint]] = registered(Listeners.BROKER)
CONTROLLER_ENDPOINTS: Final[Mapping[ApiKey, Endpoint]] = registered(Listeners.CONTROLLER)
_TELEMETRY: Final = (ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY)


def advertised_apis(endpoints: Mapping[ApiKey, Endpoint], *, with_telemetry: bool = True) -> Sequence[Api]:
    """Return the APIs that ApiVersions advertises, by key.

    Clients push metrics to a broker that advertises telemetry, so a broker that drops them does not advertise it.
    """
    return [endpoints[key].api for key in sorted(endpoints) if with_telemetry or key not in _TELEMETRY]
