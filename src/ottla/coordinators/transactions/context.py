"""What a decision about transactions needs beside the request: the time, the settings, and what it may set going."""

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
    """The surroundings of one decision."""

    now_ms: int
    transaction_version: int
    """The cluster's level of the feature."""
    take_producer_id: Callable[[], int]
    """The next producer id that was never given to anyone; raises CoordinatorLoading if there is none at hand."""
    marker_ticket: Callable[[Transaction], Ticket]
    """Is answered with a transaction whose end is decided, once that is committed: its partitions are to be told."""
    max_timeout_ms: int = 900_000
    is_two_phase_enabled: bool = False
    expiration_ms: int = 604_800_000
    timeout_check_ms: int = 10_000
    expiration_check_ms: int = 3_600_000

    @property
    def bumps_epochs(self) -> bool:
        """Whether the cluster raises a producer's epoch with each transaction."""
        return self.transaction_version >= EPOCH_BUMPING

    def check_client(self, client_version: int) -> None:
        """Raise if a producer wants what the cluster cannot write down: records of level 0 name no version."""
        if client_version and not self.transaction_version:
            raise UnsupportedVersion(f"transaction.version is 0 here, and {client_version} is needed")

    def write(self, state: TransactionsState, transaction: Transaction, reply: Any) -> Decision[Any]:
        """Write a transaction's next state. One that is being ended goes to those who tell its partitions."""
        return Decision(
            (transaction_record(transaction, self.transaction_version),),
            reply,
            state=state.with_unrecorded_fields(transaction),
            answers=((self.marker_ticket(transaction), transaction),) if transaction.status.is_being_ended else (),
        )
