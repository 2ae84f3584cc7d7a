"""DescribeTransactions (key 65): the state and the partitions of transactions that this broker coordinates."""

from __future__ import annotations

from ottla.broker.authorization.group_guards import guard_describe_transactions
from ottla.broker.requests.broker_node import BrokerNode
from ottla.broker.requests.call import Call, Later
from ottla.broker.requests.endpoint import endpoint
from ottla.broker.requests.gathering import Gathering
from ottla.coordinators.transactions.describing import describe_transaction
from ottla.coordinators.transactions.state import TransactionsState
from ottla.protocol.errors import ApiError, InvalidRequest
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from ottla.storage.state_machine.decision import Decision


def describe_transactions_failed(
    request: DescribeTransactionsRequest, version: int, error: ApiError
) -> DescribeTransactionsResponse:
    """Return the error for each transaction."""
    return DescribeTransactionsResponse(
        transaction_states=[_failed(transactional_id, error) for transactional_id in request.transactional_ids]
    )


@endpoint(ApiKey.DESCRIBE_TRANSACTIONS, failed=describe_transactions_failed, guard=guard_describe_transactions)
def describe_transactions(call: Call[BrokerNode], request: DescribeTransactionsRequest) -> Later:
    """Ask the coordinator of each transaction. A transaction that this broker does not coordinate fails alone."""
    gathering: Gathering[TransactionState] = Gathering(
        len(request.transactional_ids),
        lambda states: call.answer(DescribeTransactionsResponse(transaction_states=list(states))),
    )
    for number, transactional_id in enumerate(request.transactional_ids):
        _submit(call, transactional_id, gathering, number)
    return gathering.all_requested()


def _submit(call: Call[BrokerNode], transactional_id: str, gathering: Gathering[TransactionState], number: int) -> None:
    def decide(state: TransactionsState) -> Decision[TransactionState]:
        return Decision((), describe_transaction(state, transactional_id))

    part = gathering.part(number, lambda error: _failed(transactional_id, error))
    try:
        if not transactional_id:
            raise InvalidRequest("a transactional id must not be empty")
        call.node.transactions.shards.shard_for(transactional_id).submit("DescribeTransactions", decide, part)
    except ApiError as error:
        part.fail(error)


def _failed(transactional_id: str, error: ApiError) -> TransactionState:
    return TransactionState(transactional_id=transactional_id, error_code=error.code)
