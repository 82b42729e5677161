"""Rotating a linear layer changes nothing, and makes its input easy to quantize.

    y = W x = (W H) (H x),  H = H_n / sqrt(n) = H^-1

H x has no outliers: every element is a mean of all of x with signs. So int4 activations lose less. Runs on the CPU.
"""

import torch

import fwht


def quantized(x: torch.Tensor, bits: int = 4) -> torch.Tensor:
    """Symmetric integers with one scale per row, back as floats."""
    largest = 2 ** (bits - 1) - 1
    scale = x.abs().amax(-1, keepdim=True) / largest
    return (x / scale).round().clamp(-largest, largest) * scale


def relative_error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return ((got - wanted).norm() / wanted.norm()).item()


def main() -> dict[str, float]:
    torch.manual_seed(0)
    n = 1024
    x = torch.randn(64, n)
    x[:, :8] *= 50  # a few channels are large, as in language models
    linear = torch.nn.Linear(n, 512)
    with torch.no_grad():
        y = linear(x)
        plain = relative_error(linear(quantized(x)), y)
        fwht.nn.rotate_linear(linear, side="in")
        rotated_x = fwht.hadamard_transform(x)
        exact = relative_error(linear(rotated_x), y)
        rotated = relative_error(linear(quantized(rotated_x)), y)
    return {"rotated, not quantized": exact, "int4 activations": plain, "int4 activations, rotated": rotated}


if __name__ == "__main__":
    for name, error in main().items():
        print(f"{name:30} relative error {error:.2e}")
