"""The reference reproduction of Gaussian Error Linear Units (Hendrycks & Gimpel 2016, arXiv:1606.08415)."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("gelu-study")
except PackageNotFoundError:  # the sources on PYTHONPATH, not installed
    __version__ = "0+unknown"
