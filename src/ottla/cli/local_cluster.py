"""A cluster on this machine: one process for each node, all files in one directory.

    DIR/cluster.json             the cluster's id and the number of its controllers
    DIR/node-1/server.properties written at each start
    DIR/node-1/data/             the node's log directory
    DIR/node-1/node.log          the node's output

The first three nodes (or the only one) are brokers and controllers, the others are brokers.
"""

import contextlib
import json
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from ottla.cli.command import CommandFailed

_MAX_CONTROLLERS: Final = 3
_STOP_S: Final = 40.0
_READY: Final = "is ready at"
_HOST: Final = "localhost"


class LocalNode:
    """One node's files and process."""

    def __init__(self, number: int, folder: Path, port: int, *, is_controller: bool) -> None:
        self.number = number
        self.folder = folder
        self.port = port
        self.is_controller = is_controller
        self.properties = folder / "server.properties"
        self.log = folder / "node.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._log_start = 0

    @property
    def address(self) -> str:
        return f"{_HOST}:{self.port}"

    @property
    def controller_address(self) -> str:
        return f"{_HOST}:{self.port + 1}"

    @property
    def is_ready(self) -> bool:
        return _READY in self.output

    @property
    def output(self) -> str:
        """The output of the current process so far."""
        with self.log.open("rb") as log:
            log.seek(self._log_start)
            return log.read().decode(errors="replace")

    def start(self) -> None:
        self._log_start = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            # In a session of its own, so that Ctrl-C reaches only this command, which then stops the nodes cleanly.
            self.process = subprocess.Popen(  # noqa: S603 (this very program)
                [sys.executable, "-m", "ottla", "serve", str(self.properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def exit_code(self) -> int | None:
        """Return the exit code of the process, or None while it runs."""
        return None if self.process is None else self.process.poll()


class LocalCluster:
    """The nodes of a cluster under one directory."""

    def __init__(
        self,
        directory: Path,
        *,
        nodes: int,
        base_port: int,
        racks: Sequence[str] = (),
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.directory = directory
        controllers = min(nodes, _MAX_CONTROLLERS)
        self.nodes = [
            LocalNode(
                number, directory / f"node-{number}", base_port + 2 * (number - 1), is_controller=number <= controllers
            )
            for number in range(1, nodes + 1)
        ]
        self._racks = racks
        self._settings = settings or {}
        self._controllers = controllers

    @property
    def servers(self) -> str:
        """The bootstrap servers: all nodes."""
        return ",".join(node.address for node in self.nodes)

    def prepare(self) -> bool:
        """Create missing files and return whether the cluster is new. Raise CommandFailed if that fails."""
        from ottla.node.formatting import FormattingRefused, format_directories
        from ottla.node.settings_loader import InvalidConfiguration, load_settings

        is_new = not self._identity_file.exists()
        cluster_id = self._identity()
        for node in self.nodes:
            node.folder.mkdir(parents=True, exist_ok=True)
            node.properties.write_text("".join(f"{name}={value}\n" for name, value in self._settings_of(node).items()))
            try:
                format_directories(load_settings(node.properties), cluster_id, ignore_formatted=True)
            except (InvalidConfiguration, FormattingRefused) as error:
                raise CommandFailed(str(error)) from error
        return is_new

    def start(self) -> None:
        for node in self.nodes:
            node.start()

    def stop(self) -> None:
        """Ask all nodes to stop, and wait until they have ended or time is up."""
        running = [node.process for node in self.nodes if node.process is not None and node.process.poll() is None]
        for process in running:
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(deadline - time.monotonic(), 0.1))

    def kill(self) -> None:
        """Kill the nodes that still run."""
        for node in self.nodes:
            if node.process is not None and node.process.poll() is None:
                node.process.kill()
                node.process.wait()

    @property
    def _identity_file(self) -> Path:
        return self.directory / "cluster.json"

    def _identity(self) -> str:
        """Return the cluster's id.

        The number of controllers cannot change, since they know each other by their settings.
        """
        from ottla.storage.directories.random_ids import random_cluster_id

        path = self._identity_file
        try:
            identity = json.loads(path.read_text())
            cluster_id, controllers = str(identity["cluster_id"]), int(identity["controllers"])
        except FileNotFoundError:
            self.directory.mkdir(parents=True, exist_ok=True)
            cluster_id, controllers = random_cluster_id(), self._controllers
            path.write_text(json.dumps({"cluster_id": cluster_id, "controllers": controllers}) + "\n")
        except (ValueError, KeyError, TypeError) as error:
            raise CommandFailed(
                f"{path} is damaged ({error!r}); remove {self.directory} to create a new cluster"
            ) from error
        if controllers != self._controllers:
            raise CommandFailed(
                f"the cluster in {self.directory} has {controllers} controllers, but --nodes {len(self.nodes)} needs"
                f" {self._controllers}; use the previous number of nodes, or another --dir"
            )
        return cluster_id

    def _settings_of(self, node: LocalNode) -> dict[str, str]:
        copies = str(min(len(self.nodes), 3))
        min_isr = "2" if len(self.nodes) >= 3 else "1"
        listeners = [f"PLAINTEXT://{node.address}"]
        if node.is_controller:
            listeners.append(f"CONTROLLER://{node.controller_address}")
        voters = [f"{voter.number}@{voter.controller_address}" for voter in self.nodes if voter.is_controller]
        settings = {
            "node.id": str(node.number),
            "process.roles": "broker,controller" if node.is_controller else "broker",
            "listeners": ",".join(listeners),
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(voters),
            "log.dirs": str(node.folder / "data"),
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": min_isr,
            "share.coordinator.state.topic.replication.factor": copies,
            "share.coordinator.state.topic.min.isr": min_isr,
        }
        if node.is_controller:  # the controller decides the replication factor of new topics
            settings["default.replication.factor"] = copies
        if self._racks:
            settings["broker.rack"] = self._racks[(node.number - 1) % len(self._racks)]
        return {**settings, **self._settings}
