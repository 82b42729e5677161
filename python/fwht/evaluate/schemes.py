"""What is quantized: named schemes, each a set of encodings (docs/quantize.md)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scheme:
    """Encodings of weights, inputs of linear layers, queries, keys and values; "" leaves them in 16 bits.

    "head" behind the format of q, k and v is one scale for each head of each sequence, the granularity of FlashAttention-3.
    Weights are rounded to nearest, or with gptq=True on calibration text.
    """

    name: str
    weights: str = ""
    inputs: str = ""
    q: str = ""
    k: str = ""
    v: str = ""
    gptq: bool = False

    @property
    def linear(self) -> bool:
        return bool(self.weights or self.inputs)


def _attention(name: str, encoding: str) -> Scheme:
    return Scheme(name, q=encoding, k=encoding, v=encoding)


def _cache(name: str, encoding: str) -> Scheme:
    return Scheme(name, k=encoding, v=encoding)


SCHEMES = {
    scheme.name: scheme
    for scheme in (
        Scheme("none"),
        _attention("fp8-attention", "e4m3:tensor"),
        _attention("fp8-attention-head", "e4m3:head"),
        _cache("kv8", "int8:row"),
        _cache("kv4", "int4:row"),
        _cache("kv4-mxfp4", "mxfp4"),
        _cache("kv4-nvfp4", "nvfp4"),
        Scheme("w8a8-int8", weights="int8:row", inputs="int8:row"),
        Scheme("w8a8-int8-tensor", weights="int8:row", inputs="int8:tensor"),
        Scheme("w8a8-fp8", weights="e4m3:row", inputs="e4m3:row"),
        Scheme("w8a8-fp8-tensor", weights="e4m3:row", inputs="e4m3:tensor"),
        Scheme("w4a16", weights="int4:128"),
        Scheme("w4a16-row", weights="int4:row"),
        Scheme("w4a16-gptq", weights="int4:128", gptq=True),
        Scheme("w4a16-row-gptq", weights="int4:row", gptq=True),
        Scheme("w4a16-mxfp4", weights="mxfp4"),
        Scheme("w4a16-nvfp4", weights="nvfp4"),
        Scheme("w4a8", weights="int4:row", inputs="int8:row"),
        Scheme("w4a4-int4", weights="int4:row", inputs="int4:row"),
        Scheme("w4a4-int4-gptq", weights="int4:row", inputs="int4:row", gptq=True),
        Scheme("w4a4-int4-128", weights="int4:128", inputs="int4:128"),
        Scheme("w4a4-mxfp4", weights="mxfp4", inputs="mxfp4"),
        Scheme("w4a4-nvfp4", weights="nvfp4", inputs="nvfp4"),
        Scheme("w4a4kv4-int4", weights="int4:row", inputs="int4:row", k="int4:row", v="int4:row"),
    )
}

DEFAULT = ("none", "fp8-attention", "kv8", "kv4", "w8a8-int8", "w8a8-fp8", "w4a16", "w4a4-int4", "w4a4-mxfp4", "w4a4-nvfp4")

DEMO = ("none", "fp8-attention", "kv4", "w8a8-int8", "w4a4-int4", "w4a4-nvfp4")


def named(names: str) -> list[Scheme]:
    """The schemes of a list "kv4,w4a16", each once, or "all". Raises ValueError with the known names."""
    wanted = list(SCHEMES) if names == "all" else list(dict.fromkeys(names.split(",")))
    for name in wanted:
        if name not in SCHEMES:
            raise ValueError(f"no scheme {name!r}; there are {', '.join(SCHEMES)}")
    return [SCHEMES[name] for name in wanted]
