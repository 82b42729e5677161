"""compressed-tensors by this library: rotations are folded into weights without a matrix. docs/integrations.md says what is replaced."""

from __future__ import annotations

import functools
import importlib
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from .. import hadamard_transform, operators, supports
from ._replace import Replaced

__all__ = ["install", "uninstall"]

_HADAMARD = "compressed_tensors.transform.factory.hadamard"
_RANDOM = "compressed_tensors.transform.factory.random_hadamard"
_MATRICES = "compressed_tensors.transform.utils.hadamard"
_CREATE = ("self", "size", "device", "construct_device", "precision")
_SLICE = 2**24  # elements that are in float64 at a time

# What this module replaces and what it calls, with the parameters of compressed-tensors 0.20.0.
_replaced = Replaced("compressed_tensors", "FWHT_DISABLE_COMPRESSED_TENSORS", {
    f"{_HADAMARD}:HadamardFactory.create_transform": ("self", "module", "args"),
    f"{_HADAMARD}:HadamardFactory._create_weight": _CREATE,
    f"{_HADAMARD}:HadamardFactory._create_permutation": ("self", "weight"),
    f"{_HADAMARD}:HadamardTransform.__init__": ("self", "weight", "perm", "scheme", "args", "module_type"),
    f"{_HADAMARD}:HadamardTransform.forward": ("self", "value"),
    f"{_HADAMARD}:get_transform_size": ("module", "location", "head_dim"),
    f"{_RANDOM}:RandomHadamardFactory._create_weight": _CREATE,
    f"{_MATRICES}:random_hadamard_matrix": ("size", "dtype", "device", "gen"),
    f"{_MATRICES}:_fetch_hadamard_divisor": ("n", "dtype", "device", "file_path"),
})  # fmt: skip


def install() -> None:
    """Folds the rotations of compressed-tensors (types "hadamard" and "random-hadamard") into weights by fast transforms.

    Weights are multiplied by the very matrices that compressed-tensors would make, from the same random numbers, in float64, on a
    CUDA device where they lie there: fast transforms in place of n^2 operations a row, and no matrix of n x n. "random-hadamard" gets
    the orders that it has no matrix of as well (13696, 29568) where no rotation of that scheme is applied online. Online rotations, and
    those that are trained, stay as they are.

    It does nothing where FWHT_DISABLE_COMPRESSED_TENSORS is set, and the second time. Where a name of compressed-tensors is missing
    or takes other parameters than those known here, one warning says which, and nothing is replaced.
    """
    if _replaced.wanted(None) and _replaced.are_known():
        _replaced.put({f"{_HADAMARD}:HadamardFactory.create_transform": _create_transform})


def uninstall() -> None:
    """Puts compressed-tensors' own function back."""
    _replaced.take_back()


class _Matrix(NamedTuple):
    """The matrix T of a factory: x T = sqrt(n) operators.transform(x, text, None, signs=signs, dense=dense)."""

    text: str
    signs: operators.Signs | None
    dense: Tensor | None
    parameter: torch.nn.Parameter  # of n elements, in the place of the matrix
    before: Tensor | None  # the state of the factory's random numbers before those of this matrix


_matrices: WeakKeyDictionary[Any, dict[int, _Matrix]] = WeakKeyDictionary()


def _create_transform(original: Any) -> Any:
    hadamard: Any = importlib.import_module(_HADAMARD)
    matrices: Any = importlib.import_module(_MATRICES)
    random_factory: Any = importlib.import_module(_RANDOM).RandomHadamardFactory
    creators = {hadamard.HadamardFactory._create_weight: False, random_factory._create_weight: True}

    def matrix_of(factory: Any, n: int, is_random: bool) -> _Matrix | None:
        known = _matrices.setdefault(factory, {})
        if n not in known:
            if not is_random:
                if n < 2 or n & (n - 1):
                    return None  # compressed-tensors says what is wrong
                known[n] = _Matrix(str(n), None, None, torch.nn.Parameter(torch.ones(n), requires_grad=False), None)
                return known[n]
            special = matrices._fetch_hadamard_divisor(n, torch.float64)
            m = 1 if special is None else len(special)
            try:
                text = f"{operators.operator_for(n)}+signs" if special is None else _text(n, m)
            except ValueError:
                return None
            before = factory.generator.get_state()
            if (n,) in factory.weights:  # the matrix of an online rotation: row i is sign i times row i of the rest
                signs = factory.weights[n,].data[:, 0].double().cpu() * special[0].repeat_interleave(n // m)
            else:
                signs = torch.randint(low=0, high=2, size=(n,), generator=factory.generator, dtype=torch.float64) * 2 - 1
            dense = special.reshape(-1) if special is not None and m > 1 else None
            parameter = torch.nn.Parameter(torch.ones(n), requires_grad=False)
            known[n] = _Matrix(text, operators.pack_signs(signs), dense, parameter, before)
        return known[n]

    class Folded(hadamard.HadamardTransform):
        def __init__(self, matrix: _Matrix, perm: Any, *others: Any):
            super().__init__(matrix.parameter, perm, *others)
            self.matrix = matrix

        def forward(self, value: Tensor) -> Tensor:
            is_input = self.args.location == "weight_input"
            return _fold(value, self.matrix, self.perm, is_input != self.args.inverse, is_input == issubclass(self.module_type, torch.nn.Linear))

    @functools.wraps(original)
    def create_transform(self: Any, module: torch.nn.Module, args: Any) -> Any:
        n = hadamard.get_transform_size(module, args.location, self.scheme.head_dim)
        is_random = creators.get(type(self)._create_weight)
        has_online = any(each.is_online() for each in self.scheme.apply)
        ours = is_random is not None and not self.scheme.requires_grad and not (has_online and self.scheme.randomize)
        takes = isinstance(module, (torch.nn.Linear, torch.nn.Embedding)) and args.location in ("weight_input", "weight_output")
        if not ours or not takes:
            matrix = _matrices.get(self, {}).get(n)
            if matrix is None or matrix.before is None or (n,) in self.weights:
                return original(self, module, args)
            now = self.generator.get_state()  # an online rotation of the signs that were drawn for the weights
            self.generator.set_state(matrix.before)
            try:
                return original(self, module, args)
            finally:
                self.generator.set_state(now)
        if has_online and is_random and matrices._fetch_hadamard_divisor(n, torch.float64) is None:
            return original(self, module, args)
        matrix = matrix_of(self, n, bool(is_random))
        if matrix is None:
            return original(self, module, args)
        perm = self.perms[matrix.parameter] if self.scheme.randomize else None
        return Folded(matrix, perm, self.scheme, args, type(module))

    return create_transform


def _text(n: int, m: int) -> str:
    if m > 256:
        raise ValueError(f"a dense factor of order {m}")
    return f"{n}+signs" if m == 1 else f"d{m}x{n // m}+signs" if n > m else f"d{m}+signs"


def _by_factors(rows: Tensor, matrix: _Matrix, transpose: bool) -> Tensor:
    """operators.transform of float64 rows on their own device, a factor at a time: a product with each matrix, and a fast transform along
    the axis of each power of two."""
    n = rows.shape[-1]
    shape, tokens = rows.shape, matrix.text.removesuffix("+signs").split("x")
    y = rows
    signs = None
    if matrix.signs is not None:
        bits = matrix.signs.on(rows).unsqueeze(-1) >> torch.arange(8, device=rows.device, dtype=torch.uint8) & 1
        signs = 1 - 2 * bits.flatten()[:n].to(torch.float64)
        y = y if transpose else y * signs
    after = n
    for token in tokens:
        order = int(token.removeprefix("d"))
        after //= order
        y = y.reshape(-1, order, after)
        if token.isdigit() and order & (order - 1) == 0:
            y = hadamard_transform(y, 1.0, axis=-2)
            continue
        # The rows of the transform of the identity are the columns of the matrix.
        identity = torch.eye(order, dtype=torch.float64, device="cpu")
        entries = matrix.dense if token.startswith("d") else operators.transform(identity, token, 1.0).t()
        assert entries is not None
        square = entries.reshape(order, order).to(rows.device)
        y = torch.matmul(square.t() if transpose else square, y)
    y = y.reshape(shape) * n**-0.5
    return y * signs if signs is not None and transpose else y


def _fold(value: Tensor, matrix: _Matrix, perm: Tensor | None, transpose: bool, along_rows: bool) -> Tensor:
    """Each block of n elements of the rows, or of the columns, of value times the orthonormal matrix or its transpose."""
    n = len(matrix.parameter)
    result = torch.empty_like(value)
    source, target = (value, result) if along_rows else (value.t(), result.t())
    step = max(1, _SLICE // source.shape[-1])
    on_device = value.is_cuda and bool(supports(2, "float64", device=value.device.index))
    device = value.device if on_device else torch.device("cpu")
    for start in range(0, len(source), step):
        rows = source[start : start + step].to(device, torch.float64).contiguous().unflatten(-1, (-1, n))
        if perm is not None:
            rows = torch.empty_like(rows).index_copy_(-1, perm.to(device), rows)
        if on_device:
            rows = _by_factors(rows, matrix, transpose)
        else:
            rows = operators.transform(rows, matrix.text, None, signs=matrix.signs, dense=matrix.dense, transpose=transpose)
        if perm is not None:
            rows = rows[..., perm.to(device)]
        target[start : start + step] = rows.flatten(-2, -1).to(value.device, value.dtype)
    return result
