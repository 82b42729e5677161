"""PyTorch: importing this module registers the operators torch.ops.fwht.* (`_torch.ops` has their schemas)."""

from __future__ import annotations

import torch
from torch import Tensor

from ._torch.calls import DTYPES, described, forget, kept_beside, view_of
from ._torch.convolutions import convolve, convolves
from ._torch.eager import (
    arranged,
    check_not_differentiated,
    functional,
    is_differentiated,
    linear_by,
    mark_written,
    memory_of,
    quantize_into,
    quantize_rows,
    quantize_to,
    require_memory,
    transform,
    transform_by_operator,
)
from ._torch.rounds import rounded, rounded_to_codes, signs_on
from ._torch.sketches import sketched, table_on

__all__ = [
    "DTYPES",
    "Tensor",
    "arranged",
    "check_not_differentiated",
    "convolve",
    "convolves",
    "described",
    "forget",
    "functional",
    "is_differentiated",
    "is_dynamo_compiling",
    "kept_beside",
    "linear_by",
    "mark_written",
    "memory_of",
    "quantize_into",
    "quantize_rows",
    "quantize_to",
    "require_memory",
    "rounded",
    "rounded_to_codes",
    "signs_on",
    "sketched",
    "table_on",
    "transform",
    "transform_by_operator",
    "view_of",
]
version = torch.__version__
is_dynamo_compiling = torch.compiler.is_dynamo_compiling
