"""An image as a controller with given settings sees it: which brokers can lead, and what holds for each topic."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from immutables import Map

from ottla.config.settings.catalogue import broker_settings
from ottla.config.settings.topics import EffectiveSetting, effective_topic_settings
from ottla.config.settings.values import Value
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import (
    DIRECTORY_LOST,
    DIRECTORY_MIGRATING,
    DIRECTORY_UNASSIGNED,
    Broker,
    ConfigResource,
    Topic,
)
from ottla.protocol.features import SUPPORTED, FeatureRange
from ottla.protocol.metadata_versions import DIRECTORY_ASSIGNMENT, ELR_VERSION

RESERVED_DIRECTORIES: Final = frozenset(number.to_bytes(16, "big") for number in range(100))
"""Ids that no directory may have; the first three of them mean something."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic about to be made, for a policy to judge: numbers or an assignment, never both."""

    name: str
    partitions: int | None
    replication_factor: int | None
    assignments: Mapping[int, tuple[int, ...]] | None
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """What a controller knows beside the image. The policies raise PolicyViolation."""

    node_id: int
    cluster_id: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """The node's configuration file."""
    supported: Mapping[str, FeatureRange] = field(default_factory=lambda: SUPPORTED)
    create_topic_policy: Callable[[NewTopic], None] | None = None
    alter_config_policy: Callable[[ConfigResource, Mapping[str, str | None]], None] | None = None

    def setting(self, name: str) -> Value:
        """A setting of the node as its file or Kafka's default has it."""
        setting = broker_settings()[name]
        return setting.parse(self.settings[name]) if name in self.settings else setting.default_value

    def number(self, name: str) -> int:
        value = self.setting(name)
        assert isinstance(value, int), f"{name} is no whole number"
        return value


class ControllerView:
    """An image with the controller's options. Made for each decision; remembers what it looked up."""

    def __init__(self, image: Image, options: ControllerOptions) -> None:
        self.image = image
        self.options = options
        self._min_isr: dict[str, int] = {}
        self._unclean: dict[str, bool] = {}

    def on(self, image: Image) -> "ControllerView":
        """The same controller's view of another image."""
        return self if image is self.image else ControllerView(image, self.options)

    @property
    def metadata_version(self) -> int:
        return self.image.features.metadata_version

    @property
    def assigns_directories(self) -> bool:
        return self.metadata_version >= DIRECTORY_ASSIGNMENT

    @cached_property
    def elr_enabled(self) -> bool:
        """Whether eligible leader replicas are kept (KIP-966)."""
        return self.image.features.level(ELR_VERSION) > 0

    @cached_property
    def active_brokers(self) -> frozenset[int]:
        """Those that can be in the ISR and lead."""
        brokers = self.image.brokers.values()
        return frozenset(each.id for each in brokers if not each.fenced and not each.in_controlled_shutdown)

    def is_active(self, broker_id: int) -> bool:
        """Whether a broker can be in the ISR and lead."""
        return broker_id in self.active_brokers

    def default_directory(self, broker_id: int) -> bytes:
        """Where a new replica is until its broker says: a broker with one directory leaves no choice."""
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            return DIRECTORY_UNASSIGNED
        if not broker.log_dirs:
            return DIRECTORY_MIGRATING
        return broker.log_dirs[0] if len(broker.log_dirs) == 1 else DIRECTORY_UNASSIGNED

    def min_isr(self, topic: Topic) -> int:
        """How many in-sync replicas the topic asks for, and can have."""
        found = self._min_isr.get(topic.name)
        if found is None:
            asked = int(self._topic_setting(topic.name, "min.insync.replicas"))
            most = len(topic.partitions[0].replicas) if topic.partitions else asked
            found = self._min_isr[topic.name] = min(asked, most)
        return found

    def allows_unclean_election(self, topic: Topic) -> bool:
        found = self._unclean.get(topic.name)
        if found is None:
            text = self._topic_setting(topic.name, "unclean.leader.election.enable")
            found = self._unclean[topic.name] = text.strip().lower() == "true"
        return found

    def topic_settings(self, configs: Mapping[str, str]) -> dict[str, EffectiveSetting]:
        """Every setting of a topic that has these of its own."""
        return effective_topic_settings(
            configs,
            self.options.settings,
            dynamic_broker=self.node_config,
            dynamic_default=self.image.default_broker_config,
        )

    @property
    def node_config(self) -> Map[str, str]:
        return self.image.broker_config(self.options.node_id)

    def _topic_setting(self, topic: str, name: str) -> str:
        """Looked up layer by layer: a failure asks this for every topic of a broker. The name serves brokers too."""
        for layer in (self.image.topic_config(topic), self.node_config, self.image.default_broker_config):
            value = layer.get(name)
            if value is not None:
                return value
        value = self.options.settings.get(name) or broker_settings()[name].default
        assert value is not None
        return value


def has_online_directory(broker: Broker, directory: bytes) -> bool:
    """Whether a replica's directory works, as far as is known: one that was not told counts as working."""
    if directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING):
        return True
    if directory == DIRECTORY_LOST:
        return False
    return not broker.log_dirs or directory in broker.log_dirs


def accepts_new_replicas(broker: Broker) -> bool:
    """Whether some directory of a broker takes new replicas (KIP-1066)."""
    cordoned = broker.cordoned_log_dirs
    return not broker.log_dirs or cordoned is None or any(each not in cordoned for each in broker.log_dirs)
