"""FP8 attention on rotated queries and keys, as FlashAttention-3 does it (Shah et al. 2024, section 3.3).

    q k^T = (H q) (H k)^T,  H = H_d / sqrt(d)

Scores do not change, but outliers of q and k are spread before they are rounded to e4m3. With 0.1 % outliers, as in
the paper's experiment. Runs on the CPU.
"""

import torch

import fwht


def fp8(x: torch.Tensor) -> torch.Tensor:
    """Rounded to e4m3 with one scale per tensor, back in float32."""
    scale = x.abs().amax() / torch.finfo(torch.float8_e4m3fn).max
    return (x / scale).to(torch.float8_e4m3fn).float() * scale


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5, -1) @ v


def relative_error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return ((got - wanted).norm() / wanted.norm()).item()


def main() -> dict[str, float]:
    torch.manual_seed(0)
    shape = (1, 4, 256, 128)  # batch, heads, sequence, head dimension

    def with_outliers() -> torch.Tensor:
        return torch.randn(shape) + torch.randn(shape) * 10 * (torch.rand(shape) < 0.001)

    q, k, v = with_outliers(), with_outliers(), torch.randn(shape)
    wanted = attention(q, k, v)
    hq, hk = fwht.hadamard_transform(q), fwht.hadamard_transform(k)
    return {
        "rotated, not quantized": relative_error(attention(hq, hk, v), wanted),
        "q, k in fp8": relative_error(attention(fp8(q), fp8(k), v), wanted),
        "q, k in fp8, rotated": relative_error(attention(fp8(hq), fp8(hk), v), wanted),
    }


if __name__ == "__main__":
    for name, error in main().items():
        print(f"{name:30} relative error {error:.2e}")
