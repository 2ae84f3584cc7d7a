"""TLS and SASL of a node's listeners, and of its connections to other nodes.

Settings of one listener (`listener.name.<name>.ssl.*`, `listener.name.<name>.<mechanism>.sasl.jaas.config`) override
those for all. The node reads everything when it starts, so that errors show at once. It reads certificates again when
one of their settings is changed, or set to the same value again.
"""

from __future__ import annotations

import importlib.util
import logging
import secrets
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, Final

from ottla.broker.network.connection import Connection
from ottla.broker.network.tls import TlsConnection
from ottla.broker.requests.authentication import SaslGate, SaslRules
from ottla.broker.requests.call import Client
from ottla.broker.requests.dispatch import Dispatch
from ottla.broker.requests.router import Handle
from ottla.config.listeners import SecurityProtocol, SettingConflict
from ottla.config.node_settings import NodeSettings
from ottla.config.settings.values import Password
from ottla.metadata.image.image import Image
from ottla.metadata.image.values import ScramUser
from ottla.node.directories import NodeFailed
from ottla.protocol.java.hash_order import grown_table_size, hash_order, string_hash
from ottla.security.delegation_tokens import token_hmac, token_keys
from ottla.security.errors import InvalidSecurity
from ottla.security.jaas import InvalidJaas, Login, parse_jaas
from ottla.security.principal_mapping import InvalidMappingRules, MappingRule, parse_rules, principal_name
from ottla.security.sasl_server import (
    AuthenticatedUser,
    BearerServer,
    PlainServer,
    ScramCredential,
    ScramIdentity,
    ScramServer,
    ServerExchange,
    TokenClaims,
    UnsignedTokens,
)
from ottla.security.scram import MECHANISMS as SCRAM
from ottla.security.scram import ScramKeys
from ottla.security.settings import PLAINTEXT, Security, load_security, parse_tls
from ottla.security.signed_tokens import KeySource, SignedTokens, key_set_of
from ottla.security.tls import client_context, server_context

logger = logging.getLogger(__name__)

_TLS: Final = (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)
_SASL: Final = (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)
_BEARER: Final = "OAUTHBEARER"
_SUPPORTED: Final = ("PLAIN", *SCRAM, _BEARER)
_UNSIGNED_HANDLER: Final = "OAuthBearerUnsecuredValidatorCallbackHandler"
_SIGNED_HANDLER: Final = "OAuthBearerValidatorCallbackHandler"
_HANDLER: Final = "sasl.server.callback.handler.class"
_USER: Final = "user_"


@dataclass(frozen=True)
class _Secured:
    """The security that the current settings describe, by listener."""

    protocols: Mapping[str, str]
    contexts: Mapping[str, ssl.SSLContext]
    rules: Mapping[str, SaslRules]
    mapping: Mapping[str, tuple[MappingRule, ...]]
    """Rules that map certificate names to principals."""
    between_brokers: Security
    to_controllers: Security


class ListenerSecurity:
    """The current security of a node's listeners and connections."""

    def __init__(self, settings: NodeSettings, image: Callable[[], Image], now_ms: Callable[[], int]) -> None:
        self._image = image
        self._now_ms = now_ms
        self._given = settings.given
        try:
            self._now = self._read(settings)
        except SettingConflict as wrong:
            raise NodeFailed(str(wrong)) from None

    def check(self, settings: NodeSettings) -> None:
        """Raise SettingConflict unless the settings describe valid security.

        Setting the same value again reloads files: there will be no change to apply, so reload them here.
        """
        read = self._read(settings)
        if settings.given == self._given:
            self._now = read

    def apply(self, old: NodeSettings, new: NodeSettings) -> None:
        """Apply changed settings. This can still fail if a file disappeared after the check."""
        try:
            self._now, self._given = self._read(new), new.given
        except SettingConflict as wrong:
            logger.error("cannot apply changed security settings; listeners keep their current security: %s", wrong)

    def between_brokers(self) -> Security:
        """Return the security of connections to other brokers."""
        return self._now.between_brokers

    def to_controllers(self) -> Security:
        """Return the security of connections to controllers."""
        return self._now.to_controllers

    def context_of(self, listener: str) -> Callable[[], ssl.SSLContext] | None:
        """Return a factory of TLS contexts for a listener's connections; None without TLS."""
        return (lambda: self._now.contexts[listener]) if listener in self._now.contexts else None

    def gated(self, listener: str, dispatch: Dispatch[Any]) -> Handle:
        """Return the handler of a listener's requests. With SASL, clients must authenticate before the dispatcher."""
        if listener not in self._now.rules:
            return dispatch.handle
        return SaslGate(lambda: self._now.rules[listener], dispatch.handle, dispatch.fail).handle

    def client_of(self, connection: Connection) -> Client:
        """Return the client of a new connection, with the principal of its TLS certificate if it has one."""
        listener = connection.listener.name
        client = Client(connection.peer, listener, connection.peer_port)
        client.security_protocol = self._now.protocols[listener]
        client.connection_id = connection.name(connection.listener.accepted)
        if isinstance(connection, TlsConnection) and (subject := connection.subject):
            # A certificate that no rule matches leaves the client anonymous, like a client without a certificate.
            name = principal_name(subject, self._now.mapping[listener])
            if name is not None:
                client.principal = f"User:{name}"
        return client

    def _read(self, settings: NodeSettings) -> _Secured:
        encrypted = [listener.name for listener in settings.listeners if listener.protocol in _TLS]
        authenticated = [listener.name for listener in settings.listeners if listener.protocol in _SASL]
        client_context.cache_clear()  # the files may have changed
        brokers, controllers = settings.inter_broker_listener_name, settings.controller_listener_names[0]
        return _Secured(
            protocols={listener.name: SecurityProtocol(listener.protocol).name for listener in settings.listeners},
            contexts={name: _server_context(settings, name) for name in encrypted},
            rules={name: self._sasl_rules(settings, name) for name in authenticated},
            mapping={name: _mapping_rules(settings, name) for name in encrypted},
            between_brokers=_own_security(settings, brokers, "sasl.mechanism.inter.broker.protocol"),
            to_controllers=_own_security(settings, controllers, "sasl.mechanism.controller.protocol"),
        )

    def _sasl_rules(self, settings: NodeSettings, listener: str) -> SaslRules:
        exchanges = {name: self._exchanges(settings, listener, name) for name in _mechanisms(settings, listener)}
        return SaslRules(
            exchanges=exchanges,
            session_ms={name: _session_ms(settings, listener, name) for name in exchanges},
            max_token_bytes=settings.number("sasl.server.max.receive.size"),
            failure_delay_ms=settings.number("connection.failed.authentication.delay.ms"),
            now_ms=self._now_ms,
            now_ns=time.monotonic_ns,
        )

    def _exchanges(self, settings: NodeSettings, listener: str, mechanism: str) -> Callable[[], ServerExchange]:
        name, login = _login(settings, listener, mechanism)
        if mechanism in SCRAM:
            find_user, find_token = partial(self._user, mechanism), partial(self._token, mechanism, settings)
            return lambda: ScramServer(mechanism, find_user, find_token, secrets.token_urlsafe(24))
        if login is None:
            raise SettingConflict(name, f"is missing: it has the accepted credentials for {mechanism}")
        if mechanism == _BEARER:
            signed = _signed_tokens(settings, listener, login)
            check = signed.check if signed else partial(self._claims, _unsigned_tokens(name, login))
            return lambda: BearerServer(check)
        passwords = {
            option.removeprefix(_USER): password
            for option, password in login.options.items()
            if option.startswith(_USER)
        }
        return lambda: PlainServer(passwords)

    def _user(self, mechanism: str, name: str) -> ScramIdentity | None:
        stored = self._image().scram.get(ScramUser(SCRAM[mechanism].number, name))
        if stored is None:
            return None
        credential = ScramCredential(stored.salt, ScramKeys(stored.stored_key, stored.server_key), stored.iterations)
        return ScramIdentity(AuthenticatedUser(name), credential)

    def _token(self, mechanism: str, settings: NodeSettings, token_id: str) -> ScramIdentity | None:
        """Return the identity of a delegation token: the holder authenticates as the token's owner."""
        token = self._image().tokens.get(token_id)
        secret = settings["delegation.token.secret.key"]
        if token is None or not isinstance(secret, Password):
            return None
        owner = token.owner.partition(":")[2]
        credential = _token_credential(mechanism, token_hmac(secret.value, token_id))
        return ScramIdentity(AuthenticatedUser(owner, token.expiration_timestamp, has_token=True), credential)

    def _claims(self, rules: UnsignedTokens, token: str) -> TokenClaims | None:
        return rules.check(token, self._now_ms())


@lru_cache(maxsize=1_000)
def _token_credential(mechanism: str, proof: bytes) -> ScramCredential:
    """Derive a token's SCRAM keys. Cached, because deriving them takes milliseconds by design."""
    salt = secrets.token_bytes(16)
    return ScramCredential(salt, *token_keys(mechanism, proof, salt))


def _listener_texts(settings: NodeSettings, listener: str) -> dict[str, str]:
    """Return the settings of a listener: its own override those for all."""
    return {**settings.given, **settings.listener_settings.get(listener, {})}


def _setting_name(settings: NodeSettings, listener: str, name: str) -> str:
    """Return the name under which a listener's setting was given."""
    own = name in settings.listener_settings.get(listener, {})
    return f"listener.name.{listener.lower()}.{name}" if own else name


def _server_context(settings: NodeSettings, listener: str) -> ssl.SSLContext:
    given = _listener_texts(settings, listener)
    try:
        return server_context(parse_tls(given), given.get("ssl.client.auth", "none").lower())
    except InvalidSecurity as wrong:
        raise SettingConflict(_setting_name(settings, listener, wrong.setting), wrong.reason) from None
    except KeyError:
        raise SettingConflict(
            _setting_name(settings, listener, "ssl.client.auth"), "must be required, requested or none"
        ) from None


def _mapping_rules(settings: NodeSettings, listener: str) -> tuple[MappingRule, ...]:
    name = "ssl.principal.mapping.rules"
    try:
        return parse_rules(_listener_texts(settings, listener).get(name, "DEFAULT"))
    except InvalidMappingRules as wrong:
        raise SettingConflict(_setting_name(settings, listener, name), str(wrong)) from None


def _mechanisms(settings: NodeSettings, listener: str) -> list[str]:
    name = "sasl.enabled.mechanisms"
    given = _listener_texts(settings, listener).get(name, "GSSAPI")
    enabled = [mechanism.strip() for mechanism in given.split(",") if mechanism.strip()]
    for mechanism in enabled:
        if mechanism not in _SUPPORTED:
            hint = "" if name in _listener_texts(settings, listener) else " (Kafka's default)"
            raise SettingConflict(
                _setting_name(settings, listener, name),
                f"{mechanism}{hint} is not supported; choose from {', '.join(_SUPPORTED)}",
            )
    if not enabled:
        raise SettingConflict(
            _setting_name(settings, listener, name), f"must have at least one of {', '.join(_SUPPORTED)}"
        )
    return hash_order(dict.fromkeys(enabled), string_hash, grown_table_size(len(enabled)))  # clients see Kafka's order


def _mechanism_setting(settings: NodeSettings, listener: str, mechanism: str, name: str) -> tuple[str, str | None]:
    """Return the name and text of a setting: for one mechanism of a listener, for the listener, or for all."""
    own = settings.listener_settings.get(listener, {})
    for own_name in (f"{mechanism.lower()}.{name}", name):
        if own_name in own:
            return f"listener.name.{listener.lower()}.{own_name}", own[own_name]
    if name in settings.given:
        return name, settings.given[name]
    return f"listener.name.{listener.lower()}.{mechanism.lower()}.{name}", None


def _login(settings: NodeSettings, listener: str, mechanism: str) -> tuple[str, Login | None]:
    for setting, supported in (
        (_HANDLER, (_UNSIGNED_HANDLER, _SIGNED_HANDLER)),
        ("sasl.login.class", ()),
    ):
        name, handler = _mechanism_setting(settings, listener, mechanism, setting)
        if handler is not None and handler.rpartition(".")[2] not in supported:
            raise SettingConflict(name, f"{handler} is a Java class, which Ottla cannot load: remove the setting")
    name, text = _mechanism_setting(settings, listener, mechanism, "sasl.jaas.config")
    if text is None:
        return name, None
    try:
        return name, parse_jaas(text)
    except InvalidJaas as wrong:
        raise SettingConflict(name, str(wrong)) from None


def _unsigned_tokens(name: str, login: Login) -> UnsignedTokens:
    options, prefix = login.options, "unsecuredValidator"
    skew = options.get(f"{prefix}AllowableClockSkewMs", "0")
    if not skew.isdecimal():
        raise SettingConflict(name, f"{prefix}AllowableClockSkewMs must be a number of milliseconds, not {skew!r}")
    return UnsignedTokens(
        user_claim=options.get(f"{prefix}PrincipalClaimName", "sub"),
        scope_claim=options.get(f"{prefix}ScopeClaimName", "scope"),
        required_scope=frozenset(options.get(f"{prefix}RequiredScope", "").split()),
        skew_ms=int(skew),
    )


def _signed_tokens(settings: NodeSettings, listener: str, login: Login) -> SignedTokens | None:
    """Return the rules for signed tokens of a listener; None if it accepts unsigned tokens."""
    handler = _mechanism_setting(settings, listener, _BEARER, _HANDLER)[1] or _UNSIGNED_HANDLER
    if handler.rpartition(".")[2] != _SIGNED_HANDLER:
        return None

    def given(name: str) -> tuple[str, str | None]:
        return _mechanism_setting(settings, listener, _BEARER, f"sasl.oauthbearer.{name}")

    def number(name: str) -> int:
        full, text = given(name)
        if text is not None and not text.strip().isdecimal():
            raise SettingConflict(full, f"must be a number, not {text!r}")
        return settings.number(f"sasl.oauthbearer.{name}") if text is None else int(text)

    name, url = given("jwks.endpoint.url")
    if not url or not url.startswith(("https://", "http://", "file:")):
        raise SettingConflict(name, "must be the URL of the signing keys (https:, http: or file:)")
    if importlib.util.find_spec("jwt") is None:
        raise SettingConflict(name, "needs a package that is not installed: pip install 'ottla[oauth]'")
    source = KeySource(
        url,
        parse_tls({name: value for name, value in login.options.items() if name.startswith("ssl.")}),
        refresh_s=number("jwks.endpoint.refresh.ms") / 1000,
        retry_s=number("jwks.endpoint.retry.backoff.ms") / 1000,
        max_retry_s=number("jwks.endpoint.retry.backoff.max.ms") / 1000,
    )
    key_set_of(source)  # fetch the keys before the first client connects
    audience = given("expected.audience")[1] or ""
    return SignedTokens(
        source,
        user_claim=given("sub.claim.name")[1] or "sub",
        scope_claim=given("scope.claim.name")[1] or "scope",
        audience=tuple(name.strip() for name in audience.split(",") if name.strip()),
        issuer=given("expected.issuer")[1],
        skew_s=number("clock.skew.seconds"),
    )


def _session_ms(settings: NodeSettings, listener: str, mechanism: str) -> int:
    name, text = _mechanism_setting(settings, listener, mechanism, "connections.max.reauth.ms")
    if text is None:
        return 0
    if not text.strip().lstrip("-").isdecimal():
        raise SettingConflict(name, f"must be a number of milliseconds, not {text!r}")
    return max(int(text), 0)


def _own_security(settings: NodeSettings, listener: str, mechanism_setting: str) -> Security:
    """Return the security of this node's connections to other nodes' listener of this name."""
    protocol = settings.protocols.get(listener)
    if protocol is None or protocol == SecurityProtocol.PLAINTEXT:
        return PLAINTEXT
    mechanism = str(settings[mechanism_setting])
    given = {
        name: text
        for name, text in _listener_texts(settings, listener).items()
        if name.startswith(("ssl.", "sasl.oauth"))
    }
    given |= {"security.protocol": SecurityProtocol(protocol).name, "sasl.mechanism": mechanism}
    names = {"sasl.mechanism": mechanism_setting}
    for name in ("sasl.jaas.config", "sasl.login.callback.handler.class"):
        names[name], text = _mechanism_setting(settings, listener, mechanism, name)
        if text is not None:
            given[name] = text
    try:
        return load_security(given)
    except InvalidSecurity as wrong:
        raise SettingConflict(
            names.get(wrong.setting) or _setting_name(settings, listener, wrong.setting),
            f"{wrong.reason}, for {listener}",
        ) from None
