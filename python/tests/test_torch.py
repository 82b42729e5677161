"""PyTorch tensors: values, strides, autograd, torch.func, compilation, export. On the CPU always, on CUDA where there
is a device."""

import copy
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import fwht
import fwht.torch
from conftest import CUDA, capture, devices, hadamard, integers, needs_cuda, needs_f64, truth

DTYPES = [torch.float16, torch.bfloat16, torch.float32]


def exact(x, scale=1.0):
    """The transform of integers, which is exact, as a tensor of x's kind."""
    y = truth(x.detach().cpu().double().numpy(), scale)
    return torch.from_numpy(y).to(device=x.device, dtype=x.dtype)


# --- values and strides ----------------------------------------------------------------------------------------------


@devices
def test_calls_do_not_mix_up_what_was_prepared(device):
    """Same shape, one argument changed at a time, each twice."""
    x = integers(4, 64, device=device)
    for _ in range(2):
        for dtype in DTYPES:
            for scale in (1.0, 2.0, None, -1.0):
                y = x.to(dtype)
                assert torch.equal(fwht.hadamard_transform(y, scale), exact(y, scale))
                assert torch.equal(fwht.hadamard_transform_(y.clone(), scale), exact(y, scale))
    for zero in (0.0, -0.0) if device == "cpu" else ():  # equal numbers; a sum on tensor cores begins with 0.0
        for y in (fwht.hadamard_transform(abs(x) + 1, zero), fwht.operators.transform(abs(x) + 1, scale=zero)):
            assert y[:, 0].signbit().tolist() == 4 * [str(zero) == "-0.0"]


def test_bits_do_not_depend_on_placement():
    x = torch.randn(5, 512)
    y = fwht.hadamard_transform(x, None)
    assert torch.equal(fwht.hadamard_transform(x, None, out=torch.empty_like(x)), y)
    assert torch.equal(fwht.hadamard_transform(torch.cat([x, x], 1)[:, :512], None), y)
    assert torch.equal(torch.ops.fwht.hadamard_transform(x, None), y)


@devices
def test_the_second_call_goes_by_the_kept_plan(device, monkeypatch):
    x = integers(5, 128, device=device)
    expected = exact(x, 0.5)
    assert torch.equal(fwht.hadamard_transform(x, 0.5), expected)
    assert torch.equal(fwht.hadamard_transform_(x.clone(), 0.5), expected)
    with monkeypatch.context() as patch:
        patch.setattr(fwht._torch.calls, "_c_transform", None)
        assert torch.equal(fwht.hadamard_transform(x, 0.5), expected)
        assert torch.equal(fwht.hadamard_transform_(x.clone(), 0.5), expected)
        fwht.clear_plans()
        for call in (fwht.hadamard_transform, fwht.hadamard_transform_):
            with pytest.raises(TypeError):
                call(x.clone(), 0.5)
    assert torch.equal(fwht.hadamard_transform(x, 0.5), expected)


@devices
def test_plain_tensors_do_not_go_through_the_dispatcher(device, monkeypatch):
    monkeypatch.setattr(fwht._torch.eager, "_op", None)
    monkeypatch.setattr(fwht._torch.eager, "_op_", None)
    x = integers(3, 64, device=device).requires_grad_()
    y = fwht.hadamard_transform(x, 0.5)
    assert torch.equal(y, exact(x, 0.5)) and y.requires_grad
    y.backward(torch.ones_like(y))
    assert torch.equal(x.grad, exact(torch.ones_like(y), 0.5))
    z = integers(3, 64, device=device)
    assert torch.equal(fwht.hadamard_transform_(z.clone(), 1.0), exact(z)) and torch.equal(fwht.hadamard_transform(z, 1.0), exact(z))


def test_parameters_subclasses_and_inference_tensors():
    p = torch.nn.Parameter(integers(3, 8))
    with torch.no_grad():
        assert torch.equal(fwht.hadamard_transform(p, 1.0), exact(p))
        expected = exact(p)
        version = p._version
        assert fwht.hadamard_transform_(p, 1.0) is p and torch.equal(p, expected) and p._version > version

    class Mine(torch.Tensor):
        pass

    y = fwht.hadamard_transform(integers(3, 8).as_subclass(Mine), 1.0)
    assert type(y) is Mine and torch.equal(y.as_subclass(torch.Tensor), exact(integers(3, 8)))
    with torch.inference_mode():
        x = integers(3, 8)
        assert torch.equal(fwht.hadamard_transform_(x.clone(), 1.0), exact(x))


def test_a_tensor_with_the_negative_bit():
    x = torch.complex(integers(3, 8), integers(3, 8, seed=1)).conj().imag
    assert x.is_neg()
    expected = exact(x.clone())
    assert torch.equal(fwht.hadamard_transform(x, 1.0), expected)
    assert fwht.hadamard_transform_(x, 1.0) is x and x.is_neg() and torch.equal(x, expected)


def test_first_calls_take_the_threads_that_pytorch_is_told(monkeypatch):
    """Not only what is remembered of them: a process that loads data has new shapes all the time."""
    make, seen, had = fwht._c.make_problem, [], torch.get_num_threads()
    monkeypatch.setattr(fwht._c, "make_problem", lambda *given, **named: seen.append(named.get("threads")) or make(*given, **named))
    torch.set_num_threads(3)
    try:
        x = integers(7, 1216)
        fwht.hadamard_quantize(x, "int8:row")
        fwht.operators.transform(x, "76x16")
        fwht.quantize.quantize(x, "int8:row")
        assert fwht.walsh._view(x).threads == 3 and fwht.walsh._view(x.numpy()).threads == 0
    finally:
        torch.set_num_threads(had)
    assert len(seen) >= 3 and set(seen) == {3}


def test_threads():
    xs = [torch.randn(i % 7 + 1, 2 ** (i % 9 + 1)) for i in range(64)]
    alone = [fwht.hadamard_transform(x) for x in xs]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(fwht.hadamard_transform, xs))
    assert all(torch.equal(a, b) for a, b in zip(alone, together))


# --- refusals that only tensors have ---------------------------------------------------------------------------------


def test_other_devices_and_layouts():
    with pytest.raises(NotImplementedError, match="layout torch.sparse_coo"):
        fwht.hadamard_transform(torch.eye(8).to_sparse())
    plan = fwht.plan(8, 5, torch.float32)
    for layout in (torch.strided, torch.jagged):
        nested = torch.nested.nested_tensor([torch.zeros(3, 8), torch.zeros(2, 8)], layout=layout)
        for call in (fwht.hadamard_transform, fwht.hadamard_transform_, fwht.hadamard_quantize, fwht.operators.transform, fwht.nn.HadamardTransform(8), plan.execute):
            with pytest.raises(NotImplementedError, match="nested tensors are not supported; give their rows"):
                call(nested)
        with pytest.raises(NotImplementedError, match="nested tensors are not supported"):
            fwht.hadamard_transform(nested, axis=0)
    for layout in (torch.sparse_coo, torch.sparse_csr):
        with pytest.raises(NotImplementedError, match=f"layout {layout} is not supported"):
            fwht.hadamard_transform(torch.eye(8).to_sparse(layout=layout), axis=0)
    with pytest.raises(ValueError, match="x has strides .0, 1. .* elements must lie apart"):
        fwht.hadamard_transform_(torch.zeros(1, 8).expand(8, 8), axis=0)
    with pytest.raises(ValueError, match="out is .* on meta"):
        fwht.hadamard_transform(torch.zeros(3, 8), out=torch.zeros(3, 8, device="meta"))
    with pytest.raises(TypeError, match="out is a ndarray"):
        fwht.hadamard_transform(torch.zeros(3, 8), out=np.zeros((3, 8)))


def test_out_is_not_differentiable():
    x = torch.zeros(3, 8, requires_grad=True)
    with pytest.raises(RuntimeError, match="does not support automatic differentiation"):
        fwht.hadamard_transform(x, out=torch.zeros(3, 8))
    with torch.no_grad():
        fwht.hadamard_transform(x, 1.0, out=torch.zeros(3, 8))


@pytest.mark.parametrize("mode", ["meta", "fake", "compile", "grad"])
def test_typed_errors_everywhere(mode):
    """Not the dispatcher's or Dynamo's own exception types, where an exception is wanted by its type."""
    from torch._subclasses import FakeTensorMode

    def run(shape, dtype, scale):
        if mode == "meta":
            fwht.hadamard_transform(torch.empty(shape, dtype=dtype, device="meta"), scale)
        elif mode == "grad":
            fwht.hadamard_transform(torch.zeros(shape).to(dtype).requires_grad_(dtype.is_floating_point), scale)
        elif mode == "fake":
            with FakeTensorMode():
                fwht.hadamard_transform(torch.empty(shape, dtype=dtype), scale)
        else:  # Dynamo wraps what a traced function raises; the sentence is kept, but for PyTorch 2.7 and 2.8
            torch._dynamo.reset()
            torch.compile(lambda t: fwht.hadamard_transform(t, scale), fullgraph=True, backend="eager")(
                torch.zeros(shape, dtype=dtype)
            )

    for shape, dtype, scale, error, words in (
        ((3, 6), torch.float32, 1.0, ValueError, "n=6 must be a power of two"),
        ((), torch.float32, 1.0, ValueError, "at least one dimension"),
        ((3, 8), torch.int16, 1.0, TypeError, "must be float16, bfloat16, float32, float64, int32 or int64"),
        ((3, 8), torch.int32, None, ValueError, "data are only summed, so it must be 1"),
        ((3, 8), torch.float32, float("inf"), ValueError, "scale=inf must be finite"),
    ):
        wrapped = mode == "compile"
        with pytest.raises(Exception if wrapped else error, match=f"{words}|Observed exception" if wrapped else words):
            run(shape, dtype, scale)


def test_plans_are_not_differentiable():
    plan = fwht.plan(8, 3, torch.float32, device="cpu", inplace=False, scale=1.0)
    x = torch.zeros(3, 8, requires_grad=True)
    with pytest.raises(RuntimeError, match="Plan.execute does not support automatic differentiation"):
        plan.execute(x)
    with torch.no_grad():
        plan.execute(x)
    with pytest.raises(NotImplementedError, match="sparse_coo"):
        plan.execute(torch.eye(8)[:3].to_sparse())


@needs_cuda
def test_cuda_tensors_that_are_refused():
    with pytest.raises(NotImplementedError, match="cpu works on host memory"):
        fwht.hadamard_transform(torch.zeros(3, 8, device="cuda"), variant="cpu")
    with pytest.raises(ValueError, match="n=6 must be a power of two"):
        fwht.hadamard_transform(torch.zeros(3, 6, device="cuda"))
    with pytest.raises(ValueError, match="the plan is"):
        fwht.plan(8, 3, torch.float32, device="cuda").execute(torch.zeros(3, 8))


@pytest.mark.skipif(not torch.cuda.is_available() or CUDA, reason="needs a CUDA device and a build without CUDA")
def test_a_tensor_without_cuda_code():
    with pytest.raises(RuntimeError, match="fwht was built without CUDA"):
        fwht.hadamard_transform(torch.zeros(3, 8, device="cuda"))


# --- autograd --------------------------------------------------------------------------------------------------------


@devices
def test_gradcheck(device):
    # Linear, so a step of 1 has no truncation error, and integers make float32 exact.
    x = integers(2, 8, device=device).requires_grad_()
    f = lambda t: fwht.hadamard_transform(t, 0.5)
    assert torch.autograd.gradcheck(f, (x,), eps=1.0, atol=1e-5, rtol=1e-5)
    assert torch.autograd.gradgradcheck(f, (x,), eps=1.0, atol=1e-5, rtol=1e-5)
    assert torch.autograd.gradcheck(f, (x,), eps=1.0, atol=1e-5, rtol=1e-5, check_forward_ad=True)


@needs_f64
def test_gradcheck_in_float64():
    x = torch.randn(2, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: fwht.hadamard_transform(t, None), (x,))


@devices
def test_the_gradient_is_the_adjoint(device):
    x, y = integers(4, 128, device=device).requires_grad_(), integers(4, 128, device=device, seed=1)
    (fwht.hadamard_transform(x, 1.0) * y).sum().backward()
    assert torch.equal(x.grad, exact(y))
    z = integers(128, device=device).requires_grad_()
    fwht.hadamard_transform(z, 1.0).sum().backward()  # the gradient comes in expanded
    assert torch.equal(z.grad, exact(torch.ones_like(z)))


def test_the_operators_own_gradient():
    x, y = integers(4, 16).requires_grad_(), integers(4, 16, seed=1)
    (torch.ops.fwht.hadamard_transform(x, 0.5) * y).sum().backward()
    assert torch.equal(x.grad, exact(y, 0.5))


def test_in_place_under_autograd():
    x = integers(2, 8).requires_grad_()
    y = fwht.hadamard_transform_(x * 1, 0.5)
    y.square().sum().backward()
    assert torch.equal(x.grad, exact(2 * exact(x, 0.5), 0.5))
    for leaf in (x, x[:1]):
        for call in (fwht.hadamard_transform_, torch.ops.fwht.hadamard_transform_):
            with pytest.raises(RuntimeError, match="fwht: x is a leaf"):
                call(leaf)
    assert torch.equal(x, integers(2, 8))  # nothing was written
    with torch.no_grad():
        fwht.hadamard_transform_(x, 1.0)


def test_in_place_in_graphs_made_without_gradients():
    from torch.fx.experimental.proxy_tensor import make_fx

    class Module(torch.nn.Module):
        def forward(self, x):
            return in_place(x)

    made, weights = integers(2, 8), integers(2, 8, seed=1)
    graphs = (torch.export.export(Module(), (made,)).module(), torch.jit.trace(in_place, (made,)), make_fx(in_place)(made))
    for graph in (*graphs, operator_in_place):
        x = integers(2, 8).requires_grad_()
        y = graph(x)
        (y * weights).sum().backward()
        assert torch.equal(y, exact(x, 0.5)) and torch.equal(x.grad, exact(weights, 0.5)), graph


WRITES = {
    "function": lambda b: fwht.hadamard_transform_(b, 1.0),
    "operator": lambda b: torch.ops.fwht.hadamard_transform_(b, 1.0),
    "out": lambda b: fwht.hadamard_transform(torch.ones(2, 8), 1.0, out=b),
    "operators, in place": lambda b: fwht.operators.transform(b, "8", inplace=True),
    "operators, out": lambda b: fwht.operators.transform(torch.ones(2, 8), "8", out=b),
    "plan": lambda b: fwht.plan(8, 2, torch.float32, device="cpu", scale=1.0).execute(b),
}


@pytest.mark.parametrize("write", [*WRITES, "with gradients"])
def test_a_saved_tensor_that_was_overwritten_is_noticed(write):
    b = torch.randn(2, 8, requires_grad=True) * 1
    c, before = b.sin(), b._version
    with torch.set_grad_enabled(write == "with gradients"):
        WRITES.get(write, WRITES["function"])(b)
    assert b._version > before
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        c.sum().backward()


def test_autocast_keeps_the_dtype():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert fwht.hadamard_transform(torch.randn(3, 8), 1.0).dtype == torch.float32
        assert torch.ops.fwht.hadamard_transform(torch.randn(3, 8), 1.0).dtype == torch.float32
        assert fwht.hadamard_transform(torch.randn(3, 8).half(), 1.0).dtype == torch.float16


def eager(t):
    return fwht.hadamard_transform(t, 0.5)


def in_place(t):
    return fwht.hadamard_transform_(t * 1, 0.5)


def operator(t):
    return torch.ops.fwht.hadamard_transform(t, 0.5)


def operator_in_place(t):
    y = t * 1
    torch.ops.fwht.hadamard_transform_(y, 0.5)
    return y


def with_signs(t):  # no symmetric matrix: forward in place of transpose would show
    return fwht.operators.transform(t, "116", 0.5, signs=fwht.operators.random_signs(116, 3).on(t))


@pytest.mark.parametrize(("f", "n"), [(eager, 16), (in_place, 16), (operator, 16), (with_signs, 116)])
def test_func_transforms(f, n):
    from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap

    x, batch, columns = integers(n), integers(3, 5, n), integers(3, n, 5)
    m = torch.stack([f(row) for row in torch.eye(n)], 1)  # f is m t

    def square(t):
        return f(t).square().sum()

    assert torch.equal(grad(square)(x), 2 * m.T @ m @ x)
    assert torch.equal(jvp(f, (x,), (x + 1,))[1], m @ (x + 1)) and torch.equal(vjp(f, x)[1](x)[0], m.T @ x)
    assert torch.equal(jacrev(f)(x), m) and torch.equal(jacfwd(f)(x), m)
    assert torch.equal(hessian(square)(x), 2 * m.T @ m) and torch.equal(jacrev(jacrev(square))(x), 2 * m.T @ m)
    for dim in range(2):
        assert torch.equal(vmap(f, in_dims=dim, out_dims=dim)(batch), batch @ m.T)
    assert torch.equal(vmap(f, in_dims=2, out_dims=1)(columns), columns.transpose(1, 2) @ m.T)
    assert torch.equal(vmap(grad(square))(batch[0]), 2 * batch[0] @ m.T @ m)
    assert torch.equal(grad(lambda t: vmap(square)(t).sum())(batch[0]), 2 * batch[0] @ m.T @ m)
    assert torch.equal(jvp(vmap(f), (batch,), (batch,))[1], batch @ m.T)


@pytest.mark.parametrize(("f", "n"), [
    (eager, 16), (in_place, 16), (lambda t: fwht.operators.transform(t, "116", 0.5), 116), (lambda t: fwht.hadamard_transform(t, 0.5, ordering="sequency"), 16),
])  # fmt: skip
def test_compiled_func_transforms(f, n):
    import torch.autograd.forward_ad as fwad
    from torch.func import hessian, jacfwd, jvp, vmap

    x, batch = integers(n), integers(3, 5, n)
    for transformed, given in (
        (lambda t: jvp(f, (t,), (t + 1,))[1], x), (jacfwd(f), x), (hessian(lambda t: f(t).square().sum()), x),
        (vmap(f, in_dims=1, out_dims=1), batch), (vmap(vmap(f)), batch), (lambda t: jvp(vmap(f), (t,), (t,))[1], batch),
        (vmap(lambda t: jvp(f, (t,), (t,))[1]), batch),
    ):  # fmt: skip
        assert torch.equal(compiled(transformed, backend="aot_eager")(given), transformed(given))

    def forward_mode(t):
        with fwad.dual_level():
            return fwad.unpack_dual(f(fwad.make_dual(t, t + 1)))[1]

    assert torch.equal(compiled(forward_mode, backend="aot_eager")(x), forward_mode(x))


def test_the_operator_in_place_over_a_dimension():
    batch = integers(3, 5, 16)
    for dim in range(2):
        x = batch.clone()
        torch.func.vmap(lambda row: torch.ops.fwht.hadamard_transform_(row, 0.5), in_dims=dim, out_dims=None)(x)
        assert torch.equal(x, eager(batch))


@pytest.mark.parametrize(("f", "n"), [(eager, 16), (in_place, 16), (operator, 16), (with_signs, 116)])
def test_batched_gradients(f, n):
    """By the older vmap of autograd, whose tensors have the type of plain ones."""
    x, grads = integers(3, n).requires_grad_(), integers(4, 3, n, seed=1)
    m, y = torch.stack([f(row) for row in torch.eye(n)], 1), f(x)
    assert torch.equal(torch.autograd.grad(y, x, grads, is_grads_batched=True)[0], grads @ m)
    jacobian = torch.autograd.functional.jacobian
    for strategy in ("reverse-mode", "forward-mode"):
        assert torch.equal(jacobian(f, x.detach(), vectorize=True, strategy=strategy), jacobian(f, x.detach()))
    assert torch.autograd.gradcheck(f, (x,), eps=1.0, atol=1e-4, rtol=1e-5, check_batched_grad=True)


def test_a_tensor_that_outlived_a_func_transform():
    kept = []

    def f(t):
        kept.append(t)
        return fwht.hadamard_transform(t, 1.0).sum()

    x = integers(3, 8)
    torch.func.grad(f)(x)
    assert torch.equal(fwht.hadamard_transform(kept[0], 1.0), exact(x))


@pytest.mark.parametrize("f", [eager, in_place, operator, operator_in_place])
def test_forward_mode(f):
    import torch.autograd.forward_ad as fwad

    for x in (integers(2, 8), integers(2, 8).requires_grad_()):
        with fwad.dual_level():
            value, tangent = fwad.unpack_dual(f(fwad.make_dual(x, integers(2, 8, seed=1))))
        assert torch.equal(value, exact(x, 0.5)) and torch.equal(tangent, exact(integers(2, 8, seed=1), 0.5))
        assert value.requires_grad == x.requires_grad


# --- operators, compilation, export ----------------------------------------------------------------------------------


def samples(device):
    yield torch.randn(3, 16, device=device)
    yield torch.randn(16, device=device).half()
    yield torch.randn(2, 2, 8, device=device).bfloat16()
    yield torch.randn(6, 48, device=device)[:, 8:40]


@devices
def test_opcheck(device):
    for x in samples(device):
        torch.library.opcheck(torch.ops.fwht.hadamard_transform.default, (x, 0.5))
        torch.library.opcheck(torch.ops.fwht.hadamard_transform_.default, (x, 0.5))
    x = torch.randn(3, 16, device=device, requires_grad=True)
    torch.library.opcheck(torch.ops.fwht.hadamard_transform.default, (x, None))
    x = torch.randn(16, 3, device=device).t()
    torch.library.opcheck(torch.ops.fwht.hadamard_transform.default, (x,))


def compiled(f, **options):
    torch._dynamo.reset()
    return torch.compile(f, fullgraph=True, **options)


def rotated_product(x, w):
    y = fwht.hadamard_transform(x @ w, None)
    z = y.relu()
    fwht.hadamard_transform_(z, 0.5)
    out = torch.empty_like(z)
    fwht.hadamard_transform(z, 2.0, out=out)
    return y + z - out


@devices
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compile(device, backend):
    x, w = torch.randn(4, 16, device=device), torch.randn(16, 32, device=device)
    expected = rotated_product(x, w)
    assert torch.allclose(compiled(rotated_product, backend=backend)(x, w), expected, atol=1e-4)
    x.requires_grad_()
    square = lambda t: fwht.hadamard_transform(t * 2, None).square().sum()
    (eager,) = torch.autograd.grad(square(x), x)
    (graph,) = torch.autograd.grad(compiled(square, backend=backend)(x), x)
    assert torch.allclose(eager, graph, atol=1e-5)


@pytest.mark.filterwarnings("ignore:Dynamo")
def test_numbers_of_numpy_break_graphs():
    x, number = integers(4, 16), np.float32(0.5)
    for f in (
        lambda t: fwht.hadamard_transform(t, number), lambda t: fwht.hadamard_transform_(t * 1, number),
        lambda t: fwht.hadamard_transform(t, number, axis=0), lambda t: fwht.operators.transform(t, scale=number),
        lambda t: fwht.hadamard_quantize(t, scale=number).scales, lambda t: fwht.quantize.round_trip(t, "nvfp4", tensor_scale=number),
    ):  # fmt: skip
        with pytest.raises(Exception, match="scale must be a number or None, not a numpy.ndarray|Observed exception"):
            compiled(f, backend="eager")(x)
        torch._dynamo.reset()
        assert torch.equal(torch.compile(f, backend="eager")(x), f(x))


def test_compiled_in_place_on_an_argument():
    f = compiled(lambda t: fwht.hadamard_transform_(t, 1.0) + 1, backend="aot_eager")
    x = integers(4, 16)
    y = x.clone()
    assert torch.equal(f(y), exact(x) + 1) and torch.equal(y, exact(x))
    z = integers(4, 16).requires_grad_()
    g = compiled(lambda t: fwht.hadamard_transform_(t * 3, 0.5).sum(), backend="aot_eager")
    g(z).backward()
    assert torch.equal(z.grad, 3 * exact(torch.ones(4, 16), 0.5))


def graphs_of(f, inputs, **options):
    seen = []

    def backend(graph, _):
        seen.append(graph)
        return graph.forward

    g = compiled(f, backend=backend, **options)
    results = [g(*arguments) for arguments in inputs]
    return seen, results


def test_one_graph_for_all_row_counts():
    inputs = [(torch.randn(rows, 16),) for rows in (2, 3, 7, 11)]
    graphs, results = graphs_of(lambda t: fwht.hadamard_transform(t * 1, 1.0), inputs, dynamic=True)
    assert len(graphs) == 1
    assert all(torch.equal(y, fwht.hadamard_transform(x, 1.0)) for (x,), y in zip(inputs, results))


def test_no_operator_that_reads_one_tensor_and_writes_another_is_in_a_graph():
    x, w = torch.randn(4, 16), torch.randn(16, 32)
    graphs, _ = graphs_of(rotated_product, [(x, w)])
    ours = [str(node.target).split(".")[1] for graph in graphs for node in graph.graph.nodes if "fwht." in str(node.target)]
    assert sorted(ours) == ["hadamard_transform", "hadamard_transform", "hadamard_transform_"]


class AddOne(torch.nn.Module):
    def forward(self, x):
        return fwht.hadamard_transform(x, 0.25) + 1


@pytest.mark.parametrize("strict", [False, True])
def test_export(strict, tmp_path):
    rows = torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(AddOne(), (torch.randn(2, 16),), dynamic_shapes={"x": {0: rows}}, strict=strict)
    assert any("fwht.hadamard_transform" in str(node.target) for node in program.graph.nodes)
    torch.export.save(program, tmp_path / "program.pt2")
    program = torch.export.load(tmp_path / "program.pt2")
    x = torch.randn(5, 16)
    assert torch.equal(program.module()(x), AddOne()(x))


def test_meta_and_fake():
    from torch._subclasses import FakeTensorMode

    assert fwht.hadamard_transform(torch.empty(4, 8, device="meta"), 1.0).shape == (4, 8)
    x = torch.empty(4, 8, device="meta")
    assert fwht.hadamard_transform_(x, 1.0) is x
    with FakeTensorMode():
        y = fwht.hadamard_transform(torch.empty(8, 4, dtype=torch.bfloat16).t(), None)
        assert y.shape == (4, 8) and y.is_contiguous() and y.dtype == torch.bfloat16


def test_make_fx_and_jit_trace_keep_the_operator():
    from torch.fx.experimental.proxy_tensor import make_fx

    x = integers(4, 16)
    graph = make_fx(lambda t: fwht.hadamard_transform(t, 1.0) * 2)(x)
    assert any("fwht.hadamard_transform" in str(node.target) for node in graph.graph.nodes)
    other = integers(4, 16, seed=1)
    assert torch.equal(graph(other), exact(other) * 2)
    traced = torch.jit.trace(lambda t: fwht.hadamard_transform(t, 1.0) * 2, (x,))
    assert torch.equal(traced(other), exact(other) * 2)


# --- layers ----------------------------------------------------------------------------------------------------------


def test_module():
    layer = fwht.nn.HadamardTransform(16)
    x = integers(3, 16)
    assert torch.equal(layer(x), exact(x, None)) and "1/sqrt(n)" in repr(layer)
    assert torch.equal(copy.deepcopy(fwht.nn.HadamardTransform(16, 2.0))(x), exact(x, 2.0))
    with pytest.raises(ValueError, match="8 elements .* n=16"):
        layer(integers(3, 8))
    with pytest.raises(ValueError, match="n=12"):
        fwht.nn.HadamardTransform(12)


@pytest.mark.parametrize("side", ["in", "out"])
@pytest.mark.parametrize("sizes", [(64, 16), (96, 116)])
@pytest.mark.parametrize("seed", [None, 3])
def test_rotate_linear(side, sizes, seed):
    torch.manual_seed(0)
    linear = torch.nn.Linear(*sizes)
    n = sizes[0] if side == "in" else sizes[1]
    signs = None if seed is None else fwht.operators.random_signs(n, seed)
    x = torch.randn(5, sizes[0])
    y = linear(x)
    assert fwht.nn.rotate_linear(linear, side, signs=signs) is linear

    def q(t, **transpose):
        return fwht.operators.transform(t, None, None, signs=signs, **transpose)

    rotated = linear(q(x)) if side == "in" else q(linear(x), transpose=True)
    if n == 64 and signs is None:
        assert torch.equal(q(x), fwht.hadamard_transform(x, None))
    # float32: the products are sums of 64 terms of size 1 and smaller
    assert torch.allclose(rotated, y, atol=64 * 2.0**-24 * 16)


def test_module_refuses_with_a_sentence():
    module = fwht.nn.HadamardTransform(4)
    for error, words, call in (
        (TypeError, "n=4.0 must be an integer", lambda: fwht.nn.HadamardTransform(4.0)),
        (TypeError, "n='4' must be an integer", lambda: fwht.nn.HadamardTransform("4")),
        (ValueError, "scale=nan must be finite", lambda: fwht.nn.HadamardTransform(4, float("nan"))),
        (ValueError, "at least one dimension", lambda: module(torch.ones(()))),
        (TypeError, "x is a builtins.list; a HadamardTransform takes PyTorch tensors", lambda: module([1.0, 2.0])),
    ):
        with pytest.raises(error, match=words):
            call()


def test_rotate_linear_takes_no_other_layer():
    for layer in (torch.nn.Embedding(8, 8), torch.nn.Conv2d(8, 8, 1), torch.nn.Bilinear(8, 8, 8)):
        before = layer.weight.clone()
        with pytest.raises(TypeError, match=f"linear is a torch.nn.modules.*{type(layer).__name__}; it must be a torch.nn.Linear"):
            fwht.nn.rotate_linear(layer)
        assert layer.weight.equal(before)


def test_rotate_linear_refuses_a_weight_that_is_computed():
    from torch.nn.utils import parametrizations, prune

    def pruned(linear, name="weight"):
        return prune.random_unstructured(linear, name, 0.5)

    for made in (parametrizations.weight_norm, parametrizations.orthogonal, torch.nn.utils.spectral_norm, pruned):
        linear = made(torch.nn.Linear(8, 8))
        before = copy.deepcopy(linear.state_dict())
        with pytest.raises(TypeError, match="the weight of linear is computed from other parameters"):
            fwht.nn.rotate_linear(linear)
        assert all(torch.equal(each, before[name]) for name, each in linear.state_dict().items())
    linear = pruned(torch.nn.Linear(8, 8), "bias")
    with pytest.raises(TypeError, match="the bias of linear is computed"):
        fwht.nn.rotate_linear(linear, "out")
    fwht.nn.rotate_linear(linear)  # which the bias has no part in
    fwht.nn.rotate_linear(torch.nn.Linear(8, 8, bias=False), "out")


def test_rotate_linear_refuses_before_it_changes_anything():
    linear = torch.nn.Linear(64, 13)
    before = copy.deepcopy(linear.state_dict())
    with pytest.raises(ValueError, match="n=13 .*nearest n"):
        fwht.nn.rotate_linear(linear, "out")
    with pytest.raises(ValueError, match="side='up'"):
        fwht.nn.rotate_linear(linear, "up")
    expanded = torch.nn.Linear(64, 64)
    expanded.weight = torch.nn.Parameter(torch.randn(1, 64).expand(64, 64))
    bias = expanded.bias.detach().clone()
    with pytest.raises(RuntimeError, match="single memory location"):
        fwht.nn.rotate_linear(expanded, "out")
    assert torch.equal(expanded.bias, bias)
    assert all(torch.equal(linear.state_dict()[key], before[key]) for key in before)


# --- CUDA ------------------------------------------------------------------------------------------------------------


@needs_cuda
class TestCuda:
    def test_the_current_stream_is_used(self):
        """A slow producer on a side stream: on any other stream the transform would read what was there before."""
        x = torch.zeros(1024, 1024, device="cuda")
        fwht.hadamard_transform(x, 1.0)  # the plan
        torch.cuda.synchronize()
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(200_000_000)
            x.fill_(1.0)
            y = fwht.hadamard_transform(x, 1.0)
            fwht.hadamard_transform_(x, 1.0)
        stream.synchronize()
        expected = torch.zeros_like(x)
        expected[:, 0] = 1024
        assert torch.equal(y, expected) and torch.equal(x, expected)

    def test_nothing_waits(self):
        x = torch.ones(64, 1024, device="cuda")
        fwht.hadamard_transform(x, 1.0)
        torch.cuda.synchronize()
        torch.cuda._sleep(400_000_000)
        fwht.hadamard_transform(x, 1.0)
        still_running = not torch.cuda.current_stream().query()
        torch.cuda.synchronize()
        assert still_running

    @pytest.mark.parametrize("first_call", ["before", "inside"])
    @pytest.mark.parametrize("variant", [None, "mma_split", "warp_shuffle"])
    def test_capture(self, first_call, variant):
        n = 2048 if first_call == "before" else 4096
        x = integers(7, n, device="cuda", dtype=torch.float16)
        source = x.clone()
        fwht.clear_plans()
        if first_call == "before":
            fwht.hadamard_transform(x, 1.0, variant=variant)
            fwht.hadamard_transform_(x.clone(), 1.0, variant=variant)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with capture(graph):
            y = fwht.hadamard_transform(x, 0.5, variant=variant)
            fwht.hadamard_transform_(x, 1.0, variant=variant)
        for seed in (1, 2):
            source.copy_(integers(7, n, device="cuda", seed=seed))  # sums stay below 2^15
            x.copy_(source)
            y.zero_()
            graph.replay()
            torch.cuda.synchronize()
            assert torch.equal(y, exact(source, 0.5)) and torch.equal(x, exact(source))

    @pytest.mark.parametrize("dtype", DTYPES)
    @pytest.mark.parametrize("n", [64, 1024, 16384])
    def test_a_nan_stays_in_its_row(self, n, dtype):
        x = integers(5, n, device="cuda", dtype=dtype)
        clean = fwht.hadamard_transform(x, 2.0**-7)
        x[1, 3], x[3, n - 1] = float("nan"), float("inf")
        y = fwht.hadamard_transform(x, 2.0**-7)
        assert y[1].isnan().all() and not y[3].isfinite().any()
        assert torch.equal(y[[0, 2, 4]], clean[[0, 2, 4]])

    def test_graph_trees(self):
        f = compiled(lambda t: fwht.hadamard_transform(t * 2, None), mode="reduce-overhead")
        x = torch.randn(8, 256, device="cuda")
        for _ in range(4):
            assert torch.allclose(f(x), fwht.hadamard_transform(x * 2, None), atol=1e-4)

    @pytest.mark.parametrize("variant", [v.name for v in fwht.variants() if v.memory == "device"])
    def test_variants_by_name(self, variant):
        x = integers(4, 256, device="cuda", dtype=torch.float16)
        if support := fwht.supports(256, "float16", rows=4, device="cuda", inplace=False, variant=variant):
            y = fwht.hadamard_transform(x, 2.0**-4, variant=variant)
            # At most one rounding a stage of the eight, each of something below the sum of the row's magnitudes;
            # the constants of some variants are off by 1e-4.
            most = 2.0**-4 * x.float().abs().sum(-1).max().item()
            assert torch.allclose(y.float(), exact(x.float(), 2.0**-4), rtol=0, atol=(8 * 2.0**-11 + 2e-4) * most)
        else:
            with pytest.raises(NotImplementedError) as caught:
                fwht.hadamard_transform(x, variant=variant)
            assert support.why_not in str(caught.value)

    def test_plan(self):
        x = integers(4, 256, device="cuda", dtype=torch.bfloat16)
        expected = exact(x, 2.0**-4)
        plan = fwht.plan(256, 4, torch.bfloat16, device="cuda", scale=2.0**-4)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        assert plan.execute(x, stream=stream.cuda_stream) is x
        stream.synchronize()
        assert torch.equal(x, expected) and plan.device == 0

    def test_the_c_interface_finds_the_device_of_a_pointer(self):
        import ctypes

        from fwht import _c

        x = integers(4, 256, device="cuda")
        expected = exact(x)
        problem = _c.make_problem((4, 256), _c.F32, "float32", 1.0, in_place=True, device=0)
        torch.cuda.synchronize()
        assert _c.transform(ctypes.addressof(problem), None, x.data_ptr(), x.data_ptr(), _c.DEVICE_OF_POINTER, None) == 0
        torch.cuda.synchronize()
        assert torch.equal(x, expected)

    @pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
    def test_a_tensor_on_another_device_than_the_current_one(self):
        with torch.cuda.device(0):
            x = integers(33, 1024, device="cuda:1", dtype=torch.float16)
            fwht.hadamard_transform(torch.ones(33, 1024, device="cuda:0", dtype=torch.float16), 1.0)
            y = fwht.hadamard_transform(x, 2.0**-5)
            assert y.device == x.device and torch.cuda.current_device() == 0
            torch.cuda.synchronize(1)
            assert torch.equal(y, exact(x, 2.0**-5))
            with pytest.raises(ValueError, match="out is .* on cuda:0"):
                fwht.hadamard_transform(x, out=torch.empty_like(x, device="cuda:0"))

    def test_threads_and_streams(self):
        def work(seed):
            with torch.cuda.stream(torch.cuda.Stream()):
                x = integers(17, 2 ** (seed % 10 + 3), device="cuda", seed=seed)
                results = [fwht.hadamard_transform(x, 1.0) for _ in range(20)]
                torch.cuda.current_stream().synchronize()
                return all(torch.equal(y, exact(x)) for y in results)

        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(work, range(16)))
