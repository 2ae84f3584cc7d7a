"""Clusters of Ottla or Apache Kafka for the commands of this folder, with logs that are kept."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.conformance.suite.clusters import ProcessCluster, Subject, read_properties, write_properties


@contextmanager
def running_cluster(folder: Path, subject: Subject, *, nodes: int, **settings: str) -> Iterator[str]:
    """Run nodes that are broker and controller at once, and return their addresses; keep their logs, not their data."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    requested = {
        "brokers": str(nodes),
        "controllers": str(nodes),
        "combined": "true",
        "disks": "1",
        "listener": "PLAINTEXT",
        "security": "PLAINTEXT",
        "release": "4.3-IV0",
        **{f"all.{name.replace('_', '.')}": value for name, value in settings.items()},
    }
    write_properties(folder / "cluster.properties", requested)
    cluster = ProcessCluster(folder, subject)
    try:
        cluster.start()
        yield read_properties(folder / "endpoints.properties")["brokers"]
    finally:
        cluster.stop()
