"""The controller of a node, active while the node leads the quorum: requests become events, events decisions.

It becomes active when everything up to its own election is committed and applied; it then writes what a fresh cluster
starts with, if the log is empty. When it loses the lead, whoever waits is told to look for the new controller.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from random import Random
from time import perf_counter_ns
from typing import Any, Final, NamedTuple, Protocol

from ottla.metadata.consensus.effects import RoleChanged
from ottla.metadata.controller.activation import activate, write_no_op
from ottla.metadata.controller.broker_heartbeat import fence_stale_broker
from ottla.metadata.controller.decision import Decision
from ottla.metadata.controller.delegation_tokens import remove_expired_tokens
from ottla.metadata.controller.heartbeats import Heartbeats
from ottla.metadata.controller.leader_elections import balance_partition_leaders, elect_unclean_leaders
from ottla.metadata.controller.state_tracker import StateTracker
from ottla.metadata.controller.view import ControllerOptions, ControllerView
from ottla.metadata.image.changes import Changes
from ottla.metadata.image.delta import Delta
from ottla.metadata.image.encoding import metadata_batch
from ottla.metadata.image.image import Image
from ottla.metadata.image.loader import Update
from ottla.metadata.runtime.decisions import (
    REQUESTS_WITH_DEADLINE,
    Decide,
    DecisionContext,
    Requester,
    api_name,
    decision_on,
)
from ottla.metadata.runtime.publisher import Decided, MetadataPublisher
from ottla.metadata.runtime.quorum_driver import QuorumDriver
from ottla.protocol.errors import ApiError, NotController, NotLeader
from ottla.protocol.messages.records.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
)
from ottla.protocol.metadata_versions import METADATA_VERSION, version_to_write
from ottla.security.principal_mapping import ANONYMOUS
from ottla.storage.state_machine.machine import Machine

logger = logging.getLogger(__name__)

_MAX_BATCH_RECORDS: Final = 5000
_EXPIRY_CHECK_S: Final = 0.1
_MORE_TO_DO_S: Final = 0.01
THIS_NODE: Final = Requester(ANONYMOUS, is_from_broker=True)
"""The requester of the node's own requests."""


class Loop(Protocol):
    """The event loop, as far as it is needed here."""

    def create_future(self) -> asyncio.Future[Any]: ...

    def call_later(self, delay: float, callback: Callable[..., object], /, *args: Any) -> Any: ...


class Verdicts(Protocol):
    """What policies have said about one request (`node/policies.py`)."""

    def put_into(self, options: ControllerOptions) -> ControllerOptions: ...


class Chore(NamedTuple):
    """Something that the active controller does again and again."""

    name: str
    interval_s: float
    decide: Decide


class ActiveController:
    """The controller on this node; `submit` raises NotController while another node's is active."""

    def __init__(
        self,
        quorum: QuorumDriver,
        metadata: MetadataPublisher,
        options: ControllerOptions,
        bootstrap: Sequence[object],
        *,
        session_timeout_ms: int,
        loop: Loop,
        random: Random,
        now_ms: Callable[[], int],
    ) -> None:
        self._quorum = quorum
        self._metadata = metadata
        self._options = options
        self._bootstrap = bootstrap
        self._loop = loop
        self._now_ms = now_ms
        self._epoch = -1
        self._active_from: int | None = None
        self._last_append_ms = 0
        self._appended: Image | None = None
        """What the records that are being appended make of the image."""
        self._timers: dict[str, Any] = {}
        self.on_active: Callable[[], None] | None = None
        """Called when this node's controller has become the active one."""
        self.heartbeats = Heartbeats(session_timeout_ms)
        self.states = StateTracker()
        self._untracked: list[Changes] = []
        """Changes that the tracker of states has yet to follow."""
        metadata.subscribers.append(self._on_update)
        self._context = DecisionContext(quorum, self.heartbeats, self.states, random, now_ms, THIS_NODE)
        self.machine: Machine[Image] = Machine(
            append=self._append, apply=self._apply, now_ms=now_ms, clock_ns=perf_counter_ns
        )

    @property
    def is_active(self) -> bool:
        return self.machine.is_active

    def on_role(self, change: RoleChanged) -> None:
        """The quorum has a leader, or has none."""
        self._metadata.expect_nothing()
        if change.role == "leader":
            self._epoch = change.epoch
            self._active_from = self._quorum.log.end_offset
            self._maybe_activate()
        else:
            self._active_from = None
            if self.machine.is_active:
                logger.info("this node is no longer the active controller")
                self.states.is_active = False
                self._rest()
                self.machine.deactivate(NotController("another controller is active now"))

    def on_committed(self, high_watermark: int) -> None:
        """Everything below is committed, and has been applied."""
        self.machine.committed(high_watermark - 1)
        self._maybe_activate()
        # After the answers have left: nobody waits for this.
        self._loop.call_later(0, self._place_committed)

    def _on_update(self, update: Update) -> None:
        self._untracked.append(update.changes)

    def _place_committed(self) -> None:
        _place(self._metadata.image)
        untracked, self._untracked = self._untracked, []
        for changes in untracked:
            self.states.follow(changes)

    def rehearse(self, request: Any, requester: Requester, verdicts: Verdicts) -> None:
        """Let the verdicts know what policies have to be asked about a request: decide on it, and forget the rest."""
        if not self.machine.is_active:
            raise NotController("another controller is active, or none yet")
        context = self._context._replace(requester=requester._replace(charge=None))
        decide = self._on_image(decision_on(request, context), verdicts)
        with contextlib.suppress(ApiError):  # it will be told when it is decided in earnest
            decide(self.machine.state)

    def submit(
        self, request: Any, requester: Requester = THIS_NODE, verdicts: Verdicts | None = None
    ) -> asyncio.Future[Any]:
        """Decide on a request; the future is the response, once it is committed."""
        decide = decision_on(request, self._context._replace(requester=requester))
        future = self._loop.create_future()

        def reply(result: Any) -> None:
            if future.done():
                return
            if isinstance(result, ApiError):
                future.set_exception(result)
            else:
                future.set_result(result)

        if not self.machine.is_active:
            reply(NotController("another controller is active, or none yet"))
            return future
        deadline_ms = self._now_ms() + request.timeout_ms if type(request) in REQUESTS_WITH_DEADLINE else None
        self.machine.submit(api_name(request), self._on_image(decide, verdicts), reply, deadline_ms=deadline_ms)
        return future

    def stop(self) -> None:
        """Decide nothing more."""
        self._rest()
        if self.machine.is_active:
            self.machine.deactivate(NotController("the controller stops"))

    def _on_image(self, decide: Decide, verdicts: Verdicts | None = None) -> Callable[[Image], Decision[Any]]:
        options = self._options if verdicts is None else verdicts.put_into(self._options)
        return lambda image: decide(ControllerView(image, options))

    def _maybe_activate(self) -> None:
        if self._active_from is None or self.machine.is_active:
            return
        if self._metadata.applied_offset < self._active_from:
            return
        self._active_from = None
        image = self._metadata.image
        logger.info("this node is the active controller of epoch %d", self._epoch)
        self.heartbeats.activate(image, self._now_ms())
        self.states.is_active = True
        self.machine.activate(image, self._quorum.log.end_offset - 1)
        self.machine.committed(self._quorum.log.end_offset - 1)
        in_transaction = self._metadata.in_transaction
        self.machine.submit(
            "Activation",
            self._on_image(lambda view: activate(view, self._bootstrap, in_transaction=in_transaction)),
            _log_failure,
            first=True,
        )
        for chore in self._chores():
            self._schedule(chore, chore.interval_s)
        if self.on_active is not None:
            self.on_active()

    def _chores(self) -> Iterator[Chore]:
        """What is done beside answering; an interval of 0 means never."""
        setting = self._options.number
        yield Chore("FenceExpired", _EXPIRY_CHECK_S, self._fence_expired)
        yield Chore("NoOp", setting("metadata.max.idle.interval.ms") / 1000, self._show_life)
        unclean_s = setting("unclean.leader.election.interval.ms") / 1000
        yield Chore("ElectUnclean", unclean_s, elect_unclean_leaders)
        if self._options.setting("auto.leader.rebalance.enable"):
            yield Chore("BalanceLeaders", setting("leader.imbalance.check.interval.seconds"), balance_partition_leaders)
        tokens_s = setting("delegation.token.expiry.check.interval.ms") / 1000
        yield Chore("RemoveExpiredTokens", tokens_s, lambda view: remove_expired_tokens(view, now_ms=self._now_ms()))

    def _fence_expired(self, view: ControllerView) -> Decision[bool]:
        """Fence brokers that were not heard of for too long."""
        return fence_stale_broker(view, self.heartbeats, now_ms=self._now_ms())

    def fence_at_once(self) -> None:
        """A session has been ended: do not wait until sessions are looked at anyway."""
        if self.machine.is_active:
            self.machine.submit("FenceExpired", self._on_image(self._fence_expired), _log_failure)

    def _show_life(self, view: ControllerView) -> Decision[None]:
        """Let all see that the log goes on, if nothing else did lately."""
        idle_ms = self._now_ms() - self._last_append_ms
        is_quiet = idle_ms >= self._options.number("metadata.max.idle.interval.ms")
        return write_no_op() if is_quiet else Decision((), None)

    def _schedule(self, chore: Chore, delay_s: float) -> None:
        if chore.interval_s > 0:
            self._timers[chore.name] = self._loop.call_later(delay_s, self._do, chore)

    def _do(self, chore: Chore) -> None:
        if not self.machine.is_active:
            return

        def done(result: Any) -> None:
            _log_failure(result)
            if self.machine.is_active:
                self._schedule(chore, min(_MORE_TO_DO_S, chore.interval_s) if result is True else chore.interval_s)

        self.machine.submit(chore.name, self._on_image(chore.decide), done)

    def _rest(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def _append(self, records: Sequence[Any], atomic: bool) -> int:
        _place(self.machine.state)
        # Applied before it is written: a record that cannot be would stop every node that reads it.
        delta = _changed(self.machine.state, records)
        level = _metadata_version(self.machine.state, records)
        start, now_ms = self._quorum.log.end_offset, self._now_ms()
        last = start + len(records) - 1
        image = delta.finish(offset=last, epoch=self._epoch, timestamp=now_ms)
        step = len(records) if atomic else _MAX_BATCH_RECORDS
        batches = [
            metadata_batch(
                [(record, version_to_write(record, level)) for record in records[done : done + step]],
                base_offset=start + done,
                epoch=self._epoch,
                timestamp=now_ms,
            )
            for done in range(0, len(records), step)
        ]
        self._metadata.expect(Decided(delta, image, sum(map(len, batches))))
        try:
            offsets = [self._quorum.propose(self._epoch, batch) for batch in batches]
        except NotLeader:
            self._metadata.expect_nothing()
            raise NotController("another controller is active now") from None
        assert offsets[-1] == last, "a decision is appended without anything in between"
        self._last_append_ms, self._appended = now_ms, image
        return last

    def _apply(self, image: Image, records: Sequence[Any], last_offset: int) -> Image:
        appended, self._appended = self._appended, None
        assert appended is not None, "what is applied was appended before"
        return appended


def _place(image: Image) -> None:
    """Have partitions found by broker, in this image and in all that are made from it. Looking at each partition takes
    a fifth of a second for 100,000 of them: not when a broker has just failed, nor when this controller takes over."""
    image.placement  # noqa: B018 - made when first asked for, and kept


_TRANSACTION_MARKS = (BeginTransactionRecord, EndTransactionRecord, AbortTransactionRecord)


def _changed(image: Image, records: Sequence[Any]) -> Delta:
    delta = Delta(image)
    for record in records:
        # What a decision writes within a transaction it also ends there.
        if not isinstance(record, _TRANSACTION_MARKS):
            delta.apply(record)
    return delta


def _metadata_version(image: Image, records: Sequence[Any]) -> int:
    """The level in which records are written: the image's, or in an empty log the one that the records begin with."""
    if image.features.metadata_version:
        return image.features.metadata_version
    for record in records:
        if isinstance(record, FeatureLevelRecord) and record.name == METADATA_VERSION:
            return record.feature_level
    return 0


def _log_failure(result: Any) -> None:
    if isinstance(result, ApiError) and not isinstance(result, NotController):
        logger.error("the controller could not go on with its own work: %s", result)
