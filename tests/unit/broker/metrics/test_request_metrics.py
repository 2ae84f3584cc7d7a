"""The metrics of requests, on real sockets."""

import asyncio
from collections.abc import Awaitable, Callable
from time import perf_counter_ns
from typing import Any

import pytest

from ottla.broker.metrics.request_metrics import Meter
from ottla.broker.requests.call import LATER, NOTHING, Call, CloseConnection
from ottla.protocol.errors import NotLeader
from ottla.protocol.messages.apis import BY_KEY, ApiKey
from ottla.protocol.messages.rpc.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.rpc.fetch import FetchRequest, FetchResponse, ReplicaState
from ottla.protocol.messages.rpc.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from ottla.protocol.messages.rpc.metadata import MetadataRequest, MetadataResponse
from ottla.protocol.messages.rpc.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.unit.broker.metrics.service import serving

PREFIX = "kafka_network_requestmetrics"


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        await asyncio.wait_for(test(), 20)

    asyncio.run(limited())


def metadata(call: Call[None], request: Any) -> MetadataResponse:
    return MetadataResponse()


def test_requests_are_counted_by_api_and_version_with_sizes_and_times() -> None:
    async def test() -> None:
        async with serving({ApiKey.METADATA: metadata}) as service:
            for version in (9, 9, 12):
                await service.ask(MetadataRequest(), ApiKey.METADATA, version)
            metrics = service.metrics()
            assert metrics[f'{PREFIX}_requests_total{{request="Metadata",version="9"}}'] == 2
            assert metrics[f'{PREFIX}_requests_total{{request="Metadata",version="12"}}'] == 1
            for span in ("totaltimems", "localtimems", "sendtimems", "requestbytes", "responsebytes"):
                assert metrics[f'{PREFIX}_{span}_count{{request="Metadata"}}'] == 3
                assert metrics[f'{PREFIX}_{span}_sum{{request="Metadata"}}'] > 0
            for span in ("remotetimems", "throttletimems", "responsequeuetimems"):
                assert metrics[f'{PREFIX}_{span}_count{{request="Metadata"}}'] == 3
                assert metrics[f'{PREFIX}_{span}{{request="Metadata",quantile="0.99"}}'] == 0
            assert metrics['ottla_request_time_seconds_count{request="Metadata"}'] == 3
            assert metrics[f'{PREFIX}_errors_total{{request="Metadata",error="NONE"}}'] == 3

    run(test)


def test_waiting_and_work_are_measured_apart() -> None:
    async def test() -> None:
        def later(call: Call[None], request: Any) -> Any:
            asyncio.get_running_loop().call_later(0.05, call.answer, MetadataResponse())
            return LATER

        async def slowly(call: Call[None], request: Any) -> Any:
            await asyncio.sleep(0.05)
            return ProduceResponse()

        async with serving({ApiKey.METADATA: later, ApiKey.PRODUCE: slowly}) as service:
            await service.ask(MetadataRequest(), ApiKey.METADATA, 12)
            await service.ask(ProduceRequest(), ApiKey.PRODUCE, 11)
            metrics = service.metrics()
            for name in ("Metadata", "Produce"):
                assert metrics[f'{PREFIX}_remotetimems_sum{{request="{name}"}}'] >= 45
                assert metrics[f'{PREFIX}_localtimems_sum{{request="{name}"}}'] < 45
                assert metrics[f'{PREFIX}_totaltimems_sum{{request="{name}"}}'] >= 45

    run(test)


def test_the_total_is_the_sum_of_its_parts() -> None:
    class Finished:
        arrived_ns, started_ns, handled_ns, replied_ns, sending_ns, sent_ns = (
            1000,
            11_000,
            31_000,
            61_000,
            70_000,
            101_000,
        )
        received_bytes, sent_bytes, mute_ms = 10, 20, 3
        note: object = None

    meter = Meter(BY_KEY[ApiKey.METADATA], "Metadata", 12)
    meter.record(Finished())
    sums = {name: counts[64] for name, counts in meter.spans().items()}
    assert sums == {
        "totaltimems": 100_000,
        "requestqueuetimems": 10_000,
        "localtimems": 20_000,
        "remotetimems": 30_000,
        "throttletimems": 3_000_000,
        "responsequeuetimems": 9_000,
        "sendtimems": 31_000,
        "requestbytes": 10,
        "responsebytes": 20,
    }


def test_fetches_are_counted_by_kind_and_in_total() -> None:
    async def test() -> None:
        async with serving({ApiKey.FETCH: lambda call, request: FetchResponse()}) as service:
            await service.ask(FetchRequest(), ApiKey.FETCH, 12)
            await service.ask(FetchRequest(replica_id=3), ApiKey.FETCH, 12)
            await service.ask(FetchRequest(), ApiKey.FETCH, 17)
            await service.ask(FetchRequest(replica_state=ReplicaState(replica_id=3)), ApiKey.FETCH, 17)
            await service.ask(FetchRequest(replica_state=ReplicaState(replica_id=4)), ApiKey.FETCH, 17)
            metrics = service.metrics()
            assert metrics[f'{PREFIX}_totaltimems_count{{request="FetchConsumer"}}'] == 2
            assert metrics[f'{PREFIX}_totaltimems_count{{request="FetchFollower"}}'] == 3
            assert metrics[f'{PREFIX}_totaltimems_count{{request="Fetch"}}'] == 5
            assert metrics[f'{PREFIX}_requests_total{{request="FetchFollower",version="17"}}'] == 2

    run(test)


def test_each_error_counts_once_per_response() -> None:
    async def test() -> None:
        def produce(call: Call[None], request: Any) -> ProduceResponse:
            parts = [PartitionProduceResponse(index=index, error_code=code) for index, code in enumerate((3, 3, 6, 0))]
            return ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=parts)])

        def refuse(call: Call[None], request: Any) -> Any:
            raise NotLeader("no")

        async with serving({ApiKey.PRODUCE: produce, ApiKey.FETCH: refuse}) as service:
            await service.ask(ProduceRequest(), ApiKey.PRODUCE, 11)
            await service.ask(ProduceRequest(), ApiKey.PRODUCE, 11)
            await service.ask(FetchRequest(), ApiKey.FETCH, 12)
            metrics = service.metrics()
            errors = f"{PREFIX}_errors_total"
            assert metrics[f'{errors}{{request="Produce",error="UNKNOWN_TOPIC_OR_PARTITION"}}'] == 2
            assert metrics[f'{errors}{{request="Produce",error="NOT_LEADER_OR_FOLLOWER"}}'] == 2
            assert metrics[f'{errors}{{request="Produce",error="NONE"}}'] == 0
            assert metrics[f'{errors}{{request="FetchConsumer",error="NOT_LEADER_OR_FOLLOWER"}}'] == 1

    run(test)


def test_every_outcome_is_counted() -> None:
    async def test() -> None:
        waiting: list[Call[None]] = []

        def wait(call: Call[None], request: Any) -> Any:
            waiting.append(call)
            return LATER

        def end(call: Call[None], request: Any) -> Any:
            raise CloseConnection("no answer is wanted")

        async with serving(
            {ApiKey.PRODUCE: lambda call, request: NOTHING, ApiKey.FETCH: wait, ApiKey.METADATA: end}
        ) as service:
            service.send(ProduceRequest(), ApiKey.PRODUCE, 11)
            service.send(FetchRequest(), ApiKey.FETCH, 12)
            while not waiting:
                await asyncio.sleep(0.001)
            service.writer.close()
            await asyncio.sleep(0.02)
            for connection in list(service.listener.connections):
                connection.close()
            waiting[0].answer(FetchResponse())  # the client has disconnected
            metrics = service.metrics()
            assert metrics[f'{PREFIX}_requests_total{{request="Produce",version="11"}}'] == 1
            assert metrics[f'{PREFIX}_requests_total{{request="FetchConsumer",version="12"}}'] == 1
            service.reader, service.writer = await asyncio.open_connection(*service.address)
            service.send(MetadataRequest(), ApiKey.METADATA, 12)
            assert await service.reader.read() == b""
            assert service.metrics()[f'{PREFIX}_requests_total{{request="Metadata",version="12"}}'] == 1

    run(test)


def test_unknown_versions_add_no_metrics() -> None:
    async def test() -> None:
        async with serving({ApiKey.API_VERSIONS: metadata}) as service:
            for version in (90, 91):
                frame = b"\x00\x12" + version.to_bytes(2, "big") + b"\x00\x00\x00\x07\xff\xff"
                service.writer.write(len(frame).to_bytes(4, "big") + frame)
                await service.reader.readexactly(int.from_bytes(await service.reader.readexactly(4), "big"))
            metrics = service.metrics()
            assert metrics[f'{PREFIX}_requests_total{{request="ApiVersions",version="0"}}'] == 2
            assert metrics[f'{PREFIX}_errors_total{{request="ApiVersions",error="UNSUPPORTED_VERSION"}}'] == 2

    run(test)


def test_quantiles_cover_the_last_minutes() -> None:
    async def test() -> None:
        async with serving({ApiKey.METADATA: metadata}) as service:
            await service.ask(MetadataRequest(), ApiKey.METADATA, 12)
            key = f'{PREFIX}_totaltimems{{request="Metadata",quantile="0.5"}}'
            assert service.metrics()[key] > 0
            service.meters.start_minute()
            assert service.metrics()[key] != service.metrics()[key], "the window begins at the last but one minute"
            await service.ask(MetadataRequest(), ApiKey.METADATA, 12)
            service.meters.start_minute()
            assert service.metrics()[key] > 0
            service.meters.start_minute()
            assert service.metrics()[key] != service.metrics()[key]
            assert service.metrics()[f'{PREFIX}_totaltimems_count{{request="Metadata"}}'] == 2

    run(test)


def test_a_request_that_runs_inside_another_is_not_counted_twice_as_busy() -> None:
    async def test() -> None:
        waiting: list[Call[None]] = []

        def wait_or_answer(call: Call[None], request: Any) -> Any:
            if not waiting:
                waiting.append(call)
                return LATER
            return spin()

        def spin() -> MetadataResponse:
            end = perf_counter_ns() + 20_000_000
            while perf_counter_ns() < end:
                pass
            return MetadataResponse()

        def answer_the_other(call: Call[None], request: Any) -> FetchResponse:
            waiting[0].answer(MetadataResponse())  # the next request of its connection runs inside this call
            return FetchResponse()

        async with serving({ApiKey.METADATA: wait_or_answer, ApiKey.FETCH: answer_the_other}) as service:
            service.send(MetadataRequest(), ApiKey.METADATA, 12)
            service.send(MetadataRequest(), ApiKey.METADATA, 12)
            while not waiting:
                await asyncio.sleep(0.001)
            first = service.reader, service.writer
            service.reader, service.writer = await asyncio.open_connection(*service.address)
            await service.ask(FetchRequest(), ApiKey.FETCH, 12)
            assert 20 <= service.request_channel.busy_ns / 1e6 < 38
            first[1].close()

    run(test)


def test_verifications_of_transactions_and_listings_of_client_metrics_have_kinds_of_their_own() -> None:
    """The kinds of Kafka 4.3.1: a verification is not an addition, but its errors are; a v0 listing counts as both."""

    async def test() -> None:
        def add(call: Call[None], request: Any) -> AddPartitionsToTxnResponse:
            return AddPartitionsToTxnResponse(error_code=31 if len(request.transactions) == 2 else 0)

        def listing(call: Call[None], request: Any) -> ListConfigResourcesResponse:
            return ListConfigResourcesResponse()

        def change(*only_checked: bool) -> AddPartitionsToTxnRequest:
            return AddPartitionsToTxnRequest(
                transactions=[AddPartitionsToTxnTransaction(verify_only=verify_only) for verify_only in only_checked]
            )

        async with serving({ApiKey.ADD_PARTITIONS_TO_TXN: add, ApiKey.LIST_CONFIG_RESOURCES: listing}) as service:
            for request, version in (
                (AddPartitionsToTxnRequest(), 3),  # a client's
                (change(True, False), 5),
                (change(False), 4),
                (change(True), 5),
                (change(True, True), 5),
                (change(), 4),
            ):
                await service.ask(request, ApiKey.ADD_PARTITIONS_TO_TXN, version)
            for version in (0, 1, 1):
                await service.ask(ListConfigResourcesRequest(), ApiKey.LIST_CONFIG_RESOURCES, version)
            metrics = service.metrics()

            def count(kind: str) -> float:
                return metrics[f'{PREFIX}_totaltimems_count{{request="{kind}"}}']

            def errors(kind: str, name: str) -> float:
                return metrics[f'{PREFIX}_errors_total{{request="{kind}",error="{name}"}}']

            assert (count("AddPartitionsToTxn"), count("AddPartitionsToTxnVerification")) == (3, 3)
            assert errors("AddPartitionsToTxn", "CLUSTER_AUTHORIZATION_FAILED") == 2
            assert errors("AddPartitionsToTxn", "NONE") == 4
            with pytest.raises(KeyError):
                errors("AddPartitionsToTxnVerification", "NONE")
            assert (count("ListClientMetricsResources"), count("ListConfigResources")) == (1, 3)

    run(test)
