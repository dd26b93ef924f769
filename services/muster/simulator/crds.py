"""The custom resources of Volcano's API, read from the chart that also installs them on a real cluster.

One source for both: what the simulated server accepts is what the chart's schemas accept.
"""

from functools import cache
from pathlib import Path
from typing import Any

import yaml

import muster


class CrdsMissingError(FileNotFoundError):
    """The chart with the CRDs is neither in the installed package nor in the checkout."""


@cache
def crd_directory() -> Path:
    """The folder with one CRD a file: package data in an installed wheel, the chart's own folder in a checkout.

    Raises:
        CrdsMissingError: neither exists; the message names both places.
    """
    package = Path(muster.__file__).parent
    places = (package / "_data" / "helm" / "muster-crds" / "crds", package.parents[1] / "helm" / "muster-crds" / "crds")
    for place in places:
        if place.is_dir():
            return place
    raise CrdsMissingError(f"no CRDs in {places[0]} nor {places[1]}: reinstall muster, or run from a full checkout")


def load_crds(directory: Path | None = None) -> list[dict[str, Any]]:
    """Every CustomResourceDefinition of a folder (the chart's by default), sorted by file name.

    Raises:
        ValueError: a document is no CustomResourceDefinition; the message names the file.
    """
    found: list[dict[str, Any]] = []
    for path in sorted((directory or crd_directory()).glob("*.yaml")):
        for document in yaml.safe_load_all(path.read_text(encoding="utf-8")):
            if document is None:
                continue
            if not isinstance(document, dict) or document.get("kind") != "CustomResourceDefinition":
                raise ValueError(f"{path}: holds no CustomResourceDefinition")
            found.append(document)
    return found
