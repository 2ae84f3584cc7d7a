"""A TLS listener for both systems with one certificate, and the client settings for it."""

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

from bench.harness.certificates import Authority

LISTENER = "SECURED"


@functools.cache
def _authority() -> tuple[Authority, Path]:
    folder = Path(tempfile.mkdtemp(prefix="ottla-bench-keys-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    authority = Authority(folder)
    return authority, authority.file("server", authority.sign("CN=server", "127.0.0.1"))


def server_settings() -> dict[str, str]:
    """Return the settings of the listener, for both systems."""
    authority, key = _authority()
    return {
        "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,{LISTENER}:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(key),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.trusted),
    }


def java_settings() -> dict[str, str]:
    """Return the settings of Kafka's Java clients."""
    authority, _ = _authority()
    return {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(authority.trusted),
    }


def librdkafka_settings() -> dict[str, str]:
    authority, _ = _authority()
    return {"security.protocol": "SSL", "ssl.ca.location": str(authority.trusted)}
