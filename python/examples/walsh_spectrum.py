"""The Walsh spectrum of Boolean functions: how far a function is from all affine ones.

    W(a) = sum over x of (-1)^(f(x) + <a, x>),  nonlinearity = 2^(k-1) - max |W| / 2

A bent function, f(x, y) = <x, y>, has |W| = 2^(k/2) everywhere, the least that Parseval's equation allows. A random one has a
larger maximum. Runs on the CPU for 4 to 30 variables; on a GPU for 16 to 30.
"""

import argparse
from typing import Any

import numpy as np

import fwht


def on(device: str, x: Any) -> Any:
    """x itself, or a PyTorch tensor of it on another device."""
    if device == "cpu":
        return x
    import torch

    return torch.from_numpy(x).to(device)


def inner_product(variables: int) -> Any:
    """<x, y> of the upper and the lower half of the variables, uint8 [2^k]."""
    half = np.arange(1 << (variables // 2), dtype=np.uint16)
    common = half[:, None] & half  # up to 15 bits
    for shift in (8, 4, 2, 1):  # their parity
        common ^= common >> shift
    return (common & 1).astype(np.uint8).ravel()


def main(variables: int = 16, device: str = "cpu") -> dict[str, float]:
    bent = fwht.walsh.summary(fwht.walsh.spectrum(on(device, inner_product(variables)), "bits"))
    packed = np.random.default_rng(0).integers(256, size=1 << (variables - 3), dtype=np.uint8)
    random = fwht.walsh.summary(fwht.walsh.spectrum(on(device, packed), "packed"))
    least = 2.0 ** (variables / 2)
    return {
        "Parseval's equation, relative error": abs(random.sum_of_squares / 4.0**variables - 1.0),
        "max |W| / 2^(k/2), a random function": random.largest / least,
        "max |W| / 2^(k/2), <x, y>": bent.largest / least,
    }


def number_of_variables(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) % 2 or not 4 <= int(text) <= 30:
        raise argparse.ArgumentTypeError(f"{text} must be an even number from 4 to 30")
    return int(text)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Walsh spectra of Boolean functions")
    parser.add_argument("--variables", type=number_of_variables, default=16, help="an even number from 4 to 30")
    parser.add_argument("--device", default="cpu", help="cpu (NumPy), or what PyTorch calls a device")
    arguments = parser.parse_args()
    for name, value in main(arguments.variables, arguments.device).items():
        print(f"{name:38} {value:.3g}")
