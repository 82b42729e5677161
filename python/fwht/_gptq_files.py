"""GPTQ layers in safetensors files, by the package safetensors."""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from . import _c, _tensors, array

_FLOATS = ("float16", "bfloat16", "float32", "float64")
_PARTS = ("qweight", "qzeros", "scales", "g_idx", "bias")
_FORMATS = {"gptq": "v1", "gptq_v2": "v2"}
_INDEX, _CONFIG = "model.safetensors.index.json", "quantize_config.json"


class GptqTensors(NamedTuple):
    """A layer as its file has it; `fwht.linear.pack(*tensors[:4], zero_points=tensors.zero_points)` packs it."""

    qweight: Any
    qzeros: Any
    scales: Any
    g_idx: Any = None
    bias: Any = None
    zero_points: str = "v1"


class HostTensor:
    """A tensor of a layer, in contiguous host memory."""

    def __init__(self, name: str, given: Any, dtypes: tuple[str, ...]):
        if face := _tensors.face_of(given):
            face.require_memory(given)
            self.kept = given.detach().cpu().contiguous()
            self.address, kind = self.kept.data_ptr(), str(self.kept.dtype).removeprefix("torch.")
        else:
            import numpy

            if not isinstance(given, numpy.ndarray):
                raise TypeError(f"fwht: {name} is a {type(given).__name__}, not a PyTorch tensor or NumPy array")
            self.kept = numpy.ascontiguousarray(given)
            self.address, kind = self.kept.ctypes.data, array.dtype_name(self.kept)
        if kind not in dtypes:
            raise TypeError(f"fwht: {name} has dtype {kind}; it must be {' or '.join(dtypes)}")
        self.name, self.shape = name, tuple(self.kept.shape)

    def require(self, shape: tuple[int, ...]) -> None:
        if self.shape != shape:
            raise ValueError(f"fwht: {self.name} has shape {self.shape}; it must be {shape}")


class Checked(NamedTuple):
    qweight: HostTensor
    qzeros: HostTensor | None
    scales: HostTensor
    g_idx: HostTensor | None
    bias: HostTensor | None
    zero_points: str

    def for_c(self, signs: int | None = None, dense: int | None = None) -> _c.GptqWeights:
        """By the addresses of the tensors, of a rotation's too."""
        parts = self.qweight, self.qzeros, self.scales, self.g_idx
        return _c.GptqWeights(ctypes.sizeof(_c.GptqWeights), *(None if each is None else each.address for each in parts), signs, dense)


def checked(qweight: Any, qzeros: Any, scales: Any, g_idx: Any, zero_points: str | None, bias: Any = None) -> Checked:
    """The tensors of one layer, whose shapes and dtypes belong together; zero_points: as `fwht.linear.pack` takes it."""
    words = ("int32", "uint32")
    q, s = HostTensor("qweight", qweight, words), HostTensor("scales", scales, ("float16",))
    if zero_points is None:
        zero_points = "symmetric" if qzeros is None else "v1"
    if zero_points not in _c.ZERO_POINTS:
        raise ValueError(f"fwht: zero_points={zero_points!r} must be one of {', '.join(_c.ZERO_POINTS)}")
    if (zero_points == "symmetric") != (qzeros is None):
        raise ValueError(f"fwht: zero_points={zero_points!r}, but qzeros are {'missing' if qzeros is None else 'given'}")
    if len(q.shape) != 2 or len(s.shape) != 2 or 0 in q.shape or 0 in s.shape:
        raise ValueError(f"fwht: qweight {q.shape} must be (k / 8, n) and scales {s.shape} (groups, n)")
    k, n, groups = 8 * q.shape[0], q.shape[1], s.shape[0]
    s.require((groups, n))
    if k % groups:
        raise ValueError(f"fwht: k={k} is no multiple of the {groups} groups that scales have")
    others: list[HostTensor | None] = []
    for name, given, dtypes, shape in (
        ("qzeros", qzeros, words, (groups, n // 8)), ("g_idx", g_idx, ("int32",), (k,)), ("bias", bias, _FLOATS, (n,)),
    ):  # fmt: skip
        others.append(None if given is None else HostTensor(name, given, dtypes))
        if others[-1] is not None:
            others[-1].require(shape)
    z, order, b = others
    return Checked(q, z, s, order, b, zero_points)


def _safetensors() -> Any:
    try:
        import safetensors
    except ImportError as error:
        raise ImportError("fwht: files of GPTQ layers need the package safetensors; pip install safetensors") from error
    return safetensors


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"fwht: {path} is no JSON: {error}") from error
    if not isinstance(found, dict):
        raise ValueError(f"fwht: {path} holds no JSON object")
    return found


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except _safetensors().SafetensorError as error:
        raise ValueError(f"fwht: {path} cannot be read: {error}") from error


def _framework() -> str:
    return "np" if sys.modules.get("torch") is None else "pt"


def _places(given: Any) -> dict[str, Path]:
    """The file of every tensor, by name."""
    safetensors, path = _safetensors(), Path(given)
    if path.is_dir():
        path = path / _INDEX if (path / _INDEX).exists() else path / "model.safetensors"
    if path.suffix == ".json":
        index = _json(path).get("weight_map")
        if not isinstance(index, dict):
            raise ValueError(f"fwht: {path} has no weight_map")
        for name, file in index.items():
            if not isinstance(file, str):
                raise ValueError(f"fwht: the weight_map of {path} has {file!r} for {name}; it must be the name of a file")
        return {name: path.parent / file for name, file in index.items()}
    if not path.exists():
        raise FileNotFoundError(f"fwht: there is no {path}")
    with _reading(path), safetensors.safe_open(path, framework=_framework()) as file:
        return dict.fromkeys(file.keys(), path)


def config_of(given: Any) -> dict[str, Any]:
    """The quantization configuration beside a file or in a folder; empty where there is none."""
    folder = Path(given) if Path(given).is_dir() else Path(given).parent
    if (folder / _CONFIG).exists():
        return _json(folder / _CONFIG)
    if (folder / "config.json").exists():
        found = _json(folder / "config.json").get("quantization_config") or {}
        if not isinstance(found, dict):
            raise ValueError(f"fwht: the quantization_config of {folder / 'config.json'} is {found!r}; it must be a JSON object")
        return found
    return {}


def _zero_points(given: Any) -> str:
    """As the configuration beside the file says; "v1" where there is none, as files without one are read elsewhere."""
    config = config_of(given)
    if (method := config.get("quant_method", "gptq")) != "gptq":
        raise ValueError(f"fwht: the weights have quant_method={method!r}; 'gptq' is supported")
    if (bits := config.get("bits", 4)) != 4:
        raise ValueError(f"fwht: the weights have bits={bits!r}; 4 are supported, as a number")
    named = config.get("checkpoint_format") or "gptq"
    if named not in _FORMATS:
        raise ValueError(f"fwht: checkpoint_format={named!r} must be one of {', '.join(_FORMATS)}")
    return _FORMATS[named]


def layers(path: Any) -> list[str]:
    """The names of the GPTQ layers in a file, in the shards of an index, or in a folder with either.

    Raises ImportError without the package safetensors, FileNotFoundError, and ValueError for an index that is none
    and for a file that is damaged.
    """
    return [name.removesuffix(".qweight") for name in _places(path) if name.endswith(".qweight")]


def load(path: Any, layer: str) -> GptqTensors:
    """A layer by its name, in PyTorch tensors on the host where torch is imported, else in NumPy arrays.

    Args:
        path: *.safetensors, *.safetensors.index.json, or the folder that has one. quantize_config.json or config.json beside it
            says how zero points are stored.
        layer: a name of `layers(path)`, such as "model.layers.0.mlp.up_proj".

    Raises: what `layers` raises; ValueError for a layer that is not there or lacks a tensor, for other than 4 bits, and for a
        format that is not GPTQ's; TypeError for a bias in bfloat16 where torch is not imported.
    """
    places, tensors = _places(path), {}
    if f"{layer}.qweight" not in places:
        known = [name.removesuffix(".qweight") for name in places if name.endswith(".qweight")]
        raise ValueError(f"fwht: {path} has no layer {layer!r}; it has {', '.join(known[:8]) or 'none'}{', ...' * (len(known) > 8)}")
    zero_points = _zero_points(path)
    with contextlib.ExitStack() as open_files:
        files: dict[Path, Any] = {}
        for part in _PARTS:
            if (place := places.get(f"{layer}.{part}")) is None:
                continue
            if place not in files:
                if not place.exists():
                    raise FileNotFoundError(f"fwht: there is no {place}, which {path} names")
                with _reading(place):
                    files[place] = open_files.enter_context(_safetensors().safe_open(place, framework=_framework()))
            try:
                with _reading(place):
                    tensors[part] = files[place].get_tensor(f"{layer}.{part}")
            except TypeError as error:  # bfloat16
                raise TypeError(f"fwht: NumPy has no dtype for {layer}.{part} of {place}: {error}; import torch first") from error
    for part in ("qzeros", "scales"):
        if part not in tensors:
            raise ValueError(f"fwht: {path} has no {layer}.{part}")
    return GptqTensors(**tensors, zero_points=zero_points)


def _group_size(layer: Checked) -> int:
    k, groups = 8 * layer.qweight.shape[0], layer.scales.shape[0]
    return k // groups if groups > 1 else -1


def _is_out_of_order(layer: Checked) -> bool:
    """Whether inputs are in groups other than one behind the other (act-order)."""
    if layer.g_idx is None:
        return False
    size = _group_size(layer)
    order: list[int] = layer.g_idx.kept.tolist()
    return order != [0 if size < 0 else i // size for i in range(len(order))]


def _require_packable(layer: Checked) -> None:
    """Raises ValueError for lengths, groups and scales that `fwht.linear.pack` refuses, by the sorting that it begins with."""
    k, n = 8 * layer.qweight.shape[0], layer.qweight.shape[1]
    problem = _c.LinearProblem(
        ctypes.sizeof(_c.LinearProblem), 1, n, k, _group_size(layer), _c.F16, _c.ZERO_POINTS.index(layer.zero_points)
    )
    words, order = (ctypes.c_uint32 * (k // 8 * n))(), (ctypes.c_int32 * k)()
    _c.check(_c.library.fwht_gptq_sort_rows(problem, layer.for_c(), words, order))


def _checked_layers(given: Mapping[str, GptqTensors]) -> dict[str, Checked]:
    if not isinstance(given, Mapping):
        raise TypeError(f"fwht: layers are a {type(given).__name__}; they must be a dict of GptqTensors by name")
    if not given:
        raise ValueError("fwht: there are no layers to save")
    found, first = {}, None
    for layer, tensors in given.items():
        if not isinstance(layer, str) or not isinstance(tensors, GptqTensors):
            raise TypeError(f"fwht: layer {layer!r} is a {type(tensors).__name__}; a name stands for GptqTensors, as `load` returns them")
        zero_points = None if tensors.qzeros is None and tensors.zero_points in _FORMATS.values() else tensors.zero_points
        try:
            found[layer] = checked(*tensors[:4], zero_points, tensors.bias)
            _require_packable(found[layer])
        except (TypeError, ValueError) as error:
            raise type(error)(f"fwht: layer {layer}: {str(error).removeprefix('fwht: ')}") from None
        for part, each in zip(_PARTS, tensors, strict=False):
            first = first or (each, f"{layer}.{part}")
            if each is not None and _is_torch(each) != _is_torch(first[0]):
                raise TypeError(
                    f"fwht: {first[1]} is a {type(first[0]).__name__} and {layer}.{part} a {type(each).__name__}; "
                    "all must be PyTorch tensors, or NumPy arrays"
                )
    return found


def save(folder: Any, given: Mapping[str, GptqTensors], *, shard_bytes: int | None = None) -> None:
    """Writes layers to `folder`: model.safetensors, or shards and their index; and quantize_config.json.

    Args:
        folder: made where it is missing; files of these names are overwritten. Other files of weights there are
            refused, since readers would take them for this checkpoint's.
        given: layers by name, all PyTorch tensors or all NumPy arrays. Their zero points are stored in one way; symmetric layers
            (qzeros None) get the zero points 8 written out, since readers expect them.
        shard_bytes: a shard is closed before it grows beyond that; a layer is never split. None: one file.

    Raises: ImportError without the package safetensors. What `pack` raises for tensors that are no layer, with its name.
        ValueError for no layers, layers whose zero points are stored in different ways, groups of different sizes, and
        shard_bytes below 1; TypeError for tensors among arrays, layers that are no GptqTensors, and shard_bytes that is no
        integer; FileExistsError for a folder with other weights. Nothing is written then. OSError where the disk is full.
    """
    _safetensors()
    if shard_bytes is not None and (shard_bytes := _c.integer("shard_bytes", shard_bytes)) < 1:
        raise ValueError(f"fwht: shard_bytes={shard_bytes} must be at least 1")
    found = _checked_layers(given)
    kinds = {each.zero_points for each in found.values()} - {"symmetric"}
    if len(kinds) > 1:
        raise ValueError(f"fwht: zero points are stored as {', '.join(sorted(kinds))}; a checkpoint has one of v1 and v2")
    kind = kinds.pop() if kinds else "v1"
    groups = {_group_size(each): layer for layer, each in found.items()}
    if -1 in groups and len(groups) == 2 and all(8 * each.qweight.shape[0] in groups for each in found.values() if _group_size(each) < 0):
        del groups[-1]  # as many inputs as a group of the others has
    if len(groups) > 1:
        (size, layer), (other_size, other) = list(groups.items())[:2]
        raise ValueError(f"fwht: {layer} has group_size={size} and {other} {other_size}; a checkpoint has one")
    shards: list[dict[str, Any]] = [{}]
    room = 0
    for layer, tensors in found.items():
        named = {f"{layer}.{part}": each for part, each in zip(_PARTS, _written(tensors, kind), strict=True) if each is not None}
        size = sum(each.nbytes for each in named.values())
        if shards[-1] and shard_bytes is not None and room + size > shard_bytes:
            shards.append({})
            room = 0
        shards[-1].update(named)
        room += size
    config = {
        "bits": 4, "group_size": next(iter(groups)), "desc_act": any(map(_is_out_of_order, found.values())),
        "sym": all(each.qzeros is None for each in found.values()), "quant_method": "gptq",
        "checkpoint_format": next(name for name, stored in _FORMATS.items() if stored == kind),
    }  # fmt: skip
    names = [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))]
    if len(shards) == 1:
        names = ["model.safetensors"]
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    weights = {path.name for ending in ("", ".index.json") for path in target.glob(f"model*.safetensors{ending}")}
    if others := sorted(weights - set(names) - ({_INDEX} if len(shards) > 1 else set())):
        raise FileExistsError(f"fwht: {target} holds other weights ({', '.join(others)}); remove them, or name another folder")
    for name, shard in zip(names, shards, strict=True):
        _save_file(shard, target / name)
    if len(shards) > 1:
        total = sum(each.nbytes for shard in shards for each in shard.values())
        weight_map = {tensor: name for name, shard in zip(names, shards, strict=True) for tensor in shard}
        (target / _INDEX).write_text(json.dumps({"metadata": {"total_size": total}, "weight_map": weight_map}, indent=2))
    (target / _CONFIG).write_text(json.dumps(config, indent=2))


def _is_torch(given: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(given, torch.Tensor)


def _written(layer: Checked, kind: str) -> tuple:
    """The tensors as a file has them; int32 holds the words, and g_idx is there, since readers want it."""
    qweight, scales = layer.qweight.kept, layer.scales.kept
    qzeros, g_idx, bias = (None if each is None else each.kept for each in (layer.qzeros, layer.g_idx, layer.bias))
    k, n, groups = 8 * qweight.shape[0], qweight.shape[1], scales.shape[0]
    word = -0x77777778 if kind == "v2" else 0x77777777  # eight times 8, or 8 - 1
    if _is_torch(qweight):
        torch: Any = sys.modules["torch"]
        if qzeros is None:
            qzeros = torch.full((groups, n // 8), word, dtype=torch.int32, device="cpu")
        if g_idx is None:
            g_idx = torch.arange(k, dtype=torch.int32, device="cpu") // (k // groups)
        parts = qweight.view(torch.int32), qzeros.view(torch.int32), scales, g_idx, bias
        return tuple(None if each is None else each.clone() for each in parts)  # layers may share a tensor
    import numpy

    if qzeros is None:
        qzeros = numpy.full((groups, n // 8), word, numpy.int32)
    if g_idx is None:
        g_idx = (numpy.arange(k) // (k // groups)).astype(numpy.int32)
    return qweight.view(numpy.int32), qzeros.view(numpy.int32), scales, g_idx, bias


def _save_file(tensors: dict[str, Any], path: Path) -> None:
    kind = "torch" if _is_torch(next(iter(tensors.values()))) else "numpy"
    try:
        importlib.import_module(f"safetensors.{kind}").save_file(tensors, path, metadata={"format": "pt"})
    except _safetensors().SafetensorError as error:  # a full disk, for example, is no OSError there
        raise OSError(f"fwht: {path} cannot be written: {error}") from error
