"""Carries out what consensus decides: files, messages, timers; and tells the node what was committed.

Consensus is pure; each of its steps comes back as effects, which are done here in their order before the next step.
Syncs of the log run aside, one for all that was written meanwhile. Answers and news go out after the step is done, so
that whoever reacts to them finds consensus at rest.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, Protocol

from ottla.metadata.consensus.config import ConsensusConfig, Randomness
from ottla.metadata.consensus.consensus import Consensus
from ottla.metadata.consensus.control_history import BOOTSTRAP_OFFSET, ControlHistory
from ottla.metadata.consensus.effects import (
    Append,
    Change,
    Effects,
    HighWatermark,
    Reply,
    RoleChanged,
    Send,
    Stopped,
    Truncate,
)
from ottla.metadata.consensus.log_view import BOOTSTRAP_SNAPSHOT, OffsetAndEpoch
from ottla.metadata.consensus.voters import Node, VoterSet
from ottla.metadata.image.encoding import ControlEntry, entries
from ottla.metadata.runtime.metadata_log import MetadataLog
from ottla.metadata.runtime.quorum_state_file import read_quorum_state, write_quorum_state
from ottla.protocol.errors import ApiError, NetworkFailed, UnsupportedVersion
from ottla.protocol.wire.batch import read_batches
from ottla.protocol.wire.varint import Buffer
from ottla.storage.disk import Disk

logger = logging.getLogger(__name__)

_READ_BYTES = 4 * 1024 * 1024


class Timers(Protocol):
    """The event loop, as far as it is needed here."""

    def call_later(self, delay: float, callback: Callable[[], None], /) -> Any: ...


class Peers(Protocol):
    """A way to send requests to other nodes."""

    def send(
        self,
        node: Node,
        message: Any,
        timeout_ms: int,
        answered: Callable[[Any], None],
        failed: Callable[[ApiError], None],
    ) -> None:
        """Exactly one of the two is called, never at once; `failed` is told why."""
        ...


class Ticket(Protocol):
    """A request of another node that waits for its answer."""

    def answer(self, response: Any) -> None: ...


class QuorumDriver:
    """One member of the quorum at work."""

    def __init__(
        self,
        config: ConsensusConfig,
        log: MetadataLog,
        static_voters: VoterSet | None,
        *,
        disk: Disk,
        timers: Timers,
        peers: Peers,
        random: Randomness,
        now_ms: Callable[[], int],
        on_role: Callable[[RoleChanged], None],
        on_committed: Callable[[int], None],
    ) -> None:
        self.log = log
        self.listener = config.listener
        """The name of the listener over which members speak with each other."""
        self._disk = disk
        self._timers = timers
        self._peers = peers
        self._now_ms = now_ms
        self._on_role = on_role
        self._on_committed = on_committed
        self._news: deque[Change | Reply] = deque()
        self._is_telling = False
        self._timer: Any = None
        self._timer_at: int | None = None
        self.is_stopped = False
        history = _history(log, static_voters)
        stored = read_quorum_state(disk, log.directory)
        self.consensus = Consensus(config, log, stored, history, random)

    def start(self) -> None:
        """Take part in the quorum."""
        self._perform(self.consensus.start(self._now_ms()))

    def request(self, ticket: Hashable, message: Any, version: int, listener: str) -> None:
        """A request of another node; its answer goes to the ticket."""
        self._perform(self.consensus.handle_request(ticket, message, version, listener, self._now_ms()))

    def propose(self, epoch: int, batch: bytearray) -> int:
        """Append as the leader of an epoch; returns the offset of the last record. Raises NotLeader."""
        offset, effects = self.consensus.propose(epoch, batch, self._now_ms())
        self._perform(effects)
        return offset

    def upgrade_kraft_version(self, epoch: int, version: int) -> None:
        """As the leader of an epoch, go to a higher kraft.version; raises an ApiError if not all are ready for it."""
        self._perform(self.consensus.upgrade_kraft_version(epoch, version, self._now_ms()))

    def resign(self, epoch: int) -> None:
        """Give up the leadership of an epoch."""
        self._perform(self.consensus.resign(epoch, self._now_ms()))

    def shutdown(self, timeout_ms: int) -> None:
        """Hand over and stop; `is_stopped` tells when."""
        self._perform(self.consensus.shutdown(timeout_ms, self._now_ms()))

    def snapshot_taken(self, snapshot: OffsetAndEpoch) -> None:
        """This node wrote a snapshot: the log before it is not needed any more."""
        self.log.add_snapshot(snapshot)
        self.consensus.report_snapshot_taken(snapshot.offset)
        self.log.forget_before(snapshot, self._now_ms())

    def _perform(self, effects: Effects) -> None:
        while True:
            if effects.persist is not None:
                write_quorum_state(self._disk, self.log.directory, effects.persist.state, effects.persist.version)
            installed = self._write(effects)
            if effects.flush:
                self._flush()
            for message in effects.messages:
                if isinstance(message, Send):
                    self._send(message)
                else:
                    self._news.append(message)
            self._news.extend(effects.changes)
            now_ms = self._now_ms()
            if installed is not None:
                control = control_records(self.log.snapshot_content(installed))
                effects = self.consensus.report_snapshot_installed(installed, control, now_ms)
            elif effects.writes:
                effects = self.consensus.report_appended(now_ms)
            else:
                break
        self._schedule()
        self._tell()

    def _write(self, effects: Effects) -> OffsetAndEpoch | None:
        """Change the log; returns a snapshot that has been installed by that."""
        now_ms, log = self._now_ms(), self.log
        for write in effects.writes:
            if isinstance(write, Append):
                log.append(write.data, now_ms)
            elif isinstance(write, Truncate):
                log.truncate(write.end_offset, now_ms)
            else:
                log.receive_snapshot(write.snapshot, write.position, write.data)
                if write.last:
                    log.install_snapshot(write.snapshot, now_ms)
                    return write.snapshot
        return None

    def _flush(self) -> None:
        end, epoch = self.log.end_offset, self.log.last_epoch
        self.log.log.flusher.when_durable(end, partial(self._flushed, end, epoch))

    def _flushed(self, end: int, epoch: int) -> None:
        self._perform(self.consensus.report_flushed(end, epoch, self._now_ms()))

    def _send(self, send: Send) -> None:
        def answered(response: Any) -> None:
            self._perform(self.consensus.handle_response(send.id, response, self._now_ms()))

        def failed(why: ApiError) -> None:
            self._perform(
                self.consensus.handle_failure(
                    send.id,
                    self._now_ms(),
                    unsupported_version=isinstance(why, UnsupportedVersion),
                    connection_lost=isinstance(why, NetworkFailed),
                )
            )

        self._peers.send(send.to, send.message, send.timeout_ms, answered, failed)

    def _schedule(self) -> None:
        deadline = self.consensus.next_deadline()
        if deadline == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = deadline
        if deadline is not None and not self.is_stopped:
            delay = max(deadline - self._now_ms(), 0) / 1000
            self._timer = self._timers.call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = self._timer_at = None
        if not self.is_stopped:
            self._perform(self.consensus.tick(self._now_ms()))

    def _tell(self) -> None:
        """Answer and report, one after the other: what is done about one may lead to the next."""
        if self._is_telling:
            return
        self._is_telling = True
        try:
            while self._news:
                news = self._news.popleft()
                if isinstance(news, Reply):
                    ticket: Any = news.ticket
                    ticket.answer(news.message)
                elif isinstance(news, HighWatermark):
                    self._on_committed(news.offset)
                elif isinstance(news, RoleChanged):
                    self._on_role(news)
                else:
                    self._stopped(news)
        finally:
            self._is_telling = False

    def _stopped(self, news: Stopped) -> None:
        self.is_stopped = True
        if not news.graceful:
            logger.warning("the quorum was left before another leader was there")


def control_records(data: Buffer) -> list[object]:
    """What the control records of a snapshot or of a piece of log say, voters and versions among them."""
    found: list[object] = []
    for pos, header in read_batches(data):
        if header.is_control:
            found += (entry.message for entry in entries(data, pos, header) if isinstance(entry, ControlEntry))
    return found


def _history(log: MetadataLog, static_voters: VoterSet | None) -> ControlHistory:
    """The voters and versions that snapshot and log tell of."""
    history = ControlHistory(static_voters)
    latest = log.latest_snapshot
    if latest is not None:
        for record in control_records(log.snapshot_content(latest)):
            history.add(BOOTSTRAP_OFFSET if latest == BOOTSTRAP_SNAPSHOT else latest.offset - 1, record)
    offset = log.start_offset
    while data := log.read_bytes(offset, _READ_BYTES):
        for pos, header in read_batches(data, partial_tail=True):
            if header.is_control:
                for entry in entries(data, pos, header):
                    if isinstance(entry, ControlEntry):
                        history.add(entry.offset, entry.message)
            offset = header.next_offset
    return history
