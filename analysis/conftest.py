"""Synthetic results folders for the tests: an H200, an H100 and a host without a GPU. Nothing is measured."""

from __future__ import annotations

import csv
import json
import math
import shutil
import zlib
from pathlib import Path

import pytest

from analysis import schema
from analysis.load import ELEMENT_BYTES, INTEGERS, SIDE_FILES
from analysis.tables import ideal_error

COMMIT = "0123456789abcdef0123456789abcdef01234567"
GPU_VARIANTS = ("cpu", "naive", "warp_shuffle", "hadacore", "wgmma", "kokkos")
EFFICIENCY = {"naive": 0.18, "warp_shuffle": 0.62, "hadacore": 0.85, "wgmma": 0.97, "kokkos": 0.4}
ROUNDINGS = {"hadacore": 4, "naive": 1, "warp_shuffle": 1, "wgmma": 1, "kokkos": 1, "cpu": 1}


def make_context(**changes) -> dict:
    context = {
        "format_version": 1,
        "command": "fwht_sweep --grid quick",
        "argv": ["fwht_sweep", "--grid", "quick"],
        "utc_start": "2026-11-20T10:00:00Z",
        "utc_end": "2026-11-20T10:01:00Z",
        "commit": COMMIT,
        "dirty": False,
        "sources_hash": "a" * 64,
        "version": "0.1.0",
        "build_type": "Release",
        "cxx": "GNU 12.2.0",
        "cxx_flags": "-O3",
        "cuda": "NVIDIA 13.0.48",
        "cuda_flags": "-O3 -arch=sm_90a",
        "host": {"name": "Example CPU 9000", "threads": 16, "memory_bytes": 1 << 37},
        "device": {
            "present": True,
            "why_absent": "",
            "name": "NVIDIA H200",
            "compute_capability": "9.0",
            "sm_count": 132,
            "l2_bytes": 62914560,
            "memory_bytes": 150754820096,
            "clock_khz": 1980000,
            "driver_version": 13000,
            "runtime_version": 13000,
        },
        "grid": "quick",
        "seeds": [1, 2, 3],
        "variants": list(GPU_VARIANTS),
        "complete": True,
    }
    return context | changes


H100 = make_context()["device"] | {"name": "NVIDIA H100 80GB HBM3", "l2_bytes": 52428800, "memory_bytes": 85094825984}


def wobble(*key) -> float:
    """A reproducible number in [0.97, 1.03] that differs from key to key."""
    return 0.97 + 0.06 * (zlib.crc32(repr(key).encode()) % 1000) / 1000


def copy_us(useful: int, mode: str) -> float:
    if mode == "host":
        return 0.1 + useful / 20e3
    in_l2 = useful / 2 < 0.6 * 62914560 and mode != "cold"
    return 0.9 + useful / (5.6e6 if in_l2 else 4.2e6)


class FolderWriter:
    """Rows of one results folder; `write` puts them to disk in the format of the sweep."""

    def __init__(self, **context):
        self.context = make_context(**context)
        self.tables: dict[str, list[dict]] = {name: [] for name in schema.current() if name not in SIDE_FILES}

    def measure(self, variant: str, dtype: str, n: int, elements: int, mode: str, *, slow=1.0, **changes):
        rows = elements // n
        useful = 2 * elements * ELEMENT_BYTES[dtype]
        limit = copy_us(useful, mode)
        hard = 1 + 0.06 * max(0, math.log2(n) - 11)
        time = slow * hard * limit / EFFICIENCY.get(variant, 0.3) * wobble(variant, dtype, n, elements, mode) + 0.05
        ideal = 0.0 if dtype in INTEGERS else ideal_error(dtype)
        row = {
            "variant": variant,
            "memory": "host" if mode == "host" else "device",
            "operator": n,
            "encoding": "",
            "arrangement": "",
            "dtype": dtype,
            "n": n,
            "rows": rows,
            "elements": elements,
            "placement": "in",
            "row_stride": n,
            "mode": mode,
            "status": "ok",
            "time_us": f"{time:.4f}",
            "time_min_us": f"{0.99 * time:.4f}",
            "time_max_us": f"{1.02 * time:.4f}",
            "launches": 20,
            "replays": 7,
            "empty_us": "" if mode == "host" else 0.55,
            "limit_us": f"{limit:.4f}",
            "limit_kernel": "one_shot_v1_t128",
            "fraction_of_limit": f"{limit / time:.6f}",
            "bytes_read": useful // 2,
            "bytes_written": useful // 2,
            "useful_bytes": useful,
            "bytes_per_second": f"{useful / time * 1e6:.0f}",
            "rel_l2": f"{ideal * wobble(variant, n):.4e}",
            "predicted_rel_l2": f"{ideal:.4e}",
            "max_error_over_rms": "1.9e-3",
            "gain": "0",
            "settings": json.dumps({"grid": rows, "threads": 256}),
            "message": "",
        }
        if changes.get("time_us"):
            for name in ("time_min_us", "time_max_us"):
                changes.setdefault(name, changes["time_us"])
            changes.setdefault("fraction_of_limit", float(changes.get("limit_us", row["limit_us"])) / float(changes["time_us"]))
        self.tables["results.csv"].append(row | changes)

    def limit(self, dtype: str, elements: int, mode: str):
        useful = 2 * elements * ELEMENT_BYTES[dtype]
        for kernel, factor in (("one_shot_v1_t128", 1.0), ("bulk_persistent_4x16k", 1.04)):
            time = factor * copy_us(useful, mode)
            row = {
                "memory": "host" if mode == "host" else "device",
                "useful_bytes": useful,
                "bytes_read": useful // 2,
                "bytes_written": useful // 2,
                "placement": "in",
                "mode": mode,
                "kernel": kernel,
                "time_us": time,
                "time_min_us": time,
                "time_max_us": time,
            }
            if row not in self.tables["limits.csv"]:
                self.tables["limits.csv"].append(row)

    def unsupported(self, variant: str, dtype: str, n: int, elements: int, reason: str):
        self.tables["unsupported.csv"].append(
            {
                "variant": variant,
                "operator": n,
                "encoding": "",
                "arrangement": "",
                "dtype": dtype,
                "n": n,
                "rows": elements // n,
                "placement": "in",
                "reason": reason,
            }
        )

    def error(self, variant: str, dtype: str, n: int, input: str = "normal", source: str = "measured", **changes):
        k = 1 if dtype == "f32" else min(ROUNDINGS.get(variant, 1), max(1, math.ceil(math.log2(n) / 4)))
        predicted = ideal_error(dtype) * (math.sqrt(k) if dtype != "f32" else 1.08 * math.sqrt(math.log2(n)))
        measured = predicted * (0.985 + 0.5 * (wobble(variant, dtype, n, input, source) - 0.97))
        row = {
            "variant": variant,
            "source": source,
            "dtype": dtype,
            "n": n,
            "input": input,
            "seeds": "1 2 3",
            "elements": 1 << 22,
            "status": "ok",
            "rel_l2": measured,
            "rel_l2_min_row": measured * (1 - 1 / math.sqrt(n)),
            "rel_l2_mean_row": measured,
            "rel_l2_max_row": measured * (1 + 1.3 / math.sqrt(n)),
            "predicted_rel_l2": predicted,
            "ratio": measured / predicted,
            "max_error_over_rms": 9 * measured,
            "gain": -1.07e-4 if variant == "hadacore" and int(math.log2(n)) % 2 else 1e-8,
            "predicted_gain": 0,
            "mean_signed_error": 1e-8,
            "bit_match": 0.9997 if k == 1 else 0.45,
            "nonfinite": 0,
            "message": "",
        }
        self.tables["accuracy.csv"].append(row | changes)

    def write(self, path: Path) -> Path:
        path.mkdir(parents=True)
        (path / "context.json").write_text(json.dumps(self.context))
        shutil.copy(schema.CURRENT, path / schema.NAME)
        for name, rows in self.tables.items():
            with open(path / name, "w", newline="") as file:
                writer = csv.DictWriter(file, schema.current()[name].names, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)
        return path


def gpu_folder(
    ns=(16, 512, 4096, 32768),
    sizes=(1 << 15, 1 << 20, 1 << 23, 1 << 28),
    modes=("replay", "alternating", "cold"),
    dtypes=("f16", "bf16", "f32"),
    slow=1.0,
    **context,
):
    writer = FolderWriter(**context)
    for dtype in dtypes:
        for mode in modes:
            for elements in sizes:
                writer.limit(dtype, elements, mode)
                for n in (n for n in ns if n <= elements):
                    for variant in GPU_VARIANTS[1:]:
                        if not _supported(writer, variant, dtype, n, elements):
                            continue
                        writer.measure(variant, dtype, n, elements, mode, slow=slow)
        for n in ns:
            for variant in GPU_VARIANTS[1:]:
                if variant != "kokkos" and not (variant in ("hadacore", "wgmma") and dtype == "f32"):
                    writer.error(variant, dtype, n)
                    writer.error(variant, dtype, n, input="outlier_channels")
        writer.error("hadacore", dtype, ns[0], source="emulated") if dtype != "f32" else None
    unique = {tuple(row.items()): row for row in writer.tables["unsupported.csv"]}
    writer.tables["unsupported.csv"] = list(unique.values())
    return writer


def _supported(writer: FolderWriter, variant: str, dtype: str, n: int, elements: int) -> bool:
    reason = ""
    if variant == "kokkos":
        reason = "built without Kokkos (FWHT_KOKKOS=OFF)"
    elif variant in ("hadacore", "wgmma") and dtype == "f32":
        reason = "dtype f32 is not f16 or bf16"
    elif variant == "wgmma" and n < 2048:
        reason = f"n={n} is below 2048, the shortest row that fills a wgmma tile"
    if reason:
        writer.unsupported(variant, dtype, n, elements, reason)
    return not reason


def host_folder(**context) -> FolderWriter:
    device = {"present": False, "why_absent": "no CUDA device: no driver is installed"}
    writer = FolderWriter(**({"device": device, "variants": ["cpu", "naive"], "cuda": "", "cuda_flags": ""} | context))
    for dtype in ("f16", "f32"):
        for elements in (1 << 12, 1 << 16, 1 << 20):
            writer.limit(dtype, elements, "host")
            for n in (16, 256, 4096):
                writer.measure("cpu", dtype, n, elements, "host")
                writer.unsupported("naive", dtype, n, elements, "no CUDA device: no driver is installed")
        for n in (16, 256, 4096):
            writer.error("cpu", dtype, n)
    return writer


@pytest.fixture
def gpu(tmp_path) -> Path:
    return gpu_folder().write(tmp_path / "20261120T100000Z_0123456789_h200")


@pytest.fixture
def host(tmp_path) -> Path:
    return host_folder().write(tmp_path / "20261120T110000Z_0123456789_host")
