"""The security settings of Kafka's clients: `security.protocol`, `ssl.*` and `sasl.*`.

They become plain values, which can be sent to other processes. Files are read and token servers are asked when a
connection opens. Settings that need a JVM are rejected with an alternative.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, TypeVar

from ottla.config.settings.values import Password
from ottla.security.errors import InvalidSecurity
from ottla.security.jaas import InvalidJaas, Login, parse_jaas
from ottla.security.keystores import Store
from ottla.security.oauth_tokens import TokenSource, fetch_token
from ottla.security.sasl_client import BearerExchange, ClientExchange, PlainExchange, scram_exchange
from ottla.security.scram import MECHANISMS
from ottla.security.tls import PROTOCOLS, Tls, client_context

T = TypeVar("T")

SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_BEARER: Final = "OAUTHBEARER"
_LOGINS: Final = {"PLAIN": "PlainLoginModule", _BEARER: "OAuthBearerLoginModule"} | dict.fromkeys(
    MECHANISMS, "ScramLoginModule"
)
"""The login module that `sasl.jaas.config` names, by mechanism."""
_STORE_KINDS: Final = ("JKS", "PKCS12", "PEM")
_ISSUED_HANDLER: Final = "OAuthBearerLoginCallbackHandler"
_UNSECURED_HANDLER: Final = "OAuthBearerUnsecuredLoginCallbackHandler"
_RETRIEVERS: Final = ("DefaultJwtRetriever", "ClientCredentialsJwtRetriever", "FileJwtRetriever")
_comma = re.compile(r"\s*,\s*").split

_NO_EFFECT: Final = frozenset(
    [
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.connect.timeout.ms",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.refresh.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
        "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwt.validator.class",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    ]
)
"""Accepted without effect: they tune the JVM, or are settings of servers."""
_USED: Final = frozenset(
    [
        "sasl.jaas.config",
        "sasl.login.callback.handler.class",
        "sasl.login.read.timeout.ms",
        "sasl.mechanism",
        "sasl.oauthbearer.client.credentials.client.id",
        "sasl.oauthbearer.client.credentials.client.secret",
        "sasl.oauthbearer.header.urlencode",
        "sasl.oauthbearer.jwt.retriever.class",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
        "security.protocol",
        "ssl.cipher.suites",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    ]
)
_REFUSED: Final = {
    "sasl.client.callback.handler.class": "Java classes cannot be loaded; set the credentials in sasl.jaas.config",
    "sasl.login.class": "Java classes cannot be loaded; set the credentials in sasl.jaas.config",
    "security.providers": "classes of Java cannot be loaded; TLS is OpenSSL's here",
    "ssl.engine.factory.class": "classes of Java cannot be loaded; TLS is OpenSSL's here",
    "ssl.provider": "classes of Java cannot be loaded; TLS is OpenSSL's here",
}
SECURITY_SETTINGS: Final = _USED | _NO_EFFECT | frozenset(_REFUSED)


class Sasl(NamedTuple):
    """How a client authenticates with SASL."""

    mechanism: str
    user: str = ""
    password: Password = Password("")
    is_token: bool = False
    tokens: TokenSource = TokenSource()
    extensions: tuple[tuple[str, str], ...] = ()

    def exchange(self) -> ClientExchange:
        """Start an authentication. With OAUTHBEARER this may wait for a token and raise SaslAuthenticationFailed."""
        if self.mechanism == _BEARER:
            return BearerExchange(fetch_token(self.tokens), dict(self.extensions))
        if self.mechanism == "PLAIN":
            return PlainExchange(self.user, self.password.value)
        return scram_exchange(self.mechanism, self.user, self.password.value, is_token=self.is_token)


class Security(NamedTuple):
    """The security of a client's connections: TLS, SASL, both or neither."""

    tls: Tls | None = None
    sasl: Sasl | None = None


PLAINTEXT: Final = Security()
SecurityProvider = Callable[[], Security]
"""Returns the security for a new connection. Certificates may be renewed while a process runs."""


def plaintext() -> Security:
    """Return the security of plaintext connections."""
    return PLAINTEXT


def parse_security(settings: Mapping[str, str]) -> Security:
    """Parse the security settings among `settings`. Raise InvalidSecurity."""
    for name, reason in _REFUSED.items():
        if settings.get(name):
            raise InvalidSecurity(name, f"cannot be set: {reason}")
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in SECURITY_PROTOCOLS:
        raise InvalidSecurity("security.protocol", f"must be one of {', '.join(SECURITY_PROTOCOLS)}, not {protocol}")
    return Security(
        parse_tls(settings) if protocol.endswith("SSL") else None,
        _parse_sasl(settings) if protocol.startswith("SASL") else None,
    )


def load_security(settings: Mapping[str, str]) -> Security:
    """Parse the security settings and load the keys and certificates, to report errors before the first connection."""
    security = parse_security(settings)
    if security.tls is not None:
        client_context(security.tls)
    return security


def parse_tls(settings: Mapping[str, str]) -> Tls:
    """Parse the settings `ssl.*`. Raise InvalidSecurity."""
    protocols = _items(settings.get("ssl.enabled.protocols", "TLSv1.2,TLSv1.3"))
    for protocol in protocols:
        if protocol not in PROTOCOLS:
            raise InvalidSecurity("ssl.enabled.protocols", f"{protocol} must be one of {', '.join(PROTOCOLS)}")
    if not protocols:
        raise InvalidSecurity("ssl.enabled.protocols", f"must have at least one of {', '.join(PROTOCOLS)}")
    algorithm = settings.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in ("https", ""):
        raise InvalidSecurity(
            "ssl.endpoint.identification.algorithm", "must be https, or empty to skip the check of host names"
        )
    key_password = settings.get("ssl.key.password")
    return Tls(
        identity=_identity(settings),
        key_password=None if key_password is None else Password(key_password),
        trusted=_store(settings, "truststore", "certificates"),
        protocols=protocols,
        ciphers=_items(settings.get("ssl.cipher.suites", "")),
        checks_host=algorithm == "https",
    )


def _items(text: str) -> tuple[str, ...]:
    return tuple(item for item in _comma(text.strip()) if item)


def _identity(settings: Mapping[str, str]) -> Store | None:
    key, chain = settings.get("ssl.keystore.key"), settings.get("ssl.keystore.certificate.chain")
    if (key is None) is not (chain is None):
        present, missing = ("key", "certificate.chain") if chain is None else ("certificate.chain", "key")
        raise InvalidSecurity(f"ssl.keystore.{present}", f"also needs ssl.keystore.{missing}")
    if key is None or chain is None:
        return _store(settings, "keystore", "key")
    return _store({**settings, "ssl.keystore.key": f"{key}\n{chain}\n"}, "keystore", "key")


def _store(settings: Mapping[str, str], which: str, inline: str) -> Store | None:
    """Return the key store or trust store of the settings: a file, or inline PEM text."""
    prefix = f"ssl.{which}."
    location, text = settings.get(prefix + "location"), settings.get(prefix + inline)
    kind = settings.get(prefix + "type", "JKS").upper()
    if not location and not text:
        return None
    if kind not in _STORE_KINDS:
        raise InvalidSecurity(prefix + "type", f"must be one of {', '.join(_STORE_KINDS)}, not {kind}")
    if text:
        if location:
            raise InvalidSecurity(prefix + inline, f"cannot be set together with {prefix}location: remove one")
        if kind != "PEM":
            raise InvalidSecurity(prefix + inline, f"needs {prefix}type=PEM")
        return Store(prefix + inline, kind, text=Password(text))
    password = settings.get(prefix + "password")
    if kind == "PEM" and password is not None:
        raise InvalidSecurity(
            prefix + "password", "is for JKS and PKCS12; for an encrypted PEM key, set ssl.key.password"
        )
    return Store(prefix + "location", kind, location, None if password is None else Password(password))


def _parse_sasl(settings: Mapping[str, str]) -> Sasl:
    mechanism = settings.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in _LOGINS:
        supported = ", ".join(sorted(_LOGINS))
        source = " (Kafka's default)" if "sasl.mechanism" not in settings else ""
        raise InvalidSecurity("sasl.mechanism", f"{mechanism}{source} is not supported: set one of {supported}")
    if "sasl.jaas.config" not in settings:
        example = f'org.apache.kafka.common.security…{_LOGINS[mechanism]} required username="…" password="…";'
        raise InvalidSecurity("sasl.jaas.config", f"is missing: set the client's credentials, such as {example}")
    try:
        login = parse_jaas(settings["sasl.jaas.config"])
    except InvalidJaas as error:
        raise InvalidSecurity("sasl.jaas.config", str(error)) from None
    if login.name != _LOGINS[mechanism]:
        raise InvalidSecurity(
            "sasl.jaas.config", f"{login.module} does not support {mechanism}: use a {_LOGINS[mechanism]}"
        )
    if mechanism == _BEARER:
        return _parse_bearer(settings, login)
    for name in ("username", "password"):
        if name not in login.options:
            raise InvalidSecurity("sasl.jaas.config", f"needs the option {name} for {login.name}")
    return Sasl(
        mechanism,
        login.options["username"],
        Password(login.options["password"]),
        is_token=login.options.get("tokenauth", "").lower() == "true",
    )


def _parse_bearer(settings: Mapping[str, str], login: Login) -> Sasl:
    handler = settings.get("sasl.login.callback.handler.class", _UNSECURED_HANDLER).rpartition(".")[2]
    if handler == _UNSECURED_HANDLER:
        return _parse_unsecured(login)
    if handler != _ISSUED_HANDLER:
        name = settings["sasl.login.callback.handler.class"]
        raise InvalidSecurity(
            "sasl.login.callback.handler.class",
            f"{name} is a Java class, which cannot be loaded: use {_ISSUED_HANDLER}",
        )
    retriever = settings.get("sasl.oauthbearer.jwt.retriever.class", _RETRIEVERS[0])
    if retriever.rpartition(".")[2] not in _RETRIEVERS:
        supported = ", ".join(_RETRIEVERS)
        raise InvalidSecurity(
            "sasl.oauthbearer.jwt.retriever.class", f"{retriever} cannot be loaded: use one of {supported}"
        )
    url = settings.get("sasl.oauthbearer.token.endpoint.url")
    if not url or not url.startswith(("http://", "https://", "file:")):
        raise InvalidSecurity("sasl.oauthbearer.token.endpoint.url", "must be a URL with https:, http: or file:")
    own = "sasl.oauthbearer.client.credentials.client."
    client_id = settings.get(own + "id", login.options.get("clientId"))
    secret = settings.get(own + "secret", login.options.get("clientSecret"))
    if not url.startswith("file:") and (client_id is None or secret is None):
        raise InvalidSecurity(own + "id", f"or {own}secret is missing: set both to request tokens from {url}")
    timeout = settings.get("sasl.login.read.timeout.ms", "10000")
    if not timeout.isdecimal():
        raise InvalidSecurity("sasl.login.read.timeout.ms", f"must be a number of milliseconds, not {timeout!r}")
    source = TokenSource(
        url,
        client_id or "",
        Password(secret or ""),
        settings.get("sasl.oauthbearer.scope", login.options.get("scope")),
        parse_tls({name: value for name, value in login.options.items() if name.startswith("ssl.")}),
        int(timeout) / 1000,
        settings.get("sasl.oauthbearer.header.urlencode", "false").lower() == "true",
    )
    return Sasl(_BEARER, tokens=source, extensions=_prefixed(login, "extension_", str))


def _parse_unsecured(login: Login) -> Sasl:
    def number(text: str) -> float:
        try:
            return float(text)
        except ValueError:
            raise InvalidSecurity("sasl.jaas.config", f"the value {text!r} of a number claim is not a number") from None

    def items(text: str) -> tuple[str, ...]:
        # The first character is the separator: "|a|b".
        return tuple(text[1:].split(text[0])) if text else ()

    claims: list[tuple[str, str | float | tuple[str, ...]]] = [
        *_prefixed(login, "unsecuredLoginStringClaim_", str),
        *_prefixed(login, "unsecuredLoginNumberClaim_", number),
        *_prefixed(login, "unsecuredLoginListClaim_", items),
    ]
    principal = login.options.get("unsecuredLoginPrincipalClaimName", "sub")
    if principal not in dict(claims):
        raise InvalidSecurity("sasl.jaas.config", f"needs unsecuredLoginStringClaim_{principal}, the principal name")
    life_s = number(login.options.get("unsecuredLoginLifetimeSeconds", "3600"))
    return Sasl(
        _BEARER,
        tokens=TokenSource(claims=tuple(claims), life_s=life_s),
        extensions=_prefixed(login, "unsecuredLoginExtension_", str),
    )


def _prefixed(login: Login, prefix: str, read: Callable[[str], T]) -> tuple[tuple[str, T], ...]:
    options = login.options.items()
    return tuple((name.removeprefix(prefix), read(value)) for name, value in options if name.startswith(prefix))
