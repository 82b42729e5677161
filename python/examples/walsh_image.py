"""The sequency spectrum of an image, by two axes: smooth pictures have their energy in the coefficients with few sign changes.

The spectrum of a picture of blobs is taken in sequency order along rows and columns. Its first sixteenth, the lowest quarter of each axis,
holds nearly all of the energy; the same corner of the natural order holds less. The inverse brings the picture back.
"""

import argparse
from typing import Any

import numpy as np

import fwht

BOTH = (-2, -1)


def on(device: str, x: Any) -> Any:
    """x itself, or a PyTorch tensor of it on another device."""
    if device == "cpu":
        return x
    import torch

    return torch.from_numpy(x).to(device)


def blobs(size: int) -> Any:
    """A smooth picture without its mean, float32 [size][size]."""
    place = np.linspace(-1, 1, size)
    picture = np.zeros((size, size))
    for x, y, width in ((-0.4, 0.3, 0.3), (0.5, -0.2, 0.2), (0.1, 0.6, 0.4)):
        picture += np.exp(-((place[:, None] - x) ** 2 + (place - y) ** 2) / width**2)
    return (picture - picture.mean()).astype(np.float32)


def missing(spectrum: Any) -> float:
    """The share of the energy that is outside of the lowest quarter of both axes."""
    quarter = len(spectrum) // 4
    return 1.0 - float((spectrum[:quarter, :quarter] ** 2).sum() / (spectrum**2).sum())


def main(size: int = 256, device: str = "cpu") -> dict[str, float]:
    picture = on(device, blobs(size))
    spectrum = fwht.hadamard_transform(picture, axis=BOTH, ordering="sequency")
    natural = fwht.hadamard_transform(picture, axis=BOTH)
    back = fwht.hadamard_transform(spectrum, axis=BOTH, input_ordering="sequency")
    return {
        "the picture and its inverse, rms": float(((back - picture) ** 2).mean()) ** 0.5,
        "energy outside of a sixteenth, natural order": missing(natural),
        "the same, sequency order": missing(spectrum),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="The sequency spectrum of an image")
    parser.add_argument("--size", type=int, default=256, help="a power of two")
    parser.add_argument("--device", default="cpu", help="cpu (NumPy), or what PyTorch calls a device")
    arguments = parser.parse_args()
    for name, value in main(arguments.size, arguments.device).items():
        print(f"{name:46} {value:.3g}")
