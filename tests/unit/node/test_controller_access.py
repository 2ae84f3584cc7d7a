"""Requests to the active controller: waiting for one, forwarding for clients, and registering a controller."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.metadata.image.delta import Delta
from ottla.metadata.image.image import EMPTY, Image
from ottla.metadata.image.loader import Update
from ottla.metadata.runtime.decisions import Requester
from ottla.node import controller_access
from ottla.node.controller_access import ControllerAccess
from ottla.node.controller_registration import ControllerRegistration
from ottla.node.settings_loader import load_settings
from ottla.protocol.errors import InvalidRequest, NotController, RequestTimedOut
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.records.metadata_records import FeatureLevelRecord, RegisterControllerRecord
from ottla.protocol.messages.rpc.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from ottla.protocol.messages.rpc.describe_quorum import DescribeQuorumRequest
from ottla.protocol.messages.rpc.list_partition_reassignments import ListPartitionReassignmentsRequest
from ottla.protocol.metadata_versions import LATEST, METADATA_VERSION

REQUEST = ListPartitionReassignmentsRequest(topics=None)
CALL: Any = SimpleNamespace(
    client=SimpleNamespace(principal="User:ann", listener="PLAINTEXT", address="10.0.0.1"),
    api_key=ApiKey.DESCRIBE_QUORUM,
    version=2,
    correlation_id=7,
    client_id="ann's",
    exchange=None,
)


class Active:
    """A controller that becomes active after some refusals."""

    def __init__(self, refusals: int, error: Exception | None = None) -> None:
        self.refusals = refusals
        self.error = error or NotController("not yet")
        self.requesters: list[Requester | None] = []

    async def submit(self, request: Any, requester: Requester | None = None) -> str:
        self.requesters.append(requester)
        if self.refusals:
            self.refusals -= 1
            raise self.error
        return "decided"


class Consensus:
    """A quorum that answers at once."""

    def __init__(self, *, leads: bool = True) -> None:
        self.consensus = SimpleNamespace(is_leader=leads, leader_id=7, history=SimpleNamespace(kraft_version=1))
        self.listener = "CONTROLLER"
        self.requests: list[tuple[Any, int, str]] = []

    def request(self, ticket: Any, message: Any, version: int, listener: str) -> None:
        self.requests.append((message, version, listener))
        ticket.answer("described")
        ticket.answer("never twice")


def access_to(active: Any = None, quorum: Any = None) -> ControllerAccess:
    access = ControllerAccess(asyncio.get_running_loop())
    access.controller, access.quorum = active, quorum
    return access


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller_access, "_WAIT_S", 0.2)
    monkeypatch.setattr(controller_access, "_RETRY_S", 0.001)


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def test_requests_wait_for_an_active_controller() -> None:
    async def scenario() -> tuple[Any, Any]:
        return await access_to(Active(3)).ask(REQUEST), await access_to(Active(3)).forward(CALL, REQUEST)

    assert run(scenario()) == ("decided", "decided")


def test_waiting_for_a_controller_times_out() -> None:
    async def ask() -> None:
        with pytest.raises(NotController):
            await access_to(Active(1 << 30)).ask(REQUEST)
        with pytest.raises(RequestTimedOut):
            await access_to(Active(1 << 30)).forward(CALL, REQUEST)
        with pytest.raises(RequestTimedOut):
            await access_to().forward(CALL, REQUEST)

    run(ask())


def test_other_errors_are_not_retried() -> None:
    async def ask() -> None:
        with pytest.raises(InvalidRequest):
            await access_to(Active(1, InvalidRequest("no"))).forward(CALL, REQUEST)

    run(ask())


def test_requests_on_a_controller_listener_are_not_retried() -> None:
    async def ask() -> None:
        with pytest.raises(NotController):
            await access_to(Active(1)).decide(CALL, REQUEST)

    run(ask())


def test_the_controller_is_given_the_clients_principal() -> None:
    async def ask() -> list[Requester | None]:
        active = Active(0)
        await access_to(active).forward(CALL, REQUEST)
        await access_to(active).decide(CALL, REQUEST)
        return active.requesters

    assert run(ask()) == [Requester("User:ann", is_from_broker=True), Requester("User:ann", is_from_broker=False)]


def test_the_quorum_answers_quorum_requests() -> None:
    async def ask() -> Any:
        quorum = Consensus()
        access = access_to(Active(1 << 30), quorum)
        answer = await access.forward(CALL, DescribeQuorumRequest(topics=[]))
        ((_, version, listener),) = quorum.requests
        return answer, version, listener, access.leader_id(), access.kraft_version()

    assert run(ask()) == ("described", 2, "CONTROLLER", 7, 1)


def test_quorum_requests_need_the_leader() -> None:
    async def ask() -> None:
        with pytest.raises(RequestTimedOut):
            await access_to(None, Consensus(leads=False)).forward(CALL, DescribeQuorumRequest(topics=[]))

    run(ask())


def test_there_is_no_leader_without_a_quorum() -> None:
    async def ask() -> tuple[int, int]:
        return access_to().leader_id(), access_to().kraft_version()

    assert run(ask()) == (-1, 0)


# -- registration --


def image_of(*records: object) -> Image:
    delta = Delta(EMPTY)
    for record in records:
        delta.apply(record)
    return delta.finish(offset=1, epoch=1, timestamp=0)


def update(*records: object) -> Update:
    image = image_of(*records)
    changes: Any = None
    return Update(image, changes, batch_aligned=True)


FEATURE = FeatureLevelRecord(name=METADATA_VERSION, feature_level=LATEST)


def test_a_controller_registers_once_for_each_process() -> None:
    asked: list[ControllerRegistrationRequest] = []

    async def scenario() -> None:
        tasks: list[asyncio.Task[None]] = []

        async def ask(request: Any) -> Any:
            asked.append(request)
            return ControllerRegistrationResponse()

        registration = ControllerRegistration(
            load_settings(None), {}, ask, lambda work: tasks.append(asyncio.ensure_future(work))
        )
        registration.on_update(update(FeatureLevelRecord(name=METADATA_VERSION, feature_level=7)))
        assert asked == []
        registration.on_update(update(FEATURE))
        registration.on_update(update(FEATURE))
        await asyncio.gather(*tasks)
        assert len(asked) == 1
        known = RegisterControllerRecord(controller_id=1, incarnation_id=asked[0].incarnation_id)
        registration.on_update(update(FEATURE, known))
        registration.on_update(update(FEATURE, RegisterControllerRecord(controller_id=1, incarnation_id=b"x" * 16)))
        await asyncio.gather(*tasks)

    run(scenario())
    assert len(asked) == 2
    assert [(each.name, each.port) for each in asked[0].listeners] == [("CONTROLLER", 9093)]
    assert {each.name for each in asked[0].features} >= {METADATA_VERSION, "kraft.version"}


def test_a_refused_registration_is_retried(caplog: pytest.LogCaptureFixture) -> None:
    asked: list[Any] = []

    async def scenario() -> None:
        async def ask(request: Any) -> Any:
            asked.append(request)
            if len(asked) == 1:
                raise NotController("elsewhere")
            return ControllerRegistrationResponse(error_code=42, error_message="no")

        registration = ControllerRegistration(load_settings(None), {}, ask, asyncio.ensure_future)
        for _ in range(2):
            registration.on_update(update(FEATURE))
            await asyncio.sleep(0.01)

    run(scenario())
    assert len(asked) == 2
    assert caplog.text.count("could not register") == 2
