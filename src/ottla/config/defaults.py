"""What a node is configured as when nobody configured it: a cluster of one that works at once.

It is broker and controller, listens on this machine only, keeps its data with the user's, and needs no second replica
of anything. Settings given on the command line go in front; what hangs together with them follows them.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from ottla.config.settings.values import trim

NODE_ID = "1"
CONTROLLER_LISTENER = "CONTROLLER"
_LISTENERS = {"broker": "PLAINTEXT://localhost:9092", "controller": f"{CONTROLLER_LISTENER}://localhost:9093"}
_ONE_REPLICA = {
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
QUORUM = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")


def data_directory(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Where programs of this user keep their data."""
    # As the XDG specification says, a path that is not absolute is none.
    if (chosen := environment.get("XDG_DATA_HOME", "")) and Path(chosen).is_absolute():
        return Path(chosen) / "ottla"
    if platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "ottla"
    return Path.home() / ".local" / "share" / "ottla"


def one_node_settings(overrides: Mapping[str, str]) -> dict[str, str]:
    """The settings of a one-node cluster, as far as the overrides leave them open."""
    roles = [trim(role) for role in overrides.get("process.roles", "broker,controller").split(",")]
    node_id = overrides.get("node.id", overrides.get("broker.id", NODE_ID))
    settings = {
        "process.roles": ",".join(roles),
        "node.id": node_id,
        "controller.listener.names": CONTROLLER_LISTENER,
        "listeners": ",".join(_LISTENERS[role] for role in roles if role in _LISTENERS),
        **_ONE_REPLICA,
    }
    if "log.dir" not in overrides:
        settings["log.dirs"] = str(data_directory() / f"node-{trim(node_id)}")
    settings |= overrides
    if is_single_node_quorum(overrides) and (controller := _controller_address(settings)):
        settings["controller.quorum.bootstrap.servers"] = controller
    return settings


def is_single_node_quorum(overrides: Mapping[str, str]) -> bool:
    """Whether a node without a configuration file is all the quorum there is."""
    return not any(name in overrides for name in QUORUM)


def _controller_address(settings: Mapping[str, str]) -> str | None:
    """Host and port of the first controller listener, as far as the text can be read at all."""
    first = trim(settings["controller.listener.names"].split(",")[0])
    for listener in settings["listeners"].split(","):
        name, found, address = trim(listener).partition("://")
        if found and name.upper() == first.upper():
            return f"localhost{address}" if address.startswith(":") else address
    return None
