"""The package fast-hadamard-transform, by fwht: `fwht.compat.fast_hadamard_transform` under its name."""

from fwht.compat import VERSION as __version__
from fwht.compat.fast_hadamard_transform import hadamard_transform

__all__ = ["__version__", "hadamard_transform"]
