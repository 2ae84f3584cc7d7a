"""A controller's listener: decisions, answers of the quorum, and envelopes."""

import asyncio
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.broker.handlers.registry import CONTROLLER_ENDPOINTS
from ottla.broker.requests.call import Call, Client
from ottla.broker.requests.controller_node import ControllerNode
from ottla.broker.requests.dispatch import Dispatch
from ottla.broker.requests.envelope import Enclosed
from ottla.metadata.image.delta import Delta
from ottla.metadata.image.image import EMPTY, Image
from ottla.protocol.errors import ApiError, InconsistentClusterId, InvalidRequest, NotController, UnsupportedVersion
from ottla.protocol.features import SUPPORTED
from ottla.protocol.messages.apis import BY_KEY, Listeners
from ottla.protocol.messages.principal import DefaultPrincipal
from ottla.protocol.messages.records.metadata_records import (
    ControllerEndpoint,
    FeatureLevelRecord,
    RegisterControllerRecord,
)
from ottla.protocol.messages.rpc.alter_partition import AlterPartitionRequest
from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.rpc.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.rpc.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from ottla.protocol.messages.rpc.envelope import EnvelopeRequest
from ottla.protocol.messages.rpc.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from ottla.protocol.messages.rpc.vote import VoteRequest, VoteResponse
from ottla.protocol.metadata_versions import LATEST, METADATA_VERSION
from ottla.protocol.wire.codec import decode, encode, is_flexible
from ottla.protocol.wire.declare import schema_of
from tests.support.broker import Exchange

PRINCIPAL = struct.pack(">h", 0) + encode(DefaultPrincipal(type="User", name="ann"), 0)


class Controller:
    """A controller whose decisions the test makes."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.image: Image = EMPTY
        self.leader = 3
        self.calls: list[tuple[Call[ControllerNode], Any]] = []
        self.decision: Any = ListPartitionReassignmentsResponse(error_message=None)
        node = ControllerNode(
            node_id=1,
            cluster_id="a-cluster",
            current_image=lambda: self.image,
            given={},
            supported_features=SUPPORTED,
            kraft_version=lambda: 1,
            leader_id=lambda: self.leader,
            decide=self._decide,
            ask_quorum=lambda call, request: self.calls.append((call, request)),
        )
        dispatch = Dispatch(
            node,
            CONTROLLER_ENDPOINTS,
            Listeners.CONTROLLER,
            spawn=self.loop.create_task,
            after=lambda: None,
        )
        node.handle = dispatch.handle
        self._dispatch = dispatch

    def apply(self, *records: object) -> None:
        delta = Delta(self.image)
        for record in records:
            delta.apply(record)
        self.image = delta.finish(offset=self.image.offset + 1, epoch=1, timestamp=0)

    def send(self, request: Any, version: int) -> Exchange:
        exchange = Exchange(framed(request, version), request, version)
        self.loop.call_soon(self._dispatch.handle, exchange, Client("10.0.0.1", "CONTROLLER"))
        for _ in range(5):
            self.loop.call_soon(self.loop.stop)
            self.loop.run_forever()
        return exchange

    async def _decide(self, call: Call[ControllerNode], request: Any) -> Any:
        self.calls.append((call, request))
        if isinstance(self.decision, ApiError):
            raise self.decision
        return self.decision


def framed(request: Any, version: int) -> bytes:
    api = BY_KEY[schema_of(type(request)).key]
    tags = b"\0" if is_flexible(api.request, version) else b""
    return struct.pack(">hhih", api.key, version, 5, -1) + tags + encode(request, version)


def enclosed(request: Any, version: int) -> EnvelopeRequest:
    return EnvelopeRequest(
        request_data=framed(request, version), request_principal=PRINCIPAL, client_host_address=bytes(15) + b"\1"
    )


@pytest.fixture
def controller() -> Iterator[Controller]:
    made = Controller()
    made.apply(FeatureLevelRecord(name=METADATA_VERSION, feature_level=LATEST))
    yield made
    made.loop.close()


LISTED = ListPartitionReassignmentsRequest(topics=None)


def test_a_request_in_an_envelope_belongs_to_its_client(controller: Controller) -> None:
    answer = controller.send(enclosed(LISTED, 0), 0).response
    assert answer.error_code == 0
    assert answer.response_data[:5] == b"\0\0\0\5\0"
    assert decode(ListPartitionReassignmentsResponse, 0, answer.response_data[5:]).topics == []
    ((call, request),) = controller.calls
    assert request == LISTED
    assert isinstance(call.exchange, Enclosed)
    assert (call.client.principal, call.client.address) == ("User:ann", "::1")


def test_not_controller_is_for_the_broker(controller: Controller) -> None:
    controller.decision = NotController("elsewhere")
    answer = controller.send(enclosed(LISTED, 0), 0).response
    assert (answer.error_code, answer.response_data) == (NotController.code, None)
    assert controller.send(LISTED, 0).response.error_code == NotController.code


def test_other_errors_are_for_the_client(controller: Controller) -> None:
    controller.decision = InvalidRequest("no")
    answer = controller.send(enclosed(LISTED, 0), 0).response
    assert answer.error_code == 0
    assert decode(ListPartitionReassignmentsResponse, 0, answer.response_data[5:]).error_code == InvalidRequest.code


def test_errors_of_items_return_inside_the_envelope(controller: Controller) -> None:
    controller.decision = InvalidRequest("no")
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    answer = controller.send(CreateTopicsRequest(topics=[topic]), 7).response
    assert [(each.name, each.error_code) for each in answer.topics] == [("t", 42)]


def test_the_quorum_answers_later(controller: Controller) -> None:
    exchange = controller.send(VoteRequest(cluster_id="x"), 2)
    assert exchange.outcome == ""
    ((call, request),) = controller.calls
    assert isinstance(request, VoteRequest)
    call.answer(VoteResponse(error_code=104))
    assert exchange.response.error_code == InconsistentClusterId.code


def test_the_quorum_answers_inside_envelopes(controller: Controller) -> None:
    controller.leader = 1
    exchange = controller.send(enclosed(DescribeQuorumRequest(topics=[]), 2), 0)
    controller.calls[0][0].answer(DescribeQuorumResponse())
    assert exchange.response.error_code == 0


def test_a_node_that_does_not_lead_refuses_the_envelope_of_a_quorum_request(controller: Controller) -> None:
    exchange = controller.send(enclosed(DescribeQuorumRequest(topics=[]), 2), 0)
    assert (exchange.response.error_code, controller.calls) == (NotController.code, [])


def test_every_api_of_the_listener_is_served() -> None:
    assert CONTROLLER_ENDPOINTS.keys() == {key for key, api in BY_KEY.items() if api.listeners & Listeners.CONTROLLER}


def test_every_endpoint_can_answer_with_an_error() -> None:
    for endpoint in CONTROLLER_ENDPOINTS.values():
        assert endpoint.failed(endpoint.api.request(), endpoint.api.latest_stable, InvalidRequest("no")) is not None


def test_controllers_are_described_by_their_listener(controller: Controller) -> None:
    for number, name in ((1, "CONTROLLER"), (2, "OTHER")):
        address = ControllerEndpoint(name=name, host=f"host{number}", port=9093)
        controller.apply(RegisterControllerRecord(controller_id=number, end_points=[address]))
    answer = controller.send(DescribeClusterRequest(endpoint_type=2), 1).response
    assert [(each.broker_id, each.host) for each in answer.brokers] == [(1, "host1")]
    assert (answer.controller_id, answer.endpoint_type) == (3, 2)


def test_controllers_before_registration_cannot_be_described(controller: Controller) -> None:
    controller.apply(FeatureLevelRecord(name=METADATA_VERSION, feature_level=7))
    assert controller.send(DescribeClusterRequest(endpoint_type=2), 1).response.error_code == UnsupportedVersion.code


def test_errors_at_the_top_of_an_answer(controller: Controller) -> None:
    controller.decision = InvalidRequest("no")
    assert controller.send(AlterPartitionRequest(), 3).response.error_code == InvalidRequest.code
