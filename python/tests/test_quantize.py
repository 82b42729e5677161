"""Codes and scales: against the recipes worked out here in NumPy, against what they stand for, layouts, graphs, bad input."""

import re

import numpy as np
import pytest

import fwht
from conftest import capture, devices, needs_cuda, needs_torch, torch, truth
from fwht import quantize


def writes(encoding, device="cpu", dtype="float32", n=256):
    """Skips where no variant of the device writes it."""
    x = np.zeros((2, n), dtype) if device == "cpu" else torch.zeros(2, n, device=device, dtype=getattr(torch, dtype))
    try:
        fwht.hadamard_quantize(x, encoding, tensor_scale=1.0 if needs_number(encoding) else None)
    except NotImplementedError as error:
        pytest.skip(str(error))


def needs_number(encoding):
    return quantize.layout_of(encoding, 256).needs_tensor_scale


# --- layouts, which need no variant ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoding", "element", "bits", "kind", "storage"),  # of 5 rows of 256 elements
    [
        ("e4m3:row", "e4m3", 8, "float32", (5, 1, True)),
        ("e4m3:128", "e4m3", 8, "float32", (5, 2, True)),
        ("e4m3:128,ue8m0,mn,deepgemm", "e4m3", 8, "float32", (8, 2, False)),
        ("e4m3:128,ue8m0,packed,deepgemm", "e4m3", 8, "int32", (8, 1, False)),
        ("e4m3:tensor", "e4m3", 8, "float32", (1, 1, True)),
        ("int8:row", "int8", 8, "float32", (5, 1, True)),
        ("int4:row", "int4", 4, "float32", (5, 1, True)),
        ("mxfp8", "e4m3", 8, "uint8", (5, 8, True)),
        ("mxfp4", "e2m1", 4, "uint8", (5, 8, True)),
        ("nvfp4", "e2m1", 4, "float8_e4m3fn", (5, 16, True)),
        ("nvfp4:128x4", "e2m1", 4, "float8_e4m3fn", (128, 16, True)),
    ],
)
def test_layouts(encoding, element, bits, kind, storage):
    layout = quantize.layout_of(encoding, 256)
    assert (layout.element, layout.code_bits, layout.scale_dtype) == (element, bits, kind)
    assert layout.storage(5 * 256) == storage
    assert layout.needs_tensor_scale == encoding.startswith("nvfp4")
    assert quantize.layout_of("mxfp8:128x4", 96).storage(5 * 96) == (128, 4, True)  # three groups, padded to four


@devices
@pytest.mark.parametrize(
    "encoding",
    ["e4m3:row", "e4m3:128", "e4m3:128,ue8m0,mn,deepgemm", "e4m3:tensor,vllm_static", "int8:row", "mxfp4", "nvfp4", "nvfp4:128x4"],
)
def test_prepared_calls_give_new_tensors_like_the_first(encoding, device):
    writes(encoding, device, "float16")
    x = torch.randn(2, 3, 256, dtype=torch.float16, device=device)
    number = 3.0 if needs_number(encoding) else None
    fwht.clear_plans()
    with torch.inference_mode():
        first = fwht.hadamard_quantize(x, encoding, tensor_scale=number)
    kept = [fwht.hadamard_quantize(x, encoding, tensor_scale=number) for _ in range(3)]
    assert len({each.codes.data_ptr() for each in kept}) == 3
    for each in kept:
        for got, wanted in zip(each, first):
            if wanted is None:
                assert got is None
                continue
            assert got.dtype == wanted.dtype and got.shape == wanted.shape and got.stride() == wanted.stride()
            assert torch.equal(got.contiguous().view(torch.uint8), wanted.contiguous().view(torch.uint8)) and not got.is_inference()


@pytest.mark.parametrize("n", [0, -128])
@pytest.mark.parametrize("encoding", ["e4m3:row", "e4m3:128", "int4:row", "mxfp4"])
def test_rows_without_elements(encoding, n):
    with pytest.raises(ValueError, match=f"n={n} must be between 1 and"):
        quantize.layout_of(encoding, n)
    if n == 0 and torch is not None:
        with pytest.raises(ValueError, match="n=0 must be between 1 and"):
            fwht.hadamard_quantize(torch.empty(3, 0, device="meta"), encoding)


def test_a_token_of_several_rows():
    layout = quantize.layout_of("e4m3:row,t512", 128)
    assert layout.token == 512 and layout.rows(8 * 128) == 2 and layout.columns == 1


# --- values ----------------------------------------------------------------------------------------------------------


def rows(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype("float32")


@pytest.mark.parametrize("shape", [(3, 64), (2, 3, 256), (4096,)])
def test_int8_per_row(shape):
    """s = a / 127, codes = round(y * (127 / a)): the recipe in NumPy."""
    writes("int8:row")
    x = rows(*shape)
    codes, scales = fwht.hadamard_quantize(x, "int8:row")
    y = fwht.hadamard_transform(x, None)
    a = np.abs(y).max(-1, keepdims=True)
    assert codes.dtype == np.int8 and codes.shape == shape
    assert scales.shape == (*shape[:-1], 1) and np.array_equal(scales, a / np.float32(127))
    assert np.array_equal(codes, np.rint(y * (np.float32(127) / a)).astype("int8"))


def test_int4_has_the_even_element_in_the_low_half():
    writes("int4:row")
    x = rows(3, 64)
    codes, scales = fwht.hadamard_quantize(x, "int4:row")
    y = fwht.hadamard_transform(x, None)
    a = np.abs(y).max(-1, keepdims=True)
    expected = np.rint(y * (np.float32(7) / a)).astype("int8")
    assert codes.dtype == np.uint8 and codes.shape == (3, 32)
    low, high = (codes & 15).astype("int8"), (codes >> 4).astype("int8")
    assert np.array_equal(np.where(low > 7, low - 16, low), expected[:, ::2])
    assert np.array_equal(np.where(high > 7, high - 16, high), expected[:, 1::2])
    assert np.array_equal(scales, a / np.float32(7))


# Half a step of the format beside a number, relative; and beside zero, relative to the largest of the group.
STEPS = {"e4m3": (2.0**-4, 2.0**-10 / 448), "int8": (0, 0.5 / 127), "int4": (0, 0.5 / 7), "e2m1": (0.25, 0.25 / 6)}
ENCODINGS = ["e4m3:row", "e4m3:128", "e4m3:tensor", "e4m3:128,ue8m0,mn,deepgemm", "e4m3:128,ue8m0,packed,deepgemm", "int8:row",
             "int8:64", "int4:row", "int4:32", "mxfp8", "mxfp8:128x4", "mxfp4", "mxfp4:rceil", "nvfp4", "nvfp4:128x4"]  # fmt: skip


@devices
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_what_codes_and_scales_stand_for(device, encoding):
    dtype = "float32" if device == "cpu" else "bfloat16"
    writes(encoding, device, dtype)
    layout = quantize.layout_of(encoding, 256)
    x = torch.from_numpy(rows(2, 67, 256)).to(device=device, dtype=getattr(torch, dtype))
    y = torch.from_numpy(truth(x.cpu().double().numpy(), None))
    number = float(448 * 6 / y.abs().max()) if layout.needs_tensor_scale else None
    codes, scales = fwht.hadamard_quantize(x, encoding, tensor_scale=number)
    assert codes.shape == (2, 67, 256 * layout.code_bits // 8) and codes.device == x.device
    got = quantize.dequantize(codes, scales, encoding, tensor_scale=number).cpu().double()
    near, floor = STEPS[layout.element]
    group = y.numel() if layout.whole_tensor else 256 // layout.columns
    largest = y.reshape(-1, group).abs().amax(-1, keepdim=True).expand(-1, group).reshape(y.shape)
    # A scale that is a power of two, or that is rounded to e4m3 itself, is up to twice as large, or so much too small that
    # the largest element is cut to M (2^floor(log2 a): by a quarter at most).
    coarse = layout.scale_type in ("ue8m0", "e8m0", "e4m3")
    allowed = near * y.abs() + floor * largest * (2 if coarse else 1.01) + 2.0**-8 * y.abs() * (dtype == "bfloat16")
    if coarse:
        allowed = allowed + 0.25 * largest * (y.abs() > 0.7 * largest)
    assert ((got - y).abs() <= allowed + 1e-6).all(), ((got - y).abs() - allowed).max()


@devices
@pytest.mark.parametrize("encoding", [*ENCODINGS, "e4m3:row,t512", "e4m3:row/f32", "int4:row,quarot", "e4m3:tensor,vllm_static"])
def test_a_quantizer_alone(device, encoding, monkeypatch):
    """Where the transform is exact (small integers, n = 4^4), codes and scales are those of the fused kernel, bit for bit."""
    writes(encoding, device, "float16")
    x = torch.from_numpy(np.random.default_rng(1).integers(-8, 9, (3, 4, 256))).to(device=device, dtype=torch.float16)
    y = fwht.hadamard_transform(x)
    number = 3.0 if quantize.layout_of(encoding, 256).needs_tensor_scale else None
    fused, alone = fwht.hadamard_quantize(x, encoding, tensor_scale=number), quantize.quantize(y, encoding, tensor_scale=number)
    assert torch.equal(fused.codes.view(torch.uint8), alone.codes.view(torch.uint8))
    if fused.scales is None:
        assert alone.scales is None
    else:
        assert alone.scales.stride() == fused.scales.stride() and torch.equal(alone.scales.float(), fused.scales.float())
    read = quantize.dequantize(*alone, encoding, tensor_scale=number)
    half = quantize.round_trip(y, encoding, tensor_scale=number)
    assert half.dtype is y.dtype and torch.equal(half, read.to(y.dtype))
    assert torch.equal(quantize.round_trip(x, encoding, rotate=True, tensor_scale=number), half)
    monkeypatch.setattr(quantize, "_SLICE", 64)  # a large tensor goes in slices
    assert torch.equal(quantize.dequantize(*alone, encoding, tensor_scale=number), read)


@needs_torch
def test_a_quantizer_alone_refuses():
    x = torch.ones(2, 64)
    with pytest.raises(ValueError, match="needs tensor_scale"):
        quantize.quantize(x, "nvfp4")
    with pytest.raises(ValueError, match="two codes share a byte"):
        quantize.quantize(torch.ones(2, 63), "int4:row")
    for given in ({"operator": "64"}, {"signs": fwht.operators.random_signs(64, 1)}, {"dense": torch.eye(64)}):
        with pytest.raises(ValueError, match="rotate is False"):
            quantize.round_trip(x, "int8:row", **given)
    with pytest.raises(ValueError, match="codes of 4 bits"):
        quantize.dequantize(torch.zeros(2, 64, dtype=torch.int8), None, "int4:row")
    assert quantize.round_trip(x, "nvfp4").eq(1).all()
    assert quantize.round_trip(x, "nvfp4", rotate=True).tolist() == 2 * [[8] + 63 * [0]]  # the scale is of what is written, not of x
    assert quantize.round_trip(x * 2.0**-100, "nvfp4").eq(2.0**-100).all()
    assert quantize.quantize(np.zeros((0, 64), "float32"), "int8:row").codes.shape == (0, 64)


def bytes_of(x):
    return x.tobytes() if isinstance(x, np.ndarray) else bytes(x.contiguous().flatten().view(torch.uint8).tolist())


@pytest.mark.parametrize("library", ["numpy", pytest.param("torch", marks=needs_torch)])
@pytest.mark.parametrize("encoding", [*ENCODINGS, "e4m3:row,t512", "e4m3:tensor,vllm_static"])
def test_codes_and_scales_of_the_caller(library, encoding):
    writes(encoding)
    x = rows(2, 6, 256) if library == "numpy" else torch.from_numpy(rows(2, 6, 256))
    number = 3.0 if needs_number(encoding) else None
    for call in (fwht.hadamard_quantize, quantize.quantize):
        expected, out = (call(each, encoding, tensor_scale=number) for each in (x, x * 0 + 1))
        got = call(x, encoding, tensor_scale=number, out=tuple(out))
        assert got.codes is out.codes and got.scales is out.scales
        assert bytes_of(got.codes) == bytes_of(expected.codes)
        assert expected.scales is None or bytes_of(got.scales) == bytes_of(expected.scales)


@pytest.mark.parametrize("library", ["numpy", pytest.param("torch", marks=needs_torch)])
def test_codes_and_scales_that_cannot_be_written(library):
    x = rows(4, 64) if library == "numpy" else torch.from_numpy(rows(4, 64))
    for call in (fwht.hadamard_quantize, quantize.quantize):
        codes, scales = call(x, "int8:row")
        wide = codes.repeat(2, 1) if library == "numpy" else codes.repeat_interleave(2, 1)
        for error, words, out in (
            (TypeError, "out is a int; it must be .codes, scales.", 3),
            (TypeError, "scales of out are a builtins.NoneType", (codes, None)),
            (ValueError, "codes of out have shape .4, 128.", (wide, scales)),
            (ValueError, "codes of out have shape .4, 64., strides .128, 2.", (wide[:, ::2], scales)),
            (ValueError, r"scales of out have shape .4,., .* shape \(4, 1\), contiguous, and dtype float32", (codes, scales[:, 0])),
            (ValueError, "codes of out .* dtype int8", (x, scales)),
        ):
            with pytest.raises(error, match=words):
                call(x, "int8:row", out=out)
        with pytest.raises(ValueError, match="out has scales, but encoding e4m3:tensor,vllm_static has none"):
            call(x, "e4m3:tensor,vllm_static", tensor_scale=1.0, out=(codes, scales))
        for given in (x[:, :32], x[:, ::2]):  # the second is copied
            codes, scales = call(given, "int8:row")
            of_x = x.view(np.int8 if library == "numpy" else torch.int8).reshape(-1)[: 4 * 32].reshape(4, 32)
            for name, out in (("codes", (of_x, scales)), ("scales", (codes, x.reshape(-1)[4:8].reshape(4, 1)))):
                before = bytes_of(x)
                with pytest.raises(ValueError, match=f"x and {name} of out overlap"):
                    call(given, "int8:row", out=out)
                assert bytes_of(x) == before
    if library == "torch":
        codes, scales = quantize.quantize(x, "int8:row")
        with pytest.raises(ValueError, match="codes of out .* on x's device"):
            fwht.hadamard_quantize(x, "int8:row", out=(codes.to("meta"), scales))
        before = codes._version
        fwht.hadamard_quantize(x, "int8:row", out=(codes, scales))
        assert codes._version > before
        torch.compiler.reset()
        wanted = fwht.hadamard_quantize(2 * x, "int8:row")
        torch.compile(lambda x: fwht.hadamard_quantize(x, "int8:row", out=(codes, scales)).codes, fullgraph=True, backend="aot_eager")(2 * x)
        assert torch.equal(codes, wanted.codes) and torch.equal(scales, wanted.scales)


@needs_torch
@pytest.mark.parametrize("encoding", ["e4m3:128,mn", "e4m3:128,ue8m0,packed,deepgemm", "int8:row"])
def test_later_calls_give_the_strides_of_the_first(encoding):
    """Of one column, too, whose stride DeepGEMM looks at; eight rows of scales want no padding."""
    x = torch.ones(8, 128)
    assert len({fwht.hadamard_quantize(x, encoding).scales.stride() for _ in range(3)}) == 1


@needs_torch
def test_what_is_not_read_as_another_encoding():
    """Codes and scales that do not belong to the encoding give no numbers."""
    x, read = torch.randn(4, 64), quantize.dequantize
    e4m3, int8, int4, mx, nv = (quantize.quantize(x, e, tensor_scale=3.0 if e == "nvfp4" else None) for e in ("e4m3:row", "int8:row", "int4:row", "mxfp4", "nvfp4"))
    one = quantize.quantize(x, "e4m3:row,t128")
    none = torch.zeros(4, 64, dtype=torch.float8_e4m3fn)
    for error, words, call in (
        (ValueError, "codes are torch.int8, but encoding e4m3:row has codes of 8 bits in float8_e4m3fn", lambda: read(*int8, "e4m3:row")),
        (ValueError, "codes are torch.float8_e4m3fn, but encoding int8:row has codes of 8 bits in int8", lambda: read(*e4m3, "int8:row")),
        (ValueError, r"scales are torch.float32 of shape \(4, 1\); for 256 elements encoding mxfp4 has uint8 of shape \(4, 2\)", lambda: read(*int4, "mxfp4")),
        (ValueError, r"uint8 of shape \(4, 2\); .* encoding nvfp4 has float8_e4m3fn of shape \(4, 4\)", lambda: read(*mx, "nvfp4", tensor_scale=3.0)),
        (ValueError, r"of shape \(2, 4\); .* encoding e4m3:32 has float32 of shape \(4, 2\)", lambda: read(e4m3.codes, torch.ones(2, 4), "e4m3:32")),
        (ValueError, "tensor_scale=3.0 is given, but encoding e4m3:row has none", lambda: read(*e4m3, "e4m3:row", tensor_scale=3.0)),
        (ValueError, "encoding nvfp4 needs tensor_scale", lambda: read(*nv, "nvfp4")),
        (ValueError, "tensor_scale=-1.0 must be positive", lambda: read(*nv, "nvfp4", tensor_scale=-1.0)),
        (ValueError, "scales are given, but encoding e4m3:tensor,vllm_static has none", lambda: read(*e4m3, "e4m3:tensor,vllm_static", tensor_scale=1.0)),
        (ValueError, "192 elements are no whole tokens of 128", lambda: read(one.codes[:3], one.scales, "e4m3:row,t128")),
        (ValueError, "at least one dimension", lambda: read(none[0, 0], None, "e4m3:row")),
        (TypeError, "scales are a builtins.NoneType; they must be a PyTorch tensor", lambda: read(none, None, "e4m3:row")),
        (TypeError, "codes are a numpy.ndarray; they must be a PyTorch tensor", lambda: read(int8.codes.numpy(), int8.scales, "int8:row")),
        (TypeError, "encoding=None must be a text", lambda: read(*int8, None)),
        (TypeError, "encoding=None must be a text", lambda: quantize.round_trip(x, None)),
    ):
        with pytest.raises(error, match=words):
            call()
    for number in (1e-60, 1e39, 1e-39):  # of which float32 has none, and of 1e-39 no reciprocal
        for call in (lambda **s: read(*nv, "nvfp4", **s), lambda **s: quantize.quantize(x, "nvfp4", **s), lambda **s: fwht.hadamard_quantize(x, "nvfp4", **s)):
            with pytest.raises(ValueError, match=f"tensor_scale={re.escape(str(number))} must be positive and finite in float32"):
                call(tensor_scale=number)
    numbers = read(*int8, "int8:row")
    for scales in (int8.scales.view(2, 2, 1), int8.scales.view(2, 2), int8.scales, int8.scales.view(4)):
        assert torch.equal(read(int8.codes.view(2, 2, 64), scales, "int8:row").view(4, 64), numbers)
    for dtype in ("float16", torch.int8, torch.complex64, torch.float64):
        with pytest.raises(TypeError, match="dtype=.* must be torch.float16, torch.bfloat16, torch.float32 or None"):
            read(*int8, "int8:row", dtype=dtype)


@needs_torch
def test_scales_of_rows_in_another_order_are_refused():
    """One column has no order of its own by which they could be told apart."""
    codes, scales = quantize.quantize(torch.randn(3, 2, 64), "int8:row")
    numbers = quantize.dequantize(codes, scales, "int8:row")
    for shape in ((2, 3, 1), (2, 3), (1, 6), (6, 1, 1)):
        with pytest.raises(ValueError, match=r"for 384 elements encoding int8:row has float32 of shape \(6, 1\) or \(3, 2, 1\)"):
            quantize.dequantize(codes, scales.reshape(shape), "int8:row")
    groups = quantize.quantize(torch.randn(6, 64), "int8:32")  # of several columns other dimensions may be in front
    assert quantize.dequantize(groups.codes, groups.scales.view(3, 2, 2), "int8:32").shape == (6, 64)
    tensor = quantize.quantize(torch.randn(3, 2, 64), "int8:tensor")
    for shape in ((), (1,), (1, 1), (1, 1, 1)):
        assert quantize.dequantize(tensor.codes, tensor.scales.view(shape), "int8:tensor").shape == numbers.shape


@needs_torch
@pytest.mark.parametrize("encoding", ["mxfp4:t64", "e4m3:tensor,t64", "e4m3:row,t64", "int8:row,t128"])
def test_a_token_that_is_named_is_not_named_again(encoding):
    x = torch.randn(4, 64)
    plain = encoding.replace(":t64", "").replace(",t64", "")
    assert all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(quantize.quantize(x, encoding), quantize.quantize(x, plain)))
    assert torch.equal(quantize.round_trip(x, encoding), quantize.round_trip(x, plain))


@needs_torch
@pytest.mark.parametrize(("encoding", "n"), [("int4:1", 64), ("int4:3", 66), ("int4:5", 10), ("int4:33", 66)])
def test_groups_that_share_a_byte(encoding, n, monkeypatch):
    x = torch.randn(7, n)
    codes, scales = quantize.quantize(x, encoding)
    low, high = (codes & 15).to(torch.int8), (codes >> 4).to(torch.int8)
    whole = ((torch.stack([low, high], -1).reshape(7, n) ^ 8) - 8).float()
    wanted = whole * scales.reshape(7, -1).repeat_interleave(n // scales.shape[-1], -1)
    for most in (quantize._SLICE, 12, 1):
        monkeypatch.setattr(quantize, "_SLICE", most)
        assert torch.equal(quantize.dequantize(codes, scales, encoding), wanted)
    assert torch.equal(quantize.round_trip(x, encoding), wanted)


@needs_torch
@pytest.mark.parametrize("encoding", ["mxfp4", "int4:32", "nvfp4", "int4:row,t64", "e4m3:row"])
def test_round_trips_of_rows_of_one_element_have_their_shape(encoding):
    x = torch.randn(4, 16, 1)
    y = quantize.round_trip(x, encoding)
    assert y.shape == x.shape and torch.equal(y.view(-1), quantize.round_trip(x.view(-1, 1), encoding).view(-1))


@needs_torch
def test_a_scale_of_the_tensor_that_lies_on_the_host():
    x = torch.randn(4, 64)
    wanted = quantize.quantize(x, "nvfp4", tensor_scale=3.0)
    for number in (torch.tensor(3.0), torch.full((1,), 3.0), torch.full((1, 1), 3.0), np.full(1, 3.0, "float32"), np.float64(3)):
        assert torch.equal(quantize.quantize(x, "nvfp4", tensor_scale=number).codes, wanted.codes)
        assert torch.equal(quantize.dequantize(*wanted, "nvfp4", tensor_scale=number), quantize.dequantize(*wanted, "nvfp4", tensor_scale=3.0))
    for number in (torch.ones(2), torch.ones(1).double(), np.ones(2, "float32")):
        with pytest.raises(ValueError, match="tensor_scale must be one element of float32; it has shape"):
            quantize.quantize(x, "nvfp4", tensor_scale=number)
    for number in (torch.tensor(1.0, requires_grad=True), torch.ones(1, requires_grad=True)):
        with pytest.raises(RuntimeError, match=r"tensor_scale requires grad, .* pass tensor_scale.detach\(\)"):
            quantize.quantize(x, "nvfp4", tensor_scale=number)
    with pytest.raises(TypeError, match=r"epsilon must be a number .* pass epsilon.item\(\)"):
        fwht.hadamard_quantize(x, "e4m3:row", prologue=quantize.RmsNorm(torch.ones(64), torch.ones(1)))


@needs_torch
def test_a_cache_of_another_library_than_the_rows():
    encoding = "e4m3:128,ue8m0,deepseek_v32"
    cache, slots, x = torch.zeros(1, 4, 132, dtype=torch.uint8), torch.arange(3), torch.ones(3, 128)
    for given in ((cache, slots.numpy(), x), (cache, slots, x.numpy()), (cache.numpy(), slots, x)):
        with pytest.raises(TypeError, match="cache is a .*, slots is a .*, x is a .*; they must not be mixed"):
            quantize.into_cache(*given, encoding)


@needs_torch
@pytest.mark.parametrize("encoding", ["e4m3:row", "int4:32", "mxfp4", "mxfp8:128x4", "e4m3:tensor", "e4m3:32,ue8m0,mn,deepgemm"])
def test_round_trips_in_one_graph(encoding):
    """Of any number of rows and of any length."""
    torch.compiler.reset()
    fwht.hadamard_transform(torch.ones(2))  # loads what a graph cannot import
    for rotate in (False, True):
        f = lambda x: quantize.round_trip(x, encoding, rotate=rotate)
        compiled = torch.compile(f, fullgraph=True, backend="aot_eager")
        for shape in ((4, 64), (8, 64), (4, 128)):
            x = torch.randn(shape)
            assert torch.equal(compiled(x), f(x))


@needs_torch
@pytest.mark.filterwarnings("ignore:There is a performance drop")
@pytest.mark.parametrize("encoding", ["int8:row", "int4:32", "mxfp4", "e4m3:tensor"])
def test_round_trips_over_a_dimension(encoding):
    x = torch.randn(4, 3, 64)
    for rotate in (False, True):
        f = lambda v: quantize.round_trip(v, encoding, rotate=rotate)
        assert torch.equal(torch.vmap(f)(x), torch.stack([f(each) for each in x]))
        assert torch.equal(torch.vmap(f, in_dims=1, out_dims=1)(x), torch.stack([f(each) for each in x.unbind(1)], 1))


@needs_torch
@pytest.mark.parametrize("dynamic", [None, True])
def test_numbers_that_change_in_one_graph(dynamic):
    """They become symbols of the graph, which nothing is asked that a float alone answers."""
    fwht.hadamard_transform(torch.ones(2))  # loads what a graph cannot import
    x, weight = torch.randn(4, 64), torch.randn(64)
    static = torch.empty(4, 64, dtype=torch.float8_e4m3fn)
    calls = (
        lambda z: fwht.hadamard_quantize(x, "nvfp4", tensor_scale=z).codes, lambda z: quantize.quantize(x, "nvfp4", tensor_scale=z).codes,
        lambda z: quantize.round_trip(x, "nvfp4", tensor_scale=z),
        lambda z: fwht.hadamard_quantize(x, "e4m3:tensor,vllm_static", tensor_scale=z, out=(static, None)).codes.float(),
        lambda z: fwht.hadamard_quantize(x, "int8:row", prologue=quantize.RmsNorm(weight, z)).codes,
        lambda z: fwht.hadamard_quantize(x * z, "int8:row", prologue=quantize.RmsNorm(weight)).codes,
    )  # fmt: skip
    for f in calls:
        torch.compiler.reset()
        compiled = torch.compile(f, fullgraph=True, dynamic=dynamic, backend="aot_eager")
        for number in (2.0, 0.5, 3):
            assert torch.equal(compiled(number).clone(), f(number))
    with pytest.raises(Exception, match="tensor_scale=-1.0 must be positive"):
        torch.compile(calls[0], fullgraph=True, dynamic=dynamic, backend="aot_eager")(-1.0)


@needs_torch
def test_numpy_and_torch_agree():
    x = rows(5, 128)
    for encoding in ("int8:row", "e4m3:row", "mxfp4", "e4m3:64,ue8m0,mn,deepgemm"):
        writes(encoding, n=128)
        codes, scales = fwht.hadamard_quantize(x, encoding)
        tensor = fwht.hadamard_quantize(torch.from_numpy(x), encoding)
        assert np.array_equal(codes.view("uint8"), tensor.codes.view(torch.uint8).numpy())
        assert scales.shape == tuple(tensor.scales.shape) and np.array_equal(scales, tensor.scales.numpy())


@devices
@pytest.mark.parametrize("n", [512, 16384, 32768])
def test_the_unfused_chain_has_the_same_bits(device, n):
    """By the variant that the plan names; and by default, where plain rows have the same."""
    writes("int8:row", device, "float16", n)
    coded = fwht.plan(n, 9, torch.float16, device=device, encoding="int8:row")
    assert fwht.supports(n, torch.float16, rows=9, device=device, encoding="int8:row")
    assert "group=48" in fwht.supports(n, torch.float16, device=device, encoding="int8:48").why_not
    plain = fwht.plan(n, 9, torch.float16, device=device, inplace=False)
    x = torch.from_numpy(rows(9, n)).to(device, torch.float16)
    codes, scales = fwht.hadamard_quantize(x, "int8:row")
    arithmetic = coded.numerics["arithmetic"]
    for variant in [arithmetic] + [None] * (plain.numerics["arithmetic"] == arithmetic):
        y = fwht.hadamard_transform(x, None, variant=variant).float()
        a = y.abs().amax(-1, keepdim=True)
        most = torch.full_like(a, 127)  # PyTorch divides a number by a tensor, and on CUDA a tensor by one, as a product
        assert torch.equal(scales, a / most) and torch.equal(codes, (y * (most / a)).round().to(torch.int8))
    with pytest.raises(ValueError, match="only answers questions"):
        coded.execute(x)


@needs_torch
def test_other_operators_strides_and_empty_tensors():
    writes("int8:row", n=96)
    x = torch.from_numpy(rows(96, 8)).t()  # elements not side by side
    signs = fwht.operators.random_signs(96, 5)
    codes, scales = fwht.hadamard_quantize(x, "int8:row", signs=signs)
    y = fwht.operators.transform(x, None, None, signs=signs)
    assert torch.equal(scales, y.abs().amax(-1, keepdim=True) / 127)
    empty = fwht.hadamard_quantize(torch.empty(0, 64), "int8:row")
    assert empty.codes.shape == (0, 64) and empty.scales.shape == (0, 1)


@needs_torch
@pytest.mark.parametrize("encoding", ["nvfp4", "e4m3:tensor,vllm_static"])
def test_a_scale_of_the_whole_tensor_may_be_a_tensor_on_the_host(encoding):
    x = torch.randn(6, 256, generator=torch.Generator().manual_seed(0))
    scale = 448 * 6 / x.abs().max() if encoding == "nvfp4" else x.abs().max() / 448
    number = float(scale)
    for call in (
        lambda s: fwht.hadamard_quantize(x, encoding, tensor_scale=s).codes, lambda s: quantize.quantize(x, encoding, tensor_scale=s).codes,
        lambda s: quantize.round_trip(x, encoding, tensor_scale=s), lambda s: quantize.round_trip(x, encoding, rotate=True, tensor_scale=s),
        lambda s: quantize.dequantize(*quantize.quantize(x, encoding, tensor_scale=number), encoding, tensor_scale=s),
    ):  # fmt: skip
        expected = call(number)
        assert scale.shape == () and torch.equal(call(scale).view(torch.uint8), expected.view(torch.uint8))
        assert torch.equal(call(scale.numpy()).view(torch.uint8), expected.view(torch.uint8))
    for error, message, other in (
        (ValueError, r"tensor_scale must be one element of float32; it has shape \(2,\)", torch.ones(2)),
        (ValueError, "tensor_scale is on meta, x is on cpu", torch.tensor(1.0, device="meta")),
    ):
        for call in (fwht.hadamard_quantize, quantize.quantize, quantize.round_trip):
            with pytest.raises(error, match=message):
                call(x, encoding, tensor_scale=other)


@needs_torch
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_the_default_dtype_changes_nothing(dtype):
    x = 1e-3 * torch.randn(4, 64, generator=torch.Generator().manual_seed(0))

    def results():
        static = quantize.quantize(x, "e4m3:tensor,vllm_static", tensor_scale=1e-5)
        return quantize.round_trip(x, "nvfp4"), quantize.dequantize(*static, "e4m3:tensor,vllm_static", tensor_scale=1e-5)

    wanted, before = results(), torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, dtype))
    try:
        assert all(map(torch.equal, results(), wanted))
    finally:
        torch.set_default_dtype(before)


@devices
@pytest.mark.parametrize("largest", [0.0, 2.0**-125, 2.0**100])
def test_a_scale_that_is_made_of_the_largest_element_is_finite(device, largest):
    writes("nvfp4", device, "float32")
    x = torch.full((2, 64), largest, device=device)
    y = quantize.round_trip(x, "nvfp4")
    assert torch.isfinite(y).all() and (y.abs() <= 1.25 * x).all() and (largest < 2.0**-110 or torch.allclose(y, x, rtol=0.25))


@needs_torch
@pytest.mark.parametrize("value", ["inf", "nan"])
def test_a_scale_is_not_made_of_what_is_not_finite(value):
    x = torch.ones(2, 64)
    x[1, 2] = float(value)
    for rotate in (False, True):
        with pytest.raises(ValueError, match="fwht: the largest element is (inf|nan), of which nvfp4 has no factor; pass tensor_scale, or x"):
            quantize.round_trip(x, "nvfp4", rotate=rotate)
    assert quantize.round_trip(x, "nvfp4", tensor_scale=1.0)[0].isfinite().all()


@devices
@pytest.mark.parametrize("encoding", ["nvfp4", "nvfp4:128x4", "e4m3:tensor,vllm_static"])
def test_a_scale_of_the_whole_tensor_may_lie_in_memory(device, encoding):
    """The kernel reads it: the bytes are those of the number. The operator takes it on the host, too."""
    import fwht.torch

    writes(encoding, device, "float16")
    x = torch.from_numpy(rows(9, 256)).to(device, torch.float16)
    for number in (0.37, 448 * 6 / 4.5, 1e-25, 1e25):
        at = torch.tensor(number, device=device)
        expected = fwht.hadamard_quantize(x, encoding, tensor_scale=number)
        for given in (at, at.reshape(1)):
            got = torch.ops.fwht.hadamard_quantize(x, encoding, tensor_scale_at=given)
            assert all(torch.equal(a.view(torch.uint8), b.view(torch.uint8)) for a, b in zip(got, expected) if b is not None)
            if device != "cpu":
                for _ in range(2):  # the second call is the short one
                    got = fwht.hadamard_quantize(x, encoding, tensor_scale=given)
                    assert torch.equal(got.codes.view(torch.uint8), expected.codes.view(torch.uint8))
                both = [quantize.dequantize(*expected, encoding, tensor_scale=each) for each in (number, given)]
                assert torch.equal(*both)
    torch.library.opcheck(torch.ops.fwht.hadamard_quantize.default, (x, encoding), {"tensor_scale_at": at})
    refused = (
        (at, "is given, but encoding int8:row has none", "int8:row"),
        (at.double(), "must be one element of float32; .* dtype torch.float64", encoding),
        (torch.ones(2, device=device), r"must be one element of float32; it has shape \(2,\)", encoding),
    )
    for given, message, asked in refused:
        with pytest.raises(ValueError, match=message):
            torch.ops.fwht.hadamard_quantize(x, asked, tensor_scale_at=given)
    with pytest.raises(ValueError, match="tensor_scale=2.0 and tensor_scale_at are both given"):
        torch.ops.fwht.hadamard_quantize(x, encoding, tensor_scale=2.0, tensor_scale_at=at)


@needs_torch
def test_a_scale_of_the_whole_tensor_on_a_device_in_graphs():
    """As PyTorch traces it, without the device."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        x, at = torch.empty(6, 256, device="cuda"), torch.empty((), device="cuda")
        codes, scales = fwht.hadamard_quantize(x, "nvfp4", tensor_scale=at)
        assert codes.shape == (6, 128) and scales.shape == (6, 16) and codes.device.type == "cuda"
        with pytest.raises(ValueError, match="must be one element of float32"):
            fwht.hadamard_quantize(x, "nvfp4", tensor_scale=torch.empty(2))
        with pytest.raises(RuntimeError, match="tensor_scale requires grad"):
            fwht.hadamard_quantize(x, "nvfp4", tensor_scale=at.requires_grad_())


@needs_cuda
@pytest.mark.parametrize("encoding", ["nvfp4", "e4m3:tensor,vllm_static"])
def test_a_graph_reads_the_scale_of_each_replay(encoding):
    x = torch.from_numpy(rows(64, 4096)).to("cuda", torch.bfloat16)
    at, stream = torch.tensor(2.0, device="cuda"), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        fwht.hadamard_quantize(x, encoding, tensor_scale=at)
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with capture(graph):
        got = fwht.hadamard_quantize(x, encoding, tensor_scale=at)
    for number in (0.5, 3.0):
        at.fill_(number)
        graph.replay()
        expected = fwht.hadamard_quantize(x, encoding, tensor_scale=number)
        assert torch.equal(got.codes.view(torch.uint8), expected.codes.view(torch.uint8))



@devices
def test_the_second_call_of_a_kind(device, monkeypatch):
    """It goes straight into the library, with the same bits and the same refusals."""
    import fwht.torch

    x = torch.from_numpy(rows(9, 256)).to(device, torch.float16)
    for encoding, first, second in (("e4m3:128,ue8m0,mn,deepgemm", None, None), ("nvfp4", 100.0, 200.0)):
        writes(encoding, device, "float16")
        fwht.hadamard_quantize(x, encoding, tensor_scale=first)
        with monkeypatch.context() as patch:
            patch.setattr(fwht._torch.calls, "known", lambda *_: None)
            wanted = fwht.hadamard_quantize(x, encoding, tensor_scale=second)
        with monkeypatch.context() as patch:
            patch.setattr(fwht._torch.eager, "_op_quantize", None)
            got = fwht.hadamard_quantize(x, encoding, tensor_scale=second)
        for a, b in zip(got, wanted):
            assert a.shape == b.shape and a.stride() == b.stride() and torch.equal(a.float(), b.float())
    with pytest.raises(ValueError, match="tensor_scale=-1.0 must be positive"):
        fwht.hadamard_quantize(x, "nvfp4", tensor_scale=-1.0)
    with pytest.raises(RuntimeError, match="does not support automatic differentiation"):
        fwht.hadamard_quantize(x.clone().requires_grad_(), "nvfp4", tensor_scale=1.0)


@needs_torch
def test_graphs():
    from torch._subclasses import FakeTensorMode

    writes("mxfp4", n=64)
    x = torch.from_numpy(rows(5, 64))
    torch._dynamo.reset()
    f = torch.compile(lambda t: fwht.hadamard_quantize(t * 2, "mxfp4"), fullgraph=True, backend="aot_eager")
    codes, scales = f(x)
    expected = fwht.hadamard_quantize(x * 2, "mxfp4")
    assert torch.equal(codes, expected.codes) and torch.equal(scales, expected.scales)
    with FakeTensorMode():
        fake = fwht.hadamard_quantize(torch.empty(4, 64), "e4m3:32,ue8m0,mn,deepgemm")
        assert fake.codes.dtype == torch.float8_e4m3fn and fake.scales.stride() == (1, 4)
    torch.library.opcheck(torch.ops.fwht.hadamard_quantize.default, (x, "int8:row"))


# --- in front of the transform, and pages ------------------------------------------------------------------------------


def turned(x, cos_sin, positions, heads, interleaved):
    """Rotary embedding in NumPy, each operation rounded to float32."""
    width = cos_sin.shape[1]
    half = width // 2
    a, b = (slice(0, width, 2), slice(1, width, 2)) if interleaved else (slice(0, half), slice(half, width))
    c, s = np.split(np.repeat(cos_sin[positions], heads, 0), 2, axis=1)
    y = x.copy()
    y[:, a], y[:, b] = x[:, a] * c - x[:, b] * s, x[:, b] * c + x[:, a] * s
    return y


def placed(library, *arrays):
    return arrays if library == "numpy" else [torch.from_numpy(a) for a in arrays]


LIBRARIES = pytest.mark.parametrize("library", ["numpy", pytest.param("torch", marks=needs_torch)])


@LIBRARIES
@pytest.mark.parametrize("encoding", ["e4m3:row", "mxfp4"])
@pytest.mark.parametrize(("heads", "interleaved"), [(1, False), (3, True)])
def test_rope_in_front_of_the_transform(library, encoding, heads, interleaved):
    writes(encoding, n=64)
    x, cos_sin, positions = rows(6, 64), rows(5, 32), np.array([4, 0, 1, 3, 2, 0][: 6 // heads])
    y = turned(x, cos_sin, positions, heads, interleaved)
    x, y, cos_sin, positions = placed(library, x, y, cos_sin, positions)
    signs = fwht.operators.random_signs(64, 5)
    rope = quantize.Rope(cos_sin, positions, heads, interleaved)
    got = fwht.hadamard_quantize(x, encoding, signs=signs, prologue=rope)
    want = fwht.hadamard_quantize(y, encoding, signs=signs)
    assert all(np.array_equal(bits(a), bits(b)) for a, b in zip(got, want))


def bits(array):
    return array if isinstance(array, np.ndarray) else array.view(torch.uint8).numpy()


@LIBRARIES
def test_rms_norm_in_front_of_the_transform(library):
    writes("e4m3:row", n=64)
    x = np.rint(8 * rows(5, 64))  # sums of squares of integers are exact in any order
    weight = np.abs(rows(64)) + 1
    mean = (x * x).sum(-1, keepdims=True) / np.float32(64)
    y = x * (np.float32(1) / np.sqrt(mean + np.float32(1e-5))) * weight
    x, y, weight = placed(library, x, y, weight)
    got = fwht.hadamard_quantize(x, "e4m3:row", prologue=quantize.RmsNorm(weight, 1e-5))
    want = fwht.hadamard_quantize(y, "e4m3:row")
    assert np.array_equal(bits(got.codes), bits(want.codes)) and np.array_equal(got.scales, want.scales)
    assert quantize.RmsNorm(weight).epsilon == 1e-6


@LIBRARIES
@pytest.mark.parametrize("encoding", ["e4m3:row", "mxfp4", "e4m3:32,ue8m0,deepseek_v32"])
def test_rows_go_to_the_pages_of_a_cache(library, encoding):
    writes(encoding, n=64)
    x, cos_sin, positions = rows(5, 64), rows(9, 64), np.arange(5) + 3
    slots = np.array([7, -1, 0, 12, 3])  # three pages of four rows: the second and the fourth row are left out
    x, cos_sin, positions, slots = placed(library, x, cos_sin, positions, slots)
    rope = quantize.Rope(cos_sin, positions)
    codes, scales = map(bits, fwht.hadamard_quantize(x, encoding, prologue=rope))
    codes, scales = codes.view("uint8").reshape(5, -1), np.ascontiguousarray(scales).view("uint8").reshape(5, -1)
    width = codes.shape[1]
    want = np.full((3, 4, width + scales.shape[1]), 9, "uint8")
    (cache,) = placed(library, want.copy())
    for row, slot in ((0, 7), (2, 0), (4, 3)):
        page = want[slot // 4].reshape(-1)
        page[slot % 4 * width :][:width] = codes[row]
        page[4 * width + slot % 4 * scales.shape[1] :][: scales.shape[1]] = scales[row]
    quantize.into_cache(cache, slots, x, encoding, prologue=rope)
    assert np.array_equal(bits(cache), want)


@pytest.mark.parametrize("library", ["numpy", pytest.param("torch", marks=needs_torch)])
def test_rows_that_lie_in_the_cache(library):
    cache, slots = np.zeros((4, 4, 68), "uint8"), np.arange(2)
    floats = cache.reshape(-1)[:1024].view("float32")
    if library == "torch":
        cache, slots, floats = map(torch.from_numpy, (cache, slots, floats))
    for x in (floats[:128].reshape(2, 64), floats.reshape(2, 128)[:, ::2]):  # the second is copied
        with pytest.raises(ValueError, match="overlap"):
            quantize.into_cache(cache, slots, x, "e4m3:row")
        assert not cache.any()


@needs_torch
def test_prepared_graphs():
    writes("mxfp4", n=64)
    x, cos_sin, weight, cache, slots = placed(
        "torch", rows(3, 64), rows(4, 16), rows(64), np.zeros((1, 4, 34), "uint8"), np.arange(3)
    )
    rope = quantize.Rope(cos_sin, torch.tensor([3, 0, 1]))

    def both(x, cache):
        quantize.into_cache(cache, slots, x, "mxfp4", prologue=rope)
        return fwht.hadamard_quantize(x, "e4m3:row", prologue=quantize.RmsNorm(weight)).codes

    torch._dynamo.reset()
    expected, written = both(x, cache), cache.clone()
    version = cache._version
    codes = torch.compile(both, fullgraph=True, backend="aot_eager")(x, cache.zero_())
    assert torch.equal(codes.view(torch.uint8), expected.view(torch.uint8))
    assert torch.equal(cache, written) and cache._version > version
    asked = ("mxfp4", None, None, None, None, False, None, *quantize.asked_of(rope))
    torch.library.opcheck(torch.ops.fwht.hadamard_quantize_into.default, (cache, slots, x, *asked))


@LIBRARIES
def test_bad_preparations(library):
    x, table, where, cache, slots = placed(
        library, np.zeros((2, 64), "float32"), np.zeros((5, 32), "float32"), np.array([0, 5]), np.zeros((1, 4, 68), "uint8"),
        np.array([0, 1]),
    )  # fmt: skip
    for prologue, error, words in (
        (quantize.Rope(table, where), ValueError, "positions run from 0 to 5; cos_sin has 5"),
        (quantize.Rope(table, where[:1]), ValueError, "positions of the preparation rope32 must be 2 contiguous elements of int64"),
        (quantize.Rope(table, where, heads=3), ValueError, "heads=3"),
        (quantize.Rope(table[:, :31], where), ValueError, "width=31"),
        (quantize.Rope(table[0], where), ValueError, "cos_sin must have shape"),
        (quantize.RmsNorm(x[0][:32]), ValueError, "weight of the preparation rms must be 64 contiguous elements of"),
        (quantize.RmsNorm(x[0], -1.0), ValueError, "epsilon=-1 must be finite"),
        (quantize.RmsNorm(x[0], 1e-60), ValueError, "epsilon=1e-60 must be 0 or a positive fp32 number"),
        (quantize.RmsNorm(x[0], 1e39), ValueError, r"epsilon=1e\+39 must be 0 or a positive fp32 number"),
        ("rms", TypeError, "prologue is a str"),
        (quantize.Rope([[1.0]], where), TypeError, "cos_sin is a list; it must be a PyTorch tensor or a NumPy array"),
        (quantize.Rope(table, None), TypeError, "positions is a NoneType; it must be a PyTorch tensor or a NumPy array"),
        (quantize.RmsNorm(None), TypeError, "weight is a NoneType; it must be a PyTorch tensor or a NumPy array"),
        (quantize.Rope(table[:0], where), ValueError, r"cos_sin has shape \(0, 32\); it must have at least one position"),
    ):
        with pytest.raises(error, match=words):
            fwht.hadamard_quantize(x, prologue=prologue)
    for bad, places, encoding, words in (
        (cache[:, :, :67], slots, "e4m3:row", r"shape \(pages, tokens, 68\)"),
        (x, slots, "e4m3:row", "cache must be contiguous uint8"),
        (cache, slots[:1], "e4m3:row", "slots of the preparation page4x1 must be 2"),
        (cache, slots, "e4m3:tensor", "pages hold rows of codes"),
    ):
        with pytest.raises(ValueError, match=words):
            quantize.into_cache(bad, places, x, encoding)
    with pytest.raises(TypeError, match="x is a builtins.list"):
        quantize.into_cache(np.zeros((1, 4, 68), "uint8"), slots, [[0.0]], "e4m3:row")
    before = bits(cache).copy()
    quantize.into_cache(cache, slots[:0], x[:0], "e4m3:row", prologue=quantize.Rope(table, where[:0]))  # no tokens, nothing to do
    assert np.array_equal(bits(cache), before)


@needs_torch
def test_gradients_are_refused():
    with pytest.raises(RuntimeError, match="does not support automatic differentiation"):
        fwht.hadamard_quantize(torch.zeros(3, 64, requires_grad=True))


@needs_torch
def test_derivatives_of_forward_mode_are_refused():
    """They would be zero. Where the tangent is another tensor's, nothing is refused."""
    from torch.func import jacfwd, jvp, vmap

    x = torch.randn(3, 64)
    weight, packed = x[0].clone(), fwht.linear.pack(torch.zeros(8, 64, dtype=torch.int32), None, torch.ones(1, 64).half())
    cache, slots, layer = torch.zeros(1, 4, 68, dtype=torch.uint8), torch.arange(3), fwht.nn.Fp8Linear(torch.randn(32, 64))
    for call in (
        lambda x: fwht.hadamard_quantize(x).scales, lambda x: quantize.round_trip(x, "int8:row"), lambda x: layer(x.bfloat16()),
        lambda x: fwht.hadamard_quantize(x, out=fwht.hadamard_quantize(torch.zeros(3, 64))).scales,
        lambda y: fwht.hadamard_quantize(x, prologue=quantize.RmsNorm(y[0] * weight)).scales,
        lambda x: quantize.into_cache(cache, slots, x, "e4m3:row"), lambda x: fwht.linear.forward(x.half(), packed),
    ):  # fmt: skip
        for asked in (lambda: jvp(call, (x,), (x,)), lambda: jacfwd(call)(x), lambda: jvp(vmap(call), (x[None],), (x[None],))):
            with pytest.raises(RuntimeError, match="does not support automatic differentiation, but .* has a tangent"):
                asked()
    got = jvp(lambda y: y.sum() + fwht.hadamard_quantize(x).scales.sum(), (x,), (x,))[1]
    assert torch.equal(got, x.sum())


@pytest.mark.parametrize("encoding", ["e4m3:row", "mxfp4"])
def test_rows_that_run_backwards(encoding):
    """NumPy has negative strides, PyTorch none."""
    x = np.random.default_rng(3).standard_normal((5, 64), np.float32)
    for view in (x[::-1], x[:, ::-1], x[::-1, ::-1]):
        got, want = fwht.hadamard_quantize(view, encoding), fwht.hadamard_quantize(view.copy(), encoding)
        assert (got.codes == want.codes).all() and (got.scales == want.scales).all()


def test_scales_of_quarot_are_float16():
    x = np.random.default_rng(4).standard_normal((3, 64)).astype(np.float16)
    assert quantize.layout_of("int4:row,quarot", 64).scale_dtype == "float16"
    scales = fwht.hadamard_quantize(x, "int4:row,quarot").scales
    assert scales.dtype == np.float16 and scales.shape == (3, 1) and (scales > 0).all()
