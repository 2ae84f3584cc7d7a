"""`ottla cluster start`: run a cluster on this machine, in the foreground, with one process for each node.

While the cluster runs, its state is shown: on a terminal as a few lines that are updated, elsewhere as a line for each
change. Ctrl-C or SIGTERM stops all nodes cleanly; the second one stops them at once.
"""

import argparse
import asyncio
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.cli.cluster_status import Status, status_of
from ottla.cli.command import CommandFailed, InvalidUsage, add_overrides, overrides, positive
from ottla.cli.local_cluster import LocalCluster, LocalNode
from ottla.cli.output import counted

if TYPE_CHECKING:
    from types import FrameType

EXAMPLES = """examples:
  ottla cluster start
  ottla cluster start --nodes 3 --racks a,b,c --dir /tmp/cluster --base-port 19092
"""
_START_S = 60.0
_REFRESH_S = 1.0
_MAX_PORT = 65_535


class _StopRequested(Exception):
    """The user pressed Ctrl-C, or the process received SIGTERM."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--nodes", metavar="N", type=positive, default=3, help="how many nodes (default: %(default)s)")
    parser.add_argument("--racks", metavar="RACK,...", default="", help="racks, assigned to the nodes in turn")
    parser.add_argument(
        "--dir", metavar="DIR", help="the folder of the cluster's files (default: in the user's data folder)"
    )
    parser.add_argument(
        "--base-port",
        metavar="PORT",
        type=positive,
        default=9092,
        help="the port of the first node; each node uses two (default: %(default)s)",
    )
    add_overrides(parser)


def run(arguments: argparse.Namespace) -> None:
    cluster = _cluster(arguments)
    is_new = cluster.prepare()
    verb = "created" if is_new else "found"
    print(f"{verb} a cluster of {counted(len(cluster.nodes), 'node')} in {cluster.directory}", flush=True)
    signal.signal(signal.SIGTERM, _stop)
    signal.signal(signal.SIGINT, _stop)
    try:
        cluster.start()
        _wait_until_ready(cluster)
        print(f"bootstrap servers: {cluster.servers}", flush=True)
        print("Ctrl-C stops the cluster", flush=True)
        _watch(cluster)
    except _StopRequested:
        print("stopping", flush=True)
    finally:
        try:
            cluster.stop()
        except _StopRequested:
            print("stopping at once", flush=True)
        finally:
            cluster.kill()


def _cluster(arguments: argparse.Namespace) -> LocalCluster:
    from ottla.config.defaults import data_directory

    racks = [rack.strip() for rack in arguments.racks.split(",") if rack.strip()]
    if arguments.base_port + 2 * arguments.nodes - 1 > _MAX_PORT:
        raise InvalidUsage(
            f"--base-port {arguments.base_port} is too high: {counted(arguments.nodes, 'node')} need two ports each,"
            f" up to {_MAX_PORT}"
        )
    directory = Path(arguments.dir) if arguments.dir is not None else data_directory() / "cluster"
    return LocalCluster(
        directory.absolute(),
        nodes=arguments.nodes,
        base_port=arguments.base_port,
        racks=racks,
        settings=overrides(arguments),
    )


def _stop(number: int, frame: "FrameType | None") -> None:
    raise _StopRequested


def _wait_until_ready(cluster: LocalCluster) -> None:
    """Print each node as it becomes ready. Raise CommandFailed if one ends or takes too long."""
    waiting = list(cluster.nodes)
    deadline = time.monotonic() + _START_S
    while waiting:
        for node in list(waiting):
            if node.is_ready:
                waiting.remove(node)
                print(f"node {node.number} is ready at {node.address}", flush=True)
            elif node.exit_code() is not None:
                raise CommandFailed(_describe_exit(node))
        if time.monotonic() > deadline:
            raise CommandFailed(f"node {waiting[0].number} is not ready after {_START_S:g} s; see {waiting[0].log}")
        time.sleep(0.02)


def _describe_exit(node: LocalNode) -> str:
    last = node.output.strip().splitlines()[-1:] or ["it printed nothing"]
    return f"node {node.number} ended with exit code {node.exit_code()}: {last[0]} (see {node.log})"


def _watch(cluster: LocalCluster) -> None:
    """Show the cluster until it is stopped. Raise CommandFailed when the last node has ended."""
    view = _View()
    ended: set[int] = set()
    while True:
        for node in cluster.nodes:
            if node.exit_code() is not None and node.number not in ended:
                ended.add(node.number)
                view.print(_describe_exit(node))
        if len(ended) == len(cluster.nodes):
            raise CommandFailed("all nodes have ended")
        running = ",".join(node.address for node in cluster.nodes if node.exit_code() is None)
        view.show(asyncio.run(_read_status(running)))
        time.sleep(_REFRESH_S)


async def _read_status(servers: str) -> "Status | str":
    """Return the state of the cluster, or why it is unknown."""
    from ottla.client.admin import Admin
    from ottla.client.cluster import Cluster
    from ottla.protocol.errors import ApiError

    try:
        async with Cluster(servers, client_id="ottla-cli", timeout_s=5.0) as cluster:
            return await status_of(Admin(cluster))
    except ApiError as error:
        return f"the cluster does not answer: {error}"


class _View:
    """Lines that are redrawn on a terminal; elsewhere they are printed when they change."""

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()
        self._drawn = 0
        self._last: list[str] = []

    def show(self, status: "Status | str") -> None:
        lines = [status] if isinstance(status, str) else status.lines
        if self._is_terminal:
            self._clear()
            self._drawn = len(lines)
        elif lines == self._last:
            return
        print("\n".join(lines), flush=True)
        self._last = lines

    def print(self, line: str) -> None:
        """Print a line that stays above the redrawn ones."""
        self._clear()
        print(line, flush=True)

    def _clear(self) -> None:
        if self._drawn:
            print(f"\x1b[{self._drawn}F\x1b[J", end="")
            self._drawn = 0
