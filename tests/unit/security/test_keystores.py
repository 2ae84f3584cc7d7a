"""Key stores of keytool are read, and errors in them are reported."""

import ssl
from pathlib import Path

import pytest
from bench.harness.certificates import PASSWORD, Authority, Identity

from ottla.config.settings.values import Password
from ottla.security.errors import InvalidSecurity
from ottla.security.keystores import Store, identity_pem, trusted_pem
from ottla.security.tls import Tls, client_context

LOCATION = "ssl.keystore.location"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def ann(authority: Authority) -> Identity:
    return authority.sign("CN=ann")


def store(path: Path, kind: str, password: str | None = PASSWORD) -> Store:
    return Store(LOCATION, kind, str(path), None if password is None else Password(password))


def der(pem: str) -> list[bytes]:
    ends = pem.split("-----END CERTIFICATE-----")[:-1]
    return [
        ssl.PEM_cert_to_DER_cert(part[part.index("-----BEGIN CERT") :] + "-----END CERTIFICATE-----") for part in ends
    ]


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
@pytest.mark.parametrize("configured_type", ["JKS", "PKCS12"])
def test_the_key_and_certificates_are_read_back(
    authority: Authority, ann: Identity, kind: str, configured_type: str
) -> None:
    text, password = identity_pem(store(authority.key_store("ann", ann, kind), configured_type), None)
    assert password is None
    assert der(text) == [ssl.PEM_cert_to_DER_cert(identity.certificate_pem) for identity in (ann, authority.identity)]
    context = client_context(Tls(identity=store(authority.key_store("ann2", ann, kind), configured_type)))
    assert context.check_hostname  # and the key was taken: it belongs to the certificate


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_the_trusted_certificates_are_read_back(authority: Authority, kind: str) -> None:
    path = authority.trust_store(kind)
    assert der(trusted_pem(store(path, kind))) == [ssl.PEM_cert_to_DER_cert(authority.identity.certificate_pem)]


def test_a_pem_key_may_have_a_password(ann: Identity) -> None:
    text = Password(ann.key_pem("secret") + ann.certificate_pem)
    identity = Store("ssl.keystore.key", "PEM", text=text)
    client_context(Tls(identity=identity, key_password=Password("secret")))
    with pytest.raises(InvalidSecurity, match="check the password of the key"):
        client_context(Tls(identity=identity, key_password=Password("wrong")))
    with pytest.raises(InvalidSecurity, match="check the password of the key"):
        client_context(Tls(identity=identity))


@pytest.mark.parametrize("kind", ["JKS", "PKCS12"])
def test_a_wrong_password_is_reported(authority: Authority, ann: Identity, kind: str) -> None:
    path = authority.key_store("locked", ann, kind)
    with pytest.raises(InvalidSecurity, match=r"ssl.keystore.location: .* ssl.keystore.password is wrong"):
        identity_pem(store(path, kind, "wrong"), None)


def test_a_java_store_without_keys_is_reported(authority: Authority) -> None:
    path = authority.trust_store("JKS")
    with pytest.raises(InvalidSecurity, match="has no private key"):
        identity_pem(store(path, "JKS"), None)


def test_missing_and_damaged_stores_are_reported(authority: Authority, ann: Identity, tmp_path: Path) -> None:
    with pytest.raises(InvalidSecurity, match="no-such-file cannot be read: No such file"):
        trusted_pem(store(tmp_path / "no-such-file", "JKS"))
    whole = authority.key_store("whole", ann, "JKS").read_bytes()
    cut = tmp_path / "cut.jks"
    for size in range(4, len(whole) - 1, 41):
        cut.write_bytes(whole[:size])
        for password in (PASSWORD, None):
            with pytest.raises(InvalidSecurity, match=r"password is wrong|is a truncated or damaged JKS file"):
                identity_pem(store(cut, "JKS", password), None)
    cut.write_bytes(b"nothing of the kind")
    with pytest.raises(InvalidSecurity, match="the file is neither PKCS #12 nor JKS"):
        trusted_pem(store(cut, "PKCS12"))
    with pytest.raises(InvalidSecurity, match="certificates cannot be loaded"):
        client_context(Tls(trusted=store(cut, "PEM", None)))
