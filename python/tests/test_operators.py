"""Operators for rows of any length: values against matrices that are worked out here, signs, dense factors, gradients."""

import copy
import ctypes
import pickle

import numpy as np
import pytest

import fwht
from conftest import capture, devices, hadamard, integers, needs_torch, torch, torch_cuda
from fwht import _c, operators


def matrix_of(operator, n, **options):
    """Column by column, by the transform of unit vectors."""
    return operators.transform(np.eye(n, dtype="float32"), operator, 1.0, **options).T.astype("float64")


# --- the texts -------------------------------------------------------------------------------------------------------


def test_texts():
    assert operators.operator_for(14336) == "28x512" and operators.operator_for(4096) == "4096"
    assert operators.transposed("428x32+signs") == "signs+428tx32"
    assert operators.transposed("28x512") == "28x512"  # symmetric
    with pytest.raises(ValueError, match="13697 .*nearest n that is: 13696"):
        operators.operator_for(13697)
    with pytest.raises(ValueError, match="'28y512' is no factor"):
        operators.transposed("28y512")


# --- values ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [12, 20, 28, 36, 96, 116])
def test_named_matrices_are_hadamard_matrices(n):
    h = matrix_of(None, n)
    assert set(np.unique(h)) == {-1.0, 1.0} and np.array_equal(h @ h.T, n * np.eye(n))
    assert np.array_equal(matrix_of(None, n, transpose=True), h.T)


def test_kronecker_product():
    expected = np.kron(matrix_of("12", 12), hadamard(8))
    assert np.array_equal(matrix_of("12x8", 96), expected)
    x = np.random.default_rng(0).integers(-8, 8, (2, 3, 96)).astype("float32")
    y = operators.transform(x, "12x8", 0.5)
    assert y.shape == x.shape and np.array_equal(y, 0.5 * x @ expected.T)


def test_a_sylvester_operator_is_the_transform():
    x = np.random.default_rng(0).standard_normal((5, 64)).astype("float32")
    for scale in (1.0, 0.5, None):
        assert np.array_equal(operators.transform(x, None, scale), fwht.hadamard_transform(x, scale))


def test_signs_and_transpose():
    rng = np.random.default_rng(1)
    d = rng.choice([-1.0, 1.0], 96)
    signs = operators.pack_signs(d)
    h = matrix_of("12x8", 96)
    assert np.array_equal(matrix_of("12x8", 96, signs=signs), h @ np.diag(d))
    assert np.array_equal(matrix_of("signs+12x8", 96, signs=signs), np.diag(d) @ h)
    assert np.array_equal(matrix_of("12x8", 96, signs=signs, transpose=True), np.diag(d) @ h.T)
    assert np.array_equal(matrix_of("12x8", 96, signs=np.frombuffer(signs.packed, np.uint8)), h @ np.diag(d))
    x = rng.standard_normal((4, 96)).astype("float32")
    back = operators.transform(operators.transform(x, None, None, signs=signs), None, None, signs=signs, transpose=True)
    assert np.abs(back - x).max() < 1e-5


def test_dense_factors():
    q, _ = np.linalg.qr(np.random.default_rng(2).standard_normal((3, 3)))
    q = q.astype("float32")
    expected = np.kron(q.astype("float64"), hadamard(4))
    assert np.abs(matrix_of("d3x4", 12, dense=q) - expected).max() < 1e-5
    assert np.abs(matrix_of("d3x4", 12, dense=q, transpose=True) - expected.T).max() < 1e-5
    with pytest.raises(ValueError, match="not orthogonal"):
        matrix_of("d3x4", 12, dense=np.ones((3, 3), "float32"))


# --- signs -----------------------------------------------------------------------------------------------------------


def test_pack_signs():
    signs = operators.pack_signs([1, -1, -1] + [1] * 30)
    assert signs.packed == bytes([6, 0, 0, 0, 0, 0, 0, 0]) and len(signs) == 33
    assert [signs[i] for i in range(4)] == [1, -1, -1, 1]
    with pytest.raises(IndexError):
        signs[33]
    with pytest.raises(ValueError, match="sign 1 of 2 is 0.0"):
        operators.pack_signs([1, 0])
    with pytest.raises(ValueError, match="3 bytes of signs; n=8 needs 4"):
        operators.Signs(b"abc", 8)


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int], rounds: int = 10) -> tuple[int, int, int, int]:
    """Four words of the counter-based generator Philox4x32 (Salmon et al. 2011), to hold the library to."""
    mask = 0xFFFFFFFF
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(rounds):
        a, b = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (b >> 32) ^ c1 ^ k0, b & mask, (a >> 32) ^ c3 ^ k1, a & mask
        k0, k1 = (k0 + 0x9E3779B9) & mask, (k1 + 0xBB67AE85) & mask
    return c0, c1, c2, c3


def test_philox():
    """The known answers that come with the generator (Random123, kat_vectors)."""
    ones = 0xFFFFFFFF
    assert philox4x32((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert philox4x32((ones,) * 4, (ones,) * 2) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    assert philox4x32((0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344), (0xA4093822, 0x299F31D0)) == (
        0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1,
    )  # fmt: skip


def test_random_signs_are_fixed_for_ever():
    signs = operators.random_signs(200, 0)
    assert signs.packed[:8] == (0x6627E8D5).to_bytes(4, "little") + (0xE169C58D).to_bytes(4, "little")
    second = philox4x32((1, 0, 0, 0), (0, 0))[0]
    assert signs.packed[16:20] == second.to_bytes(4, "little")
    assert len(signs.packed) == 28 and signs.packed[25:] == bytes(3)  # 200 bits, then zeros
    assert operators.random_signs(128, 0).packed == signs.packed[:16]
    for n, seed in ((1, 3), (129, 2**40 + 5), (1000, 2**64 - 1)):
        words = [word for block in range((n + 127) // 128) for word in philox4x32((block, 0, 0, 0), (seed & 0xFFFFFFFF, seed >> 32))]
        bits = int.from_bytes(b"".join(word.to_bytes(4, "little") for word in words), "little") & ((1 << n) - 1)
        assert int.from_bytes(operators.random_signs(n, seed).packed, "little") == bits
    assert len({operators.random_signs(64, seed) for seed in (0, 1, 2**32, 2**32 + 1, 2**63)}) == 5
    one, other = operators.pack_signs([1.0] * 24), operators.pack_signs([1.0] * 25)
    assert one.packed == other.packed and one != other and one == operators.pack_signs([1.0] * 24)
    for n, seed in ((0, 0), (8, -1), (8, 2**64)):
        with pytest.raises(ValueError):
            operators.random_signs(n, seed)


@needs_torch
def test_signs_are_copied_by_their_bits_alone():
    """Not with the tensors that are kept beside the devices that asked."""
    signs = operators.random_signs(64, 1)
    fresh, kept = pickle.dumps(signs), signs.on(torch.zeros(1))
    assert pickle.dumps(signs) == fresh
    for other in (pickle.loads(fresh), copy.deepcopy(signs), copy.copy(signs)):
        assert other == signs and torch.equal(other.on(torch.zeros(1)), kept) and other.on(torch.zeros(1)) is not kept


def test_signs_of_another_length_are_refused():
    x = np.ones((1, 12), "float32")
    for call in (operators.transform, fwht.hadamard_quantize):
        options = {} if call is operators.transform else {"encoding": "e4m3:row"}
        with pytest.raises(ValueError, match="24 signs do not fit rows of 12 elements"):
            call(x, signs=operators.random_signs(24, 1), **options)


# --- PyTorch ---------------------------------------------------------------------------------------------------------


@needs_torch
def test_tensors():
    x, signs = integers(3, 24), operators.random_signs(24, 7)
    expected = torch.from_numpy(operators.transform(x.numpy(), "12x2", 0.5, signs=signs))
    assert torch.equal(operators.transform(x, "12x2", 0.5, signs=signs), expected)
    assert torch.equal(operators.transform(x, "12x2", 0.5, signs=signs.on(x)), expected)
    assert signs.on(x) is signs.on(x)
    out = torch.empty_like(x)
    assert operators.transform(x, "12x2", 0.5, signs=signs, out=out) is out and torch.equal(out, expected)
    version, y = x._version, x
    assert operators.transform(x, "12x2", 0.5, signs=signs, inplace=True) is y and torch.equal(x, expected)
    assert x._version > version
    with pytest.raises(TypeError, match="signs is a ndarray"):
        operators.transform(x, "12x2", signs=np.zeros(4, np.uint8))


@devices
@pytest.mark.parametrize("n", [768, 1536, 14336, 28672])
def test_widths_of_models(device, n):
    x = integers(5, n, device=device, dtype=torch.bfloat16)
    support = fwht.supports(n, torch.bfloat16, rows=5, device=device, inplace=False, operator=operators.operator_for(n))
    if not support:
        with pytest.raises(NotImplementedError):
            operators.transform(x, None, None)
        pytest.skip(support.why_not)
    y = operators.transform(x, None, None)
    exact = operators.transform(x.cpu().float().numpy(), None, None)
    # One rounding to bfloat16, and float32 sums.
    assert np.all(np.abs(y.cpu().float().numpy() - exact) <= 2.0**-8 * np.abs(exact) + 2.0**-16 * 8 * n**0.5)


@needs_torch
def test_gradients():
    x = integers(2, 24).requires_grad_()
    signs = operators.random_signs(24, 1).on(x)
    # 116 has no symmetric matrix: forward in place of transpose would show.
    for operator, n, given in (("12x2", 24, signs), ("116", 116, None)):
        z = integers(2, n).requires_grad_()

        def f(t, operator=operator, given=given):
            return operators.transform(t, operator, 0.5, signs=given)

        assert torch.autograd.gradcheck(f, (z,), eps=1.0, atol=1e-4, rtol=1e-5)
        w = integers(2, n).roll(3)
        (f(z) * w).sum().backward()
        assert torch.equal(z.grad, operators.transform(w, operator, 0.5, signs=given, transpose=True))
        assert torch.autograd.gradgradcheck(f, (z,), eps=1.0, atol=1e-4, rtol=1e-5)
    packed = signs.clone()
    y = operators.transform(x, "12x2", 1.0, signs=packed)
    packed.zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    y = operators.transform(x * 1, "12x2", 1.0, inplace=True)
    y.sum().backward()
    assert torch.equal(x.grad, operators.transform(torch.ones(2, 24), "12x2", 1.0, transpose=True))
    with pytest.raises(RuntimeError, match="out= does not support automatic differentiation"):
        operators.transform(x, "12x2", out=torch.empty(2, 24))
    with pytest.raises(RuntimeError, match="dense factors are not differentiated"):
        operators.transform(x, "d3x8", dense=torch.eye(3).requires_grad_())
    with pytest.raises(RuntimeError, match="dense factors are not differentiated"):  # forward mode would give zero
        torch.func.jvp(lambda dense: operators.transform(x.detach(), "d3x8", dense=dense), (torch.eye(3),), (torch.ones(3, 3),))


@devices
def test_the_second_call_of_a_kind(device, monkeypatch):
    """It goes straight into the library, with the same bits and the same refusals."""
    import fwht.torch

    x = integers(5, 768, device=device, dtype=torch.float16)
    if why := fwht.supports(768, torch.float16, rows=5, device=device, inplace=False, operator="12x64").why_not:
        pytest.skip(why)
    one, other = (operators.random_signs(768, seed) for seed in (1, 2))
    expected = [operators.transform(x.clone(), "12x64", None, signs=signs, out=torch.empty_like(x)) for signs in (one, other)]
    assert torch.equal(operators.transform(x, "12x64", None, signs=one), expected[0])
    dense = torch.eye(3, dtype=torch.float16, device=device)
    assert torch.equal(operators.transform(x, "d3x256", 1.0, dense=dense), operators.transform(x.view(5, 3, 256), "256", 1.0).view(5, 768))

    for words, given in (("contiguous elements of uint8", one.on(x).float()), ("contiguous elements of uint8", one.on(x)[:95])):
        with pytest.raises(ValueError, match=words):
            operators.transform(x, "12x64", None, signs=given)
    with pytest.raises(RuntimeError, match="dense factors are not differentiated"):
        operators.transform(x, "d3x256", dense=dense.clone().requires_grad_())
    assert operators.transform(x[:0], "12x64", None, signs=one).shape == (0, 768)

    for name in ("transform", "transform_into"):
        monkeypatch.setattr(fwht._torch.ops, name, None)
    for signs, wanted in zip((one, other), expected):
        assert torch.equal(operators.transform(x, "12x64", None, signs=signs), wanted)
        y = operators.transform(x.clone().requires_grad_(), "12x64", None, signs=signs)
        assert torch.equal(y, wanted) and y.requires_grad


@needs_torch
def test_graphs():
    from torch._subclasses import FakeTensorMode

    x, signs = integers(3, 24), operators.random_signs(24, 1)
    packed = signs.on(x)
    torch._dynamo.reset()
    f = torch.compile(
        lambda t, s: operators.transform(t * 2, "12x2", 0.5, signs=s) + operators.transform(t, scale=1.0, transpose=True),
        fullgraph=True, backend="aot_eager",
    )  # fmt: skip
    assert torch.equal(f(x, packed), operators.transform(x * 2, "12x2", 0.5, signs=signs) + operators.transform(x, scale=1.0))
    with FakeTensorMode():
        assert operators.transform(torch.empty(4, 24), scale=1.0).shape == (4, 24)
    assert operators.transform(torch.empty(4, 24, device="meta"), scale=1.0).device.type == "meta"
    batch = integers(2, 3, 24)
    assert torch.equal(torch.vmap(operators.transform, in_dims=1)(batch), operators.transform(batch.transpose(0, 1)))
    torch.library.opcheck(torch.ops.fwht.hadamard_transform.default, (x, 0.5, None, False, "12x2", packed))


@pytest.mark.parametrize("device", [torch_cuda])
def test_streams_and_capture(device):
    """The first call of a kind and the short way of the second, behind a slow producer and in a CUDA graph."""
    if not fwht.supports(768, torch.float16, rows=5, device=device, inplace=False, operator="12x64"):
        pytest.skip("auto does not do it here")
    source = integers(5, 768, device=device, dtype=torch.float16)

    def both(x):
        return operators.transform(x, "12x64", None), fwht.hadamard_quantize(x[:, :512].contiguous(), "e4m3:row").scales

    expected = both(source)
    x = torch.zeros_like(source)
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(100_000_000)
        x.copy_(source)
        results = both(x)
        torch.cuda.current_stream().synchronize()
    assert all(torch.equal(a, b) for a, b in zip(results, expected))
    graph = torch.cuda.CUDAGraph()
    with capture(graph):
        captured = both(x)
    x.copy_(2 * source)
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(a, 2 * b) for a, b in zip(captured, expected))


# --- support ---------------------------------------------------------------------------------------------------------


def test_supports_and_plan_of_an_operator():
    assert fwht.supports(24, "float32", device="cpu", operator="12x2")
    assert "for 48" in fwht.supports(24, "float32", device="cpu", operator="12x4").why_not
    plan = fwht.plan(24, 3, "float32", device="cpu", operator="12x2", inplace=False, scale=1.0)
    x = np.random.default_rng(0).integers(-8, 8, (3, 24)).astype("float32")
    assert "12x2" in plan.problem and np.array_equal(plan.execute(x), operators.transform(x, "12x2", 1.0))


def test_the_structure_is_that_of_the_header():
    assert ctypes.sizeof(_c.Operands) == 128


@needs_torch
def test_signs_made_without_gradients_serve_those_with_them():
    """Nor are fake ones kept."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    signs, sketch = operators.random_signs(24, 7), fwht.walsh.Sketch(6, 4, 1)
    with FakeTensorMode():
        assert type(signs.on(torch.ones(24))) is not torch.Tensor
    with torch.inference_mode():
        operators.transform(torch.ones(24), signs=signs)
        sketch(torch.ones(6))
    x, y = torch.ones(24, requires_grad=True), torch.ones(6, requires_grad=True)
    operators.transform(x, signs=signs).sum().backward()
    sketch(y).sum().backward()
    assert x.grad is not None and y.grad is not None
    torch._dynamo.reset()
    cold = operators.random_signs(24, 8)
    call = lambda t: operators.transform(t, signs=cold)
    x = torch.randn(3, 24)
    assert torch.equal(torch.compile(call, fullgraph=True, backend="aot_eager")(x), call(x))
