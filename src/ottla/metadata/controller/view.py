"""The controller's view of an image: active brokers, and the configs in force."""

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
"""Reserved directory ids; the first three have a meaning."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to be created, as a policy sees it: partition and replica counts, or an assignment, never both."""

    name: str
    partitions: int | None
    replication_factor: int | None
    assignments: Mapping[int, tuple[int, ...]] | None
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """The options of a controller. The policies raise PolicyViolation."""

    node_id: int
    cluster_id: str
    settings: Mapping[str, str] = field(default_factory=dict)
    """The settings of the node's configuration file."""
    supported: Mapping[str, FeatureRange] = field(default_factory=lambda: SUPPORTED)
    create_topic_policy: Callable[[NewTopic], None] | None = None
    alter_config_policy: Callable[[ConfigResource, Mapping[str, str | None]], None] | None = None

    def setting(self, name: str) -> Value:
        """Return a setting from the node's file, or its default."""
        setting = broker_settings()[name]
        return setting.parse(self.settings[name]) if name in self.settings else setting.default_value

    def number(self, name: str) -> int:
        value = self.setting(name)
        assert isinstance(value, int), f"{name} is a whole number"
        return value


class ControllerView:
    """An image with the controller's options. One view serves one decision, and caches what it looks up."""

    def __init__(self, image: Image, options: ControllerOptions) -> None:
        self.image = image
        self.options = options
        self._min_isr: dict[str, int] = {}
        self._unclean: dict[str, bool] = {}

    def with_image(self, image: Image) -> "ControllerView":
        """Return a view of another image with the same options."""
        return self if image is self.image else ControllerView(image, self.options)

    @property
    def metadata_version(self) -> int:
        return self.image.features.metadata_version

    @property
    def assigns_directories(self) -> bool:
        return self.metadata_version >= DIRECTORY_ASSIGNMENT

    @cached_property
    def elr_enabled(self) -> bool:
        """Whether eligible leader replicas are enabled (KIP-966)."""
        return self.image.features.level(ELR_VERSION) > 0

    @cached_property
    def active_brokers(self) -> frozenset[int]:
        """The brokers that can be in an ISR and lead: unfenced, and not in controlled shutdown."""
        brokers = self.image.brokers.values()
        return frozenset(broker.id for broker in brokers if not broker.fenced and not broker.in_controlled_shutdown)

    def is_active(self, broker_id: int) -> bool:
        """Whether a broker can be in an ISR and lead."""
        return broker_id in self.active_brokers

    def default_directory(self, broker_id: int) -> bytes:
        """Return a new replica's directory until the broker assigns one; a broker with one directory has no choice."""
        broker = self.image.brokers.get(broker_id)
        if broker is None:
            return DIRECTORY_UNASSIGNED
        if not broker.log_dirs:
            return DIRECTORY_MIGRATING
        return broker.log_dirs[0] if len(broker.log_dirs) == 1 else DIRECTORY_UNASSIGNED

    def min_isr(self, topic: Topic) -> int:
        """Return min.insync.replicas of the topic, at most its replication factor."""
        min_isr = self._min_isr.get(topic.name)
        if min_isr is None:
            configured = int(self._topic_setting(topic.name, "min.insync.replicas"))
            replicas = len(topic.partitions[0].replicas) if topic.partitions else configured
            min_isr = self._min_isr[topic.name] = min(configured, replicas)
        return min_isr

    def allows_unclean_election(self, topic: Topic) -> bool:
        is_allowed = self._unclean.get(topic.name)
        if is_allowed is None:
            text = self._topic_setting(topic.name, "unclean.leader.election.enable")
            is_allowed = self._unclean[topic.name] = text.strip().lower() == "true"
        return is_allowed

    def topic_settings(self, configs: Mapping[str, str]) -> dict[str, EffectiveSetting]:
        """Return every config of a topic with these configs of its own."""
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
        """Return a config that topics and brokers have under one name.

        Fencing a broker looks it up for each of its topics, so it searches layer by layer and merges nothing.
        """
        for layer in (self.image.topic_config(topic), self.node_config, self.image.default_broker_config):
            value = layer.get(name)
            if value is not None:
                return value
        value = self.options.settings.get(name) or broker_settings()[name].default
        assert value is not None
        return value


def has_online_directory(broker: Broker, directory: bytes) -> bool:
    """Whether a replica's directory is online. A directory that is not known yet counts as online."""
    if directory in (DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING):
        return True
    if directory == DIRECTORY_LOST:
        return False
    return not broker.log_dirs or directory in broker.log_dirs


def accepts_new_replicas(broker: Broker) -> bool:
    """Whether a broker has a directory that is not cordoned (KIP-1066)."""
    cordoned = broker.cordoned_log_dirs
    return not broker.log_dirs or cordoned is None or any(directory not in cordoned for directory in broker.log_dirs)
