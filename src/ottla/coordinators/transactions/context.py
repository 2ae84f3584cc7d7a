"""The inputs of a decision about transactions beside the request: the time, the settings, ids and tickets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.coordinators.transactions.records import transaction_record
from ottla.coordinators.transactions.state import EPOCH_BUMPING, Transaction, TransactionsState
from ottla.protocol.errors import UnsupportedVersion
from ottla.storage.state_machine.decision import Decision, Ticket


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """The inputs of one decision."""

    now_ms: int
    transaction_version: int
    """The cluster's level of transaction.version."""
    take_producer_id: Callable[[], int]
    """Returns a new producer id; raises CoordinatorLoading if none is available yet."""
    marker_ticket: Callable[[Transaction], Ticket]
    """Returns a ticket that sends the transaction's markers when the decision to end it is committed."""
    max_timeout_ms: int = 900_000
    is_two_phase_enabled: bool = False
    expiration_ms: int = 604_800_000
    timeout_check_ms: int = 10_000
    expiration_check_ms: int = 3_600_000

    @property
    def bumps_epochs(self) -> bool:
        """Whether each transaction bumps the producer epoch (KIP-890)."""
        return self.transaction_version >= EPOCH_BUMPING

    def check_client(self, client_version: int) -> None:
        """Raise if the producer needs a newer transaction.version: records of level 0 cannot store it."""
        if client_version and not self.transaction_version:
            raise UnsupportedVersion(f"the producer needs transaction.version {client_version}, but the cluster's is 0")

    def write(self, state: TransactionsState, transaction: Transaction, reply: Any) -> Decision[Any]:
        """Return the decision to write a transaction's next state, and to send its markers if it ends."""
        return Decision(
            (transaction_record(transaction, self.transaction_version),),
            reply,
            state=state.with_unrecorded_fields(transaction),
            answers=((self.marker_ticket(transaction), transaction),) if transaction.status.is_being_ended else (),
        )
