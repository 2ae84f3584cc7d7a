"""The request log: the contents of a line, what is never logged, and no hooks while it is off."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from ottla.broker.metrics.message_json import HIDDEN, message_to_json
from ottla.broker.metrics.request_log import RequestLog
from ottla.broker.metrics.request_log import logger as request_logger
from ottla.broker.requests.call import Call
from ottla.protocol.messages.apis import ApiKey
from ottla.protocol.messages.rpc.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.rpc.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.rpc.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ottla.protocol.messages.rpc.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from ottla.protocol.messages.rpc.sasl_authenticate import SaslAuthenticateRequest
from tests.unit.broker.metrics.service import serving


@pytest.fixture(autouse=True)
def level_as_it_was() -> Iterator[None]:
    before = request_logger.level
    yield
    request_logger.setLevel(before)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(test(), 20)

    asyncio.run(limited())


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [json.loads(record.message) for record in caplog.records if record.name == "kafka.request.logger"]


def test_a_log_line_describes_a_request_completely(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        def later(call: Call[None], request: Any) -> MetadataResponse:
            return MetadataResponse(cluster_id="c", throttle_time_ms=3)

        async with serving({ApiKey.METADATA: later}) as service:
            log = RequestLog(service.meters)
            log.switch(on=True)
            await service.ask(
                MetadataRequest(topics=[MetadataRequestTopic(name="t")]), ApiKey.METADATA, 12, correlation_id=99
            )
            (line,) = lines(caplog)
            assert line["requestHeader"] == {
                "requestApiKey": 3,
                "requestApiKeyName": "Metadata",
                "requestApiVersion": 12,
                "correlationId": 99,
                "clientId": "tester",
            }
            assert line["request"]["topics"][0]["name"] == "t"
            assert line["response"]["clusterId"] == "c"
            assert (line["client"], line["listener"], line["principal"]) == ("127.0.0.1", "TEST", "User:ANONYMOUS")
            assert (line["isForwarded"], line["securityProtocol"], line["connection"]) == (False, "PLAINTEXT", "")
            assert line["requestBytes"] > 0
            assert line["responseBytes"] > 0
            assert line["throttleTimeMs"] == 3
            assert line["totalTimeMs"] >= line["localTimeMs"] > 0
            assert "\n" not in caplog.records[0].message

    run(test)


def test_the_log_can_be_switched_while_requests_are_in_flight(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        log: RequestLog | None = None

        def switch(call: Call[None], request: Any) -> MetadataResponse:
            assert log is not None
            log.switch(on=not log.is_on)
            return MetadataResponse()

        async with serving({ApiKey.METADATA: switch, ApiKey.FETCH: lambda call, request: FetchResponse()}) as service:
            log = RequestLog(service.meters)
            await service.ask(MetadataRequest(), ApiKey.METADATA, 12)  # not logged: it came before the switch
            await service.ask(FetchRequest(), ApiKey.FETCH, 12)
            await service.ask(MetadataRequest(), ApiKey.METADATA, 12)  # not logged: it ended after the switch
            await service.ask(FetchRequest(), ApiKey.FETCH, 12)
            assert [line["requestHeader"]["requestApiKeyName"] for line in lines(caplog)] == ["Fetch"]
            assert service.metrics()['kafka_network_requestmetrics_totaltimems_count{request="Metadata"}'] == 2

    with caplog.at_level(logging.DEBUG):
        request_logger.setLevel(logging.WARNING)
        run(test)


def test_a_log_that_is_switched_off_leaves_no_hook() -> None:
    async def test() -> None:
        async with serving({ApiKey.METADATA: lambda call, request: MetadataResponse()}) as service:
            log = RequestLog(service.meters)
            await service.ask(MetadataRequest(), ApiKey.METADATA, 12)
            (route,) = service.routes
            before = route.pick_meter, route.observe_response, route.meter
            assert route.pick_meter is None
            log.switch(on=True)
            assert route.pick_meter is not None
            log.switch(on=False)
            assert (route.pick_meter, route.meter) == (before[0], before[2])

    run(test)


def test_records_are_never_logged() -> None:
    async def test() -> None:
        async with serving({ApiKey.PRODUCE: lambda call, request: ProduceResponse()}) as service:
            RequestLog(service.meters).switch(on=True)
            part = PartitionProduceData(index=1, records=b"secret payload")
            request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[part])])
            assert message_to_json(request, 11)["topicData"][0]["partitionData"] == [
                {"index": 1, "records": {"sizeInBytes": 14}}
            ]

    run(test)


def test_secrets_are_hidden() -> None:
    configs = [
        AlterableConfig(name="listener.name.x.ssl.key.password", value="hush"),
        AlterableConfig(name="ssl.keystore.password", value="hush"),
        AlterableConfig(name="retention.ms", value="1000"),
        AlterableConfig(name="retention.ms", value=None),
    ]
    request = IncrementalAlterConfigsRequest(
        resources=[AlterConfigsResource(resource_type=2, resource_name="t", configs=configs)]
    )
    shown = message_to_json(request, 1)["resources"][0]["configs"]
    assert [config["value"] for config in shown] == [HIDDEN, HIDDEN, "1000", None]
    assert "hush" not in json.dumps(message_to_json(SaslAuthenticateRequest(auth_bytes=b"hush"), 2))


def test_long_bodies_are_truncated() -> None:
    topics = [MetadataRequestTopic(name="x" * 1000, topic_id=bytes(range(16))) for _ in range(1000)]
    shown = message_to_json(MetadataRequest(topics=topics), 12)["topics"]
    assert len(shown) == 11
    assert shown[-1] == "... 990 more"
    assert len(shown[0]["name"]) < 250
    assert shown[0]["topicId"] == "AAECAwQFBgcICQoLDA0ODw"
