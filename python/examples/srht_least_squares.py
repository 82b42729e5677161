"""Least squares by a sketch: |A x - b| for a tall A, solved with few rows of a randomized Hadamard transform of A and b (SRHT).

Where a few rows of A carry what determines x, rows that are chosen at random miss them; the transform spreads every row over all of them
first. The sketched residual is within a few per cent of the least one.
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


def problem(rows: int, columns: int) -> Any:
    """[A b], A with a few heavy rows and b = A x + noise, float64 [rows][columns + 1]."""
    random = np.random.default_rng(0)
    a = random.standard_normal((rows, columns))
    a[:: rows // (2 * columns)] *= 100.0
    b = a @ random.standard_normal((columns, 1)) + random.standard_normal((rows, 1))
    return np.concatenate([a, b], 1)


def residual(both: Any, small: Any) -> float:
    """|A x - b| for the least-squares solution x of the rows `small`."""
    x = np.linalg.lstsq(small[:, :-1], small[:, -1], rcond=None)[0]
    return float(np.linalg.norm(both[:, :-1] @ x - both[:, -1]))


def sketch_of(both: Any, rows: int, device: str) -> Any:
    """Along the rows of A, so columns are transformed."""
    y = fwht.walsh.Sketch(len(both), rows, seed=1)(on(device, np.ascontiguousarray(both.T)))
    return (y if device == "cpu" else y.cpu().numpy()).T


def main(rows: int = 5000, columns: int = 20, sketched: int = 400, device: str = "cpu") -> dict[str, float]:
    both = problem(rows, columns)
    least = residual(both, both)
    whole = sketch_of(both, 1 << (rows - 1).bit_length(), device)  # all coefficients: an isometry
    chosen = both[np.random.default_rng(1).permutation(rows)[:sketched]]
    return {
        "excess of the residual, all coefficients": abs(residual(both, whole) / least - 1.0),
        "rows chosen at random": residual(both, chosen) / least - 1.0,
        "the sketch": residual(both, sketch_of(both, sketched, device)) / least - 1.0,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Least squares by a subsampled randomized Hadamard transform")
    parser.add_argument("--rows", type=int, default=5000)
    parser.add_argument("--columns", type=int, default=20)
    parser.add_argument("--sketched", type=int, default=400)
    parser.add_argument("--device", default="cpu", help="cpu (NumPy), or what PyTorch calls a device")
    arguments = parser.parse_args()
    for name, value in main(arguments.rows, arguments.columns, arguments.sketched, arguments.device).items():
        print(f"{name:42} {value:.3g}")
