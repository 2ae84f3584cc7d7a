"""Unreachable and restarting nodes, and rejected records."""

import asyncio
import signal
import socket
import struct
import time
from pathlib import Path

import pytest
from bench.harness.ports import free_port

from ottla.client.admin import Admin
from ottla.client.cluster import Cluster
from ottla.client.connection import Connection
from ottla.client.consumer import Consumer
from ottla.client.producer import Producer
from ottla.protocol.errors import InvalidRecord, MessageTooLarge, NetworkFailed, UnknownTopicOrPartition
from ottla.protocol.messages.rpc.api_versions import ApiVersionsRequest
from tests.support.kafka_broker import SETTINGS
from tests.support.ottla_node import OttlaNode


def test_an_unreachable_server_is_named_and_the_next_one_is_tried(address: str) -> None:
    nowhere = f"127.0.0.1:{free_port()}"

    async def main() -> None:
        async with Cluster(nowhere, timeout_s=0.1) as cluster:
            with pytest.raises(NetworkFailed, match=f"{nowhere} cannot be reached: connection refused"):
                await Admin(cluster).topics()
        async with Cluster(f"{nowhere},{address}") as cluster:
            assert await Admin(cluster).topics() is not None

    asyncio.run(main())


def test_a_malformed_response_fails_its_request_at_once() -> None:
    over = asyncio.Event()

    async def babble(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        request = await reader.readexactly(size)
        writer.write(struct.pack(">i", 6) + request[4:8] + b"\xff\xff")
        await reader.read()
        writer.close()
        await writer.wait_closed()
        over.set()

    async def main() -> None:
        async with await asyncio.start_server(babble, "127.0.0.1", 0) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(NetworkFailed):
                await Connection.connect("127.0.0.1", port, timeout_s=60)
            await over.wait()

    asyncio.run(main())


def test_a_closed_connection_is_noticed_before_a_read() -> None:
    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            reader, writer = await asyncio.open_connection(*server.getsockname())
            connection = Connection(reader, writer, "a client")
            accepted, _ = server.accept()
            assert not connection.is_closed_by_peer
            accepted.close()
            assert connection.is_closed_by_peer
            assert connection.is_open, "nobody has read it yet"
            connection.close()
            assert connection.is_closed_by_peer
            await writer.wait_closed()

    asyncio.run(main())


def test_a_reset_connection_fails_every_request() -> None:
    """The loop may close the socket before a reader notices. Sending in between must raise the same error."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            reader, writer = await asyncio.open_connection(*server.getsockname())
            connection = Connection(reader, writer, "a client")
            accepted, _ = server.accept()

            async def send() -> None:
                while True:
                    asked = asyncio.ensure_future(connection.send(ApiVersionsRequest(), version=0, timeout_s=60))
                    await asyncio.sleep(0)
                    if asked.done():
                        await asked

            sending = [asyncio.ensure_future(send()) for _ in range(3)]
            await asyncio.sleep(0.01)
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            accepted.close()
            for request_task in sending:
                with pytest.raises(NetworkFailed):
                    await request_task

    loop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=loop.new_event_loop) as runner:
        runner.run(main())


def test_a_broken_connection_is_reopened(address: str) -> None:
    async def main() -> None:
        async with Cluster(address) as cluster:
            await cluster.refresh()
            first = await cluster.connection(1)
            first.close()
            second = await cluster.connection(1)
            assert second is not first
            await cluster.refresh()

    asyncio.run(main())


def test_a_rejected_record_fails_only_its_batch(address: str, topic: str) -> None:
    async def main() -> None:
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topic(topic, settings={"cleanup.policy": "compact"})
            async with Producer(cluster) as producer:
                bad = await producer.send(topic, b"a record without a key in a compacted topic")
                with pytest.raises(InvalidRecord, match=f"topic '{topic}', partition 0 at {address}: record 0"):
                    await bad
                good = await producer.send(topic, b"value", key=b"key")
                assert (await good).offset == 0
                with pytest.raises(InvalidRecord):  # flush reports it without waiting for each record
                    await producer.flush()

    asyncio.run(main())


def test_a_batch_that_is_too_large_is_split_and_a_record_fails(address: str, topic: str) -> None:
    async def main() -> None:
        async with Cluster(address) as cluster:
            await Admin(cluster).create_topic(topic, settings={"max.message.bytes": "5000"})
            async with Producer(cluster) as producer:
                sent = [await producer.send(topic, b"%d" % number + b"x" * 1000) for number in range(20)]
                assert [(await delivery).offset for delivery in sent] == list(range(20))
                large = await producer.send(topic, b"x" * 6000)
                with pytest.raises(MessageTooLarge):
                    await large
                last = await producer.send(topic, b"after it")
                assert (await last).offset == 20
                with pytest.raises(MessageTooLarge):
                    await producer.flush()

    asyncio.run(main())


def test_sending_to_an_unknown_topic_or_partition_raises(address: str, topic: str) -> None:
    async def main() -> None:
        async with Cluster(address) as cluster, Producer(cluster, create_topics=False) as producer:
            began = time.monotonic()
            with pytest.raises(UnknownTopicOrPartition, match="no such topic"):
                await producer.send(topic, b"")
            assert time.monotonic() - began < 3
            await Admin(cluster).create_topic(topic)
            with pytest.raises(UnknownTopicOrPartition, match=f"topic '{topic}' has no partition 3; it has 1"):
                await producer.send(topic, b"", partition=3)

    asyncio.run(main())


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_records_survive_a_leader_restart_in_order_and_once(tmp_path: Path, topic: str, end: signal.Signals) -> None:
    node = OttlaNode(tmp_path, SETTINGS)
    node.format()
    count = 3000

    async def restart() -> None:
        await asyncio.sleep(0.3)
        await asyncio.to_thread(node.stop, end)
        await asyncio.to_thread(node.start)

    async def main() -> list[int]:
        async with Cluster(node.address, timeout_s=60) as cluster:
            await Admin(cluster).create_topic(topic)
            restarting = asyncio.create_task(restart())
            async with Producer(cluster, batch_bytes=2000, idempotent=True) as producer:
                for number in range(count):
                    await producer.send(topic, b"%d" % number)
                    if number % 10 == 0:
                        await asyncio.sleep(0.002)
            await restarting
            consumer = Consumer(cluster)
            await consumer.assign(topic)
            return [int(record.value or b"") async for chunk in consumer.chunks() for record in chunk.records]

    with node.running():
        assert asyncio.run(main()) == list(range(count))
