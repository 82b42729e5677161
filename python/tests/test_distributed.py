"""Rows over processes of torch.distributed (gloo; NCCL where there are GPUs), against the whole matrix in float64."""

import os
import socket

import numpy as np
import pytest

torch = pytest.importorskip("torch")
if not torch.distributed.is_available():
    pytest.skip("this PyTorch has no torch.distributed", allow_module_level=True)

import torch.multiprocessing as mp  # noqa: E402
from conftest import hadamard  # noqa: E402

import fwht.distributed as over_ranks  # noqa: E402


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def integers(n):
    """Sums of them are exact in float32 and float16."""
    return torch.from_numpy(np.random.default_rng(n).integers(-1, 2, (3, 2, n))).float()


def one_rank(rank, ranks, port, n, folder, backend):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(1)
    device = torch.device("cuda", rank) if backend == "nccl" else torch.device("cpu")
    if backend == "nccl":
        torch.cuda.set_device(device)
    torch.distributed.init_process_group(backend, rank=rank, world_size=ranks)
    shard = slice(rank * n // ranks, (rank + 1) * n // ranks)
    for form in over_ranks.FORMS:
        for dtype in (torch.float32, torch.float16):
            x = integers(n)[..., shard].to(device, dtype)
            y = over_ranks.hadamard_transform(x, 1.0, form=form)
            assert y.dtype == dtype and y.shape == x.shape and y.device == device
            torch.save(y.float().cpu(), f"{folder}/{form}_{str(dtype)[6:]}_{rank}")
        y = over_ranks.hadamard_transform(integers(n)[..., shard].to(device), form=form)
        torch.save(y.cpu(), f"{folder}/{form}_ortho_{rank}")
        # 2^30 + 1 is no float32: sums over ranks of float64 are formed in float64; the scale is applied once.
        x = integers(n)[..., shard].to(device).double() * ((1 << 30) + 1)
        torch.save(over_ranks.hadamard_transform(x, 0.5, form=form).cpu(), f"{folder}/{form}_float64_{rank}")
    x = torch.full((1, n // ranks), 400.0, dtype=torch.float16, device=device)  # whose bare sums over a shard are beyond float16
    y = over_ranks.hadamard_transform(x, n**-0.5)
    assert torch.equal(y.cpu(), 400 * n**0.5 * (over_ranks.result_columns(n, ranks, rank) == 0).half()[None])
    whole = torch.arange(n) << 20  # no float32 holds their sums
    y = over_ranks.hadamard_transform(whole[shard].to(device), 1.0)
    torch.save(y.cpu(), f"{folder}/int64_{rank}")
    for scale, words in ((2.0, "scale=2.0, but torch.int64 data are only summed"), (None, "scale=None is 1/sqrt")):
        with pytest.raises(ValueError, match=words):
            over_ranks.hadamard_transform(whole[shard].to(device), scale)
    with pytest.raises(ValueError, match="scale=nan"):
        over_ranks.hadamard_transform(integers(n)[..., shard].to(device), float("nan"))
    for scale in (1e39, -1e39):  # no float32
        with pytest.raises(ValueError, match="must be finite in float32"):
            over_ranks.hadamard_transform(integers(n)[..., shard].to(device), scale)
    x = torch.zeros(1, n // ranks, device=device) + (rank == 0) * torch.eye(1, n // ranks, device=device)
    y = over_ranks.hadamard_transform(x, 2.0**127)  # which no float32 holds beside the scale of the local transform
    assert torch.equal(y.cpu(), torch.full((1, n // ranks), 2.0**127))
    for x, kind, words in ((torch.tensor(1.0, device=device), ValueError, "it is a scalar"), (np.ones(8), TypeError, "x is a numpy.ndarray; it must be")):
        with pytest.raises(kind, match=words):
            over_ranks.hadamard_transform(x)
    first = torch.distributed.new_group([0])
    if rank:
        with pytest.raises(ValueError, match="this process is no rank of group"):
            over_ranks.hadamard_transform(torch.zeros(1, 8, device=device), group=first)
    pairs = [torch.distributed.new_group([first, first + 1]) for first in range(0, ranks, 2)]  # two of several ranks
    half = slice(rank % 2 * n // 2, (rank % 2 + 1) * n // 2)
    y = over_ranks.hadamard_transform(integers(n)[..., half].to(device), 1.0, group=pairs[rank // 2])
    torch.save(y.cpu(), f"{folder}/pair_{rank}")
    with pytest.raises(ValueError, match=f"a shard of {ranks + 1} columns is not divisible by {ranks} ranks"):
        over_ranks.hadamard_transform(torch.zeros(1, ranks + 1, device=device))
    with pytest.raises(RuntimeError, match="not differentiable"):
        over_ranks.hadamard_transform(torch.zeros(1, 8, device=device, requires_grad=True))
    with pytest.raises(RuntimeError, match="not differentiable"):
        torch.func.jvp(over_ranks.hadamard_transform, (torch.zeros(1, 8, device=device),), (torch.ones(1, 8, device=device),))
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_give_the_exact_whole(ranks, backend, tmp_path):
    if backend == "nccl" and torch.cuda.device_count() < ranks:
        pytest.skip(f"{ranks} GPUs are needed, this machine has {torch.cuda.device_count()}")
    n = 1024
    mp.spawn(one_rank, (ranks, free_port(), n, str(tmp_path), backend), ranks)
    x = integers(n).double()
    for form in over_ranks.FORMS:
        matrix = torch.from_numpy(hadamard(n))
        if form == "block_diagonal":
            matrix = torch.block_diag(*[torch.from_numpy(hadamard(n // ranks))] * ranks)
        whole = x @ matrix
        length = matrix[0].norm().item()
        for rank in range(ranks):
            columns = over_ranks.result_columns(n, ranks, rank, form)
            for dtype in ("float32", "float16"):
                y = torch.load(tmp_path / f"{form}_{dtype}_{rank}")
                assert torch.equal(y.double(), whole[..., columns]), (form, dtype, rank)
            y = torch.load(tmp_path / f"{form}_ortho_{rank}").double()
            assert (y - whole[..., columns] / length).abs().max() < 1e-5
            assert torch.equal(torch.load(tmp_path / f"{form}_float64_{rank}"), whole[..., columns] * (((1 << 30) + 1) / 2)), (form, rank)
    whole = x @ torch.from_numpy(hadamard(n))
    sums = (torch.arange(n) << 20) @ torch.from_numpy(hadamard(n)).long()
    for rank in range(ranks):
        assert torch.equal(torch.load(tmp_path / f"int64_{rank}"), sums[over_ranks.result_columns(n, ranks, rank)]), rank
        columns = over_ranks.result_columns(n, 2, rank % 2)
        assert torch.equal(torch.load(tmp_path / f"pair_{rank}").double(), whole[..., columns]), rank


def test_result_columns_are_every_column_once():
    for form in over_ranks.FORMS:
        for ranks in (1, 2, 4, 8):
            columns = torch.cat([over_ranks.result_columns(28672, ranks, rank, form) for rank in range(ranks)])
            assert torch.equal(columns.sort().values, torch.arange(28672))


def test_bad_input_is_one_sentence():
    for arguments, sentence in [
        ((1001, 2, 0), "n=1001 is not divisible by 2 ranks"),
        ((40, 4, 0), "a shard of 10 columns is not divisible by 4 ranks, as all_to_all needs"),
        ((48, 3, 0), "3 ranks must be a power of two"),
        ((64, 4, 4), "rank=4 must be between 0 and 3"),
        ((64, 4, -1), "rank=-1 must be between 0 and 3"),
        ((-16, 4, 1), "n=-16 must be at least 1"),
        ((0, 4, 1), "n=0 must be at least 1"),
        ((16, 0, 0), "n=16 is not divisible by 0 ranks"),
        ((64, 4, 0, "ring"), "unknown form 'ring'; known: all_to_all, block_diagonal"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            over_ranks.result_columns(*arguments)
    for arguments, name in (((16.0, 4, 1), "n=16.0"), ((16, 4.0, 1), "ranks=4.0"), ((16, 4, 1.0), "rank=1.0")):
        with pytest.raises(TypeError, match=f"{name} must be an integer"):
            over_ranks.result_columns(*arguments)
