"""An authority, and what it signs for servers and clients: as PEM, and in key stores that keytool makes."""

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
        hiding: KeySerializationEncryption = (
            NoEncryption() if password is None else BestAvailableEncryption(password.encode())
        )
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, hiding).decode()


class Authority:
    """Signs certificates, and keeps what belongs to them in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.identity = _signed("CN=authority", None, hosts=(), is_authority=True)
        self.trusted = folder / "trusted.pem"
        self.trusted.write_text(self.identity.certificate_pem)

    def sign(self, subject: str, *hosts: str) -> Identity:
        """A certificate for a subject such as `CN=ann,O=shop`, and for addresses and names of hosts."""
        return _signed(subject, self.identity, hosts=hosts, is_authority=False)

    def file(self, name: str, identity: Identity) -> Path:
        """Key and certificate in one PEM file."""
        path = self._folder / f"{name}.pem"
        path.write_text(identity.pem)
        return path

    def key_store(self, name: str, identity: Identity, kind: str) -> Path:
        """A key store as keytool makes it of one of its own."""
        source, made = self._folder / f"{name}.p12", self._folder / f"{name}.{kind.lower()}"
        made.unlink(missing_ok=True)
        chain = [self.identity.certificate]
        hiding = BestAvailableEncryption(PASSWORD.encode())
        source.write_bytes(
            pkcs12.serialize_key_and_certificates(b"own", identity.key, identity.certificate, chain, hiding)
        )
        keytool(
            *("-importkeystore", "-srckeystore", str(source), "-srcstoretype", "PKCS12", "-srcstorepass", PASSWORD),
            *("-destkeystore", str(made), "-deststoretype", kind, "-deststorepass", PASSWORD),
        )
        return made

    def trust_store(self, kind: str) -> Path:
        made = self._folder / f"trusted.{kind.lower()}"
        made.unlink(missing_ok=True)
        keytool(
            *("-importcert", "-noprompt", "-alias", "authority", "-file", str(self.trusted)),
            *("-keystore", str(made), "-storetype", kind, "-storepass", PASSWORD),
        )
        return made


def keytool(*arguments: str) -> None:
    done = subprocess.run(
        [str(java().with_name("keytool")), *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _signed(subject: str, by: Identity | None, *, hosts: tuple[str, ...], is_authority: bool) -> Identity:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name.from_rfc4514_string(subject)
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name if by is None else by.certificate.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + _DAY)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_host(each) for each in hosts]), critical=False)
    return Identity(key, builder.sign(key if by is None else by.key, hashes.SHA256()))


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text))
    except ValueError:
        return x509.DNSName(text)
