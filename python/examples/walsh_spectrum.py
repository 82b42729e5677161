"""The Walsh spectrum of Boolean functions: how far a function is from all affine ones.

    W(a) = sum over x of (-1)^(f(x) + <a, x>),  nonlinearity = 2^(k-1) - max |W| / 2

A bent function, f(x, y) = <x, y>, has |W| = 2^(k/2) everywhere, the least that Parseval's equation allows. A random one has a
larger maximum. Runs on the CPU for up to 30 variables; on a GPU for 16 to 30.
"""

import argparse

import torch

import fwht


def spectrum(f: torch.Tensor) -> torch.Tensor:
    """W of a function given by its 2^k bits, [2^k] -> int32 [2^k]. The transform is of +-1, not of 0 and 1."""
    return fwht.hadamard_transform_(1 - 2 * f.to(torch.int32), scale=1)


def inner_product(variables: int, device: str) -> torch.Tensor:
    """<x, y> of the upper and the lower half of the variables."""
    index = torch.arange(1 << variables, device=device)
    common = (index >> (variables // 2)) & index & ((1 << (variables // 2)) - 1)
    for shift in (8, 4, 2, 1):  # the parity of up to 16 bits
        common ^= common >> shift
    return common & 1


def main(variables: int = 16, device: str = "cpu") -> dict[str, float]:
    torch.manual_seed(0)
    bent = spectrum(inner_product(variables, device))
    random = spectrum(torch.randint(2, (1 << variables,), device=device))
    least = 2.0 ** (variables / 2)
    parseval = random.double().square().sum().item() / 4.0**variables
    return {
        "Parseval's equation, relative error": abs(parseval - 1.0),
        "max |W| / 2^(k/2), a random function": random.abs().max().item() / least,
        "max |W| / 2^(k/2), <x, y>": bent.abs().max().item() / least,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Walsh spectra of Boolean functions")
    parser.add_argument("--variables", type=int, default=16, help="an even number")
    parser.add_argument("--device", default="cpu")
    arguments = parser.parse_args()
    for name, value in main(arguments.variables, arguments.device).items():
        print(f"{name:38} {value:.3g}")
