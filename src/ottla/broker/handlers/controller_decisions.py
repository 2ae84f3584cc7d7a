"""APIs that the active controller decides on. A broker forwards their requests to it (KIP-590)."""

from typing import Any

from ottla.broker.authorization.actions import Operation
from ottla.broker.authorization.admin_guards import (
    guard_alter_configs,
    guard_create_partitions,
    guard_create_topics,
    guard_delete_topics,
)
from ottla.broker.authorization.guards import of_cluster
from ottla.broker.handlers import controller_failures as failures
from ottla.broker.handlers.alter_configs import alter_configs_failed
from ottla.broker.requests.call import Call
from ottla.broker.requests.endpoint import endpoint
from ottla.protocol.messages.apis import BOTH, BROKER, CONTROLLER, ApiKey

_ALTER = of_cluster(Operation.ALTER)
_DESCRIBE = of_cluster(Operation.DESCRIBE)
_CLUSTER_ACTION = of_cluster(Operation.CLUSTER_ACTION)


@endpoint(ApiKey.CREATE_TOPICS, on=BOTH, failed=failures.create_topics_failed, guard=guard_create_topics)
@endpoint(ApiKey.DELETE_TOPICS, on=BOTH, failed=failures.delete_topics_failed, guard=guard_delete_topics)
@endpoint(ApiKey.CREATE_PARTITIONS, on=BOTH, failed=failures.create_partitions_failed, guard=guard_create_partitions)
@endpoint(ApiKey.ELECT_LEADERS, on=BOTH, failed=failures.elect_leaders_failed, guard=_ALTER)
@endpoint(ApiKey.ALTER_PARTITION_REASSIGNMENTS, on=BOTH, failed=failures.alter_reassignments_failed, guard=_ALTER)
@endpoint(ApiKey.LIST_PARTITION_REASSIGNMENTS, on=BOTH, failed=failures.list_reassignments_failed, guard=_DESCRIBE)
@endpoint(
    ApiKey.ALTER_CLIENT_QUOTAS,
    on=BOTH,
    failed=failures.alter_client_quotas_failed,
    guard=of_cluster(Operation.ALTER_CONFIGS),
)
@endpoint(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, on=BOTH, failed=failures.alter_scram_failed, guard=_ALTER)
@endpoint(ApiKey.UPDATE_FEATURES, on=BOTH, guard=_ALTER)
@endpoint(ApiKey.UNREGISTER_BROKER, on=BOTH, guard=_ALTER)
# A controller passes these to the quorum (`quorum.py`), and AlterConfigs here; a broker does the reverse.
@endpoint(ApiKey.DESCRIBE_QUORUM, on=BROKER, guard=_DESCRIBE)
@endpoint(ApiKey.ADD_RAFT_VOTER, on=BROKER, guard=_ALTER)
@endpoint(ApiKey.REMOVE_RAFT_VOTER, on=BROKER, guard=_ALTER)
@endpoint(ApiKey.ALTER_CONFIGS, on=CONTROLLER, failed=alter_configs_failed, guard=guard_alter_configs)
# Nodes send these to the controller for themselves.
@endpoint(ApiKey.ALTER_PARTITION, on=CONTROLLER, guard=_CLUSTER_ACTION)
@endpoint(ApiKey.BROKER_REGISTRATION, on=CONTROLLER, guard=_CLUSTER_ACTION)
@endpoint(ApiKey.BROKER_HEARTBEAT, on=CONTROLLER, guard=_CLUSTER_ACTION)
@endpoint(ApiKey.ALLOCATE_PRODUCER_IDS, on=CONTROLLER, guard=_CLUSTER_ACTION)
@endpoint(ApiKey.CONTROLLER_REGISTRATION, on=CONTROLLER, guard=_CLUSTER_ACTION)
@endpoint(ApiKey.ASSIGN_REPLICAS_TO_DIRS, on=CONTROLLER, guard=_CLUSTER_ACTION)
async def decide(call: Call[Any], request: Any) -> Any:
    """Return the active controller's response."""
    return await call.node.decide(call, request)
