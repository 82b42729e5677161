"""Where the code for PyTorch hangs itself in: modules below it meet tensors here, and import nothing above them.

PyTorch is optional, so `fwht` loads that code with the first tensor, and puts itself in `load`.
"""

from __future__ import annotations

import sys
from typing import Any, Callable

load: Callable[[], Any] = lambda: None  # makes `face`
face: Any = None  # the module fwht.torch, once loaded


def face_of(x: Any) -> Any:
    """The module fwht.torch where x is a PyTorch tensor, else None."""
    if face is not None:
        return face if isinstance(x, face.Tensor) else None
    torch = sys.modules.get("torch")
    return load() if torch is not None and isinstance(x, torch.Tensor) else None


def is_traced() -> bool:
    """Whether numbers may be symbols of torch.compile, which are checked where the operator is faked."""
    return face is not None and face.is_dynamo_compiling()
