"""A node applies a new metadata image in a fixed order: the image, replicas, coordinators."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bench.harness.ports import free_ports

from ottla.metadata.image.changes import Changes
from ottla.node.formatting import format_directories
from ottla.node.node import Node
from ottla.node.settings_loader import load_settings
from ottla.protocol.messages.rpc.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.replication.runtime import Runtime
from ottla.storage.directories.random_ids import random_cluster_id


def test_the_image_is_replaced_before_replicas_and_then_coordinators_apply_it(tmp_path: Path) -> None:
    broker_port, controller_port = free_ports(2)
    settings = load_settings(
        None,
        {
            "log.dirs": str(tmp_path),
            "node.id": "1",
            "process.roles": "broker,controller",
            "listeners": f"PLAINTEXT://127.0.0.1:{broker_port},CONTROLLER://127.0.0.1:{controller_port}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        },
    )
    format_directories(settings, random_cluster_id())
    seen: list[tuple[str, bool, bool]] = []

    async def scenario() -> None:
        node = Node(settings, Runtime(asyncio.get_running_loop()))

        def watched(who: str, act: Callable[[Changes], Any]) -> Callable[[Changes], None]:
            def apply(changes: Changes) -> None:
                if "orders" in changes.new.topics:
                    is_in_image = "orders" in node._metadata.image.topics
                    seen.append((who, is_in_image, node._broker.partitions.has("orders", 0)))
                act(changes)

            return apply

        node._broker.partitions.apply = watched("replicas", node._broker.partitions.apply)  # type: ignore[assignment, method-assign]
        node._broker.coordinators.apply = watched("coordinators", node._broker.coordinators.apply)  # type: ignore[assignment, method-assign]
        await node.start()
        topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1)
        answer = await node._controller_access.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))
        assert answer.topics[0].error_code == 0
        assert node._broker.partitions.get("orders", 0).is_leader, "the reply goes out when the replicas have acted"
        await node.stop()

    asyncio.run(scenario())
    assert seen[:2] == [("replicas", True, False), ("coordinators", True, True)]
