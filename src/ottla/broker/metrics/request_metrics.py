"""What becomes of requests: how many, how long, how large, with which errors, by API and version.

A meter counts for one API and version. A route carries its meter, which thereby becomes each request's note; when the
answer was sent the note records the request's times. Requests that waited for nothing, nearly all of them, are counted
many at a time. Times that are nought are not recorded: `fill_zeros` makes up for them when somebody reads. Errors are
the exception, and cost nothing while there are none.

A request's time, as Kafka cuts it: queue (until a worker takes it up), local (until the handler returns or answers),
remote (until it is answered, where it had to wait), response queue (until the socket takes the first byte: answers are
sent at once, save those that go out together or find the socket full), send. Throttling comes after that and is not in
the total.
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
"""What version 0 of ListConfigResources was for."""
_FETCH_WITH_STATE = 15
_AT_ONCE_NS: Final = 8192
"""A request that was taken up within this time was in no queue; the time counts as local."""
_TOGETHER: Final = 256
"""So many requests are counted at a time."""
_NS_PER_MS: Final = 1e6
_FIRST_BITS, _LAST_BITS = 14, 35
"""The histogram's buckets reach from 16 µs to 34 s."""

SPANS: Final = {
    "totaltimems": "from arrival to the last byte of the answer",
    "requestqueuetimems": "waiting for a worker",
    "localtimems": "in the handler",
    "remotetimems": "waiting for replicas, bytes or other nodes",
    "throttletimems": "kept from being read, after the answer",
    "responsequeuetimems": "waiting to be sent",
    "sendtimems": "being sent",
}
SIZES: Final = {"requestbytes": "Size of requests.", "responsebytes": "Size of answers."}


class Finished(Protocol):
    """A request of the network that has had its outcome. Times are nanoseconds, 0 where it did not get to."""

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


class Watchable(Protocol):
    """A route of the dispatch, as far as it lets itself be watched."""

    api: Api
    version: int
    meter: Any
    pick: Callable[[Any, Any], Any] | None
    look: ResponseObserver | None


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
        """Requests that waited for nothing but to be sent, and are not counted yet: when they arrived, were answered,
        began to be sent and were sent; bytes received and sent."""
        self.errors: dict[int, int] = {}
        """Error code → answers with it."""
        self.failures = 0
        """Answers with any error."""

    def record(self, request: Finished) -> None:
        """A request has had its outcome."""
        begun, replied = request.arrived_ns, request.replied_ns
        if request.started_ns - begun > _AT_ONCE_NS or 0 < request.handled_ns < replied or request.mute_ms:
            self._record_waiting(request)
            return
        plain = self._plain
        sent, sending = request.sent_ns or replied, request.sending_ns
        plain.append((begun, replied, sending, sent, request.received_bytes, request.sent_bytes))
        if len(plain) == _TOGETHER:
            self.settle()

    def settle(self) -> None:
        """Count what waits to be: before anybody looks at the distributions."""
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
        if request.started_ns - begun > _AT_ONCE_NS:
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
        """The answer holds errors."""
        self.failures += 1
        for code in codes:
            self.errors[code] = self.errors.get(code, 0) + 1

    def spans(self) -> dict[str, Counts]:
        """All distributions by the names of `SPANS` and `SIZES`, those complete that record no noughts."""
        self.settle()
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
    """For listeners: a request has had its outcome. One that was never understood has no note."""
    note: Any = request.note
    if note is not None:
        try:
            note.record(request)
        except Exception:  # the connection goes on, whatever its figures are
            logger.exception("a request could not be counted")


class RequestMeters:
    """The meters of a node, by kind and version.

    Kinds are Kafka's: fetches of consumers and of followers are kinds of their own beside all fetches, as is the
    listing of client metrics beside that of all resources. Checks of a transaction's partitions are a kind of their
    own and not counted as additions; but their errors are those of the API.
    """

    def __init__(self) -> None:
        self._meters: dict[tuple[str, int], Meter] = {}
        self.looks: dict[ApiKey, ResponseObserver] = {}
        """API → how its answers are looked at, where more than errors is wanted of them."""
        self._recent: list[dict[str, dict[str, Counts]]] = []
        self._routes: list[Watchable] = []
        self._extra: Callable[[Watchable], None] | None = None

    def watch(self, route: Watchable) -> None:
        """Let a new route's requests be counted. Routes are kept for as long as the node runs."""
        self._routes.append(route)
        self._dress(route)

    def watch_also(self, extra: Callable[[Watchable], None] | None) -> None:
        """Let somebody else put something around the meters of all routes, from now on; None for nobody."""
        self._extra = extra
        for route in self._routes:
            self._dress(route)

    def _dress(self, route: Watchable) -> None:
        api, version = route.api, route.version
        route.look = self.looks.get(api.key) or compile_error_search(api.response)
        if api.key is ApiKey.FETCH:
            consumer, follower = self.meter(api, FETCH_CONSUMER, version), self.meter(api, FETCH_FOLLOWER, version)
            route.meter = consumer
            route.pick = _by_replica(consumer, follower, version)
        elif api.key is ApiKey.ADD_PARTITIONS_TO_TXN and version >= _ADD_PARTITIONS_TO_TXN_BETWEEN_BROKERS:
            adding = route.meter = self.meter(api, api.name, version)
            route.pick = _by_purpose(adding, self.meter(api, VERIFY_PARTITIONS_IN_TXN, version))
        elif api.key is ApiKey.LIST_CONFIG_RESOURCES and version == 0:
            route.meter = self.meter(api, LIST_CLIENT_METRICS_RESOURCES, version)
            route.pick = None
        else:
            route.meter = self.meter(api, api.name, version)
            route.pick = None
        if self._extra is not None:
            self._extra(route)

    def meter(self, api: Api, kind: str, version: int) -> Meter:
        made = self._meters.get((kind, version))
        if made is None:
            made = self._meters[kind, version] = Meter(api, kind, version)
        return made

    def remember(self) -> None:
        """Called once a minute: quantiles are of what came after the last call but one."""
        self._recent = [*self._recent[-1:], {kind: merged for kind, merged, _ in self._kinds()}]

    def families(self) -> Iterator[Family]:
        """Everything, of the kinds that were asked for at all."""
        prefix = "kafka_network_requestmetrics_"
        requests = counter(f"{prefix}requests_total", "Requests by API and version.")
        errors = counter(f"{prefix}errors_total", "Answers by the errors in them; NONE for those without.")
        times = {name: summary(prefix + name, f"Milliseconds {what}.") for name, what in SPANS.items()}
        sizes = {name: summary(prefix + name, what) for name, what in SIZES.items()}
        seconds = histogram("ottla_request_time_seconds", "From arrival to the last byte of the answer.")
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
        """The meters by the kinds that errors are shown for."""
        by_kind: dict[str, list[Meter]] = {}
        for meter in self._meters.values():
            if any(meter.total):
                for kind in {meter.kind, meter.api.name} - {VERIFY_PARTITIONS_IN_TXN}:
                    by_kind.setdefault(kind, []).append(meter)
        return by_kind

    def _kinds(self) -> Iterator[tuple[str, dict[str, Counts], list[Meter]]]:
        """Kinds with their distributions and their meters; an API's kinds together are one more."""
        by_kind: dict[str, list[Meter]] = {}
        for meter in self._meters.values():
            meter.settle()
            if any(meter.total):
                for kind in {meter.kind} if meter.kind == VERIFY_PARTITIONS_IN_TXN else {meter.kind, meter.api.name}:
                    by_kind.setdefault(kind, []).append(meter)
        for kind, meters in sorted(by_kind.items()):
            yield kind, _merged(meters), meters


def _merged(meters: Iterable[Meter]) -> dict[str, Counts]:
    spans = [meter.spans() for meter in meters]
    return {name: merge(each[name] for each in spans) for name in spans[0]}


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
    """Tells fetches of consumers and of followers apart."""
    if version < _FETCH_WITH_STATE:
        return lambda call, request: consumer if request.replica_id < 0 else follower

    def pick(call: Any, request: Any) -> Meter:
        state = request.replica_state
        return consumer if state is None or state.replica_id < 0 else follower

    return pick


def _by_purpose(adding: Meter, checking: Meter) -> Callable[[Any, Any], Meter]:
    """Tells requests that only check a transaction's partitions from those that add some."""
    return lambda call, request: checking if all(each.verify_only for each in request.transactions) else adding
