"""The MLP of a Llama with 4-bit weights in GPTQ's format: rounded, saved as a checkpoint, loaded and run.

    python llama_mlp.py            # Llama-3-8B's shape: 4096 and 14336; minutes on a CPU
    python llama_mlp.py --small

The weights are random with a few large input channels, as trained ones have. They are rounded to nearest, once as they are and once
multiplied by H in blocks of the inputs; then the layer multiplies its tokens by H first, and the error is smaller.
"""

import sys
import tempfile
import time

import safetensors  # noqa: F401  what linear.save and linear.load need
import torch

import fwht
from fwht import linear

GROUP = 128


def rounded(weight):
    """(n, k) to GPTQ's tensors: 4 bits, a scale and a zero point for 128 inputs of an output."""
    n, k = weight.shape
    groups = weight.float().view(n, k // GROUP, GROUP)
    low, high = groups.amin(2).clamp(max=0), groups.amax(2).clamp(min=0)
    scales = ((high - low) / 15).clamp(min=1e-4).half()
    zeros = (-low / scales.float()).round().clamp(1, 15)
    q = ((groups / scales.float()[..., None]).round() + zeros[..., None]).clamp(0, 15).view(n, k)

    def words(nibbles):  # eight neighbours of the last axis in a word
        parts = nibbles.to(torch.int64).unflatten(-1, (-1, 8)) << (4 * torch.arange(8, device=nibbles.device))
        return parts.sum(-1).to(torch.uint32).view(torch.int32)

    return linear.GptqTensors(words(q).t().contiguous(), words(zeros.t() - 1), scales.t().contiguous())


def by_blocks(weight, order):
    n, k = weight.shape
    return fwht.hadamard_transform(weight.float().view(n, k // order, order)).view(n, k)


def mlp(gate, up, down, x):
    return down(torch.nn.functional.silu(gate(x)) * up(x))


def microseconds(run):
    if not torch.cuda.is_available():
        return float("nan")
    for _ in range(3):
        run()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(50):
        run()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / 50 * 1e6


def main(small=True):
    hidden, inner = (256, 896) if small else (4096, 14336)
    orders = {"gate_proj": hidden, "up_proj": hidden, "down_proj": inner & -inner}  # the largest power of two in k
    device = "cuda" if torch.cuda.is_available() and fwht.build_info()["devices"] > 0 else "cpu"
    generator = torch.Generator().manual_seed(1)
    weights = {}
    for name, (n, k) in {"gate_proj": (inner, hidden), "up_proj": (inner, hidden), "down_proj": (hidden, inner)}.items():
        weights[name] = torch.randn(n, k, generator=generator) / k**0.5
        weights[name][:, :: k // 8] *= 20
    x = torch.randn(4, hidden, generator=generator).half().to(device)
    dense = [weights[name].half().to(device) for name in orders]
    want = mlp(*(lambda t, w=w: torch.nn.functional.linear(t, w.float()) for w in dense), x.float())

    errors, exact = [], 0.0
    for rotated in (False, True):
        made = {name: rounded(by_blocks(w, orders[name]) if rotated else w) for name, w in weights.items()}
        with tempfile.TemporaryDirectory() as folder:
            linear.save(folder, {f"model.layers.0.mlp.{name}": tensors for name, tensors in made.items()}, shard_bytes=1 << 24)
            loaded = {name.rpartition(".")[2]: linear.load(folder, name) for name in linear.layers(folder)}
        for name, tensors in made.items():
            exact += sum(float((a != b).sum()) for a, b in zip(tensors[:3], loaded[name][:3], strict=True))
        packed = [
            linear.pack(*loaded[name][:4], rotation=orders[name] if rotated else 0, device=device) for name in orders
        ]
        layers = [lambda t, p=p: linear.forward(t, p) for p in packed]
        y = mlp(*layers, x).float()
        errors.append(float((y - want).norm() / want.norm()))
    plain, turned = errors
    print(f"relative error of the MLP: {plain:.3f} rounded as it is, {turned:.3f} rotated")
    if device == "cuda":
        times = [microseconds(lambda: mlp(*layers, x)), microseconds(lambda: mlp(*(lambda t, w=w: t @ w.t() for w in dense), x))]
        print("4 tokens, eager: {:.0f} us in 4 bits, {:.0f} us in fp16".format(*times))
    return {"exact": exact, "plain": plain, "rotated": turned}


if __name__ == "__main__":
    main("--small" in sys.argv[1:])
