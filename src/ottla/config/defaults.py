"""The settings of a node without a configuration file: a cluster of one node that works at once.

The node is broker and controller, listens on localhost only, keeps its data in the user's data directory, and sets all
replication factors to 1. Settings on the command line override these, and settings that depend on them follow.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from ottla.config.settings.values import trim

NODE_ID = "1"
CONTROLLER_LISTENER = "CONTROLLER"
_LISTENERS = {"broker": "PLAINTEXT://localhost:9092", "controller": f"{CONTROLLER_LISTENER}://localhost:9093"}
QUORUM = ("controller.quorum.voters", "controller.quorum.bootstrap.servers")


def data_directory(environment: Mapping[str, str] = os.environ, platform: str = sys.platform) -> Path:
    """Return the directory for the user's data."""
    # The XDG specification says to ignore relative paths.
    if (chosen := environment.get("XDG_DATA_HOME", "")) and Path(chosen).is_absolute():
        return Path(chosen) / "ottla"
    if platform == "darwin":
        return Path.home() / "Library" / "Application Support" / "ottla"
    return Path.home() / ".local" / "share" / "ottla"


def one_node_settings(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a one-node cluster with these overrides."""
    roles = [trim(role) for role in overrides.get("process.roles", "broker,controller").split(",")]
    node_id = overrides.get("node.id", overrides.get("broker.id", NODE_ID))
    settings = {
        "process.roles": ",".join(roles),
        "node.id": node_id,
        "controller.listener.names": CONTROLLER_LISTENER,
        "listeners": ",".join(_LISTENERS[role] for role in roles if role in _LISTENERS),
        **_replication_settings(overrides),
    }
    if "log.dir" not in overrides:
        settings["log.dirs"] = str(data_directory() / f"node-{trim(node_id)}")
    settings |= overrides
    if is_single_node_quorum(overrides) and (controller := _controller_address(settings)):
        settings["controller.quorum.bootstrap.servers"] = controller
    return settings


def _replication_settings(overrides: Mapping[str, str]) -> dict[str, str]:
    """Return the settings that give each internal topic one replica.

    A topic with more replicas keeps Kafka's default for its min.insync.replicas. With a minimum of 1, only the last
    in-sync replica could be elected, and its power failure would lose records that other replicas have.
    """
    settings = {"offsets.topic.replication.factor": "1"}
    for topic in ("transaction.state.log", "share.coordinator.state.topic"):
        settings[f"{topic}.replication.factor"] = "1"
        if trim(overrides.get(f"{topic}.replication.factor", "1")) == "1":
            settings[f"{topic}.min.isr"] = "1"
    return settings


def is_single_node_quorum(overrides: Mapping[str, str]) -> bool:
    """Return whether a node without a configuration file is the only member of its quorum."""
    return not any(name in overrides for name in QUORUM)


def _controller_address(settings: Mapping[str, str]) -> str | None:
    """Return host and port of the first controller listener, or None if it cannot be parsed."""
    first = trim(settings["controller.listener.names"].split(",")[0])
    for listener in settings["listeners"].split(","):
        name, separator, address = trim(listener).partition("://")
        if separator and name.upper() == first.upper():
            return f"localhost{address}" if address.startswith(":") else address
    return None
