"""What a node tells the controller of itself, as broker and as controller alike: where it listens, what it supports."""

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from ottla.config.listeners import ListenerEndpoint
from ottla.protocol.features import FeatureRange

M = TypeVar("M", covariant=True)


class MakesListener(Protocol[M]):
    """A message's own struct of a listener."""

    def __call__(self, *, name: str, host: str, port: int, security_protocol: int) -> M: ...


class MakesFeature(Protocol[M]):
    """A message's own struct of a feature's levels."""

    def __call__(self, *, name: str, min_supported_version: int, max_supported_version: int) -> M: ...


def listeners_told(
    endpoints: Iterable[ListenerEndpoint],
    ports: Mapping[str, int],
    protocols: Mapping[str, int],
    make: MakesListener[M],
) -> list[M]:
    """Where others reach the node; a port of 0 is the one that the system chose."""
    return [
        make(
            name=each.name,
            host=each.host or "localhost",
            port=each.port or ports.get(each.name, 0),
            security_protocol=protocols[each.name],
        )
        for each in endpoints
    ]


def features_told(supported: Mapping[str, FeatureRange], make: MakesFeature[M]) -> list[M]:
    """The levels of each feature that this node can run."""
    return [
        make(name=name, min_supported_version=least, max_supported_version=most)
        for name, (least, most) in supported.items()
    ]
