"""Reads key stores as PEM text: PEM, PKCS #12 and JKS.

`keytool` writes PKCS #12, whatever the name of the file and `ssl.keystore.type` are. Like Java, this module reads both
formats under either type. JKS is Java's older format: plain certificates, and keys encrypted with a stream of SHA-1
hashes. PKCS #12 needs the package `cryptography` (`pip install 'ottla[keystores]'`); PEM and JKS do not.
"""

import base64
import hashlib
import hmac
import struct
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla.config.settings.values import Password
from ottla.security.errors import InvalidSecurity

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12KeyAndCertificates

_JKS_MAGIC: Final = 0xFEEDFEED
_JKS_PEPPER: Final = b"Mighty Aphrodite"
_PRIVATE_KEY, _TRUSTED = 1, 2
_JKS_KEY_ALGORITHM: Final = bytes.fromhex("060a2b060104012a02110101")
"""1.3.6.1.4.1.42.2.17.1.1 as DER: the algorithm with which JKS encrypts keys."""
_SHA1_BYTES: Final = 20
_OCTETS: Final = 0x04


class Store(NamedTuple):
    """Keys or certificates: a file, or PEM text in the settings themselves."""

    setting: str
    """The setting that names it, for error messages."""
    kind: str
    location: str | None = None
    password: Password | None = None
    text: Password | None = None
    """PEM text from the settings, which may include a private key."""


class _Entry(NamedTuple):
    key: bytes | None
    certificates: list[bytes]


def trusted_pem(store: Store) -> str:
    """Return the certificates of a trust store as PEM."""
    if store.kind == "PEM":
        return _pem(store)
    data = _content(store)
    if _is_jks(data):
        entries = [entry for entry in _jks(store, data) if entry.key is None]
        text = "".join(_pem_block("CERTIFICATE", der) for entry in entries for der in entry.certificates)
    else:
        text = _pkcs12_trusted(store, data)
    if not text:
        raise InvalidSecurity(
            store.setting, f"{store.location} has no trusted certificate: import the issuer's certificate"
        )
    return text


def identity_pem(store: Store, key_password: Password | None) -> tuple[str, str | None]:
    """Return the private key and its certificates as PEM, and the password of the key if it is still encrypted."""
    secret = None if key_password is None else key_password.value
    if store.kind == "PEM":
        return _pem(store), secret
    data = _content(store)
    if not _is_jks(data):
        return _pkcs12_identity(store, data), None
    for entry in _jks(store, data):
        if entry.key is not None:
            key = _decrypt_jks_key(store, entry.key, secret if secret is not None else _store_password(store))
            chain = "".join(_pem_block("CERTIFICATE", der) for der in entry.certificates)
            return _pem_block("PRIVATE KEY", key) + chain, None
    raise InvalidSecurity(store.setting, f"{store.location} has no private key")


def _pem(store: Store) -> str:
    if store.text is not None:
        return store.text.value
    try:
        return _content(store).decode()
    except UnicodeDecodeError:
        raise InvalidSecurity(store.setting, f"{store.location} is not PEM text: check the type of the store") from None


def _content(store: Store) -> bytes:
    assert store.location is not None, "a store of this type is a file"
    try:
        return Path(store.location).read_bytes()
    except OSError as error:
        raise InvalidSecurity(store.setting, f"{store.location} cannot be read: {error.strerror}") from error


def _pem_block(label: str, data: bytes) -> str:
    lines = "\n".join(textwrap.wrap(base64.b64encode(data).decode(), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"


def _store_password(store: Store) -> str:
    return "" if store.password is None else store.password.value


def _pkcs12_identity(store: Store, data: bytes) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    contents = _pkcs12(store, data)
    if contents.key is None or contents.cert is None:
        raise InvalidSecurity(store.setting, f"{store.location} has no private key with a certificate")
    key = contents.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = [contents.cert, *contents.additional_certs]
    return (key + b"".join(entry.certificate.public_bytes(Encoding.PEM) for entry in chain)).decode()


def _pkcs12_trusted(store: Store, data: bytes) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    contents = _pkcs12(store, data)
    return b"".join(entry.certificate.public_bytes(Encoding.PEM) for entry in contents.additional_certs).decode()


def _pkcs12(store: Store, data: bytes) -> "PKCS12KeyAndCertificates":
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        message = "PKCS #12 needs the package cryptography: pip install 'ottla[keystores]', or use PEM files"
        raise InvalidSecurity(store.setting, message) from None
    try:
        return pkcs12.load_pkcs12(data, None if store.password is None else store.password.value.encode())
    except ValueError as error:
        raise _not_opened(store, "the file is neither PKCS #12 nor JKS") from error


def _not_opened(store: Store, alternative: str) -> InvalidSecurity:
    name = store.setting.replace("location", "password")
    return InvalidSecurity(store.setting, f"{store.location} cannot be opened: {name} is wrong, or {alternative}")


def _is_jks(data: bytes) -> bool:
    return data[:4] == _JKS_MAGIC.to_bytes(4, "big")


def _jks(store: Store, data: bytes) -> list[_Entry]:
    """Return the entries of a JKS file, with encrypted keys. Verify the file's digest if there is a password."""
    body, digest = data[:-_SHA1_BYTES], data[-_SHA1_BYTES:]
    if store.password is not None:
        salted = store.password.value.encode("utf-16-be") + _JKS_PEPPER
        if not hmac.compare_digest(hashlib.sha1(salted + body).digest(), digest):  # noqa: S324 - the format's own
            raise _not_opened(store, "the file is damaged")
    try:
        return _jks_entries(body)
    except (struct.error, IndexError, UnicodeDecodeError):
        raise InvalidSecurity(store.setting, f"{store.location} is a truncated or damaged JKS file") from None


def _jks_entries(body: bytes) -> list[_Entry]:
    _, version, count = struct.unpack_from(">III", body)
    pos = 12

    def take(length_format: str) -> bytes:
        nonlocal pos
        (size,) = struct.unpack_from(length_format, body, pos)
        pos += struct.calcsize(length_format) + size
        if pos > len(body):
            raise IndexError
        return body[pos - size : pos]

    def certificate() -> bytes:
        if version > 1:
            take(">H")  # the type: X.509
        return take(">I")

    entries = []
    for _ in range(count):
        (kind,) = struct.unpack_from(">I", body, pos)
        pos += 4
        take(">H")  # alias
        pos += 8  # creation time
        if kind == _PRIVATE_KEY:
            key = take(">I")
            (chain,) = struct.unpack_from(">I", body, pos)
            pos += 4
            entries.append(_Entry(key, [certificate() for _ in range(chain)]))
        elif kind == _TRUSTED:
            entries.append(_Entry(None, [certificate()]))
        else:
            raise IndexError
    return entries


def _decrypt_jks_key(store: Store, encrypted: bytes, password: str) -> bytes:
    """Decrypt a key of JKS (PKCS #8), which is XORed with a stream of hashes and followed by a hash of the password."""
    data = _encrypted_octets(encrypted)
    if data is None:
        raise InvalidSecurity(
            store.setting, f"{store.location} encrypts its key with an unsupported algorithm: convert it to PKCS #12"
        )
    secret = password.encode("utf-16-be")
    block, data, check = data[:_SHA1_BYTES], data[_SHA1_BYTES:-_SHA1_BYTES], data[-_SHA1_BYTES:]
    stream = b""
    while len(stream) < len(data):
        block = hashlib.sha1(secret + block).digest()  # noqa: S324 - the format's own
        stream += block
    key = bytes(a ^ b for a, b in zip(data, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):  # noqa: S324
        raise InvalidSecurity(
            store.setting, f"{store.location}: the password of the key is wrong: check ssl.key.password"
        )
    return key


def _encrypted_octets(encrypted: bytes) -> bytes | None:
    """Return the octets of an EncryptedPrivateKeyInfo with JKS's algorithm, or None for another algorithm."""
    pos = encrypted.find(_JKS_KEY_ALGORITHM)
    if pos < 0:
        return None
    pos += len(_JKS_KEY_ALGORITHM)
    if encrypted[pos : pos + 2] == b"\x05\x00":  # parameters: none
        pos += 2
    if encrypted[pos] != _OCTETS:
        return None
    size, pos = encrypted[pos + 1], pos + 2
    if size & 0x80:
        width = size & 0x7F
        size, pos = int.from_bytes(encrypted[pos : pos + width], "big"), pos + width
    return encrypted[pos : pos + size]
