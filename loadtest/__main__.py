"""Run one measurement: `python -m loadtest NAME …`; NAME is a module of this package that has a `main`."""

import importlib
import pkgutil
import sys
from collections.abc import Iterator

import loadtest


def measurements() -> Iterator[tuple[str, str]]:
    """Modules that can be run, with what each says of itself."""
    for info in pkgutil.iter_modules(loadtest.__path__):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"loadtest.{info.name}")
        if hasattr(module, "main"):
            yield info.name, (module.__doc__ or "").strip().partition("\n")[0]


def main() -> int:
    """Hand over to the module that is named; the exit status is its own."""
    names = {info.name for info in pkgutil.iter_modules(loadtest.__path__) if not info.name.startswith("_")}
    if len(sys.argv) > 1 and sys.argv[1] in names:
        name = sys.argv.pop(1)
        sys.argv[0] = f"loadtest {name}"
        module = importlib.import_module(f"loadtest.{name}")
        if hasattr(module, "main"):
            return int(module.main() or 0)
        print(f"loadtest.{name} is a part of other measurements and does not run by itself")
        return 2
    print("usage: python -m loadtest NAME …\n")
    for name, text in measurements():
        print(f"  {name:12} {text}")
    return 0 if sys.argv[1:] in (["-h"], ["--help"]) else 2


if __name__ == "__main__":
    sys.exit(main())
