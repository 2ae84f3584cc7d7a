"""APIs of a controller's listener that the quorum answers: elections, fetches of the metadata log, and its voters."""

from typing import Any

from ottla.broker.authorization.actions import Operation
from ottla.broker.authorization.guards import of_cluster
from ottla.broker.requests.call import LATER, Call, Later
from ottla.broker.requests.controller_node import ControllerNode
from ottla.broker.requests.endpoint import endpoint
from ottla.broker.requests.envelope import Enclosed
from ottla.protocol.errors import NotController
from ottla.protocol.messages.apis import CONTROLLER, ApiKey

_CLUSTER_ACTION = of_cluster(Operation.CLUSTER_ACTION)


@endpoint(ApiKey.FETCH, on=CONTROLLER, guard=_CLUSTER_ACTION)
@endpoint(ApiKey.VOTE, on=CONTROLLER, guard=_CLUSTER_ACTION)
@endpoint(ApiKey.BEGIN_QUORUM_EPOCH, on=CONTROLLER, guard=_CLUSTER_ACTION)
@endpoint(ApiKey.END_QUORUM_EPOCH, on=CONTROLLER, guard=_CLUSTER_ACTION)
@endpoint(ApiKey.DESCRIBE_QUORUM, on=CONTROLLER, guard=of_cluster(Operation.DESCRIBE))
@endpoint(ApiKey.FETCH_SNAPSHOT, on=CONTROLLER, guard=_CLUSTER_ACTION)
@endpoint(ApiKey.ADD_RAFT_VOTER, on=CONTROLLER, guard=of_cluster(Operation.ALTER))
@endpoint(ApiKey.REMOVE_RAFT_VOTER, on=CONTROLLER, guard=of_cluster(Operation.ALTER))
@endpoint(ApiKey.UPDATE_RAFT_VOTER, on=CONTROLLER, guard=_CLUSTER_ACTION)
def ask_quorum(call: Call[ControllerNode], request: Any) -> Later:
    """Let the quorum answer the call when it can.

    A forwarded request is for the leader. If this node does not lead, the broker that forwarded it gets NOT_CONTROLLER
    and looks for the leader. If its client got that error instead, a broker of Kafka would send the next request here
    again.
    """
    if isinstance(call.exchange, Enclosed) and call.node.leader_id() != call.node.node_id:
        raise NotController
    call.node.ask_quorum(call, request)
    return LATER
