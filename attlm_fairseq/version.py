"""The version of this package: what results and files of a run name."""

__version__ = "0.2.0"
