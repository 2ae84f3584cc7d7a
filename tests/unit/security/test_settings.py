"""The security settings: their values, and the errors of invalid ones."""

import pickle

import pytest

from ottla.security.errors import InvalidSecurity
from ottla.security.settings import PLAINTEXT, parse_security
from ottla.security.tls import openssl_cipher

_LOGIN = "org.apache.kafka.common.security"
PLAIN = f'{_LOGIN}.plain.PlainLoginModule required username="ann" password="hush-hush";'
SCRAM = f'{_LOGIN}.scram.ScramLoginModule required username="id" password="hush-hush" tokenauth="true";'
BEARER = (
    f'{_LOGIN}.oauthbearer.OAuthBearerLoginModule required clientId="ann" clientSecret="hush-hush" extension_a="b";'
)
HANDLER = f"{_LOGIN}.oauthbearer.OAuthBearerLoginCallbackHandler"


def sasl(mechanism: str, login: str, **more: str) -> dict[str, str]:
    named = {name.replace("__", "."): value for name, value in more.items()}
    return {"security.protocol": "SASL_SSL", "sasl.mechanism": mechanism, "sasl.jaas.config": login, **named}


def test_connections_are_plaintext_by_default() -> None:
    assert parse_security({}) == parse_security({"security.protocol": "plaintext"}) == PLAINTEXT


def test_tls_trusts_the_system_certificates_by_default() -> None:
    security = parse_security({"security.protocol": "SSL"})
    assert security.sasl is None
    assert security.tls is not None
    assert security.tls.trusted is None
    assert security.tls.checks_host
    assert security.tls.protocols == ("TLSv1.2", "TLSv1.3")


def test_users_and_passwords_come_from_the_login_module() -> None:
    security = parse_security(sasl("PLAIN", PLAIN))
    assert security.tls is not None
    assert security.sasl is not None
    assert (security.sasl.user, security.sasl.password.value, security.sasl.is_token) == ("ann", "hush-hush", False)
    token = parse_security(sasl("scram-sha-512", SCRAM)).sasl
    assert token is not None
    assert token.is_token
    assert token.exchange().first().startswith(b"n,,n=id,r=")


def test_settings_can_be_pickled_and_hide_their_secrets() -> None:
    given = sasl("PLAIN", PLAIN, ssl__truststore__type="PEM", ssl__truststore__certificates="hush-hush")
    security = parse_security(given)
    assert pickle.loads(pickle.dumps(security)) == security
    assert hash(security)
    assert "hush-hush" not in repr(security)


def test_unsigned_tokens_are_created_from_claims() -> None:
    login = f'{_LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="ann";'
    parsed = parse_security(sasl("OAUTHBEARER", login)).sasl
    assert parsed is not None
    assert parsed.exchange().first().startswith(b"n,,\x01auth=Bearer eyJhbGciOiAibm9uZSJ9.")


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", "ECDHE-ECDSA-AES256-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305"),
        ("TLS_RSA_WITH_AES_256_GCM_SHA384", "AES256-GCM-SHA384"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_cipher_suites_have_two_names(java: str, openssl: str) -> None:
    assert openssl_cipher(java) == openssl


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"security.protocol": "TLS"}, "security.protocol: must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        (sasl("GSSAPI", PLAIN), "sasl.mechanism: GSSAPI is not supported: set one of OAUTHBEARER, PLAIN"),
        ({"security.protocol": "SASL_SSL"}, "sasl.mechanism: GSSAPI (Kafka's default) is not supported"),
        ({"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}, "sasl.jaas.config: is missing"),
        (sasl("PLAIN", SCRAM), "sasl.jaas.config: org.apache.kafka.common.security.scram.ScramLoginModule does"),
        (sasl("PLAIN", PLAIN.replace("username", "name")), "sasl.jaas.config: needs the option username"),
        (sasl("PLAIN", PLAIN[:-1]), "sasl.jaas.config: it must end with a semicolon"),
        (sasl("PLAIN", PLAIN, sasl__login__class="x.Y"), "sasl.login.class: cannot be set: Java classes"),
        (sasl("OAUTHBEARER", BEARER), "needs unsecuredLoginStringClaim_sub"),
        (
            sasl("OAUTHBEARER", BEARER, sasl__login__callback__handler__class="aws.IAMHandler"),
            "sasl.login.callback.handler.class: aws.IAMHandler is a Java class",
        ),
        (
            sasl("OAUTHBEARER", BEARER, sasl__login__callback__handler__class=HANDLER),
            "sasl.oauthbearer.token.endpoint.url: must be a URL",
        ),
        ({"security.protocol": "SSL", "ssl.enabled.protocols": "TLSv9"}, "ssl.enabled.protocols: TLSv9 must be one of"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/x", "ssl.truststore.type": "BKS"}, "must be one of"),
        (
            {"security.protocol": "SSL", "ssl.truststore.certificates": "x"},
            "ssl.truststore.certificates: needs ssl.truststore.type=PEM",
        ),
        (
            {"security.protocol": "SSL", "ssl.keystore.type": "PEM", "ssl.keystore.key": "x"},
            "ssl.keystore.key: also needs ssl.keystore.certificate.chain",
        ),
    ],
)
def test_errors_name_the_setting(given: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidSecurity) as raised:
        parse_security(given)
    assert message in str(raised.value)
    assert "hush-hush" not in str(raised.value)
