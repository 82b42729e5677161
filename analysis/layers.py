"""Queries over linear layers with 4-bit weights (`linear.csv`) and layers over several GPUs (`tensor_parallel*.csv`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from .load import Device, Folder, newest
from .tables import geometric_mean

TABLES = ("linear.csv", "linear_rotation.csv", "tensor_parallel.csv", "tensor_parallel_pieces.csv", "tensor_parallel_model.csv")
# Whose times stand beside the best kernel's.
OTHERS = ("dense_fp16", "dequantize_then_dense", "w4a16_splitk", "w4a16_data_parallel")
ALGORITHMS = ("naive", "naive_fused", "local_sort", "tp_aware")


def rows_of(device: Device, name: str) -> pd.DataFrame:
    """Correct rows of a table; empty where the run has none."""
    rows = device.tables.get(name, pd.DataFrame())
    return rows[rows["status"] == "ok"] if len(rows) and "status" in rows else rows


def key_of(device: Device, name: str, *but: str) -> list[str]:
    """The columns that tell the rows of a table apart, without `but`."""
    declared = next(f.schema[name] for f in reversed(device.folders) if name in f.schema)
    return [c for c in declared.key if c not in but]


def linear(device: Device) -> pd.DataFrame:
    """Times on the GPU, `layer` and `over_ideal` beside the columns of linear.csv. `auto` launches what is listed too."""
    rows = rows_of(device, "linear.csv")
    if rows.empty:
        return rows
    rows = rows[(rows["memory"] == "device") & (rows["variant"] != "auto")]
    layer = pd.Series([f"n = k = {n}" if n == k else f"n = {n}, k = {k}" for n, k in zip(rows["n"], rows["k"])], index=rows.index, dtype=object)
    for column in key_of(device, "linear.csv", "variant", "memory", "m", "n", "k"):
        if rows[column].nunique() > 1:  # what tells the layers of this run apart
            layer = layer + f", {column.replace('_', ' ')} " + rows[column].astype(str)
    return rows.assign(layer=layer, over_ideal=rows["rel_l2"] / rows["one_rounding_rel_l2"])


def _plain(rows: pd.DataFrame) -> pd.DataFrame:
    """Layers in mode cold without rotation, act-order and programmatic launch."""
    rows = rows[(rows["mode"] == "cold") & (rows["rotation"].astype(str) == "0")]
    return rows[(rows["act_order"] == "false") & (rows["programmatic"] == "false")]


def covers_headline(device: Device) -> bool:
    """Whether large layers were timed beside the dense product."""
    return {"dense_fp16", "w4a16_pipelined"} <= set(_headline_rows(device)["variant"])


def _headline_rows(device: Device) -> pd.DataFrame:
    rows = _plain(linear(device))
    return rows[(rows["n"] >= 4096) & rows["m"].isin((1, 8, 16, 32, 64)) & (rows["dtype"] == "f16")]


def headline(device: Device) -> pd.DataFrame:
    """f16 layers of the headline without rotation, act-order and programmatic launch, of one kind of weights, in mode cold: with
    `least_limit` of the layer, and whether all are `square`."""
    rows = _headline_rows(device)
    rows = rows[(rows["zero_points"] == rows["zero_points"].iloc[0]) & (rows["group"] == rows["group"].iloc[0])]
    return rows.assign(least_limit=rows.groupby(["n", "k", "m"])["limit_us"].transform("min"), square=bool((rows["n"] == rows["k"]).all()))


def linear_best(device: Device) -> pd.DataFrame:
    """The fastest variant of every layer, and how many times as long each of OTHERS takes."""
    rows = linear(device)
    if rows.empty:
        return rows
    key = key_of(device, "linear.csv", "variant", "memory")
    times = rows.pivot_table(index=key, columns="variant", values="time_us", sort=False)
    best = rows.loc[rows.groupby(key, sort=False)["time_us"].idxmin()].set_index(key)
    best = best.assign(**{f"over_{v}": times[v] / best["time_us"] for v in OTHERS if v in times}).reset_index()
    varied = [c for c in key if c in ("m", "n", "k") or best[c].nunique() > 1]
    over = [c for c in best if str(c).startswith("over_")]
    return best[[*varied, "variant", "time_us", "limit_us", "fraction_of_limit", *over]]


def over_dense(device: Device) -> pd.DataFrame:
    """`_plain` layers: `ratio`, the time of cuBLAS on fp16 weights over that of the fastest other variant."""
    rows = linear(device)
    if rows.empty:
        return pd.DataFrame(columns=["m", "n", "k", "ratio"])
    rows = _plain(rows)
    is_dense = rows["variant"] == "dense_fp16"
    dense, best = (part.groupby(["m", "n", "k", "dtype"])["time_us"].min() for part in (rows[is_dense], rows[~is_dense]))
    return (dense / best).dropna().rename("ratio").reset_index()


def rotated(device: Device) -> pd.DataFrame:
    """Layers with a rotation of x in front, beside the fastest variant without: `alone_us`, `added_us`."""
    rows = linear(device)
    if rows.empty:
        return rows
    key = key_of(device, "linear.csv", "variant", "memory", "rotation")
    turned = rows["rotation"].astype(str) != "0"
    alone = rows[~turned].groupby(key, sort=False)["time_us"].min().rename("alone_us").reset_index()
    both = rows[turned].merge(alone, on=key)
    return both.assign(added_us=both["time_us"] - both["alone_us"])


def split_over_data_parallel(device: Device) -> pd.DataFrame:
    """The claim of arXiv 2402.00025 over its m, 1 to 16: time of the data-parallel kernel over that of SplitK, over all layers of a
    mode, by m and by n."""
    rows = linear(device)
    rows = rows[(rows["m"] <= 16) & (rows["n"] == rows["k"]) & (rows["rotation"].astype(str) == "0")] if len(rows) else rows
    key = key_of(device, "linear.csv", "variant", "memory") if len(rows) else []
    found = []
    for mode, run in rows.groupby("mode", sort=False) if len(rows) else []:
        span = f"{run['n'].min()} to {run['n'].max()}" if run["n"].nunique() > 1 else str(run["n"].iloc[0])
        parts = [("1 to 16", span, run), *((str(m), span, part) for m, part in run.groupby("m"))]
        parts += [("1 to 16", str(n), part) for n, part in run.groupby("n")] if run["n"].nunique() > 1 else []
        for m, n, part in parts:
            times = part.pivot_table(index=key, columns="variant", values="time_us")
            for variant in (v for v in times if str(v).startswith("w4a16_splitk") and "w4a16_data_parallel" in times):
                ratio = (times["w4a16_data_parallel"] / times[variant]).dropna()
                if len(ratio):
                    found.append({"what": f"w4a16_data_parallel over {variant}", "mode": mode, "m": m, "n": n, "layers": len(ratio),
                                  "geometric_mean": geometric_mean(ratio), "least": ratio.min(), "greatest": ratio.max()})  # fmt: skip
    return pd.DataFrame(found)


def over_others(device: Device, ours: str = "w4a16_pipelined", most_tokens: int = 32) -> pd.DataFrame:
    """The longest and the shortest time of each other kernel in those of `ours`, on the same layers in mode cold: below 1, `ours` is slower."""
    rows = linear(device)
    if rows.empty or ours not in set(rows["variant"]):
        return pd.DataFrame()
    rows = rows[(rows["m"] <= most_tokens) & (rows["mode"] == "cold") & (rows["rotation"].astype(str) == "0")]
    times = rows.pivot_table(index=key_of(device, "linear.csv", "variant", "memory"), columns="variant", values="time_us")
    found = []
    for variant in (v for v in times if v != ours and ours in times):
        ratio = (times[variant] / times[ours]).dropna()
        if len(ratio):
            dtype, m, n = (ratio.idxmin()[times.index.names.index(c)] for c in ("dtype", "m", "n"))
            found.append({"other": variant, "layers": len(ratio), "geometric_mean": geometric_mean(ratio), "least": ratio.min(),
                          "greatest": ratio.max(), "least_at": f"{dtype}, m = {m}, n = {n}"})  # fmt: skip
    return pd.DataFrame(found)


def prefill(device: Device) -> pd.DataFrame:
    """Times of w4a16_prefill in mode cold: `share`, the time of cuBLAS on fp16 weights over its own."""
    rows = linear(device)
    if not {"w4a16_prefill", "dense_fp16"} <= set(rows.get("variant", ())):
        return pd.DataFrame()
    rows = rows[(rows["mode"] == "cold") & rows["variant"].isin(("w4a16_prefill", "dense_fp16"))]
    times = rows.pivot_table(index=["layer", "n", "k", "m"], columns="variant", values="time_us").dropna()
    return times.assign(time_us=times["w4a16_prefill"], share=times["dense_fp16"] / times["w4a16_prefill"]).reset_index().sort_values(["n", "k", "m"])


def prefill_of_few(device: Device) -> pd.DataFrame:
    """The part of `prefill` up to 32 tokens, which the variant w4a16 gives to w4a16_pipelined: no table by tokens has it."""
    rows = prefill(device)
    if rows.empty:
        return rows
    rows = rows[rows["m"] <= 32]
    return rows.assign(layer=rows["layer"].str.replace(", rotation 0", "", regex=False))  # all are


BY_TOKENS = ("w4a16_pipelined", "w4a16_prefill")  # what the variant w4a16 is made of


def by_tokens(devices: list[Device]) -> list[pd.DataFrame]:
    """By GPU the faster of BY_TOKENS for every number of tokens in f16, mode cold, without rotation, act-order and programmatic launch: `device`, `share`,
    the time of cuBLAS on fp16 weights in the same run over its own; where several of its runs timed one, from the newest. `names` of a line."""
    parts = {id(device): _beside_dense(device) for device in devices}
    timed = newest(devices, lambda device: len(parts[id(device)]) > 0)
    return [_by_tokens([parts[id(d)] for d in devices if d.name == one.name and len(parts[id(d)])]) for one in timed]


def _beside_dense(device: Device) -> pd.DataFrame:
    rows = linear(device)
    if rows.empty:
        return rows
    rows = _plain(rows)
    rows = rows[(rows["dtype"] == "f16") & (rows["n"] >= 4096) & (rows["group"] == 128)]
    dense = rows[rows["variant"] == "dense_fp16"].groupby(["m", "n", "k"])["time_us"].min().rename("dense_us")
    return rows[rows["variant"].isin(BY_TOKENS)].join(dense, on=["m", "n", "k"]).dropna(subset=["dense_us"]).assign(device=device.name)


def _by_tokens(parts: list[pd.DataFrame]) -> pd.DataFrame:
    found = pd.concat(parts).drop_duplicates(["variant", "m", "n", "k"])  # newest first
    found = found.assign(
        share=found["dense_us"] / found["time_us"], layer=[f"n = k = {n}" if n == k else f"n = {n}, k = {k}" for n, k in zip(found["n"], found["k"])]
    )
    found = found.sort_values("share", ascending=False, kind="stable").drop_duplicates(["m", "n", "k"])
    names = found.groupby("m")["variant"].agg(lambda v: ", ".join(f"`{name}`" for name in sorted(set(v))))
    return found.assign(names=found["m"].map(names)).sort_values(["n", "k", "m"], ignore_index=True)


# --------------------------------------------------------------------------------------------------------- several GPUs

LAYER = ["shape", "m", "ranks"]


def parallel(device: Device) -> pd.DataFrame:
    """Correct rows of tensor_parallel.csv that were timed, with `place`, the panel they belong to."""
    rows = rows_of(device, "tensor_parallel.csv")
    rows = rows[rows["time_us"].notna()] if len(rows) else rows
    return rows.assign(place=[f"{s}, {r} GPU{'s' * (r > 1)}" for s, r in zip(rows["shape"], rows["ranks"].astype(int))]) if len(rows) else rows


def speedups(device: Device) -> pd.DataFrame:
    """Per layer without rotation: the time of every algorithm, `speedup` of tp_aware over naive, the same by the model, the published one."""
    rows = parallel(device)
    rows = rows[rows["rotation"] == "none"] if len(rows) else rows
    if rows.empty or not {"naive", "tp_aware"} <= set(rows["algorithm"]):
        return pd.DataFrame()
    index = [*LAYER, "variant", "place", "published_speedup"]
    times, model = (rows.pivot_table(index=index, columns="algorithm", values=v, sort=False) for v in ("time_us", "model_us"))
    found = pd.DataFrame({f"{a}_us": times[a] for a in ALGORITHMS if a in times})
    found["speedup"], found["model_speedup"] = times["naive"] / times["tp_aware"], model["naive"] / model["tp_aware"]
    if "naive_fused" in times:
        found["fused_speedup"] = times["naive_fused"] / times["tp_aware"]
    return found.reset_index()


def algorithms(device: Device) -> pd.DataFrame:
    """Layers without rotation over the most GPUs, one row an algorithm, with `speedup` and `published_speedup` of the layer."""
    rows, gains = parallel(device), speedups(device)
    if gains.empty:
        return gains
    rows = rows[(rows["rotation"] == "none") & (rows["ranks"] == rows["ranks"].max())]
    both = rows.drop(columns="published_speedup").merge(gains[[*LAYER, "variant", "speedup", "published_speedup"]], on=[*LAYER, "variant"])
    order = {name: i for i, name in enumerate(ALGORITHMS)}
    return both.sort_values("algorithm", key=lambda c: c.map(order), kind="stable").sort_values(["shape", "m"], ascending=[False, True], kind="stable")


def rotations_added(device: Device) -> pd.DataFrame:
    """What a rotation adds over the most GPUs: shape, m, rotation, added_us."""
    frame = rotations(device)
    if frame.empty:
        return frame
    return frame[frame["ranks"] == frame["ranks"].max()].groupby(["shape", "m", "rotation"], sort=False)["added_us"].mean().reset_index()


def rotations(device: Device) -> pd.DataFrame:
    """Rotated layers beside the same algorithm without: `added_us`, and what that is over pieces of all_to_all, each measured alone: `over_alone`, the
    local transform and one all-to-all; `over_pieces`, all that the layer has between its projections."""
    rows = parallel(device)
    if rows.empty:
        return rows
    key = [*LAYER, "algorithm", "variant"]
    plain = rows[rows["rotation"] == "none"][[*key, "time_us"]]
    both = rows[rows["rotation"] != "none"].merge(plain, on=key, suffixes=("", "_plain"))
    both = both.assign(added_us=both["time_us"] - both["time_us_plain"])
    pieces = rows_of(device, "tensor_parallel_pieces.csv")
    pieces = pieces[pieces["rotation"] == "all_to_all"] if len(pieces) else pieces
    if pieces.empty:
        return both.assign(over_alone=float("nan"), over_pieces=float("nan"))
    by = [*key, "rotation"]
    alone = pieces[pieces["piece"].isin(["transform", "all_to_all"])].groupby(by)["time_us"].agg(["sum", "count"]).query("count == 2")["sum"]
    own = _of_the_layer(pieces)
    own = own[~own["piece"].isin(OUTSIDE)].groupby(by)["time_us"].sum()
    both = both.join(alone.rename("alone_us"), on=by).join(own.rename("own_us"), on=by)
    return both.assign(over_alone=both["added_us"] / both["alone_us"], over_pieces=both["added_us"] / both["own_us"])


OUTSIDE = ("gemm_up", "activation", "gemm_down", "all_reduce")  # pieces that a layer without rotation has as well


def _of_the_layer(pieces: pd.DataFrame) -> pd.DataFrame:
    """Without what is no part of a layer: `between`, all pieces between the projections in a row, and an all_to_all beside the exchange that the layer
    makes."""
    key = [pieces[c] for c in (*LAYER, "algorithm", "rotation", "variant")]
    gathers = (pieces["piece"] == "all_gather").groupby(key).transform("any")
    return pieces[(pieces["piece"] != "between") & ~((pieces["piece"] == "all_to_all") & gathers)]


WITHIN = 0.15  # a layer and the sum of its pieces, each measured alone


def against_pieces(device: Device) -> pd.DataFrame:
    """Per ranks and rotation: the least and the greatest time of a layer over the sum of its pieces, and how many lie within WITHIN of 1; the
    same over the model that was fitted to the pieces (`least_fitted`, `greatest_fitted`), where there is one."""
    rows = parallel(device)
    if rows.empty:
        return rows
    model = device.tables.get("tensor_parallel_model.csv", pd.DataFrame(columns=[*LAYER, "algorithm", "rotation", "source", "model_us"]))
    fitted = model[model["source"] == "fitted"][[*LAYER, "algorithm", "rotation", "model_us"]].rename(columns={"model_us": "fitted_us"})
    rows = rows.merge(fitted, on=[*LAYER, "algorithm", "rotation"], how="left")
    rows = rows.assign(ratio=rows["time_us"] / rows["pieces_us"], fitted=rows["time_us"] / rows["fitted_us"].astype(float))
    groups = rows.dropna(subset=["ratio"]).groupby(["ranks", "rotation"], sort=False)
    return groups.agg(
        layers=("ratio", "count"), least=("ratio", "min"), greatest=("ratio", "max"), within=("ratio", lambda r: int(((r - 1).abs() <= WITHIN).sum())),
        least_fitted=("fitted", "min"), greatest_fitted=("fitted", "max"),
    ).reset_index()  # fmt: skip


def pieces(device: Device) -> pd.DataFrame:
    """Pieces of the layers of one token over the most GPUs, and the algorithm with its rotation as `what`."""
    rows = rows_of(device, "tensor_parallel_pieces.csv")
    if rows.empty:
        return rows
    rows = _of_the_layer(rows[(rows["m"] == rows["m"].min()) & (rows["ranks"] == rows["ranks"].max())])
    return rows.assign(what=rows["algorithm"].where(rows["rotation"] == "none", rows["algorithm"] + ", " + rows["rotation"]))


# What a run says of more GPUs than it had, and what a later one measured there.

POINT = [*LAYER, "algorithm", "rotation"]


def _extrapolated(folder: Folder, ranks: int) -> pd.DataFrame:
    """The model's rows for `ranks`, fitted to layers of the folder's own over fewer: POINT, `predicted_us`. Empty where it has none."""
    timed, model = (folder.tables.get(name, pd.DataFrame()) for name in ("tensor_parallel.csv", "tensor_parallel_model.csv"))
    if timed.empty or model.empty or timed["ranks"].max() >= ranks:
        return pd.DataFrame(columns=[*POINT, "predicted_us"])
    rows = model[(model["ranks"] == ranks) & (model["source"] == "extrapolated")]
    return rows[[*POINT, "model_us"]].rename(columns={"model_us": "predicted_us"})


@dataclass(frozen=True)
class Prediction:
    """What `folder` says of layers over `ranks` GPUs; `rows`: POINT, `predicted_us`, and `time_us` and `ratio` (that over the prediction) where
    they were measured later."""

    folder: Folder
    ranks: int
    rows: pd.DataFrame

    @property
    def measured(self) -> pd.DataFrame:
        return self.rows.dropna(subset=["time_us"])

    @property
    def within(self) -> int:
        return int(((self.measured["ratio"] - 1).abs() <= WITHIN).sum())

    @property
    def worst(self) -> dict[str, Any]:
        """The point that is furthest from its prediction."""
        rows = self.measured
        return {str(name): value for name, value in rows.loc[(rows["ratio"] - 1).abs().idxmax()].items()}


def prediction(device: Device, devices: list[Device]) -> Prediction | None:
    """What was said of the most GPUs of `device` before they were measured: by a run of this GPU over fewer, else by one of another GPU; from the newest
    folder of those that are older. Where there is none, what its own folder says of twice as many."""
    timed = parallel(device)
    if timed.empty:
        return None
    most = int(timed["ranks"].max())
    folders = [f for d in devices for f in d.folders]
    timed_in = {f.name: f.tables["tensor_parallel.csv"]["ranks"].max() for f in device.folders if f.has("tensor_parallel.csv")}
    first = min(f.context["utc_start"] for f in device.folders if timed_in.get(f.name, 0) >= most)  # more: not timed
    ways = [(most, [f for f in folders if f.context["utc_start"] < first]), (2 * most, list(device.folders))]
    for ranks, known in ways:
        own_first = sorted(known, key=lambda f: (f.device == device.name, f.context["utc_start"]), reverse=True)
        for folder in own_first:
            said = _extrapolated(folder, ranks)
            if len(said):
                rows = said.merge(timed[[*POINT, "time_us"]], on=POINT, how="left")
                return Prediction(folder, ranks, rows.assign(ratio=rows["time_us"] / rows["predicted_us"]))
    return None


def predicted_speedups(found: Prediction) -> pd.DataFrame:
    """Layers without rotation: predicted and measured microseconds by algorithm, `predicted` and `speedup` of tp_aware over naive."""
    rows = found.rows[found.rows["rotation"] == "none"]
    said, timed = (rows.pivot_table(index=["shape", "m"], columns="algorithm", values=v, sort=False, dropna=False) for v in ("predicted_us", "time_us"))
    table = pd.DataFrame({f"{a}_predicted": said[a] for a in ("naive", "tp_aware")}).assign(predicted=said["naive"] / said["tp_aware"])
    for a in ("naive", "tp_aware"):
        table[f"{a}_us"] = timed[a] if a in timed else float("nan")
    return table.assign(speedup=table["naive_us"] / table["tp_aware_us"]).reset_index()
