"""What a node registers with the controller, as a broker or as a controller: its listeners and features."""

from collections.abc import Iterable, Mapping
from typing import Protocol, TypeVar

from ottla.config.listeners import ListenerEndpoint
from ottla.protocol.features import FeatureRange

M = TypeVar("M", covariant=True)


class ListenerFactory(Protocol[M]):
    """Constructs a message's struct for a listener."""

    def __call__(self, *, name: str, host: str, port: int, security_protocol: int) -> M: ...


class FeatureFactory(Protocol[M]):
    """Constructs a message's struct for a feature."""

    def __call__(self, *, name: str, min_supported_version: int, max_supported_version: int) -> M: ...


def advertised_listeners(
    endpoints: Iterable[ListenerEndpoint],
    ports: Mapping[str, int],
    protocols: Mapping[str, int],
    create: ListenerFactory[M],
) -> list[M]:
    """Return the node's advertised listeners; port 0 becomes the port that the system chose."""
    return [
        create(
            name=endpoint.name,
            host=endpoint.host or "localhost",
            port=endpoint.port or ports.get(endpoint.name, 0),
            security_protocol=protocols[endpoint.name],
        )
        for endpoint in endpoints
    ]


def advertised_features(supported: Mapping[str, FeatureRange], create: FeatureFactory[M]) -> list[M]:
    """Return the levels of each feature that this node supports."""
    return [
        create(name=name, min_supported_version=least, max_supported_version=most)
        for name, (least, most) in supported.items()
    ]
