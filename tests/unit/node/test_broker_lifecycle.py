"""Registration, heartbeats and controlled shutdown of a broker, with a scripted controller."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.metadata.controller.decision import apply_records
from ottla.metadata.image.image import Image
from ottla.node import broker_lifecycle
from ottla.node.broker_lifecycle import BrokerLifecycle, RegistrationFailed
from ottla.node.settings_loader import load_settings
from ottla.protocol.errors import (
    ApiError,
    BrokerIdNotRegistered,
    DuplicateBrokerRegistration,
    InconsistentClusterId,
    NotController,
    StaleBrokerEpoch,
    UnsupportedVersion,
)
from ottla.protocol.messages.records.metadata_records import RegisterBrokerRecord
from ottla.protocol.messages.rpc.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.messages.rpc.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse

SETTINGS = {
    "broker.heartbeat.interval.ms": "20",
    "broker.session.timeout.ms": "200",
    "initial.broker.registration.timeout.ms": "100",
}


class Controller:
    """Answers registrations and heartbeats from lists; the last answer of a list repeats."""

    def __init__(self, *, registrations: list[Any] | None = None, heartbeats: list[Any] | None = None) -> None:
        self.registrations = registrations or [BrokerRegistrationResponse(broker_epoch=7)]
        self.heartbeats = heartbeats or [BrokerHeartbeatResponse(is_caught_up=True, is_fenced=False)]
        self.asked: list[Any] = []

    async def ask(self, request: Any, *, timeout_s: float | None = None) -> Any:
        self.asked.append(request)
        await asyncio.sleep(0)
        answers = self.registrations if isinstance(request, BrokerRegistrationRequest) else self.heartbeats
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, ApiError):
            raise answer
        return answer

    def count(self, kind: type) -> int:
        return sum(isinstance(each, kind) for each in self.asked)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_lifecycle, "_RETRY_S", 0.001)
    monkeypatch.setattr(broker_lifecycle, "_LONGEST_RETRY_S", 0.01)


def life(controller: Controller) -> BrokerLifecycle:
    logs: Any = SimpleNamespace(directories=[])
    metadata: Any = SimpleNamespace(applied_offset=1, image=Image())
    return BrokerLifecycle(load_settings(None, SETTINGS), "a-cluster", logs, metadata, {}, controller.ask)


def run(scenario: Coroutine[Any, Any, Any]) -> Any:
    async def limited() -> Any:
        return await asyncio.wait_for(scenario, 30)

    return asyncio.run(limited())


def _ready() -> None:
    """Ignore the call."""


async def until(holds: Callable[[], bool]) -> None:
    while not holds():
        await asyncio.sleep(0.001)


def test_a_broker_starts_when_it_is_unfenced() -> None:
    fenced, unfenced = BrokerHeartbeatResponse(is_fenced=True), BrokerHeartbeatResponse(is_fenced=False)
    controller = Controller(heartbeats=[fenced, NotController("gone"), fenced, unfenced])

    async def scenario() -> BrokerLifecycle:
        broker = life(controller)
        await broker.start(_ready)
        return broker

    broker = run(scenario())
    assert (broker.epoch, broker.is_fenced, broker.silence_s) == (7, False, 0.0)
    assert controller.count(BrokerHeartbeatRequest) == 4


def test_listeners_open_when_the_broker_can_be_unfenced() -> None:
    """Listeners stay closed until the broker has caught up, and are open when it is unfenced."""
    fenced, unfenced = BrokerHeartbeatResponse(is_fenced=True), BrokerHeartbeatResponse(is_fenced=False)
    controller = Controller(heartbeats=[fenced, fenced, fenced, unfenced])
    broker, opened_after = life(controller), list[int]()
    metadata: Any = broker._metadata
    metadata.image = registered(epoch=6)  # by its last life

    async def scenario() -> None:
        start = asyncio.ensure_future(broker.start(lambda: opened_after.append(len(controller.asked))))
        await until(lambda: controller.count(BrokerHeartbeatRequest) == 2)
        assert not opened_after
        metadata.image = registered(epoch=7)
        await start

    run(scenario())
    assert opened_after == [3]


def registered(*, epoch: int) -> Image:
    return apply_records(Image(), [RegisterBrokerRecord(broker_id=1, broker_epoch=epoch)])


def test_registration_retries_while_the_previous_session_lasts(
    caplog: pytest.LogCaptureFixture,
) -> None:
    refusals: list[Any] = [DuplicateBrokerRegistration("still there")] * 5
    controller = Controller(registrations=[*refusals, BrokerRegistrationResponse(broker_epoch=9)])
    broker = life(controller)
    run(broker.start(_ready))
    assert broker.epoch == 9
    assert caplog.text.count("still there") == 1


@pytest.mark.parametrize("error", [UnsupportedVersion("no such version"), InconsistentClusterId("another cluster")])
def test_a_refused_registration_is_not_retried(error: ApiError) -> None:
    controller = Controller(registrations=[error])
    with pytest.raises(RegistrationFailed, match=error.message):
        run(life(controller).start(_ready))
    assert controller.count(BrokerRegistrationRequest) == 1


def test_registration_without_a_controller_times_out() -> None:
    with pytest.raises(RegistrationFailed, match=r"within 0\.1 s"):
        run(life(Controller(registrations=[NotController("none")])).start(_ready))


@pytest.mark.parametrize("error", [StaleBrokerEpoch("old"), BrokerIdNotRegistered("unknown")])
def test_an_unregistered_broker_registers_again(error: ApiError) -> None:
    unfenced = BrokerHeartbeatResponse(is_fenced=False)
    controller = Controller(
        registrations=[BrokerRegistrationResponse(broker_epoch=7), BrokerRegistrationResponse(broker_epoch=12)],
        heartbeats=[unfenced, error, unfenced],
    )

    async def scenario() -> list[bytes]:
        broker = life(controller)
        await broker.start(_ready)
        await until(lambda: broker.epoch == 12 and not broker.is_fenced)
        controller.heartbeats = [BrokerHeartbeatResponse(should_shut_down=True)]
        assert await broker.stop() == 12
        return [each.incarnation_id for each in controller.asked if isinstance(each, BrokerRegistrationRequest)]

    first, second = run(scenario())
    assert first == second, "it is the same life"


def test_unanswered_heartbeats_are_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    controller = Controller()

    async def scenario() -> None:
        broker = life(controller)
        await broker.start(_ready)
        controller.heartbeats = [NotController("nobody")]
        await until(lambda: broker.silence_s > 0.2)
        assert caplog.text.count("heartbeats fail") == 1
        controller.heartbeats = [BrokerHeartbeatResponse(is_fenced=False)]
        await until(lambda: broker.silence_s == 0)
        controller.heartbeats = [BrokerHeartbeatResponse(should_shut_down=True)]
        await broker.stop()

    run(scenario())


def test_controlled_shutdown_has_a_timeout() -> None:
    waits, goes = BrokerHeartbeatResponse(should_shut_down=False), BrokerHeartbeatResponse(should_shut_down=True)
    controller = Controller()

    async def scenario() -> None:
        broker = life(controller)
        await broker.start(_ready)
        controller.heartbeats = [waits, waits, goes]
        await broker.stop()
        asked = [each for each in controller.asked if isinstance(each, BrokerHeartbeatRequest) and each.want_shut_down]
        assert len(asked) == 3
        controller.heartbeats = [NotController("nobody")]
        assert await broker.stop() == 7

    run(scenario())


def test_an_unregistered_broker_stops_without_a_controlled_shutdown() -> None:
    controller = Controller()

    async def scenario() -> int:
        return await life(controller).stop()

    assert run(scenario()) == -1
    assert controller.asked == []


def test_a_heartbeat_can_be_sent_before_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SETTINGS, "broker.heartbeat.interval.ms", "100000")
    monkeypatch.setitem(SETTINGS, "broker.session.timeout.ms", "900000")
    controller = Controller()

    async def scenario() -> None:
        broker = life(controller)
        await broker.start(_ready)
        before = controller.count(BrokerHeartbeatRequest)
        leaving = SimpleNamespace(in_controlled_shutdown=True, fenced=False)
        gone = SimpleNamespace(in_controlled_shutdown=True, fenced=True)
        update: Any = SimpleNamespace(image=SimpleNamespace(brokers={2: gone}))
        broker.on_update(update)
        await asyncio.sleep(0.01)
        assert controller.count(BrokerHeartbeatRequest) == before
        update.image.brokers = {2: gone, 3: leaving}
        broker.on_update(update)
        await until(lambda: controller.count(BrokerHeartbeatRequest) == before + 1)
        broker.send_heartbeat_soon()
        await until(lambda: controller.count(BrokerHeartbeatRequest) == before + 2)
        controller.heartbeats = [BrokerHeartbeatResponse(should_shut_down=True)]
        await broker.stop()

    run(scenario())
