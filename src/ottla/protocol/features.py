"""The features of a cluster, as a node of Kafka 4.3.1 supports them: their levels, and what each level needs.

A release version (a level of metadata.version) decides which level every other feature starts with.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from ottla.protocol.metadata_versions import (
    ELIGIBLE_LEADER_REPLICAS,
    ELR_VERSION,
    GROUP_VERSION,
    KRAFT_VERSION,
    LATEST,
    METADATA_VERSION,
    METADATA_VERSIONS,
    OLDEST,
    SHARE_VERSION,
    STREAMS_VERSION,
    TRANSACTION_VERSION,
)


class FeatureRange(NamedTuple):
    """The levels of a feature that a node supports."""

    min: int
    max: int


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature by the metadata.version that each of its levels, from 0 on, came with."""

    since: tuple[int, ...]
    needs_metadata: Mapping[int, int] = field(default_factory=dict)
    """Level → the metadata.version without which it cannot be."""

    @property
    def latest(self) -> int:
        return len(self.since) - 1

    def default_level(self, metadata_version: int) -> int:
        return max(level for level, since in enumerate(self.since) if since <= metadata_version)


FEATURES: Final[Mapping[str, Feature]] = {
    ELR_VERSION: Feature((OLDEST, 26), {1: ELIGIBLE_LEADER_REPLICAS}),
    GROUP_VERSION: Feature((OLDEST, 22)),
    KRAFT_VERSION: Feature((OLDEST, 21)),
    SHARE_VERSION: Feature((OLDEST, 28)),
    STREAMS_VERSION: Feature((OLDEST, 29)),
    TRANSACTION_VERSION: Feature((OLDEST, 24, 24)),
}
"""All but metadata.version, in the order of their names, in which they are written."""

SUPPORTED: Final[Mapping[str, FeatureRange]] = MappingProxyType(
    {METADATA_VERSION: FeatureRange(OLDEST, LATEST)}
    | {name: FeatureRange(0, feature.latest) for name, feature in FEATURES.items()}
)
"""The features that this node supports."""

_UNSTABLE: Final[Mapping[str, FeatureRange]] = MappingProxyType(
    {**SUPPORTED, METADATA_VERSION: FeatureRange(OLDEST, max(METADATA_VERSIONS))}
)


def supported_features(*, unstable: bool) -> Mapping[str, FeatureRange]:
    """The features that a node supports: with `unstable`, also levels that are not released yet."""
    return _UNSTABLE if unstable else SUPPORTED
