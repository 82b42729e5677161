"""A rotation in front of a row-parallel layer: every rank of torch.distributed holds a slice of h.

    y = W h = sum over ranks of (W H)[:, mine] (H h)[mine],   mine = result_columns(n, ranks, rank)

Every rank transforms its slice, the ranks exchange once, and each has the columns `mine` of H h. The columns of W H are
spread alike, once, so nothing is sent back. Starts two processes that talk by gloo on the CPU, or by NCCL where there are
two GPUs; under torchrun it runs as the ranks that torchrun has started:

    torchrun --nproc-per-node 4 python/examples/tensor_parallel_rotation.py
"""

import json
import os
import subprocess
import sys

import torch
import torch.distributed as dist

import fwht
import fwht.distributed as over_ranks


def quantized(x: torch.Tensor, bits: int = 4) -> torch.Tensor:
    """Rounded to integers of one scale per token."""
    largest = 2 ** (bits - 1) - 1
    scale = x.abs().amax(-1, keepdim=True) / largest
    return (x / scale).round().clamp(-largest, largest) * scale


def summed(part: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(part)
    return part


@torch.no_grad()
def errors_of_this_rank(n: int = 1024, tokens: int = 64) -> dict[str, float]:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    on_gpus = dist.get_backend() == "nccl"
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpus else torch.device("cpu")
    torch.manual_seed(0)  # the same layer on every rank
    weight, h = torch.randn(256, n).to(device), torch.randn(tokens, n)
    h[:, :6] *= 40  # channels with outliers
    h = h.to(device)
    y = h.double() @ weight.double().T

    slice_ = slice(rank * n // ranks, (rank + 1) * n // ranks)
    mine = over_ranks.result_columns(n, ranks, rank)
    rotated_weight = fwht.hadamard_transform(weight)[:, mine.to(device)]  # offline
    rotated_h = over_ranks.hadamard_transform(h[:, slice_].contiguous())

    def error(part: torch.Tensor) -> float:
        return ((summed(part) - y).norm() / y.norm()).item()

    return {
        "rotated, not quantized": error(rotated_h @ rotated_weight.T),
        "int4 activations": error(quantized(h[:, slice_]) @ weight[:, slice_].T),
        "int4 activations, rotated": error(quantized(rotated_h) @ rotated_weight.T),
    }


def run_rank() -> dict[str, float]:
    ranks = int(os.environ["WORLD_SIZE"])
    dist.init_process_group("nccl" if torch.cuda.device_count() >= ranks else "gloo")
    if dist.get_backend() == "nccl":
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    torch.backends.cuda.matmul.allow_tf32 = False
    errors = errors_of_this_rank()
    if dist.get_rank() == 0:
        print(json.dumps(errors))
    dist.destroy_process_group()
    return errors


def main(ranks: int = 2) -> dict[str, float]:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}", __file__]
    done = subprocess.run(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    if "RANK" in os.environ:
        run_rank()
    else:
        for name, relative_error in main().items():
            print(f"{name:30} relative error {relative_error:.2e}")
