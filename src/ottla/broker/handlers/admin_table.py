"""The endpoints of a broker for those who run it: topics, settings, quotas, rules, elections, features."""

from ottla.broker.handlers import (
    acls,
    alter_configs,
    delegation_tokens,
    describe_client_quotas,
    describe_configs,
    describe_user_scram_credentials,
    list_config_resources,
)
from ottla.broker.requests import forwarded
from ottla.broker.requests.endpoint import Endpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    *forwarded.ENDPOINTS,
    describe_configs.describe_configs,
    alter_configs.alter_configs,
    alter_configs.incremental_alter_configs,
    list_config_resources.list_config_resources,
    describe_client_quotas.describe_client_quotas,
    describe_user_scram_credentials.describe_user_scram_credentials,
    acls.describe_acls,
    acls.create_acls,
    acls.delete_acls,
    *delegation_tokens.ENDPOINTS,
)
