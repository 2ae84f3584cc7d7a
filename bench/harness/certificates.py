"""A certificate authority for servers and clients, with PEM files and key stores."""

import datetime
import ipaddress
import subprocess
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)

from bench.harness.kafka_jars import java

PASSWORD = "store-secret"
_DAY = datetime.timedelta(days=1)


class Identity(NamedTuple):
    """A private key and the certificate of its owner."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def pem(self) -> str:
        return self.key_pem() + self.certificate_pem

    @property
    def certificate_pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    def key_pem(self, password: str | None = None) -> str:
        encryption: KeySerializationEncryption = (
            NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        )
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()


class Authority:
    """Signs certificates, and keeps their files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.identity = _create_identity("CN=authority", None, hosts=(), is_authority=True)
        self.trusted = folder / "trusted.pem"
        self.trusted.write_text(self.identity.certificate_pem)

    def sign(self, subject: str, *hosts: str) -> Identity:
        """Create a certificate for a subject such as `CN=ann,O=shop` and for host names and addresses."""
        return _create_identity(subject, self.identity, hosts=hosts, is_authority=False)

    def file(self, name: str, identity: Identity) -> Path:
        """Write key and certificate into one PEM file."""
        path = self._folder / f"{name}.pem"
        path.write_text(identity.pem)
        return path

    def key_store(self, name: str, identity: Identity, kind: str) -> Path:
        """Write a key store with keytool."""
        source, store = self._folder / f"{name}.p12", self._folder / f"{name}.{kind.lower()}"
        store.unlink(missing_ok=True)
        chain = [self.identity.certificate]
        encryption = BestAvailableEncryption(PASSWORD.encode())
        source.write_bytes(
            pkcs12.serialize_key_and_certificates(b"own", identity.key, identity.certificate, chain, encryption)
        )
        keytool(
            *("-importkeystore", "-srckeystore", str(source), "-srcstoretype", "PKCS12", "-srcstorepass", PASSWORD),
            *("-destkeystore", str(store), "-deststoretype", kind, "-deststorepass", PASSWORD),
        )
        return store

    def trust_store(self, kind: str) -> Path:
        store = self._folder / f"trusted.{kind.lower()}"
        store.unlink(missing_ok=True)
        keytool(
            *("-importcert", "-noprompt", "-alias", "authority", "-file", str(self.trusted)),
            *("-keystore", str(store), "-storetype", kind, "-storepass", PASSWORD),
        )
        return store


def keytool(*arguments: str) -> None:
    result = subprocess.run(
        [str(java().with_name("keytool")), *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr


def _create_identity(subject: str, issuer: Identity | None, *, hosts: tuple[str, ...], is_authority: bool) -> Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name.from_rfc4514_string(subject)
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name if issuer is None else issuer.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if hosts:
        builder = builder.add_extension(
            x509.SubjectAlternativeName([_host_name(host) for host in hosts]), critical=False
        )
    return Identity(key, builder.sign(key if issuer is None else issuer.key, hashes.SHA256()))


def _host_name(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
