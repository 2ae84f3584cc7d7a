"""Builds the compiled modules of the package, or leaves them out if there is no C compiler.

They replace Python code with the same behaviour and are only faster, so a failed build is a warning and not an error.
They use the stable ABI of Python 3.11, so one build works with every later version. `OTTLA_PURE=1` leaves them out.
"""

import os
import shlex
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SOURCES = tuple(
    Path("src/ottla") / source
    for source in (
        "protocol/wire/_codec.c",
        "protocol/wire/_scan.c",
        "spark/connector/_columns.c",
        "spark/connector/_rows.c",
    )
)


class ScanBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Compiles each module next to its source, and adds it to the wheel."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        targets = [source.with_suffix(".abi3.so") for source in SOURCES]
        problem = "OTTLA_PURE is set" if os.environ.get("OTTLA_PURE") else ""
        for source, target in zip(SOURCES, targets, strict=True):
            problem = problem or _compile(root, source, target)
        if problem:
            for target in targets:
                (root / target).unlink(missing_ok=True)
            self.app.display_warning(f"building ottla without its compiled modules, which makes it slower: {problem}")
            return
        build_data["artifacts"] += [f"/{target}" for target in targets]
        build_data["pure_python"] = False
        platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
        build_data["tag"] = f"cp311-abi3-{platform}"


def _compile(root: Path, source: Path, target: Path) -> str:
    """Compile a module with the compiler that built Python. Return the reason if this fails, or an empty string."""
    if os.name != "posix" or sys.implementation.name != "cpython":
        return f"{sys.implementation.name} on {os.name} is not supported"
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    command = [
        *shlex.split(compiler),
        *("-O2", "-fPIC", "-shared", "-Wall", "-Wextra"),
        *(("-undefined", "dynamic_lookup") if sys.platform == "darwin" else ()),
        *shlex.split(os.environ.get("CFLAGS", "")),
        f"-I{sysconfig.get_path('include')}",
        "-Isrc/ottla/protocol/wire",
        str(source),
        *("-o", f"{target}.new"),
    ]
    try:
        result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)  # noqa: S603
    except OSError as error:
        return f"{command[0]} cannot be run: {error}"
    if result.returncode != 0:
        return f"{command[0]} failed: {result.stderr.strip()[-400:]}"
    # Atomic, because another process may import the module from this tree at the same time.
    (root / f"{target}.new").replace(root / target)
    return ""
