"""Counts, times, sizes and errors of requests, by API and version.

A meter counts for one API and version. A route has its meter, which becomes the note of each request and records the
request's times when the answer has been sent. Requests that waited for nothing, nearly all of them, are counted in
groups. Times of zero are not recorded: `fill_zeros` adds them when the metrics are read. Errors are the exception, and
cost nothing while there are none.

The time of a request is divided as in Kafka: queue (until a worker takes it), local (until the handler returns or
answers), remote (until the answer, if it had to wait), response queue (until the socket takes the first byte: at once,
unless answers are sent together or the socket is full), send. Throttling comes after that and is not in the total.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from operator import sub
from typing import Any, Final, Protocol

from ottla.broker.metrics.error_search import ResponseObserver, compile_error_search
from ottla.broker.metrics.family import Family, counter, histogram, summary
from ottla.protocol.errors import name_of
from ottla.protocol.messages.apis import Api, ApiKey
from ottla.storage.state_machine.histogram import (
    Counts,
    fill_zeros,
    merge,
    new_counts,
    record,
    record_all,
    since,
    total,
)

logger = logging.getLogger(__name__)

FETCH_CONSUMER, FETCH_FOLLOWER = "FetchConsumer", "FetchFollower"
VERIFY_PARTITIONS_IN_TXN: Final = "AddPartitionsToTxnVerification"
_ADD_PARTITIONS_TO_TXN_BETWEEN_BROKERS = 4
LIST_CLIENT_METRICS_RESOURCES: Final = "ListClientMetricsResources"
"""Kafka's name for version 0 of ListConfigResources."""
_FETCH_WITH_STATE = 15
_NOT_QUEUED_NS: Final = 8192
"""A request that starts within this time was not queued; the time counts as local."""
_GROUP_SIZE: Final = 256
"""Requests that are counted at a time."""
_NS_PER_MS: Final = 1e6
_FIRST_BITS, _LAST_BITS = 14, 35
"""The buckets of the histogram range from 16 µs to 34 s."""

SPANS: Final = {
    "totaltimems": "from the arrival of the request to the last byte of the response",
    "requestqueuetimems": "that the request waited for a worker",
    "localtimems": "that the handler ran",
    "remotetimems": "that the request waited for replicas, bytes or other nodes",
    "throttletimems": "that the connection was throttled after the response",
    "responsequeuetimems": "that the response waited to be sent",
    "sendtimems": "to send the response",
}
SIZES: Final = {"requestbytes": "Size of requests in bytes.", "responsebytes": "Size of responses in bytes."}


class Finished(Protocol):
    """A request that has had its outcome. Times are nanoseconds, and 0 for steps that the request did not reach."""

    arrived_ns: int
    started_ns: int
    handled_ns: int
    replied_ns: int
    sending_ns: int
    sent_ns: int
    received_bytes: int
    sent_bytes: int
    mute_ms: int
    note: object


class MeteredRoute(Protocol):
    """The part of a dispatch route that the meters use."""

    api: Api
    version: int
    meter: Any
    pick_meter: Callable[[Any, Any], Any] | None
    observe_response: ResponseObserver | None


class Meter:
    """The requests of one kind and version."""

    __slots__ = (
        "_plain",
        "api",
        "errors",
        "failures",
        "is_follower",
        "kind",
        "local",
        "queue",
        "received",
        "remote",
        "response_queue",
        "send",
        "sent",
        "throttle",
        "total",
        "version",
    )

    def __init__(self, api: Api, kind: str, version: int) -> None:
        self.api = api
        self.kind = kind
        self.is_follower = kind == FETCH_FOLLOWER
        self.version = version
        self.total, self.queue, self.local, self.remote = (new_counts() for _ in range(4))
        self.throttle, self.send, self.received, self.sent = (new_counts() for _ in range(4))
        self.response_queue = new_counts()
        self._plain: list[tuple[int, int, int, int, int, int]] = []
        """Requests that waited only to be sent and are not counted yet: the times of arrival, of the answer, of the
        first and the last byte sent; the bytes received and sent."""
        self.errors: dict[int, int] = {}
        """Responses by error code."""
        self.failures = 0
        """Responses with any error."""

    def record(self, request: Finished) -> None:
        """Record a request that has had its outcome."""
        begun, replied = request.arrived_ns, request.replied_ns
        if request.started_ns - begun > _NOT_QUEUED_NS or 0 < request.handled_ns < replied or request.mute_ms:
            self._record_waiting(request)
            return
        plain = self._plain
        sent, sending = request.sent_ns or replied, request.sending_ns
        plain.append((begun, replied, sending, sent, request.received_bytes, request.sent_bytes))
        if len(plain) == _GROUP_SIZE:
            self.count_pending()

    def count_pending(self) -> None:
        """Count the pending requests. Call it before reading the distributions."""
        if self._plain:
            begun, replied, sending, sent, received, answered = zip(*self._plain, strict=True)
            self._plain = []
            record_all(self.total, list(map(sub, sent, begun)))
            record_all(self.local, list(map(sub, replied, begun)))
            if any(sending):
                sending = tuple(first or ready for first, ready in zip(sending, replied, strict=True))
                record_all(self.response_queue, list(map(sub, sending, replied)))
            else:
                sending = replied
            record_all(self.send, list(map(sub, sent, sending)))
            record_all(self.received, received)
            record_all(self.sent, answered)

    def _record_waiting(self, request: Finished) -> None:
        begun, replied, handled = request.arrived_ns, request.replied_ns, request.handled_ns
        sent = request.sent_ns or replied
        record(self.total, sent - begun)
        sending = request.sending_ns or replied
        record(self.send, sent - sending)
        if sending > replied:
            record(self.response_queue, sending - replied)
        if request.started_ns - begun > _NOT_QUEUED_NS:
            record(self.queue, request.started_ns - begun)
            begun = request.started_ns
        if 0 < handled < replied:
            record(self.remote, replied - handled)
            replied = handled
        record(self.local, replied - begun)
        record(self.received, request.received_bytes)
        record(self.sent, request.sent_bytes)
        if request.mute_ms:
            record(self.throttle, request.mute_ms * 1_000_000)

    def failed(self, codes: set[int]) -> None:
        """Count a response with errors."""
        self.failures += 1
        for code in codes:
            self.errors[code] = self.errors.get(code, 0) + 1

    def spans(self) -> dict[str, Counts]:
        """Return all distributions by the names of `SPANS` and `SIZES`, including times of zero."""
        self.count_pending()
        number = total(self.total)
        return {
            "totaltimems": self.total,
            "requestqueuetimems": fill_zeros(self.queue[:], number),
            "localtimems": self.local,
            "remotetimems": fill_zeros(self.remote[:], number),
            "throttletimems": fill_zeros(self.throttle[:], number),
            "responsequeuetimems": fill_zeros(self.response_queue[:], number),
            "sendtimems": self.send,
            "requestbytes": self.received,
            "responsebytes": self.sent,
        }


def on_sent(request: Finished) -> None:
    """Record a request that has had its outcome. A malformed request has no note and is not counted."""
    note: Any = request.note
    if note is not None:
        try:
            note.record(request)
        except Exception:  # a metric that fails must not close the connection
            logger.exception("cannot record the metrics of a request")


class RequestMeters:
    """The meters of a node, by kind and version.

    The kinds are Kafka's. Fetches of consumers and of followers are kinds of their own in addition to all fetches, as
    is the listing of client metrics in addition to that of all resources. Verifications of a transaction's partitions
    are a kind of their own and not counted as additions, but their errors are those of the API.
    """

    def __init__(self) -> None:
        self._meters: dict[tuple[str, int], Meter] = {}
        self.response_observers: dict[ApiKey, ResponseObserver] = {}
        """Observers of the responses of APIs that need more than the error search."""
        self._recent: list[dict[str, dict[str, Counts]]] = []
        self._routes: list[MeteredRoute] = []
        self._wrap: Callable[[MeteredRoute], None] | None = None

    def watch(self, route: MeteredRoute) -> None:
        """Count the requests of a route. Routes last as long as the node."""
        self._routes.append(route)
        self._attach_meters(route)

    def wrap_meters(self, wrap: Callable[[MeteredRoute], None] | None) -> None:
        """Wrap the meters of all routes by a function from now on; None removes the wrapping."""
        self._wrap = wrap
        for route in self._routes:
            self._attach_meters(route)

    def _attach_meters(self, route: MeteredRoute) -> None:
        api, version = route.api, route.version
        route.observe_response = self.response_observers.get(api.key) or compile_error_search(api.response)
        if api.key is ApiKey.FETCH:
            consumer, follower = self.meter(api, FETCH_CONSUMER, version), self.meter(api, FETCH_FOLLOWER, version)
            route.meter = consumer
            route.pick_meter = _by_replica(consumer, follower, version)
        elif api.key is ApiKey.ADD_PARTITIONS_TO_TXN and version >= _ADD_PARTITIONS_TO_TXN_BETWEEN_BROKERS:
            adding = route.meter = self.meter(api, api.name, version)
            route.pick_meter = _by_purpose(adding, self.meter(api, VERIFY_PARTITIONS_IN_TXN, version))
        elif api.key is ApiKey.LIST_CONFIG_RESOURCES and version == 0:
            route.meter = self.meter(api, LIST_CLIENT_METRICS_RESOURCES, version)
            route.pick_meter = None
        else:
            route.meter = self.meter(api, api.name, version)
            route.pick_meter = None
        if self._wrap is not None:
            self._wrap(route)

    def meter(self, api: Api, kind: str, version: int) -> Meter:
        meter = self._meters.get((kind, version))
        if meter is None:
            meter = self._meters[kind, version] = Meter(api, kind, version)
        return meter

    def start_minute(self) -> None:
        """Start a new minute. Quantiles cover the requests since the last call but one."""
        self._recent = [*self._recent[-1:], {kind: merged for kind, merged, _ in self._kinds()}]

    def families(self) -> Iterator[Family]:
        """Yield the metrics of all kinds that have had requests."""
        prefix = "kafka_network_requestmetrics_"
        requests = counter(f"{prefix}requests_total", "Requests by API and version.")
        errors = counter(f"{prefix}errors_total", "Responses by the errors in them; NONE for responses without errors.")
        times = {name: summary(prefix + name, f"Milliseconds {what}.") for name, what in SPANS.items()}
        sizes = {name: summary(prefix + name, what) for name, what in SIZES.items()}
        seconds = histogram(
            "ottla_request_time_seconds",
            "Time from the arrival of a request to the last byte of its response, in seconds.",
        )
        before = self._recent[0] if self._recent else {}
        for kind, merged, meters in self._kinds():
            labels = {"request": kind}
            recent = before.get(kind, {})
            for name, family in times.items():
                family.add_summary(merged[name], since(merged[name], recent.get(name)), _NS_PER_MS, labels)
            for name, family in sizes.items():
                family.add_summary(merged[name], since(merged[name], recent.get(name)), 1, labels)
            seconds.add_histogram(merged["totaltimems"], _FIRST_BITS, _LAST_BITS, 1e9, labels)
            for version in sorted({meter.version for meter in meters}):
                number = sum(total(meter.total) for meter in meters if meter.version == version)
                requests.add(number, {"request": kind, "version": str(version)})
        for kind, meters in sorted(self._by_error_kind().items()):
            _add_errors(errors, kind, meters)
        yield from (requests, errors, seconds, *times.values(), *sizes.values())

    def _by_error_kind(self) -> dict[str, list[Meter]]:
        """Return the meters by the kinds for which errors are shown."""
        by_kind: dict[str, list[Meter]] = {}
        for meter in self._meters.values():
            if any(meter.total):
                for kind in {meter.kind, meter.api.name} - {VERIFY_PARTITIONS_IN_TXN}:
                    by_kind.setdefault(kind, []).append(meter)
        return by_kind

    def _kinds(self) -> Iterator[tuple[str, dict[str, Counts], list[Meter]]]:
        """Yield kinds with their distributions and meters; all kinds of an API together are one more."""
        by_kind: dict[str, list[Meter]] = {}
        for meter in self._meters.values():
            meter.count_pending()
            if any(meter.total):
                for kind in {meter.kind} if meter.kind == VERIFY_PARTITIONS_IN_TXN else {meter.kind, meter.api.name}:
                    by_kind.setdefault(kind, []).append(meter)
        for kind, meters in sorted(by_kind.items()):
            yield kind, _merged(meters), meters


def _merged(meters: Iterable[Meter]) -> dict[str, Counts]:
    spans = [meter.spans() for meter in meters]
    return {name: merge(counts[name] for counts in spans) for name in spans[0]}


def _add_errors(family: Family, kind: str, meters: list[Meter]) -> None:
    codes: dict[int, int] = {}
    for meter in meters:
        for code, count in meter.errors.items():
            codes[code] = codes.get(code, 0) + count
    number = sum(total(meter.total) for meter in meters)
    family.add(max(number - sum(meter.failures for meter in meters), 0), {"request": kind, "error": "NONE"})
    for code, count in sorted(codes.items()):
        family.add(count, {"request": kind, "error": name_of(code)})


def _by_replica(consumer: Meter, follower: Meter, version: int) -> Callable[[Any, Any], Meter]:
    """Return a function that picks the meter of consumers or of followers."""
    if version < _FETCH_WITH_STATE:
        return lambda call, request: consumer if request.replica_id < 0 else follower

    def pick(call: Any, request: Any) -> Meter:
        state = request.replica_state
        return consumer if state is None or state.replica_id < 0 else follower

    return pick


def _by_purpose(adding: Meter, verifying: Meter) -> Callable[[Any, Any], Meter]:
    """Return a function that picks the meter of requests that only verify partitions, or that of all others."""
    return lambda call, request: verifying if all(txn.verify_only for txn in request.transactions) else adding
