"""The calls of the package fast-hadamard-transform (Dao AI Lab), by this library.

    from fwht.compat.fast_hadamard_transform import hadamard_transform

Rows whose length is not one of the transform's are padded with zeros to the next one, transformed, and cut to their length
again, as that package does. The result is H x for the padded x, cut: no orthogonal transform, and not its own inverse.
`fwht.hadamard_transform` refuses such rows.
"""

from __future__ import annotations

import functools
import itertools
from typing import Any

import torch
import torch.nn.functional as F

from .. import hadamard_transform as _transform
from .. import operators
from .._torch.calls import kept_beside
from .._torch.eager import require_memory

__all__ = [
    "hadamard_transform",
    "hadamard_transform_12N",
    "hadamard_transform_20N",
    "hadamard_transform_28N",
    "hadamard_transform_40N",
    "hadamard_transform_ref",
]


def _power_of_two(n: int, least: int) -> int:
    return max(least, 1 << (n - 1).bit_length())


def _padded(x: torch.Tensor, length: int) -> torch.Tensor:
    missing = length - int(x.shape[-1])
    return F.pad(x, (0, missing)) if missing else x


def _length_of(x: torch.Tensor) -> int:
    """Of the rows; torch.jit.trace gives sizes as tensors."""
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"fwht: x is a {type(x).__module__}.{type(x).__qualname__}; it must be a PyTorch tensor")
    if x.dim() == 0 or x.shape[-1] == 0:
        raise ValueError(f"fwht: x has shape {tuple(x.shape)}; its last dimension must have at least one element")
    require_memory(x)
    return int(x.shape[-1])


def _number(scale: Any) -> Any:
    """The number of a tensor without dimensions on the host: QuaRot and its successors give `1 / torch.tensor(n).sqrt()`."""
    if not isinstance(scale, torch.Tensor):
        return scale
    if scale.dim() or scale.device.type != "cpu" or scale.requires_grad:
        raise TypeError(
            f"fwht: scale is a tensor of shape {tuple(scale.shape)} on {scale.device}, requires_grad={scale.requires_grad}; "
            "it must be a number, or a tensor without dimensions and gradient on the CPU: reading one on a device would wait for it"
        )
    return scale.item()


def hadamard_transform(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """scale * H x along the last dimension, padded with zeros where it is no power of two.

    Args:
        x: shape (..., n), n >= 1; float16, bfloat16 or float32, CPU or CUDA; on the CPU also float64.
        scale: multiplied once, in float32. A number, or a tensor of shape () on the CPU, of which the number is read; its
            gradient is not computed.

    Returns: a tensor of x's shape, dtype and device. Differentiable in x.

    Raises:
        ValueError: no element in the last dimension.
        TypeError: x is no tensor, or scale is another one.
        Otherwise as `fwht.hadamard_transform`.
    """
    n = _length_of(x)
    padded = _padded(x, _power_of_two(n, 2))
    result = _transform(padded, _number(scale))
    return result if padded is x else result[..., :n].contiguous()


def _circulant(text: str) -> list[list[int]]:
    row = [1 if sign == "+" else -1 for sign in text]
    return [row[-i:] + row[:-i] for i in range(len(row))]


def _williamson(*rows: str) -> list[list[int]]:
    """[A B C D; -B A -D C; -C D A -B; -D -C B A] of four symmetric circulants. Williamson, Hadamard's determinant theorem and
    the sum of four squares (Duke Math. J. 11, 1944)."""
    a, b, c, d = map(_circulant, rows)
    array = (((1, a), (1, b), (1, c), (1, d)), ((-1, b), (1, a), (-1, d), (1, c)),
             ((-1, c), (1, d), (1, a), (-1, b)), ((-1, d), (-1, c), (1, b), (1, a)))  # fmt: skip
    return [[sign * entry for sign, block in blocks for entry in block[i]] for blocks in array for i in range(len(a))]


def _paley_twice(q: int) -> list[list[int]]:
    """[P P; P -P], P the border of +1 and a first row of -1 around the circulant that is -1 at the squares modulo q: Paley I, for a
    prime q with remainder 3 by 4."""
    squares = {i * i % q for i in range(1, q)}
    circulant = _circulant("".join("-" if i in squares else "+" for i in range(q)))
    paley = [[1] + [-1] * q] + [[1] + row for row in circulant]
    return [row + [sign * entry for entry in row] for sign in (1, -1) for row in paley]


def _published(m: int) -> list[list[int]]:
    """The matrix M_m of the kernels 20N, 28N and 40N. That of 12N is the library's own of order 12."""
    if m == 20:
        return _williamson("+----", "+----", "++--+", "+-++-")
    if m == 28:
        return _williamson("+------", "++----+", "+-+--+-", "+--++--")
    return _paley_twice(19)


_dense: dict[Any, torch.Tensor] = {}


def _entries(m: int, x: torch.Tensor) -> torch.Tensor:
    """M_m row by row in x's dtype, beside x; made once for each device."""
    def made() -> torch.Tensor:
        return torch.tensor(list(itertools.chain(*_published(m))), dtype=x.dtype, device=x.device)

    if torch.compiler.is_compiling() or type(x) is not torch.Tensor:
        return made()
    entries: torch.Tensor = kept_beside(_dense, (m, x.dtype, x.device), made)
    return entries


def _special(m: int, x: torch.Tensor, scale: Any) -> torch.Tensor:
    n = _length_of(x)
    power = _power_of_two(-(-n // m), 4)
    padded = _padded(x, m * power)
    if m == 12:
        result = operators.transform(padded, f"12x{power}", _number(scale))
    else:
        result = operators.transform(padded, f"d{m}x{power}", _number(scale), dense=_entries(m, padded))
    return result if padded is x else result[..., :n].contiguous()


def hadamard_transform_12N(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """scale * (M_12 (x) H_N) x along the last dimension, n = 12 N, N a power of two from 4 on.

    M_12 is the published matrix, on the slow index: element i of a row has the digits i // N and i % N. Where n is no such
    length, rows are padded with zeros to the next one and cut again. Arguments, result and errors: `hadamard_transform`.

    The gradient is that of this function, the transpose. (The published 20N, 28N and 40N multiply by the matrix itself in their
    backward pass, although theirs are not symmetric.)
    """
    return _special(12, x, scale)


def hadamard_transform_20N(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """`hadamard_transform_12N` for n = 20 N."""
    return _special(20, x, scale)


def hadamard_transform_28N(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """`hadamard_transform_12N` for n = 28 N."""
    return _special(28, x, scale)


def hadamard_transform_40N(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """`hadamard_transform_12N` for n = 40 N."""
    return _special(40, x, scale)


def hadamard_transform_ref(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """`hadamard_transform` by a product with the matrix, in x's dtype: slow, for tests."""
    n = _length_of(x)
    power = _power_of_two(n, 2)
    matrix: Any = torch.ones(1, 1, dtype=x.dtype, device=x.device)
    for _ in range(power.bit_length() - 1):
        matrix = torch.cat([torch.cat([matrix, matrix], 1), torch.cat([matrix, -matrix], 1)])
    return (F.linear(_padded(x, power), matrix) * scale)[..., :n]
