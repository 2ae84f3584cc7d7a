"""Exit with 0 if this Python was built with profile-guided optimization. Without it, code takes 1.5 times as long.

Linux distributions, Docker images, uv and conda have optimized builds; pyenv builds without optimizations by default.
"""

import sys
import sysconfig


def is_optimized() -> bool:
    # Distributions pass the option to make instead of configure, so that the configuration does not show it.
    is_system_python = sys.base_prefix == "/usr"
    return is_system_python or "--enable-optimizations" in (sysconfig.get_config_var("CONFIG_ARGS") or "")


if __name__ == "__main__":
    sys.exit(not is_optimized())
