"""Key stores of Java as PEM text: PEM itself, PKCS #12, and JKS.

What `keytool` writes is PKCS #12, whatever the file is called and `ssl.keystore.type` says: Java reads either format
under either name, and so does this. JKS is Java's own format from before: certificates as they are, and keys hidden by
a stream of SHA-1 hashes. PKCS #12 takes the package `cryptography` (`pip install 'ottla[keystores]'`); PEM and JKS do
not.
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
"""1.3.6.1.4.1.42.2.17.1.1 as DER: the way in which JKS hides keys."""
_SHA1_BYTES: Final = 20
_OCTETS: Final = 0x04


class Store(NamedTuple):
    """Keys or certificates: a file, or PEM text in the settings themselves."""

    setting: str
    """Which setting named it, for what is said about it."""
    kind: str
    location: str | None = None
    password: Password | None = None
    text: Password | None = None
    """PEM from the settings, a private key perhaps among it."""


class _Entry(NamedTuple):
    key: bytes | None
    certificates: list[bytes]


def trusted_pem(store: Store) -> str:
    """The certificates of a trust store."""
    if store.kind == "PEM":
        return _pem(store)
    data = _content(store)
    if _is_jks(data):
        found = [each for entry in _jks(store, data) if entry.key is None for each in entry.certificates]
        text = "".join(_armour("CERTIFICATE", each) for each in found)
    else:
        text = _pkcs12_trusted(store, data)
    if not text:
        raise InvalidSecurity(store.setting, f"{store.location} holds no certificate of one who is to be trusted")
    return text


def identity_pem(store: Store, key_password: Password | None) -> tuple[str, str | None]:
    """The private key and its certificates, and the password that the text still needs."""
    secret = None if key_password is None else key_password.value
    if store.kind == "PEM":
        return _pem(store), secret
    data = _content(store)
    if not _is_jks(data):
        return _pkcs12_identity(store, data), None
    for entry in _jks(store, data):
        if entry.key is not None:
            key = _reveal(store, entry.key, secret if secret is not None else _store_password(store))
            return _armour("PRIVATE KEY", key) + "".join(
                _armour("CERTIFICATE", each) for each in entry.certificates
            ), None
    raise InvalidSecurity(store.setting, f"{store.location} holds no private key")


def _pem(store: Store) -> str:
    if store.text is not None:
        return store.text.value
    try:
        return _content(store).decode()
    except UnicodeDecodeError:
        raise InvalidSecurity(store.setting, f"{store.location} is not PEM text; what is its store's type?") from None


def _content(store: Store) -> bytes:
    assert store.location is not None, "a store of this kind is a file"
    try:
        return Path(store.location).read_bytes()
    except OSError as error:
        raise InvalidSecurity(store.setting, f"{store.location} cannot be read: {error.strerror}") from error


def _armour(what: str, data: bytes) -> str:
    lines = "\n".join(textwrap.wrap(base64.b64encode(data).decode(), 64))
    return f"-----BEGIN {what}-----\n{lines}\n-----END {what}-----\n"


def _store_password(store: Store) -> str:
    return "" if store.password is None else store.password.value


def _pkcs12_identity(store: Store, data: bytes) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    found = _pkcs12(store, data)
    if found.key is None or found.cert is None:
        raise InvalidSecurity(store.setting, f"{store.location} holds no private key with a certificate")
    key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    chain = [found.cert, *found.additional_certs]
    return (key + b"".join(each.certificate.public_bytes(Encoding.PEM) for each in chain)).decode()


def _pkcs12_trusted(store: Store, data: bytes) -> str:
    from cryptography.hazmat.primitives.serialization import Encoding

    found = _pkcs12(store, data)
    return b"".join(each.certificate.public_bytes(Encoding.PEM) for each in found.additional_certs).decode()


def _pkcs12(store: Store, data: bytes) -> "PKCS12KeyAndCertificates":
    try:
        from cryptography.hazmat.primitives.serialization import pkcs12
    except ImportError:
        why = "key stores of PKCS #12 need another package: pip install 'ottla[keystores]', or use PEM files"
        raise InvalidSecurity(store.setting, why) from None
    try:
        return pkcs12.load_pkcs12(data, None if store.password is None else store.password.value.encode())
    except ValueError as error:
        raise _not_opened(store, "it is neither PKCS #12 nor JKS") from error


def _not_opened(store: Store, alternative: str) -> InvalidSecurity:
    name = store.setting.replace("location", "password")
    return InvalidSecurity(store.setting, f"{store.location} cannot be opened: {name} is wrong, or {alternative}")


def _is_jks(data: bytes) -> bool:
    return data[:4] == _JKS_MAGIC.to_bytes(4, "big")


def _jks(store: Store, data: bytes) -> list[_Entry]:
    """The entries of a JKS file, keys still hidden; checked against the password if there is one."""
    body, digest = data[:-_SHA1_BYTES], data[-_SHA1_BYTES:]
    if store.password is not None:
        salted = store.password.value.encode("utf-16-be") + _JKS_PEPPER
        if not hmac.compare_digest(hashlib.sha1(salted + body).digest(), digest):  # noqa: S324 - the format's own
            raise _not_opened(store, "the file is broken")
    try:
        return _jks_entries(body)
    except (struct.error, IndexError, UnicodeDecodeError):
        raise InvalidSecurity(store.setting, f"{store.location} is not a whole JKS file") from None


def _jks_entries(body: bytes) -> list[_Entry]:
    _, version, count = struct.unpack_from(">III", body)
    at = 12

    def take(length_format: str) -> bytes:
        nonlocal at
        (size,) = struct.unpack_from(length_format, body, at)
        at += struct.calcsize(length_format) + size
        if at > len(body):
            raise IndexError
        return body[at - size : at]

    def certificate() -> bytes:
        if version > 1:
            take(">H")  # its type, X.509
        return take(">I")

    entries = []
    for _ in range(count):
        (kind,) = struct.unpack_from(">I", body, at)
        at += 4
        take(">H")  # alias
        at += 8  # when it was made
        if kind == _PRIVATE_KEY:
            key = take(">I")
            (chain,) = struct.unpack_from(">I", body, at)
            at += 4
            entries.append(_Entry(key, [certificate() for _ in range(chain)]))
        elif kind == _TRUSTED:
            entries.append(_Entry(None, [certificate()]))
        else:
            raise IndexError
    return entries


def _reveal(store: Store, hidden: bytes, password: str) -> bytes:
    """The key (PKCS #8) that JKS hides: a stream of hashes over it, and a hash behind it to check the password."""
    data = _protected(hidden)
    if data is None:
        raise InvalidSecurity(store.setting, f"{store.location} hides its key in a way that is not known here")
    secret = password.encode("utf-16-be")
    block, data, check = data[:_SHA1_BYTES], data[_SHA1_BYTES:-_SHA1_BYTES], data[-_SHA1_BYTES:]
    stream = b""
    while len(stream) < len(data):
        block = hashlib.sha1(secret + block).digest()  # noqa: S324 - the format's own
        stream += block
    key = bytes(a ^ b for a, b in zip(data, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key).digest(), check):  # noqa: S324
        raise InvalidSecurity(store.setting, f"{store.location}: the password of its key is wrong (ssl.key.password)")
    return key


def _protected(hidden: bytes) -> bytes | None:
    """The octets of an EncryptedPrivateKeyInfo that was made by JKS's own algorithm."""
    at = hidden.find(_JKS_KEY_ALGORITHM)
    if at < 0:
        return None
    at += len(_JKS_KEY_ALGORITHM)
    if hidden[at : at + 2] == b"\x05\x00":  # parameters: none
        at += 2
    if hidden[at] != _OCTETS:
        return None
    size, at = hidden[at + 1], at + 2
    if size & 0x80:
        width = size & 0x7F
        size, at = int.from_bytes(hidden[at : at + width], "big"), at + width
    return hidden[at : at + size]
