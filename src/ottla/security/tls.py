"""TLS contexts of Python's `ssl` for Kafka's settings.

`keystores.py` converts key stores to PEM text. Python loads a certificate chain from files only, so the text goes
through a file in memory.
"""

import functools
import os
import re
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

from ottla.config.settings.values import Password
from ottla.security.errors import InvalidSecurity
from ottla.security.keystores import Store, identity_pem, trusted_pem

_VERSIONS: Final = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
PROTOCOLS: Final = tuple(_VERSIONS)
_CLIENT_AUTH: Final = {"required": ssl.CERT_REQUIRED, "requested": ssl.CERT_OPTIONAL, "none": ssl.CERT_NONE}


class Tls(NamedTuple):
    """The TLS settings of connections. Plain values, which can be sent to other processes."""

    identity: Store | None = None
    """The key and certificates of this side."""
    key_password: Password | None = None
    trusted: Store | None = None
    """The trusted certificates. None means those that the system trusts."""
    protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    ciphers: tuple[str, ...] = ()
    checks_host: bool = True


@functools.lru_cache(maxsize=32)
def client_context(tls: Tls) -> ssl.SSLContext:
    """Return the context of client connections, cached so that sessions can be resumed. Raise InvalidSecurity."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context, tls)
    if tls.trusted is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    else:
        _trust(context, tls.trusted)
    context.check_hostname = tls.checks_host
    if tls.identity is not None:
        _identify(context, tls.identity, tls.key_password)
    return context


def server_context(tls: Tls, client_auth: str) -> ssl.SSLContext:
    """Return the context of a listener. Raise InvalidSecurity.

    `client_auth` says whether clients send certificates: `required`, `requested` or `none`.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context, tls)
    context.options |= ssl.OP_NO_RENEGOTIATION
    if tls.identity is None:
        raise InvalidSecurity("ssl.keystore.location", "is missing: set it to the key store of this node")
    _identify(context, tls.identity, tls.key_password)
    context.verify_mode = _CLIENT_AUTH[client_auth]
    if context.verify_mode != ssl.CERT_NONE:
        if tls.trusted is None:
            context.load_default_certs(ssl.Purpose.CLIENT_AUTH)
        else:
            _trust(context, tls.trusted)
    return context


def openssl_cipher(name: str) -> str:
    """Return OpenSSL's name of a cipher suite from its registered name, which Java uses (TLS_ECDHE_RSA_WITH_…)."""
    exchange, separator, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not separator:
        return name
    cipher = re.sub(r"AES_(128|256)", r"AES\1", cipher).replace("_CBC", "").replace("POLY1305_SHA256", "POLY1305")
    exchange = "" if exchange == "RSA" else exchange + "_"
    return (exchange + cipher).replace("_", "-")


def _restrict(context: ssl.SSLContext, tls: Tls) -> None:
    versions = sorted(_VERSIONS[name] for name in tls.protocols)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    # The names of TLS 1.3 suites have no key exchange. Python has no way to select them.
    chosen = [openssl_cipher(name) for name in tls.ciphers if not name.startswith("TLS_") or "_WITH_" in name]
    if chosen:
        try:
            context.set_ciphers(":".join(chosen))
        except ssl.SSLError:
            raise InvalidSecurity(
                "ssl.cipher.suites", f"none of {', '.join(tls.ciphers)} is supported: name suites of this OpenSSL"
            ) from None


def _trust(context: ssl.SSLContext, store: Store) -> None:
    try:
        context.load_verify_locations(cadata=trusted_pem(store))
    except ssl.SSLError as error:
        raise InvalidSecurity(store.setting, f"its certificates cannot be loaded: {error.reason or error}") from error


def _identify(context: ssl.SSLContext, store: Store, key_password: Password | None) -> None:
    text, password = identity_pem(store, key_password)
    with _as_file(text) as path:
        try:
            context.load_cert_chain(path, password=password or "")
        except ssl.SSLError as error:
            advice = "check the password of the key, and that the certificate belongs to the key"
            raise InvalidSecurity(
                store.setting, f"its key cannot be loaded ({error.reason or error}): {advice}"
            ) from error


@contextmanager
def _as_file(text: str) -> Iterator[str]:
    """Provide a path from which the text can be read. On Linux the text is never written to a disk."""
    if hasattr(os, "memfd_create"):
        number = os.memfd_create("ottla-key")
        try:
            with os.fdopen(os.dup(number), "w") as file:
                file.write(text)
            yield f"/proc/self/fd/{number}"
        finally:
            os.close(number)
    else:
        import tempfile

        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # readable by its owner only
            file.write(text)
            file.flush()
            yield file.name
