"""Each request has one outcome, a response or a closed connection, even if something fails."""

import asyncio
import logging
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ottla.broker.requests.call import LATER, NOTHING, Call
from ottla.broker.requests.dispatch import Route
from ottla.protocol.errors import UnknownServerError
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla.protocol.messages.rpc.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.rpc.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.wire.codec import decode
from ottla.storage.disk import FileRange
from tests.unit.broker.metrics.service import Service, serving

VERSION, FETCH_VERSION = 4, 12
UNSENDABLE = HeartbeatResponse(throttle_time_ms=1 << 40)
FAILED, CLOSED = "failed", "closed"
ANSWERED = "answered"


class Defect(Exception):
    """Something that nobody expects."""


def fail(*_: Any) -> Any:
    raise Defect


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(test(), 20)

    asyncio.run(limited())


class Throttling:
    """Quotas that fail, before or after a request."""

    def __init__(self, before: Callable[..., Any] = lambda *_: None, after: Callable[..., Any] = lambda *_: 0) -> None:
        self.before = before
        self.after = after


class LostFile:
    """A file that was closed while its bytes were on their way."""

    number = -1


async def outcome(service: Service, request: Any = None, version: int = VERSION) -> str:
    """Return the outcome of one request."""
    service.send(request or HeartbeatRequest(), ApiKey.HEARTBEAT, version)
    try:
        (size,) = struct.unpack(">i", await service.reader.readexactly(4))
    except (asyncio.IncompleteReadError, ConnectionResetError):
        return CLOSED
    answer = await service.reader.readexactly(size)
    return FAILED if error_in(answer) == UnknownServerError.code else ANSWERED


def error_in(frame: bytes) -> int:
    return decode(HeartbeatResponse, VERSION, memoryview(frame)[5:]).error_code


async def check_nothing_is_held(service: Service, got: str) -> None:
    """The connection goes on unless it was closed; others do; no worker and no request is left behind."""
    if got == CLOSED:
        service.writer.close()
        await asyncio.sleep(0.01)
        assert not service.listener.connections
        service.reader, service.writer = await asyncio.open_connection(*service.address)
    versions = await service.ask(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0)
    assert isinstance(versions, ApiVersionsResponse)
    request_channel = service.request_channel
    assert (request_channel.busy, request_channel.held, len(request_channel.queue)) == (0, 0, 0)
    (connection,) = service.listener.connections
    assert connection.in_flight is None


def with_amend(call: Call[None], request: Any) -> HeartbeatResponse:
    call.amend = fail
    return HeartbeatResponse()


async def cancelled(call: Call[None], request: Any) -> HeartbeatResponse:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(1)
    return HeartbeatResponse()


async def awaiting_what_is_cancelled(call: Call[None], request: Any) -> HeartbeatResponse:
    future: asyncio.Future[HeartbeatResponse] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.cancel)
    return await future


async def unsendable_later(call: Call[None], request: Any) -> HeartbeatResponse:
    await asyncio.sleep(0)
    return UNSENDABLE


def from_a_lost_file(call: Call[None], request: Any) -> Any:
    call.exchange.reply([b"\0\0\0\x08", FileRange(LostFile(), 0, 8)])  # type: ignore[arg-type]
    return LATER


def set_nothing(service: Service, route: Route) -> None:
    """Nothing but the handler fails."""


def set_look(service: Service, route: Route) -> None:
    route.observe_response = fail


def set_pick(service: Service, route: Route) -> None:
    route.pick_meter = fail


def set_guard(service: Service, route: Route) -> None:
    route.guard = fail


def set_reader(service: Service, route: Route) -> None:
    route.read = fail


def set_writer(service: Service, route: Route) -> None:
    route.write = fail


def set_meter(service: Service, route: Route) -> None:
    class Broken:
        record = failed = staticmethod(fail)

    route.meter = Broken()
    route.observe_response = lambda note, response: note.failed({1})


def set_before(service: Service, route: Route) -> None:
    service.dispatch.throttling = Throttling(before=fail)


def set_after(service: Service, route: Route) -> None:
    service.dispatch.throttling = Throttling(after=fail)


def set_failed(service: Service, route: Route) -> None:
    route.endpoint = route.endpoint._replace(failed=fail)
    route.guard = fail


def plain(call: Call[None], request: Any) -> HeartbeatResponse:
    return HeartbeatResponse()


@pytest.mark.parametrize(
    ("handler", "defect", "expected"),
    [
        (lambda *_: UNSENDABLE, set_nothing, FAILED),
        (unsendable_later, set_nothing, FAILED),
        (fail, set_nothing, FAILED),
        (with_amend, set_nothing, FAILED),
        (cancelled, set_nothing, CLOSED),
        (awaiting_what_is_cancelled, set_nothing, CLOSED),
        (from_a_lost_file, set_nothing, CLOSED),
        (plain, set_look, FAILED),
        (plain, set_pick, FAILED),
        (plain, set_guard, FAILED),
        (plain, set_before, FAILED),
        (plain, set_after, FAILED),
        (plain, set_meter, FAILED),
        (plain, set_writer, CLOSED),
        (plain, set_reader, CLOSED),
        (plain, set_failed, CLOSED),
    ],
)
def test_a_defect_leaves_one_outcome(
    handler: Callable[..., Any],
    defect: Callable[[Service, Route], None],
    expected: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        broken = False

        def handle(call: Call[None], request: Any) -> Any:
            return handler(call, request) if broken else plain(call, request)

        async with serving(
            {ApiKey.HEARTBEAT: handle, ApiKey.API_VERSIONS: lambda *_: ApiVersionsResponse()}
        ) as service:
            assert await outcome(service) == ANSWERED
            broken = True
            (route,) = service.routes
            defect(service, route)
            got = await outcome(service)
            service.dispatch.throttling = None
            assert got == expected
            await check_nothing_is_held(service, got)

    with caplog.at_level(logging.ERROR):
        run(test)
    if handler not in (cancelled, awaiting_what_is_cancelled, from_a_lost_file):
        assert "Defect" in caplog.text or "Heartbeat v4 has no answer that can be sent" in caplog.text


def test_an_unsendable_answer_is_logged_with_its_request_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with serving({ApiKey.HEARTBEAT: lambda *_: UNSENDABLE}) as service:
            assert await outcome(service) == FAILED
            name = 'kafka_network_requestmetrics_errors_total{request="Heartbeat",error="UNKNOWN_SERVER_ERROR"}'
            assert service.metrics()[name] == 1
            assert service.metrics()['kafka_network_requestmetrics_totaltimems_count{request="Heartbeat"}'] == 1

    run(test)
    assert "Heartbeat v4 has no answer that can be sent: HeartbeatRequest(" in caplog.text


def test_a_request_that_fails_inside_another_does_not_affect_it(caplog: pytest.LogCaptureFixture) -> None:
    """A produce completes the fetches that wait for it: what is wrong with one of them is none of its business."""

    async def test() -> None:
        waiting: list[Call[None]] = []

        def wait(call: Call[None], request: Any) -> Any:
            waiting.append(call)
            return LATER

        def answer_the_other(call: Call[None], request: Any) -> FetchResponse:
            waiting[0].answer(UNSENDABLE)
            return FetchResponse()

        async with serving({ApiKey.HEARTBEAT: wait, ApiKey.FETCH: answer_the_other}) as service:
            service.send(HeartbeatRequest(), ApiKey.HEARTBEAT, VERSION)
            while not waiting:
                await asyncio.sleep(0.001)
            first = service.reader, service.writer
            service.reader, service.writer = await asyncio.open_connection(*service.address)
            answer = await service.ask(FetchRequest(), ApiKey.FETCH, FETCH_VERSION)
            assert answer.error_code == 0
            (size,) = struct.unpack(">i", await first[0].readexactly(4))
            assert error_in(await first[0].readexactly(size)) == UnknownServerError.code
            first[1].close()

    run(test)


def test_a_second_outcome_is_refused_and_the_first_remains(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        def answer_twice(call: Call[None], request: Any) -> HeartbeatResponse:
            call.answer(HeartbeatResponse())
            return HeartbeatResponse()

        handlers: dict[ApiKey, Callable[..., Any]] = {
            ApiKey.HEARTBEAT: answer_twice,
            ApiKey.API_VERSIONS: lambda *_: ApiVersionsResponse(),
        }
        async with serving(handlers) as service:
            assert await outcome(service) == ANSWERED
            await check_nothing_is_held(service, ANSWERED)

    run(test)
    assert "SecondOutcome" in caplog.text


def test_a_failed_request_without_acks_closes_its_connection() -> None:
    async def test() -> None:
        async with serving(
            {ApiKey.HEARTBEAT: lambda *_: NOTHING, ApiKey.API_VERSIONS: lambda *_: ApiVersionsResponse()}
        ) as service:
            service.send(HeartbeatRequest(), ApiKey.HEARTBEAT, VERSION)
            await service.ask(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0)
            route = next(route for route in service.routes if route.api.key == ApiKey.HEARTBEAT)
            route.endpoint = route.endpoint._replace(failed=lambda *_: None)
            service.dispatch.throttling = Throttling(after=fail)
            assert await outcome(service) == CLOSED
            service.dispatch.throttling = None
            await check_nothing_is_held(service, CLOSED)
            assert service.request_channel.aborted == 1

    run(test)
