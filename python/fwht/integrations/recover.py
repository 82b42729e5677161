"""From a stored matrix to the operator that multiplies by it."""

from __future__ import annotations

from typing import Iterator, NamedTuple

import torch

from .. import operators

_LARGEST_ORDER = 256  # of a dense factor that every variant takes


class Recovered(NamedTuple):
    """Q = entry * R, R of entries +-1 with R R^T = n I, and x R = operators.transform(x, text, 1.0, signs=signs, dense=dense)."""

    text: str
    signs: torch.Tensor  # packed, on the matrix's device
    dense: torch.Tensor | None  # (m * m,), in the matrix's dtype and on its device
    entry: float


def operator_of(matrix: torch.Tensor) -> Recovered | None:
    """The operator "<n>+signs" or "d<m>x<n / m>+signs" of a matrix Q = entry * diag(signs) (M (x) Sylvester)^T, M of order m.

    QuIP#'s `random_hadamard_matrix` and those derived from it (QuaRot, SpinQuant, compressed-tensors) make such matrices. Signs of the
    columns of M are found as part of the signs of Q, so M has a first row of +1 here. The smallest m is taken. Every entry is
    compared with that of the operator, as this library computes it on the matrix's device.

    Args:
        matrix: shape (n, n), 2 <= n; float16, bfloat16 or float32.

    Returns: None where the matrix is another one: entries of different size, no orthogonal rows, no such factors with m up to 256, or
    where the operator cannot be done on this device.
    """
    if matrix.dim() != 2 or matrix.shape[0] != matrix.shape[1] or len(matrix) < 2:
        return None
    n = len(matrix)
    entry = matrix[0, 0].abs()
    if not bool((matrix.abs() == entry).all() & (entry > 0) & entry.isfinite()):
        return None
    signs = operators.pack_signs(1 - 2 * (matrix[:, 0] < 0).int()).on(matrix)
    for m in _orders(n):
        step = n // m
        corners = 1 - 2 * (matrix[::step, ::step] < 0).int()  # rows b * step, columns a * step: sign b times M[a, b]
        factor = (corners * corners[:, :1]).t()
        if not torch.equal((factor.double() @ factor.double().t()), m * torch.eye(m, dtype=torch.float64, device=matrix.device)):
            continue
        dense = factor.to(matrix.dtype).reshape(-1) if m > 1 else None
        found = Recovered(f"{n}+signs" if m == 1 else f"d{m}x{step}+signs" if step > 1 else f"d{m}+signs", signs, dense, float(entry))
        try:
            if _is(matrix, found):
                return found
        except NotImplementedError:
            continue
    return None


def _orders(n: int) -> Iterator[int]:
    m = n // (n & -n)
    while m <= min(n, _LARGEST_ORDER):
        if m == 1 or m % 4 == 0:
            yield m
        m *= 2


def _is(matrix: torch.Tensor, found: Recovered) -> bool:
    n = len(matrix)
    rows = max(1, 2**22 // n)
    for start in range(0, n, rows):
        part = matrix[start : start + rows]
        units = torch.zeros_like(part)
        units.diagonal(start).fill_(1)
        signs = operators.transform(units, found.text, 1.0, signs=found.signs, dense=found.dense)
        if not torch.equal(signs < 0, part < 0):
            return False
    return True
