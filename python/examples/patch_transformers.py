"""Rotates the inputs of every down projection in a model of Hugging Face transformers, and quantizes them to int4.

    down(h) = W h = (W Q^T) (Q h),  Q = Op D / sqrt(n),  n = 768 = 12 x 64

The model is a small Llama with random weights: nothing is downloaded. Its MLPs are 768 wide, no power of two, as those of
most models are; Q is the Kronecker product of two Hadamard matrices times random signs, which are the same on every machine. The
logits stay as they were (rounding of float32 apart), and the error of int4 activations shrinks. Runs on the CPU.
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import fwht
from fwht import operators


def down_projections(model: torch.nn.Module) -> list[torch.nn.Linear]:
    """By the name that Llama, Mistral, Qwen and Gemma share."""
    return [layer for name, layer in model.named_modules() if name.endswith("down_proj")]


def rotate_down_projections(model: torch.nn.Module, seed: int) -> None:
    for layer in down_projections(model):
        signs = operators.random_signs(layer.in_features, seed)
        fwht.nn.rotate_linear(layer, "in", signs=signs)
        layer.register_buffer("signs", signs.on(layer.weight).clone(), persistent=False)  # moves with the layer
        layer.register_forward_pre_hook(
            lambda layer, inputs: (operators.transform(inputs[0], signs=layer.signs),)
        )


def quantize_inputs(model: torch.nn.Module, bits: int = 4) -> list[torch.utils.hooks.RemovableHandle]:
    """Rounds what reaches the projections to integers of one scale per token."""
    largest = 2 ** (bits - 1) - 1

    def hook(_, inputs):
        (h,) = inputs
        scale = h.abs().amax(-1, keepdim=True) / largest
        return ((h / scale).round().clamp(-largest, largest) * scale,)

    return [layer.register_forward_pre_hook(hook) for layer in down_projections(model)]


def relative_error(got: torch.Tensor, wanted: torch.Tensor) -> float:
    return ((got - wanted).norm() / wanted.norm()).item()


@torch.no_grad()
def main() -> dict[str, float]:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=512, hidden_size=256, intermediate_size=768, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128,
    )  # fmt: skip
    model = LlamaForCausalLM(config).eval()
    for layer in model.model.layers:
        layer.mlp.up_proj.weight[:6] *= 40  # channels with outliers, as trained models have them
    tokens = torch.randint(0, config.vocab_size, (2, 64))
    logits = model(tokens).logits

    hooks = quantize_inputs(model)
    plain = relative_error(model(tokens).logits, logits)
    for hook in hooks:
        hook.remove()

    rotate_down_projections(model, seed=0)
    exact = relative_error(model(tokens).logits, logits)
    quantize_inputs(model)  # after the rotation's hook
    rotated = relative_error(model(tokens).logits, logits)
    return {"rotated, not quantized": exact, "int4 activations": plain, "int4 activations, rotated": rotated}


if __name__ == "__main__":
    for name, error in main().items():
        print(f"{name:30} relative error {error:.2e}")
