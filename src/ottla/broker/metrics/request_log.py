"""The request log: one line of JSON for each request, on Kafka's logger for it.

The log is on while that logger accepts DEBUG, and can be switched while the node runs. While it is off, routes have
their meters alone, and the log costs nothing. While it is on, each request's note is a `LogEntry`.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from typing import Any, Final

from ottla.broker.metrics.error_search import ResponseObserver
from ottla.broker.metrics.message_json import message_to_json
from ottla.broker.metrics.request_metrics import Finished, Meter, MeteredRoute, RequestMeters

logger: Final = logging.getLogger("kafka.request.logger")


class LogEntry:
    """The data of one request for its line in the log."""

    __slots__ = ("call", "errors", "meter", "request", "response")

    def __init__(self, meter: Meter, call: Any, request: Any) -> None:
        self.meter = meter
        self.call = call
        # Now, because handlers release the records, and the bytes of the request are gone when it is answered.
        self.request = message_to_json(request, call.version)
        self.response: Any = None
        self.errors: set[int] | None = None

    @property
    def is_follower(self) -> bool:
        return self.meter.is_follower

    def failed(self, codes: set[int]) -> None:
        self.errors = codes
        self.meter.failed(codes)

    def record(self, request: Finished) -> None:
        """Count and log a request that has had its outcome."""
        self.meter.record(request)
        try:
            logger.debug(json.dumps(self._line(request), separators=(",", ":")))
        except Exception as error:  # noqa: BLE001 (a line that cannot be written must not close the connection)
            logger.warning("cannot log a request of %s: %s", self.meter.api.name, error)

    def _line(self, request: Finished) -> dict[str, Any]:
        call, client = self.call, self.call.client
        arrived, started, replied = request.arrived_ns, request.started_ns, request.replied_ns
        sent, handled = request.sent_ns or replied, request.handled_ns
        sending = request.sending_ns or replied
        local_end = min(handled or replied, replied)
        return {
            "isForwarded": client.is_forwarded,
            "requestHeader": {
                "requestApiKey": call.api_key,
                "requestApiKeyName": self.meter.api.name,
                "requestApiVersion": call.version,
                "correlationId": call.correlation_id,
                "clientId": call.client_id,
            },
            "request": self.request,
            "response": self.response,
            "errors": sorted(self.errors or ()),
            "connection": client.connection_id,
            "client": client.address,
            "securityProtocol": client.security_protocol,
            "listener": client.listener,
            "principal": client.principal,
            "clientInformation": {"softwareName": client.software_name, "softwareVersion": client.software_version},
            "requestBytes": request.received_bytes,
            "responseBytes": request.sent_bytes,
            "totalTimeMs": _ms(sent - arrived),
            "requestQueueTimeMs": _ms(started - arrived),
            "localTimeMs": _ms(local_end - started),
            "remoteTimeMs": _ms(replied - local_end),
            "throttleTimeMs": request.mute_ms,
            "responseQueueTimeMs": _ms(sending - replied),
            "sendTimeMs": _ms(sent - sending),
        }


class RequestLog:
    """Switches the log on and off."""

    def __init__(self, meters: RequestMeters) -> None:
        self._meters = meters
        self.is_on = False

    def refresh(self) -> None:
        """Switch the log on or off if the level of its logger has changed."""
        if logger.isEnabledFor(logging.DEBUG) != self.is_on:
            self.is_on = not self.is_on
            self._meters.wrap_meters(_log_requests if self.is_on else None)

    def switch(self, on: bool) -> None:
        """Switch the log on or off."""
        logger.setLevel(logging.DEBUG if on else logging.WARNING)
        self.refresh()


def _log_requests(route: MeteredRoute) -> None:
    """Make log entries the notes of a route's requests."""
    route.pick_meter = _pick(route.meter, route.pick_meter)
    route.observe_response = _observe(route.observe_response, route.version)


def _pick(meter: Meter, pick: Callable[[Any, Any], Any] | None) -> Callable[[Any, Any], LogEntry]:
    if pick is None:
        return lambda call, request: LogEntry(meter, call, request)
    return lambda call, request: LogEntry(pick(call, request), call, request)


def _observe(observe: ResponseObserver | None, version: int) -> ResponseObserver:
    def observe_and_keep(note: Any, response: Any) -> None:
        if observe is not None:
            observe(note, response)
        if isinstance(note, LogEntry):  # not of a request from before the log was switched on
            note.response = message_to_json(response, version)

    return observe_and_keep


def _ms(ns: int) -> float:
    return round(ns / 1e6, 3)
