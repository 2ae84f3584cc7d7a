"""Follows one leader: says what to ask it next, and takes in what it answers. No socket, clock or task in here.

Requests go over two lanes. The main lane carries one long fetch after the other, in a fetch session over all
partitions. The side lane is for what must not wait until such a fetch is over: partitions that came in the meantime,
which a new leader's producers may be waiting for, and questions about offsets. An answer for a partition that has gone
on since counts for nothing, so that both lanes may ask for the same.

What goes wrong with a partition is tried again after a pause that grows up to `replica.fetch.backoff.ms`; what cannot
get well by itself waits for the next leader.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Protocol

from ottla.protocol.errors import (
    NONE,
    ApiError,
    FencedLeaderEpoch,
    FetchSessionError,
    FetchSessionIdNotFound,
    OffsetOutOfRange,
    StorageFailed,
    by_code,
    name_of,
)
from ottla.protocol.messages.rpc.fetch import FetchRequest, FetchResponse, PartitionData
from ottla.protocol.messages.rpc.list_offsets import ListOffsetsResponse
from ottla.protocol.wire.errors import ProtocolError
from ottla.replication.fetch_requests import FetchLimits, FetchPosition, FollowerSession, Requests, fetch_position_of
from ottla.replication.partition import Partition
from ottla.replication.partition_fetch_state import Key, PartitionFetchState, Phase, common_end, take
from ottla.replication.truncation_queue import TruncationQueue
from ottla.storage.directories.logs import Logs

logger = logging.getLogger(__name__)

_FIRST_PAUSE_MS = 20
_HELD_BACK_MS = 100
_NOT_REGISTERED_MS = 20


class Lane(Enum):
    MAIN = 0
    SIDE = 1


class Throttle(Protocol):
    """What limits followers that are not in sync (`follower.replication.throttled.rate`)."""

    def holds_back(self, topic: str, index: int) -> bool:
        """Whether a partition is throttled and the limit is reached."""
        ...

    def count(self, topic: str, index: int, size: int) -> None:
        """So much came for a partition."""
        ...


class Fetcher:
    """The partitions that one fetcher fetches from one broker."""

    def __init__(
        self,
        broker_id: int,
        source: int,
        limits: FetchLimits,
        logs: Logs,
        truncation_queue: TruncationQueue,
        *,
        broker_epoch: Callable[[], int],
        throttle: Throttle,
        on_failed: Callable[[Partition], None],
        on_ready: Callable[[], None],
    ) -> None:
        self.source = source
        self.fetch_states: dict[Key, PartitionFetchState] = {}
        self._limits = limits
        self._requests = Requests(broker_id, limits)
        self._logs = logs
        self._truncation_queue = truncation_queue
        self._broker_epoch = broker_epoch
        self._throttle = throttle
        self._on_failed = on_failed
        self._on_ready = on_ready
        """Called when there is something to ask for that was not there at the last `poll`."""
        self._session = FollowerSession()
        self._changed: set[Key] = set()
        """Partitions of which the main lane has to say something, or which it does not fetch yet."""
        self._asking: set[Key] = set()
        """Partitions that need an offset of the leader's."""
        self._paused: dict[Key, int] = {}
        """Partitions that are left alone for a while, and until when."""
        self._busy: dict[Lane, Mapping[Key, FetchPosition]] = {}
        self._on_start_moved = self._tell_start
        self._failures = 0
        self._blocked_until_ms = 0

    def __repr__(self) -> str:
        return f"Fetcher(from broker {self.source}, {len(self.fetch_states)} partitions)"

    # -- partitions --

    def add(self, partition: Partition) -> PartitionFetchState:
        """Fetch a partition from now on, in its present term."""
        state = PartitionFetchState(partition)
        self.fetch_states[state.key] = state
        partition.on_start_moved = self._on_start_moved
        log = partition.log
        if log.epochs.latest < 0 and log.log_end_offset > log.high_watermark:
            # Without epochs the leader cannot tell where logs part: only what is committed is sure to be the same.
            self._truncate(state, log.high_watermark)
        else:
            self._changed.add(state.key)
            self._on_ready()
        return state

    def remove(self, key: Key) -> None:
        """Fetch a partition no more."""
        state = self.fetch_states.pop(key, None)
        if state is not None:
            state.is_gone = True
            state.partition.on_start_moved = None
            self._changed.add(key)
            self._asking.discard(key)
            self._paused.pop(key, None)

    def _tell_start(self, partition: Partition) -> None:
        """Let the leader know with the next fetch where the log here begins: retention moves that by itself."""
        self._changed.add((partition.topic_id, partition.index))

    @property
    def max_lag(self) -> int:
        return max((state.lag or 0 for state in self.fetch_states.values()), default=0)

    # -- what to ask --

    def poll(self, now_ms: int) -> list[tuple[Lane, Any]]:
        """The requests that can go out now; each is to be followed by `handle_response` or `handle_failure`."""
        if now_ms < self._blocked_until_ms or self._broker_epoch() < 0:
            return []
        for key in [key for key, until_ms in self._paused.items() if until_ms <= now_ms]:
            self._resume(key)
        found: list[tuple[Lane, Any]] = []
        if Lane.MAIN not in self._busy and (request := self._main_fetch(now_ms)) is not None:
            found.append((Lane.MAIN, request))
        if Lane.SIDE not in self._busy and (request := self._side_request(now_ms)) is not None:
            found.append((Lane.SIDE, request))
        return found

    def next_ms(self, now_ms: int) -> int | None:
        """When to poll again if nothing happens before; None if there is no need to."""
        if not self.fetch_states:
            return None
        if self._broker_epoch() < 0:
            return now_ms + _NOT_REGISTERED_MS
        if now_ms < self._blocked_until_ms:
            return self._blocked_until_ms
        return min(self._paused.values(), default=None)

    def _main_fetch(self, now_ms: int) -> FetchRequest | None:
        session = self._session
        sent = session.sent
        if session.is_new:
            self._changed.update(self.fetch_states)
        wanted: list[tuple[Key, FetchPosition]] = []
        forgotten: list[Key] = []
        for key in self._changed:
            state = self.fetch_states.get(key)
            if state is None or not self._is_ready(state, now_ms):
                if sent.pop(key, None) is not None:
                    forgotten.append(key)
                continue
            asked = fetch_position_of(state)
            if sent.get(key) != asked:
                sent[key] = asked
                wanted.append((key, asked))
        self._changed.clear()
        if not sent and (session.is_new or not forgotten):
            return None
        self._busy[Lane.MAIN] = sent
        return self._requests.fetch(wanted, forgotten, session=session, broker_epoch=self._broker_epoch())

    def _side_request(self, now_ms: int) -> Any:
        if self._asking:
            asking = [self.fetch_states[key] for key in self._asking]
            self._busy[Lane.SIDE] = {each.key: fetch_position_of(each) for each in asking}
            return self._requests.offsets(asking)
        if Lane.MAIN not in self._busy:
            return None
        wanted = {
            state.key: fetch_position_of(state)
            for state in self._all_of(self._changed)
            if not self._is_on_main(state) and self._is_ready(state, now_ms)
        }
        if not wanted:
            return None
        self._busy[Lane.SIDE] = wanted
        return self._requests.fetch(wanted.items(), (), session=None, broker_epoch=self._broker_epoch())

    def _is_on_main(self, state: PartitionFetchState) -> bool:
        """Whether the fetch under way brings an answer for a partition soon: the leader has more than was asked for."""
        then = self._session.sent.get(state.key)
        return then is not None and then.leader_epoch == state.leader_epoch

    def _is_ready(self, state: PartitionFetchState, now_ms: int) -> bool:
        if state.phase is not Phase.FETCHING or state.retry_at_ms:
            return False
        partition = state.partition
        if not state.is_in_sync and self._throttle.holds_back(partition.topic, partition.index):
            state.retry_at_ms = self._paused[state.key] = now_ms + _HELD_BACK_MS
            return False
        return True

    def _resume(self, key: Key) -> None:
        del self._paused[key]
        state = self.fetch_states[key]
        state.retry_at_ms = 0
        if state.phase is Phase.FETCHING:
            self._changed.add(key)
        elif state.phase is not Phase.TRUNCATING:
            self._asking.add(key)

    def _all_of(self, keys: Iterable[Key]) -> Iterator[PartitionFetchState]:
        for key in keys:
            state = self.fetch_states.get(key)
            if state is not None:
                yield state

    # -- what was answered --

    def handle_response(self, lane: Lane, response: Any, now_ms: int) -> None:
        """Take in an answer."""
        asked = self._busy.pop(lane)
        if isinstance(response, ListOffsetsResponse):
            self._take_offsets(response, asked, now_ms)
        elif lane is Lane.SIDE:
            self._take_fetched(response, asked, now_ms)
        elif not response.error_code:
            self._take_fetched(response, asked, now_ms)
            self._session.on_response(response.session_id)
        else:
            error = by_code(response.error_code)
            if issubclass(error, FetchSessionIdNotFound):
                self._session.reset()
            else:
                self._session.restart()
            if issubclass(error, FetchSessionError) and not self._failures:
                self._failures = 1  # the leader has forgotten the session: it gets a new one, at once
            else:
                self.handle_failure(Lane.MAIN, error(f"broker {self.source} refused a fetch"), now_ms)

    def handle_failure(self, lane: Lane, error: ApiError, now_ms: int) -> None:
        """The leader cannot be reached, or does not answer."""
        self._busy.pop(lane, None)
        if lane is Lane.MAIN:
            self._session.restart()
        if not self._failures:
            logger.info("broker %d cannot be fetched from: %s", self.source, error)
        self._blocked_until_ms = now_ms + self._pause_ms(self._failures)
        self._failures += 1

    def _take_fetched(self, response: FetchResponse, asked: Mapping[Key, FetchPosition], now_ms: int) -> None:
        if response.error_code:
            self.handle_failure(
                Lane.SIDE, by_code(response.error_code)(f"broker {self.source} refused a fetch"), now_ms
            )
            return
        self._failures = 0
        for topic in response.responses:
            for data in topic.partitions:
                key = topic.topic_id, data.partition_index
                state = self._current(key, asked)
                if state is not None and state.phase is Phase.FETCHING:
                    self._take(state, data, now_ms)

    def _current(self, key: Key, asked: Mapping[Key, FetchPosition]) -> PartitionFetchState | None:
        """The partition that an answer is about, unless it has gone on since it was asked for."""
        state, then = self.fetch_states.get(key), asked.get(key)
        if state is None or then is None or state.retry_at_ms:
            return None
        same = then.leader_epoch == state.leader_epoch and then.offset == state.partition.log.log_end_offset
        return state if same else None

    def _take(self, state: PartitionFetchState, data: PartitionData, now_ms: int) -> None:
        if data.error_code:
            self._take_error(state, data.error_code, now_ms)
            return
        state.failures = 0
        partition = state.partition
        log = partition.log
        if data.diverging_epoch is not None:
            self._truncate(state, common_end(log, data.diverging_epoch.epoch, data.diverging_epoch.end_offset))
            return
        try:
            size = take(self._logs, partition, data, now_ms)
        except ProtocolError as error:
            logger.error("%s fetched what it cannot take from broker %d: %s", partition, self.source, error)
            self._pause(state, now_ms)
            return
        except Exception as error:  # noqa: BLE001 (whatever it is, it must not stop the other partitions)
            self._give_up(state, error)
            return
        state.lag = max(data.high_watermark - log.log_end_offset, 0)
        if size:
            self._throttle.count(partition.topic, partition.index, size)
            self._changed.add(state.key)

    def _take_error(self, state: PartitionFetchState, code: int, now_ms: int) -> None:
        error = by_code(code)
        if issubclass(error, FencedLeaderEpoch):
            logger.info("%s is behind its leader's term, of which the metadata will tell", state)
            self._stop(state)
        elif issubclass(error, OffsetOutOfRange):
            state.phase = Phase.FINDING_END
            self._changed.add(state.key)
            if state.failures:
                self._pause(state, now_ms)
            else:
                state.failures = 1
                self._asking.add(state.key)
        else:
            if state.failures >= 3:
                logger.info("%s cannot be fetched from broker %d: %s", state, self.source, name_of(code))
            self._pause(state, now_ms)

    def _take_offsets(self, response: ListOffsetsResponse, asked: Mapping[Key, FetchPosition], now_ms: int) -> None:
        self._failures = 0
        by_name = {(each.partition.topic, each.partition.index): each for each in self._all_of(asked)}
        for topic in response.topics:
            for data in topic.partitions:
                state = by_name.get((topic.name, data.partition_index))
                if state is None or self._current(state.key, asked) is None:
                    continue
                self._asking.discard(state.key)
                if data.error_code != NONE:
                    self._take_error(state, data.error_code, now_ms)
                elif state.phase is Phase.FINDING_END:
                    self._take_end(state, data.offset)
                elif state.phase is Phase.FINDING_START:
                    self._take_start(state, data.offset, now_ms)

    def _take_end(self, state: PartitionFetchState, end: int) -> None:
        state.leader_end = end
        if end < state.partition.log.log_end_offset:
            # Only after an unclean election does a leader have less, and no epoch in common.
            self._truncate(state, end)
        else:
            state.phase = Phase.FINDING_START
            self._asking.add(state.key)

    def _take_start(self, state: PartitionFetchState, start: int, now_ms: int) -> None:
        partition = state.partition
        if start > partition.log.log_end_offset:
            logger.info("%s begins anew at %d, where its leader's log begins", partition.log, start)
            try:
                self._logs.truncate_fully_and_start_at(partition.topic, partition.index, start, now_ms=now_ms)
            except (OSError, StorageFailed) as error:
                self._give_up(state, error)
                return
        state.lag = max(state.leader_end - partition.log.log_end_offset, 0)
        self._fetch_on(state)

    # -- what becomes of a partition --

    def _truncate(self, state: PartitionFetchState, offset: int) -> None:
        state.phase = Phase.TRUNCATING
        self._changed.add(state.key)
        self._truncation_queue.truncate(state, offset, self._on_truncated)

    def _on_truncated(self, state: PartitionFetchState, error: Exception | None) -> None:
        if state.is_gone:
            return
        if error is not None:
            self._give_up(state, error)
        else:
            self._fetch_on(state)

    def _fetch_on(self, state: PartitionFetchState) -> None:
        state.phase = Phase.FETCHING
        state.partition.mark_watches()
        self._changed.add(state.key)
        self._on_ready()

    def _pause(self, state: PartitionFetchState, now_ms: int) -> None:
        state.retry_at_ms = self._paused[state.key] = now_ms + self._pause_ms(state.failures)
        state.failures += 1
        self._asking.discard(state.key)
        self._changed.add(state.key)

    def _pause_ms(self, failures: int) -> int:
        return min(_FIRST_PAUSE_MS << min(failures, 16), self._limits.backoff_ms)

    def _give_up(self, state: PartitionFetchState, error: Exception) -> None:
        unexpected = not isinstance(error, ApiError | OSError)
        logger.error("%s is fetched no more in this term: %s", state, error, exc_info=error if unexpected else None)
        self._stop(state)

    def _stop(self, state: PartitionFetchState) -> None:
        """Leave a partition alone until it has another leader."""
        self.remove(state.key)
        self._on_failed(state.partition)
