"""Running `ottla` as people do: a process, its words, its exit code."""

import os
import subprocess
import sys
from collections.abc import Mapping


def ottla(
    *arguments: str,
    server: str | None = None,
    typed: bytes = b"",
    environment: Mapping[str, str] | None = None,
    timeout: float = 60,
) -> "subprocess.CompletedProcess[str]":
    """What a command does; `typed` is its standard input."""
    variables = {**os.environ, **({} if server is None else {"OTTLA_BOOTSTRAP_SERVER": server}), **(environment or {})}
    done = subprocess.run(
        [sys.executable, "-m", "ottla", *arguments],
        input=typed,
        capture_output=True,
        timeout=timeout,
        check=False,
        env=variables,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def says(*arguments: str, server: str, typed: bytes = b"") -> str:
    """What a command that goes well prints."""
    done = ottla(*arguments, server=server, typed=typed)
    assert (done.returncode, done.stderr) == (0, ""), done
    return done.stdout


def refuses(*arguments: str, server: str, typed: bytes = b"") -> str:
    """The one sentence of a command that does not go well."""
    done = ottla(*arguments, server=server, typed=typed)
    assert done.returncode == 1, done
    assert done.stderr.count("\n") == 1, done.stderr
    return done.stderr.rstrip("\n")
