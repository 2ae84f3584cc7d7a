"""Succeeds if this Python was built with the compiler's profiles (PGO), without which it takes half as much time again.

Those of Linux distributions, of Docker's images, of uv and of conda were; what pyenv compiles is not, unless told to.
"""

import sys
import sysconfig


def is_optimized() -> bool:
    # Distributions pass it to make instead of configure, where nothing tells.
    is_systems_own = sys.base_prefix == "/usr"
    return is_systems_own or "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")


if __name__ == "__main__":
    sys.exit(not is_optimized())
