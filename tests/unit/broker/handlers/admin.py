"""A broker with a controller that decides at once, for tests of what administrators ask for."""

from typing import Any

from ottla.metadata.controller.configs import alter_configs, incremental_alter_configs
from ottla.metadata.controller.view import ControllerOptions, ControllerView
from ottla.node.dynamic_settings import DynamicSettings
from ottla.node.settings_loader import load_settings
from ottla.protocol.errors import ApiError
from ottla.protocol.messages.records.metadata_records import FeatureLevelRecord
from ottla.protocol.messages.rpc.alter_configs import AlterConfigsRequest
from ottla.protocol.messages.rpc.incremental_alter_configs import IncrementalAlterConfigsRequest
from ottla.protocol.metadata_versions import LATEST, METADATA_VERSION
from tests.support.broker import CLUSTER_ID, ME, Broker

FILE = {
    "num.io.threads": "8",
    "log.retention.minutes": "5",
    "ssl.key.password": "secret",
    "group.consumer.session.timeout.ms": "46000",
}


class Admin(Broker):
    """Broker 1, with a configuration file."""

    def __init__(self) -> None:
        super().__init__()
        settings = load_settings(None, FILE)
        dynamic = DynamicSettings(settings)
        self.node.given = settings.given
        self.node.check_broker_settings = lambda name, changed: dynamic.check(self.image, name, changed)
        self.controller = self._decided
        self.refusal: ApiError | None = None
        """What the controller says to everything, if anything."""
        self.apply(FeatureLevelRecord(name=METADATA_VERSION, feature_level=LATEST))

    def _decided(self, request: Any) -> Any:
        if self.refusal is not None:
            raise self.refusal
        view = ControllerView(
            self.image, ControllerOptions(node_id=ME, cluster_id=CLUSTER_ID, settings=self.node.given)
        )
        if isinstance(request, IncrementalAlterConfigsRequest):
            decision: Any = incremental_alter_configs(view, request)
        else:
            assert isinstance(request, AlterConfigsRequest), request
            decision = alter_configs(view, request)
        if decision.records:
            self.apply(*decision.records)
        return decision.reply
