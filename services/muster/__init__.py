"""Muster: GPU batch scheduling on Kubernetes."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("muster")
except PackageNotFoundError:  # a source tree that is not installed
    __version__ = "0.0.0"
