"""The features of a cluster that Kafka 4.3.1 supports, with their levels and dependencies.

The level of metadata.version decides the starting level of every other feature.
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
    """The range of a feature's levels that a node supports."""

    min: int
    max: int


@dataclass(frozen=True, slots=True)
class Feature:
    """A feature: for each of its levels, the metadata.version that introduced it."""

    since: tuple[int, ...]
    needs_metadata: Mapping[int, int] = field(default_factory=dict)
    """Level → the metadata.version that it requires."""

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
"""All features but metadata.version, sorted by name, as they are written."""

SUPPORTED: Final[Mapping[str, FeatureRange]] = MappingProxyType(
    {METADATA_VERSION: FeatureRange(OLDEST, LATEST)}
    | {name: FeatureRange(0, feature.latest) for name, feature in FEATURES.items()}
)
"""The features that this node supports."""

_UNSTABLE: Final[Mapping[str, FeatureRange]] = MappingProxyType(
    {**SUPPORTED, METADATA_VERSION: FeatureRange(OLDEST, max(METADATA_VERSIONS))}
)


def supported_features(*, unstable: bool) -> Mapping[str, FeatureRange]:
    """Return the features that a node supports. `unstable` includes levels that are not released yet."""
    return _UNSTABLE if unstable else SUPPORTED
