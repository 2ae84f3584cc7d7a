"""`python -m bench [NAME ...]`: figures, all of them or those named."""

import sys
from importlib import import_module

BENCHES = ("codec", "fuzz", "log")


def main() -> int:
    names = sys.argv[1:] or BENCHES
    for name in names:
        if name not in BENCHES:
            print(f"bench: there is no bench {name!r}; there are {', '.join(BENCHES)}", file=sys.stderr)
            return 2
    for name in names:
        print(f"== {name}")
        import_module(f"bench.{name}").run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
