"""The online rotation of QuaRot (Ashkboos et al. 2024, section 4): the input of an MLP's down projection.

    down(h) = W h = (W H) (H h),  h = silu(gate(x)) * up(x)

W H is made once, H h in every forward pass, by a hook in front of `down_proj`. The product of gate and up has the
largest outliers of a language model, and no rotation can be merged into a layer before it, because of the
element-wise product. Runs on the CPU, with random weights.

Under tensor parallelism every rank holds a slice of h. Rotate each slice by its own (smaller) Hadamard matrix and the
matching columns of W by the same: a block-diagonal rotation, which needs no communication.
"""

import torch

import fwht


class Mlp(torch.nn.Module):
    def __init__(self, hidden: int, intermediate: int):
        super().__init__()
        self.gate_proj = torch.nn.Linear(hidden, intermediate, bias=False)
        self.up_proj = torch.nn.Linear(hidden, intermediate, bias=False)
        self.down_proj = torch.nn.Linear(intermediate, hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(torch.nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


def rotate_down_proj(mlp: torch.nn.Module) -> torch.utils.hooks.RemovableHandle:
    fwht.nn.rotate_linear(mlp.down_proj, side="in")
    return mlp.down_proj.register_forward_pre_hook(lambda _, inputs: (fwht.hadamard_transform(inputs[0]),))


def quantize_input(linear: torch.nn.Linear, bits: int = 4) -> torch.utils.hooks.RemovableHandle:
    """Rounds what reaches the layer to integers of one scale per token."""

    def hook(_, inputs):
        (x,) = inputs
        largest = 2 ** (bits - 1) - 1
        scale = x.abs().amax(-1, keepdim=True) / largest
        return ((x / scale).round().clamp(-largest, largest) * scale,)

    return linear.register_forward_pre_hook(hook)


def relative_error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return ((got - wanted).norm() / wanted.norm()).item()


@torch.no_grad()
def main() -> dict[str, float]:
    torch.manual_seed(0)
    mlp = Mlp(hidden=256, intermediate=1024)
    mlp.up_proj.weight[:6] *= 40  # channels with outliers
    x = torch.randn(128, 256)
    y = mlp(x)

    quantizer = quantize_input(mlp.down_proj)
    plain = relative_error(mlp(x), y)
    quantizer.remove()

    rotate_down_proj(mlp)
    exact = relative_error(mlp(x), y)
    quantize_input(mlp.down_proj)  # after the rotation's hook
    rotated = relative_error(mlp(x), y)
    return {"rotated, not quantized": exact, "int4 activations": plain, "int4 activations, rotated": rotated}


if __name__ == "__main__":
    for name, error in main().items():
        print(f"{name:30} relative error {error:.2e}")
