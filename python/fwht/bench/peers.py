"""Kernels of others, one small class each: whether they are here, what they take, and how they are called.

None of them is a dependency of this package, and none of their code is in it. A peer is used where it can be imported;
those that come as sources can also be built from a checkout (`--peer dao=PATH`), which downloads nothing.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import operator
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Callable, NamedTuple

import torch


class Problem(NamedTuple):
    """Contiguous rows of n elements, multiplied by scale * Op: H_n in natural order where no operator is named."""

    n: int
    rows: int
    dtype: torch.dtype
    scale: float
    in_place: bool
    device: int
    operator: str = ""  # its text: "28x512" (docs/operators.md)

    @property
    def is_sylvester(self) -> bool:
        return self.operator in ("", str(self.n))

    @property
    def orthonormal(self) -> bool:
        return abs(self.scale * self.n**0.5 - 1.0) < 1e-6


# (x, out) -> the result: x where the problem is in place, else `out` or a tensor of the peer's own.
Call = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_HALVES = (torch.float16, torch.bfloat16)
_ALL = (torch.float16, torch.bfloat16, torch.float32)


class Peer:
    name = ""
    summary = ""
    dtypes: tuple[torch.dtype, ...] = _ALL
    lengths = (2, 2**15)  # smallest and largest n
    writes = "out"  # "in", "out" or "both": where a result can go
    scales = True  # False: orthonormal only

    def missing(self) -> str:
        """Why it cannot be used here, in one sentence; empty where it can. Raises nothing."""
        try:
            self.load()
        except Exception as error:  # an extension that is broken must not end the run of the others
            lines = str(error).strip().splitlines()
            return f"{type(error).__name__}: {lines[0] if lines else 'no message'}"
        return ""

    def load(self) -> Any:
        """Imports it. Raises what the import raises."""
        raise NotImplementedError

    def settings(self) -> dict[str, str]:
        """For the column `settings`: version, module, what was set."""
        return {"torch": torch.__version__}

    def why_not(self, problem: Problem) -> str:
        if problem.dtype not in self.dtypes:
            return f"{problem.dtype} data are not offered"
        if why := self.why_not_operator(problem):
            return why
        if self.writes != "both" and problem.in_place != (self.writes == "in"):
            return "the result never replaces the input" if self.writes == "out" else "the result replaces the input"
        if not self.scales and not problem.orthonormal:
            return f"scale={problem.scale} must be 1/sqrt(n)"
        return ""

    def why_not_operator(self, problem: Problem) -> str:
        smallest, largest = self.lengths
        if not problem.is_sylvester:
            return f"the operator {problem.operator} is not offered"
        return "" if smallest <= problem.n <= largest else f"n={problem.n} must be between {smallest} and {largest}"

    def make(self, problem: Problem) -> Call:
        raise NotImplementedError

    def delivered(self, result: torch.Tensor, problem: Problem) -> torch.Tensor:
        """The problem's result from the peer's, for the check; another tensor only where the peer has another matrix."""
        return result


def _version(distribution: str) -> dict[str, str]:
    try:
        return {"version": importlib.metadata.version(distribution)} if distribution else {}
    except importlib.metadata.PackageNotFoundError:
        return {}


class Installed(Peer):
    """A function of a package that can be imported."""

    module = ""
    function = "hadamard_transform"
    distribution = ""
    takes = "scale"  # the field of Problem that is its second argument

    @functools.cache
    def load(self) -> Any:
        return getattr(importlib.import_module(self.module), self.function)

    def make(self, problem: Problem) -> Call:
        call, argument = self.load(), getattr(problem, self.takes)
        return lambda x, out: call(x, argument)

    def settings(self) -> dict[str, str]:
        return {**super().settings(), "module": self.module, **_version(self.distribution or self.module.split(".")[0])}


class Operator(Installed):
    """An operator that a package registers in torch.ops when it is imported."""

    @functools.cache
    def load(self) -> Any:
        importlib.import_module(self.module)
        return operator.attrgetter(self.function)(torch.ops)


class Checkout(Installed):
    """The same, or its extension built from a checkout for this device."""

    sources: tuple[str, ...] = ()  # below the checkout
    folder = ""  # where they lie in a checkout of a larger repository
    extension = ""  # the name under which the Python part imports it
    flags: tuple[str, ...] = ("-O3",)  # of nvcc, as its setup.py has them; architectures: TORCH_CUDA_ARCH_LIST

    def __init__(self, checkout: Path | None = None):
        self.checkout = checkout

    @functools.cache
    def load(self) -> Any:
        if self.checkout is None:
            return super().load()
        root = self._root(self.checkout)
        sys.modules[self.extension] = self.built(root)
        sys.path.insert(0, str(root))
        return super().load()

    def _root(self, checkout: Path) -> Path:
        """Where the sources lie. Raises FileNotFoundError where one is missing."""
        root = checkout / self.folder if (checkout / self.folder).is_dir() else checkout
        missing = [name for name in self.sources if not (root / name).is_file()]
        if missing:
            raise FileNotFoundError(f"{root} has no {', '.join(missing)}")
        return root

    def _build_folder(self) -> Path:
        build = Path("build/peers", self.name).resolve()
        build.mkdir(parents=True, exist_ok=True)
        return build

    def built(self, root: Path) -> Any:
        from torch.utils import cpp_extension

        return cpp_extension.load(
            self.extension, [str(root / name) for name in self.sources], build_directory=str(self._build_folder()),
            extra_cflags=["-O3"], extra_cuda_cflags=list(self.flags),
        )  # fmt: skip

    def settings(self) -> dict[str, str]:
        if self.checkout is None:
            return super().settings()
        return {**Peer.settings(self), "module": "checkout", "commit": _commit(self.checkout)}


def _commit(checkout: Path) -> str:
    """Of the checkout, with a + where it was changed; of a copy without .git what its file COMMIT says."""
    git = ["git", "-C", str(checkout)]
    if (checkout / ".git").exists():  # else git would answer for a repository around it
        try:
            commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
            changed = subprocess.run([*git, "status", "--porcelain"], capture_output=True, text=True, check=True).stdout.strip()
            return commit + ("+" if changed else "")
        except (OSError, subprocess.CalledProcessError):
            pass
    file = checkout / "COMMIT"
    return file.read_text().strip() if file.is_file() else "unknown"


class Dao(Checkout):
    name = "dao"
    summary = "fast-hadamard-transform (Dao AI Lab): CUDA cores, fp32 in registers"
    module = "fast_hadamard_transform"
    distribution = "fast-hadamard-transform"
    extension = "fast_hadamard_transform_cuda"
    sources = ("csrc/fast_hadamard_transform.cpp", "csrc/fast_hadamard_transform_cuda.cu")
    flags = (
        "-O3", "-U__CUDA_NO_HALF_OPERATORS__", "-U__CUDA_NO_HALF_CONVERSIONS__", "-U__CUDA_NO_BFLOAT16_OPERATORS__",
        "-U__CUDA_NO_BFLOAT16_CONVERSIONS__", "-U__CUDA_NO_BFLOAT162_OPERATORS__", "-U__CUDA_NO_BFLOAT162_CONVERSIONS__",
        "--expt-relaxed-constexpr", "--expt-extended-lambda", "--use_fast_math",
    )  # fmt: skip
    lengths = (8, 2**15)

    def why_not_operator(self, problem: Problem) -> str:
        if problem.is_sylvester:
            return super().why_not_operator(problem)
        if self._special(problem) is None:
            return f"the operator {problem.operator} is not offered; there are m x 2^k with m = 12, 20, 28 or 40, k = 2 to 10"
        return ""

    @staticmethod
    def _special(problem: Problem) -> tuple[int, str] | None:
        """(m, Op_m) where the problem's operator is Op_m on the slow index and H_(n / m) on the fast one."""
        match = re.fullmatch(r"(\d+)(t?)x(\d+)", problem.operator)
        if match is None or not _is_power_of_two(int(match[3])):
            return None
        first = int(match[1])
        for m in (12, 20, 28, 40):
            if m % first == 0 and _is_power_of_two(m // first) and problem.n % m == 0 and 4 <= problem.n // m <= 1024:
                return m, match[1] + match[2] + (f"x{m // first}" if m > first else "")
        return None

    @functools.cache
    def _load_special(self, m: int) -> Call:
        self.load()
        return getattr(importlib.import_module(f"{self.module}.fast_hadamard_transform_interface"), f"hadamard_transform_{m}N")

    def make(self, problem: Problem) -> Call:
        if problem.is_sylvester:
            return super().make(problem)
        call, scale = self._load_special(self._special(problem)[0]), problem.scale  # type: ignore[index]
        return lambda x, out: call(x, scale)

    def delivered(self, result: torch.Tensor, problem: Problem) -> torch.Tensor:
        """Its Hadamard matrix of order m is another one: the result is taken from the one to the other in float64, which
        keeps errors at their size, and rounded once more."""
        if problem.is_sylvester:
            return result
        m, ours = self._special(problem)  # type: ignore[misc]
        theirs = self._load_special(m)(torch.eye(4 * m, device=result.device), 1.0)[::4, ::4].double()
        change = theirs.T @ operator_matrix(ours, m).to(result.device) / m
        rows = result.double().view(-1, m, problem.n // m)
        return torch.einsum("rmq,mj->rjq", rows, change).reshape(result.shape).to(result.dtype)


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


class HadaCore(Checkout):
    name = "hadacore"
    summary = "HadaCore (PyTorch applied-ai): tensor cores"
    module = "faster_hadamard_transform"
    extension = "faster_hadamard_transform"
    folder = "kernels/cuda/inference/hadamard_transform"
    sources = ("hadamard_transform.cpp", "hadamard_transform_cuda.cu")
    dtypes = _HALVES
    writes = "both"
    scales = False
    takes = "in_place"


class CudaSample(Checkout):
    """Its kernels, launched on the current stream as its host function launches them on the default stream."""

    name = "cuda_sample"
    summary = "NVIDIA's CUDA sample fastWalshTransform: radix 4 in memory, rows of 2^11 or 2^10 in shared memory"
    dtypes = (torch.float32,)
    lengths = (2**10, 2**30)
    writes = "in"
    folder = "Samples/5_Domain_Specific/fastWalshTransform"
    extension = "cuda_sample_fast_walsh_transform"
    sources = ("fastWalshTransform_kernel.cuh",)
    binding = """
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAException.h>
#include <torch/types.h>
#define getLastCudaError(words) C10_CUDA_KERNEL_LAUNCH_CHECK()
#include "fastWalshTransform_kernel.cuh"

void transform(torch::Tensor x) {  // (rows, n), in place, without a scale
  float* data = x.data_ptr<float>();
  auto stream = at::cuda::getCurrentCUDAStream();
  int bits = 0;
  while ((int64_t{1} << bits) < x.size(1)) ++bits;
  unsigned vectors = x.size(0);
  const dim3 grid(x.size(1) / 1024, vectors);
  for (; bits > ELEMENTARY_LOG2SIZE; bits -= 2, vectors *= 4) {
    fwtBatch2Kernel<<<grid, 256, 0, stream>>>(data, data, 1 << (bits - 2));
    C10_CUDA_KERNEL_LAUNCH_CHECK();
  }
  fwtBatch1Kernel<<<vectors, 1 << (bits - 2), sizeof(float) << bits, stream>>>(data, data, bits);
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}
"""

    @functools.cache
    def load(self) -> Any:
        if self.checkout is None:
            raise FileNotFoundError(f"it comes as sources: {self.name}=CHECKOUT names a checkout of cuda-samples")
        return self.built(self._root(self.checkout)).transform

    def built(self, root: Path) -> Any:
        from torch.utils import cpp_extension

        return cpp_extension.load_inline(
            self.extension, cpp_sources="void transform(torch::Tensor x);", cuda_sources=self.binding, functions=["transform"],
            extra_cuda_cflags=list(self.flags), extra_include_paths=[str(root)], build_directory=str(self._build_folder()),
        )  # fmt: skip

    def why_not(self, problem: Problem) -> str:
        if why := super().why_not(problem):
            return why
        if problem.scale != 1.0:
            return f"scale={problem.scale} must be 1"
        if problem.rows > 65535 or problem.rows * problem.n > 2**31:
            return f"{problem.rows} rows of {problem.n}: at most 65535, and 2^31 elements"
        return ""

    def make(self, problem: Problem) -> Call:
        call = self.load()

        def replace(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
            call(x)
            return x

        return replace


class Vllm(Operator):
    name = "vllm"
    summary = "HadaCore as vLLM ships it (torch.ops._C.hadacore_transform)"
    module = "vllm._C"
    function = "_C.hadacore_transform"
    distribution = "vllm"
    dtypes = _HALVES
    writes = "both"
    scales = False
    takes = "in_place"


class Sglang(Installed):
    name = "sglang"
    summary = "SGLang's kernel, compiled when first called (sglang.jit_kernel.hadamard)"
    module = "sglang.jit_kernel.hadamard"
    distribution = "sglang"
    lengths = (8, 2**15)


class SglKernel(Operator):
    name = "sgl_kernel"
    summary = "SGLang's older kernel (torch.ops.sgl_kernel.fast_hadamard_transform)"
    module = "sgl_kernel"
    function = "sgl_kernel.fast_hadamard_transform"
    distribution = "sgl-kernel"
    lengths = (8, 2**15)


def hadamard_matrix(n: int) -> torch.Tensor:
    """H_n in natural order, float64."""
    h = torch.ones(1, 1, dtype=torch.float64)
    while h.shape[0] < n:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    return h


def operator_matrix(text: str, n: int) -> torch.Tensor:
    """The matrix of order n by which an operator multiplies row vectors, float64: its transpose."""
    from .. import operators

    return operators.transform(torch.eye(n), text, 1.0, variant="cpu").double()


class Matmul(Peer):
    name = "matmul"
    summary = "torch.mm with the matrix, whose entries are rounded to the data's type; float32 without TF32"
    lengths = (2, 2**13)

    def why_not_operator(self, problem: Problem) -> str:
        return super().why_not_operator(problem._replace(operator=""))  # it takes every matrix

    def load(self) -> Any:
        return torch.mm

    def settings(self) -> dict[str, str]:
        return {**super().settings(), "cuda": str(torch.version.cuda)}

    def make(self, problem: Problem) -> Call:
        torch.backends.cuda.matmul.allow_tf32 = False
        n = problem.n
        matrix = hadamard_matrix(n) if problem.is_sylvester else operator_matrix(problem.operator, n)
        matrix = (matrix * problem.scale).to(f"cuda:{problem.device}", problem.dtype)
        return lambda x, out: torch.mm(x, matrix, out=out)


def butterflies(x: torch.Tensor, scale: float) -> torch.Tensor:
    """Stage by stage, as one would write it in PyTorch: 16 bits in float32, other numbers in their own type."""
    rows, n = x.shape
    y = x.float() if x.dtype in _HALVES else x
    h = 1
    while h < n:
        pairs = y.view(rows, n // (2 * h), 2, h)
        a, b = pairs[:, :, 0], pairs[:, :, 1]
        y = torch.stack([a + b, a - b], 2).view(rows, n)
        h *= 2
    return (y if scale == 1.0 else y * scale).to(x.dtype)


class Compiled(Peer):
    name = "compile"
    summary = "butterflies in PyTorch under torch.compile"
    lengths = (2, 2**12)

    @functools.cache
    def load(self) -> Any:
        import torch._inductor  # where there is no compiler for it, this fails

        return torch.compile(butterflies, fullgraph=True, dynamic=False)

    def make(self, problem: Problem) -> Call:
        torch._dynamo.config.recompile_limit = 4096  # one graph per shape is meant
        call, scale = self.load(), problem.scale
        return lambda x, out: call(x, scale)


class Triton(Peer):
    name = "triton"
    summary = "a tensor-core kernel in Triton, written for this comparison"
    lengths = (16, 2**14)
    writes = "both"

    def load(self) -> Any:
        from . import _triton

        return _triton.hadamard_transform

    def settings(self) -> dict[str, str]:
        return {**super().settings(), **_version("triton")}

    def make(self, problem: Problem) -> Call:
        call, scale = self.load(), problem.scale
        return lambda x, out: call(x, out, scale)


class ThisPackage(Peer):
    """A variant of this library as Python calls it: beside the same variant called by the sweep itself, it shows what the
    way through Python adds to the measurement."""

    lengths = (2, 2**30)
    writes = "both"

    def __init__(self, variant: str = "auto"):
        self.variant = variant
        self.name = f"python:{variant}"
        self.summary = f"fwht.hadamard_transform(variant={variant!r}), to compare with {variant}"

    def load(self) -> Any:
        import fwht

        return fwht.hadamard_transform

    def settings(self) -> dict[str, str]:
        import fwht

        info = fwht.build_info()
        return {**super().settings(), "version": info["version"], "commit": info["commit"]}

    def why_not(self, problem: Problem) -> str:
        import fwht

        return fwht.supports(
            problem.n, problem.dtype, rows=problem.rows, device=problem.device, inplace=problem.in_place,
            variant=self.variant, operator=None if problem.is_sylvester else problem.operator,
        ).why_not  # fmt: skip

    def make(self, problem: Problem) -> Call:
        call, scale, variant = self.load(), problem.scale, self.variant
        if not problem.is_sylvester:
            from ..operators import transform

            text = problem.operator
            return lambda x, out: transform(x, text, scale, out=out, variant=variant)
        if problem.in_place:
            return lambda x, out: call(x, scale, inplace=True, variant=variant)
        return lambda x, out: call(x, scale, variant=variant)


PEERS: dict[str, type[Peer]] = {
    kind.name: kind for kind in (Dao, HadaCore, CudaSample, Vllm, Sglang, SglKernel, Matmul, Compiled, Triton)
}
