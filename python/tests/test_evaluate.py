"""A model end to end: rotations keep its function, the demo shows the known effects, bad input is one sentence, runs resume."""

import copy
import functools
import json
import os
import re
import shutil
import sys
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5")
from safetensors.torch import load_file

import fwht.evaluate  # noqa: E402
from fwht.evaluate import cost, gptq, hooks, measure, outliers, program, rotate, schemes, tasks  # noqa: E402

ROOT = Path(__file__).parents[2]
FAMILIES = {
    "llama": (transformers.LlamaConfig, {"head_dim": 32}),
    "mistral": (transformers.MistralConfig, {"head_dim": 32, "sliding_window": 16}),
    "qwen2": (transformers.Qwen2Config, {"hidden_size": 128}),
    "qwen3": (transformers.Qwen3Config, {"head_dim": 32}),
}
ROTATIONS = ("plain", "folded", "R1", "R2", "R3", "R4", "rotated", "block32")


def model_of(family, tied=False, **more):
    kind, own = FAMILIES[family]
    shape = {"vocab_size": 96, "hidden_size": 96, "intermediate_size": 224, "num_hidden_layers": 2, "num_attention_heads": 4,
             "num_key_value_heads": 2, "max_position_embeddings": 64, "bos_token_id": 0, "eos_token_id": 0}  # fmt: skip
    torch.manual_seed(0)
    config = kind(**(shape | own | more), tie_word_embeddings=tied)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=hooks.ATTENTION).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():  # gains and biases that matter
            parameter.mul_(5) if parameter.ndim == 2 else parameter.add_(0.3 * torch.randn_like(parameter))
    for module in model.modules():
        if type(module).__name__.endswith("RMSNorm"):  # transformers forms it in float32 whatever the dtype
            module.forward = functools.partial(_norm, module)
    return model


def _norm(module, x):
    return torch.nn.functional.rms_norm(x, x.shape[-1:], module.weight, module.variance_epsilon)


def turned(model, text, scheme="none"):
    rotation = rotate.Rotation.parse(text)
    return hooks.install(rotate.rotate_model(model, rotation), schemes.SCHEMES[scheme], rotation)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_rotations_keep_the_function(family, tied):
    ids = torch.randint(0, 96, (2, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        model = model_of(family, tied)
        expected = model(ids, use_cache=False).logits
        model.set_attn_implementation("sdpa")
        assert torch.equal(model(ids, use_cache=False).logits, expected)
        for text in ROTATIONS:
            rotated = turned(model_of(family, tied), text)
            got = rotated(ids, use_cache=False).logits
            assert (got - expected).norm() <= 1e-12 * expected.norm(), text
            weights = [a.equal(b) for a, b in zip(rotated.parameters(), model.parameters(), strict=False)]
            assert all(weights) == (text in ("plain",)), text  # the rotation did something


def test_a_rotated_model_is_not_the_same_in_a_format():
    ids = torch.randint(0, 96, (2, 40), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        rows = {text: turned(model_of("llama").float(), text, "w4a4-int4")(ids, use_cache=False).logits for text in ("folded", "rotated")}
    assert not torch.allclose(rows["folded"], rows["rotated"], atol=1e-3)


def _tied_in_secret(model):
    model.lm_head.weight = model.model.embed_tokens.weight


def _shares_a_layer(model):
    model.model.layers[1].mlp = model.model.layers[0].mlp


def _is_parametrized(model):
    torch.nn.utils.parametrizations.weight_norm(model.model.layers[1].self_attn.q_proj)


def _is_pruned(model):
    from torch.nn.utils import prune

    prune.l1_unstructured(model.model.layers[1].mlp.up_proj, "weight", 0.1)


def _is_quantized(model):
    model.model.layers[1].mlp.down_proj = fwht.nn.Fp8Linear(model.model.layers[1].mlp.down_proj.weight)


@pytest.mark.parametrize(
    ("spoil", "error", "words"),
    [
        (_shares_a_layer, ValueError, "layers.0.mlp.gate_proj.weight and model.layers.1.mlp.gate_proj.weight are one parameter"),
        (_is_parametrized, TypeError, "the weight of model.layers.1.self_attn.q_proj is computed from other parameters"),
        (_is_pruned, TypeError, "the weight of model.layers.1.mlp.up_proj is computed from other parameters"),
        (_is_quantized, TypeError, "model.layers.1.mlp.down_proj is a fwht.nn.Fp8Linear, not a torch.nn.Linear"),
    ],
)
def test_weights_that_cannot_be_rotated_are_refused_before_anything_changes(spoil, error, words):
    model = model_of("llama")
    spoil(model)
    before = {name: each.clone() for name, each in model.state_dict().items() if isinstance(each, torch.Tensor)}
    with pytest.raises(error, match=words):
        rotate.rotate_model(model, "R1,R2")
    assert all(torch.equal(each, before[name]) for name, each in model.state_dict().items() if name in before)


def test_a_head_that_is_the_embedding_is_untied_whatever_the_configuration_says():
    model, ids = model_of("llama"), torch.arange(24)[None]
    _tied_in_secret(model)
    expected = _logits(model, ids)
    assert (_logits(turned(model, "R1"), ids) - expected).norm() <= 1e-12 * expected.norm()


def test_hooks_are_replaced_and_fit_the_weights():
    model, ids, rotation = model_of("llama"), torch.arange(24)[None], rotate.Rotation.parse("R1,R2,R4")
    expected = _logits(model, ids)
    rotated = turned(model, "R1,R2,R4")
    hooks.install(rotated, schemes.SCHEMES["none"], rotation)
    assert (_logits(rotated, ids) - expected).norm() <= 1e-12 * expected.norm()
    for other in (rotate.Rotation.parse("R1,R2"), rotate.Rotation.parse("R4", 1), rotate.Rotation.parse("block32")):
        with pytest.raises(ValueError, match="the weights have R4 of seed 0 for an online rotation, and .* is to be done online"):
            hooks.install(rotated, schemes.SCHEMES["kv8"], other)
    with pytest.raises(ValueError, match="the weights have nothing for an online rotation, and R4 of seed 0 is to be done online"):
        hooks.install(model_of("llama"), schemes.SCHEMES["none"], rotation)


def test_dropout_of_attention_acts():
    q, k, v = (torch.randn(1, 2, 64, 32, generator=torch.Generator().manual_seed(seed)) for seed in range(3))
    once, again = (hooks.attention(SimpleNamespace(), q, k, v, None, dropout=0.5)[0] for _ in range(2))
    assert not torch.equal(once, again)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: rotate.Rotation.parse("R5"), "no rotation 'R5'"),
        (lambda: rotate.Rotation.parse("R1", 1 << 63), "seed=9223372036854775808 must be an integer from 0 to 2.63 - 1"),
        (lambda: rotate.Rotation.parse("R1", -1), "seed=-1 must be an integer"),
        (lambda: rotate.Rotation(frozenset({"r1"})), "names=.*'r1'.* must be a set of some of 'R1', 'R2', 'R3' and 'R4'"),
        (lambda: rotate.Rotation("R1"), "names='R1' must be a set"),
        (lambda: fwht.evaluate.rotate_model(model_of("llama"), rotate.Rotation(), seed=3), "seed=3 is given, but the Rotation has seed=0"),
        (lambda: fwht.evaluate.save_rotated(model_of("llama"), "/dev/null/new", rotate.Rotation(), seed=0), "seed=0 is given"),
        (lambda: rotate.rotate_model(turned(model_of("llama"), "R4"), "R1"), "has R4 or blocks online already"),
        (lambda: rotate.rotate_model(turned(model_of("llama"), "block32"), "R1"), "has R4 or blocks online already"),
        (lambda: schemes.named("kv5"), "no scheme 'kv5'"),
        (lambda: fwht.evaluate.rotate_model(model_of("llama", intermediate_size=2 * 1013), "R4"), "R4 rotates rows of intermediate_size"),
        (lambda: fwht.evaluate.rotate_model(model_of("llama", head_dim=24), "R2"), "these have 24"),
        (lambda: rotate.check(model_of("qwen2", intermediate_size=200), rotate.Rotation.parse("block32")), "does not divide the 200 inputs"),
        (lambda: hooks.check(model_of("llama"), schemes.SCHEMES["w4a16"]), "128"),
    ],
)
def test_refusals(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call()


def test_r4_is_in_the_weights_once():
    """Twice would be other weights; until hooks rotate the inputs, the model computes something else, which is said."""
    ids = torch.randint(0, 96, (1, 8), generator=torch.Generator().manual_seed(1))
    for text in ("R4", "rotated", "block32"):
        model = model_of("llama")
        before = model(ids, use_cache=False).logits
        with pytest.warns(UserWarning, match=r"(R4|block32) is in the weights alone: until fwht.evaluate.hooks.install") as said:
            rotate.rotate_model(model, text)
        assert len(said) == 1 and not torch.allclose(model(ids, use_cache=False).logits, before, rtol=1e-3)
        weights = [parameter.clone() for parameter in model.parameters()]
        for again in (model, copy.deepcopy(model)):
            with pytest.raises(ValueError, match="has R4 or blocks in its weights already, as of rotate_model; rotate the original"):
                rotate.rotate_model(again, "R4")
        assert all(a.equal(b) for a, b in zip(model.parameters(), weights, strict=True))
        hooks.install(model, schemes.SCHEMES["none"], rotate.Rotation.parse(text))
        assert torch.allclose(model(ids, use_cache=False).logits, before, rtol=1e-10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rotate.rotate_model(rotate.rotate_model(model_of("llama"), "R1,R2"), "R1")


def test_weights_without_numbers_are_refused():
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(model_of("llama").config)
    with pytest.raises(ValueError, match="embed_tokens.weight is on the meta device, which has no numbers to rotate; load"):
        rotate.rotate_model(model, "R1")
    model = model_of("llama")
    model.model.layers[1].mlp.down_proj.weight.untyped_storage().resize_(0)
    before = model.lm_head.weight.clone()
    with pytest.raises(ValueError, match=r"shape \(96, 224\) has no memory; its storage was freed"):
        rotate.rotate_model(model, "R1")
    assert model.lm_head.weight.equal(before)


def test_another_family_is_refused_and_nothing_changed():
    config = transformers.GPT2Config(n_embd=32, n_layer=1, n_head=2, vocab_size=64)
    model = transformers.AutoModelForCausalLM.from_config(config)
    before = [parameter.clone() for parameter in model.parameters()]
    with pytest.raises(ValueError, match="'gpt2'"):
        fwht.evaluate.rotate_model(model)
    assert all(a.equal(b) for a, b in zip(before, model.parameters(), strict=True))


def test_what_is_no_rotation(tmp_path):
    for call in (fwht.evaluate.rotate_model, lambda *given: fwht.evaluate.save_rotated(given[0], tmp_path / "new", given[1])):
        for given in (["R1", "R2"], None):
            with pytest.raises(TypeError, match=f"rotations is a {type(given).__name__}; it must be a Rotation, or a text such as R1,R2"):
                call(model_of("llama"), given)
    assert not (tmp_path / "new").exists()


@torch.no_grad()
@pytest.mark.parametrize("scheme", ["kv4", "fp8-attention", "none"])
def test_hooks_set_the_attention_that_they_need(scheme):
    """A model of transformers comes with another, which knows no formats."""
    ids = torch.randint(0, 96, (2, 40), generator=torch.Generator().manual_seed(1))
    wanted = turned(model_of("llama").float(), "R3", scheme)(ids, use_cache=False).logits
    model = model_of("llama").float()
    model.set_attn_implementation("sdpa")
    assert torch.equal(turned(model, "R3", scheme)(ids, use_cache=False).logits, wanted)
    for text, changed in (("R3", True), ("R1,R2,R4", scheme != "none")):
        model = model_of("llama")
        model.set_attn_implementation("sdpa")
        turned(model, text, scheme)
        assert (model.config._attn_implementation == hooks.ATTENTION) == changed


def test_a_head_that_is_untied_is_trained_as_before():
    for trained in (False, True):
        model = model_of("llama", tied=True).requires_grad_(trained)
        assert {each.requires_grad for each in rotate.rotate_model(model, "folded").parameters()} == {trained}


def test_what_is_no_such_model():
    for model, words in (("tiny", "model is a builtins.str"), (torch.nn.Linear(2, 2), "Linear"), (model_of("llama").model, "LlamaModel, which has no")):
        with pytest.raises(TypeError, match=words):
            fwht.evaluate.rotate_model(model)


def test_texts_that_do_not_fit():
    class Tokenizer:
        bos_token_id, seen = None, 0

        def __call__(self, text, add_special_tokens):
            self.seen += 1
            return {"input_ids": [ord(c) for c in text]}

    with pytest.raises(ValueError, match="the text has 3 tokens"):
        measure.blocks_of(Tokenizer(), "abc", 8, 64, 128)
    with pytest.raises(ValueError, match="token 122, but the model has a vocabulary of 100"):
        measure.blocks_of(Tokenizer(), "z" * 64, 8, 64, 100)
    text = measure.blocks_of(Tokenizer(), "ab\0" * 3 + "c" * 20, 4, 16, 128)
    assert text.blocks.shape == (4, 4)
    begins = Tokenizer()
    begins.bos_token_id = 1
    assert measure.blocks_of(begins, "\2\3\0\4\5\0\6\7\x08\x09" + "\0\2\3" * 9, 4, 12, 128).blocks.tolist() == [[1, 2, 3, 1], [1, 4, 5, 1], [1, 6, 7, 8]]
    assert begins.seen == 5  # documents until they have more tokens than are asked for and a block


def test_what_is_measured_by_hand(monkeypatch):
    monkeypatch.setattr(measure, "SLICE", 16)
    ids = torch.randint(0, 96, (2, 40), generator=torch.Generator().manual_seed(1))
    models = model_of("llama").float(), turned(model_of("llama").float(), "folded", "w4a4-int4")
    reference = measure.Reference(models[0], measure.Text(ids, ""), 1)
    with torch.no_grad():
        theirs, ours = (model(ids, use_cache=False).logits[:, :-1].double().log_softmax(-1) for model in models)
    loss, own_loss = (-each.gather(-1, ids[:, 1:, None]).mean((1, 2)) for each in (ours, theirs))
    kl, same = (theirs.exp() * (theirs - ours)).sum(-1).mean(1), (theirs.argmax(-1) == ours.argmax(-1)).double().mean(1)
    np.testing.assert_allclose(reference.measure(models[1]), torch.stack((loss, kl, same), 1), rtol=1e-4)
    np.testing.assert_allclose(reference.loss, own_loss, rtol=1e-4)


def test_intervals_are_as_much_wider_as_students_t():
    t = {1: 12.7062, 2: 4.3027, 3: 3.1824, 4: 2.7764, 5: 2.5706, 6: 2.4469, 7: 2.3646, 8: 2.3060, 9: 2.2622, 30: 2.0423}
    assert [measure._wider(free + 1) for free in t] == pytest.approx([each / 1.959964 * ((free + 1) / free) ** 0.5 for free, each in t.items()], rel=2e-3)


def test_moments_of_inputs():
    """Kurtosis of a token, the largest over the RMS of all, and the first token apart."""
    x = torch.tensor([[[8.0, 0, 0, 0], [2, -2, 2, 2], [-4, 0, 0, 0]]])
    for size in (1.0, 1e-12, 1e12):  # the fourth power of the last two is no float32
        assert outliers._moments(size * x).tolist() == pytest.approx([2.5, 2, 4])
    x[:, 2] = 0  # a token of nothing but zeros
    assert outliers._moments(x).tolist() == pytest.approx([0.5, 2**0.5, 32**0.5])


def test_outliers_of_a_layer():
    """Of what goes into its linear layers and into attention, plain and rotated."""
    sites, seen = {"attention": "self_attn.q_proj", "output": "self_attn.o_proj", "mlp": "mlp.up_proj", "down": "mlp.down_proj"}, {}
    model = model_of("llama").float()
    for site, path in sites.items():
        model.model.layers[1].get_submodule(path).register_forward_pre_hook(lambda _, inputs, site=site: seen.update({site: inputs[0]}))
    found = {(row.pop("layer"), row.pop("site")): list(row.values()) for row in outliers.outliers(model, measure.Text(torch.arange(40)[None], ""), 1)}
    assert list(found) == [(layer, site) for layer in (0, 1) for site in sorted([*sites, "query", "key", "value"])]
    for site, x in seen.items():
        moments = [*outliers._moments(x).tolist(), *outliers._moments(fwht.operators.transform(x)).tolist()]
        assert found[1, site] == pytest.approx(moments, rel=1e-5), site
    assert not any(hasattr(layer.self_attn, hooks._TAP) for layer in model.model.layers)


def test_what_a_layer_costs_is_of_its_shapes(monkeypatch):
    made = []

    def randn(*shape, device, dtype):
        made.append(shape)
        return torch.empty(shape, device="meta", dtype=dtype)

    monkeypatch.setattr(torch, "randn", randn)
    monkeypatch.setattr(cost, "times_in_turn", lambda cases, **_: cases)
    cases = cost.cost(FAMILIES["llama"][0](hidden_size=96, intermediate_size=224, num_attention_heads=4, num_key_value_heads=2, head_dim=32), torch.half, 5)
    assert made == [(5, 96), (256, 96), (5, 128), (96, 128), (5, 96), (448, 96), (5, 224), (96, 224), (5, 6, 32), (5, 224)]
    assert [tuple(y.shape) for y in cases["products"]()] == [(5, 256), (5, 96), (5, 448), (5, 96)] and {"R3", "R4"} < set(cases)


# What the names say, written out: weights, inputs; queries, keys, values.
SCHEMES = {
    "none": "- - - - -", "fp8-attention": "- - e4m3:tensor e4m3:tensor e4m3:tensor", "fp8-attention-head": "- - e4m3:row,t96 e4m3:row,t96 e4m3:row,t96",
    "kv8": "- - - int8:row int8:row", "kv4": "- - - int4:row int4:row", "kv4-mxfp4": "- - - mxfp4 mxfp4", "kv4-nvfp4": "- - - nvfp4 nvfp4",
    "w8a8-int8": "int8:row int8:row - - -", "w8a8-int8-tensor": "int8:row int8:tensor - - -", "w8a8-fp8": "e4m3:row e4m3:row - - -",
    "w8a8-fp8-tensor": "e4m3:row e4m3:tensor - - -", "w4a16": "int4:128 - - - -", "w4a16-row": "int4:row - - - -", "w4a16-gptq": "gptq,int4:128 - - - -",
    "w4a16-row-gptq": "gptq,int4:row - - - -", "w4a16-mxfp4": "mxfp4 - - - -", "w4a16-nvfp4": "nvfp4 - - - -", "w4a8": "int4:row int8:row - - -",
    "w4a4-int4": "int4:row int4:row - - -", "w4a4-int4-gptq": "gptq,int4:row int4:row - - -", "w4a4-int4-128": "int4:128 int4:128 - - -",
    "w4a4-mxfp4": "mxfp4 mxfp4 - - -", "w4a4-nvfp4": "nvfp4 nvfp4 - - -", "w4a4kv4-int4": "int4:row int4:row - int4:row int4:row",
}  # fmt: skip


@pytest.mark.parametrize("turns", ["R3", "block32"])
def test_a_scheme_does_what_its_name_says(turns, monkeypatch):
    """In the codes that are made, not in the table of names; R3 turns queries and keys, and so do blocks."""
    rotation = rotate.Rotation.parse(turns)
    found, model = {}, rotate.rotate_weights(model_of("llama", num_hidden_layers=1).float(), rotation)

    def round_trip(x, encoding, rotate=False, signs=None):
        part = {2: "weights", 3: "inputs"}.get(x.dim()) or "qkv"[int(x.flatten()[0])]
        assert found.setdefault(part, encoding) == encoding and rotate == (part in ("q", "k"))
        return x

    monkeypatch.setattr(hooks, "round_trip", round_trip)
    monkeypatch.setattr(hooks, "round_weights", lambda model, encoding, *_: found.update(weights=f"gptq,{encoding}"))
    for name, scheme in schemes.SCHEMES.items():
        found.clear()
        installed = hooks.install(copy.deepcopy(model), scheme, rotation, torch.zeros(1, 8, dtype=torch.int64))
        installed.model.layers[0].self_attn.forward = lambda **given: (given["hidden_states"].new_zeros(1, 3, 96), None)
        installed(torch.zeros(1, 3, dtype=torch.int64), use_cache=False)
        q, k, v = (torch.full((1, heads, 3, 32), value) for heads, value in ((4, 0.0), (2, 1.0), (2, 2.0)))
        hooks.attention(SimpleNamespace(**{rotate.STATE: getattr(installed.model.layers[0].self_attn, rotate.STATE)}), q, k, v, None)
        assert " ".join(found.get(part, "-") for part in ("weights", "inputs", *"qkv")) == SCHEMES.get(name), name
    assert schemes.SCHEMES.keys() == SCHEMES.keys()


def test_the_signs_of_r1_are_of_the_seed():
    """A checkpoint names the seed alone."""
    model = model_of("llama")
    expected = fwht.operators.transform(model.model.embed_tokens.weight.detach(), signs=fwht.operators.random_signs(96, 6))
    torch.testing.assert_close(rotate.rotate_model(model, "R1", seed=3).model.embed_tokens.weight.detach(), expected)


def test_a_verdict_needs_an_interval_on_one_side():
    base = np.full(50, 1.0) + np.linspace(-0.1, 0.1, 50)
    kls = {"plain": base + 1, "folded": base, "a": base * 0.9, "b": base + 0.01, "c": base[::-1]}
    rows = {f"x|{mode}": {"kl": list(kl)} for mode, kl in kls.items()}
    assert [program.verdict(rows, "x", mode) for mode in "abc"] == ["helps", "hurts", "no difference"]


def test_what_the_table_says():
    rows = {f"x|{mode}": {"loss": [1, 3], "kl": kl, "same": [1, 0.5]} for mode, kl in (("folded", [0.2, 0.4]), ("rotated", [0.1, 0.2]))}
    folded, rotated = program.summary(rows)
    assert [rotated[key] for key in ("perplexity", "kl", "same", "recovered")] == pytest.approx([np.e**2, 0.15, 0.75, 0.5]) and folded["recovered"] is None
    said = program.table({"summary": [rotated], "refused": {}, "cost": {"16": {"R3": 1.0, "R4": 2.0, "products": 30.0}}}, ["x"], ["folded", "rotated"])
    assert re.match(r"x +rotated +7\.389 +150\.000 \[.*\] +75\.00 ", said.splitlines()[1])
    assert said.endswith("16 tokens: R3 1.00 us, R4 2.00 us a layer, 10.0 % of its matrix products")


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    output = tmp_path_factory.mktemp("evaluation")
    threads, begun = torch.get_num_threads(), time.process_time()
    torch.set_num_threads(2)  # threads that wait for others take processor time too
    try:
        assert program.main(["--demo", "--output", str(output)]) == 0
    finally:
        torch.set_num_threads(threads)
    assert time.process_time() - begun < 120  # a minute on two cores
    return output


def test_the_demo_shows_the_known_effects(demo):
    data = json.loads((demo / "evaluation.json").read_text())
    kl = {key: np.mean(row["kl"]) for key, row in data["rows"].items()}
    assert kl["none|rotated"] < 1e-6
    ratio = {name: kl[f"{name}|rotated"] / kl[f"{name}|folded"] for name in schemes.DEMO if name != "none"}
    for name, most in {"fp8-attention": 0.6, "kv4": 0.6, "w8a8-int8": 0.4, "w4a4-int4": 0.6}.items():
        assert 0.05 < ratio[name] < most, (name, ratio)
        assert program.verdict(data["rows"], name, "rotated") == "helps"
    assert program.verdict(data["rows"], "w4a4-nvfp4", "rotated") != "helps", ratio
    assert data["refused"] == {} and data["about"]["text_sha256"]


def test_a_run_goes_on_where_it_was(demo, capsys):
    path = demo / "evaluation.json"
    data = json.loads(path.read_text())
    del data["rows"]["kv4|rotated"]
    path.write_text(json.dumps(data))
    assert program.main(["--demo", "--output", str(demo)]) == 0
    assert capsys.readouterr().err.strip() == "kv4, rotated: 1 of 1"
    assert program.main(["--demo", "--seed", "1", "--output", str(demo)]) == 2
    assert "is of another run (seed differ)" in capsys.readouterr().err
    whole = path.read_text()
    data["about"]["later"] = 1  # of a version that asks for more
    path.write_text(json.dumps(data))
    assert program.main(["--demo", "--output", str(demo)]) == 2
    assert "is of another run (later differ)" in capsys.readouterr().err
    path.write_text(whole)


def test_a_loss_beyond_all_numbers_is_a_row_too(tmp_path, capsys):
    results = program._Results(tmp_path / "evaluation.json", {})
    results.put("kv4", "plain", np.array([[800.0, 1.0, 0.5]] * 3), None)
    assert 1e307 < results.data["summary"][0]["perplexity"] < float("inf")
    assert " 8.22e+307 " in program.table(results.data, ["kv4"], ["plain"])


def test_what_makes_the_tokens_and_the_tasks_makes_the_run(tmp_path):
    (tmp_path / "merges.txt").write_text("a b")
    (tmp_path / "data.jsonl").write_text("{}")
    task = {"task": "mine", "dataset_kwargs": {"data_files": {"test": [str(tmp_path / "data.jsonl")]}}}
    before = program._hash(tmp_path), tasks.said_of(task)
    (tmp_path / "merges.txt").write_text("b a")
    (tmp_path / "data.jsonl").write_text("[]")
    assert program._hash(tmp_path) != before[0] and tasks.said_of(task) != before[1]
    assert tasks.said_of(task).startswith("mine ") and tasks.said_of("mmlu") == "mmlu"
    assert tasks.said_of(task | {"num_fewshot": 3}) != tasks.said_of(task)


def test_outliers_are_refused_by_name_where_a_length_has_no_rotation():
    with pytest.raises(ValueError, match="--outliers rotates all inputs of layers, queries, keys and values: n=18"):
        outliers.check(transformers.LlamaConfig(hidden_size=72, num_attention_heads=4, intermediate_size=224, head_dim=18))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "name a folder of a model, or --demo"),
        (["x"], "--text FILE is missing"),
        (["x", "--text", "y", "--length", "2"], "'2' is no number of at least 3"),
        (["--demo", "--batch", "0"], "'0' is no number of at least 1"),
        (["--demo", "--tokens", "-5"], "'-5' is no number of at least 1"),
        (["--demo", "--seed", "-1"], "'-1' is no number of at least 0"),
        (["--demo", "--seed", str(1 << 63)], "'9223372036854775808' must be below 2^63"),
    ],
)
def test_bad_arguments(arguments, sentence, capsys):
    with pytest.raises(SystemExit):
        program.main(arguments)
    assert sentence in capsys.readouterr().err


@pytest.fixture
def tiny(tmp_path):
    """The demo's model in a folder that a test may spoil, and a text."""
    with program._model_folder(program._parser().parse_args(["--demo"])) as (folder, text):
        shutil.copytree(folder, tmp_path / "tiny")
    (tmp_path / "text").write_text(text[:20000])
    return tmp_path / "tiny"


def _config(**changes):
    return lambda folder: (folder / "config.json").write_text(json.dumps(json.loads((folder / "config.json").read_text()) | changes))


def _evaluation(text):
    def spoil(folder):
        (folder.parent / "out").mkdir()
        (folder.parent / "out" / "evaluation.json").write_text(text)

    return spoil


def _tokenizer_of_many(folder):
    described = json.loads((folder / "tokenizer.json").read_text())
    words = described["model"]["vocab"]
    first = words.pop("e")
    words["e"] = len(words) + 5000 + first
    (folder / "tokenizer.json").write_text(json.dumps(described))


@pytest.mark.parametrize(
    ("spoil", "more", "sentence"),
    [
        (lambda folder: (folder / "config.json").unlink(), [], "is no folder with a config.json"),
        (_config(model_type="gpt2"), [], "models of the family 'gpt2' are not offered; llama, mistral, qwen2, qwen3 are"),
        (_config(model_type="gemma2"), [], "models of the family 'gemma2' are not offered"),
        (lambda folder: (folder.parent / "text").write_text("too short"), [], "the text has [0-9]+ tokens and 256 are asked for; one block takes 64"),
        (lambda folder: (folder.parent / "text").write_bytes(b"\xff\xfe\x00"), [], "text is no UTF-8 text: .* can't decode byte 0xff"),
        (lambda folder: (folder.parent / "text").unlink(), [], "No such file"),
        (_tokenizer_of_many, [], "the tokenizer gives token [0-9]+, but the model has a vocabulary of 1024"),
        (lambda folder: (folder / "tokenizer.json").unlink(), [], "tokenizer"),
        (lambda folder: (folder / "model.safetensors").write_bytes(b"x" * 100), [], "the weights in .*tiny cannot be read: .*header"),
        (lambda folder: os.truncate(folder / "model.safetensors", 5000), [], "the weights in .*tiny cannot be read"),
        (lambda folder: (folder / "model.safetensors").unlink(), [], "model.safetensors"),
        (lambda folder: None, ["--formats", "kv5"], "no scheme 'kv5'"),
        (lambda folder: None, ["--formats", ""], "no scheme ''"),
        (lambda folder: None, ["--formats", "kv4,"], "no scheme ''"),
        (lambda folder: None, ["--rotations", ""], "no rotation ''"),
        (lambda folder: None, ["--rotations", "plain,r9"], "no rotation 'r9'"),
        (lambda folder: None, ["--rotations", "block31"], "block31 does not divide"),
        (lambda folder: None, ["--cost"], "--cost times a GPU"),
        pytest.param(lambda folder: None, ["--device", "cuda"], "--device cuda: PyTorch finds no CUDA device", marks=pytest.mark.skipif(
            torch.cuda.is_available(), reason="there is one")),
        *[(_evaluation(text), [], f"evaluation.json is damaged .{words}.*; remove it, or name another --output") for text, words in (
            ('{"about": {', "Expecting"), ("[]", "it has no about"), ('{"about": {}}', "it has no rows"))],
    ],
)
def test_bad_input_is_one_sentence(tiny, capsys, spoil, more, sentence):
    spoil(tiny)
    capsys.readouterr()
    asked = [str(tiny), "--text", str(tiny.parent / "text"), "--formats", "none", "--rotations", "plain", "--tokens", "256", "--length", "64", "--device", "cpu"]
    assert program.main([*asked, "--output", str(tiny.parent / "out"), *more]) == 2
    (said,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error: ")]
    assert re.search(sentence, said), said


def test_no_memory_for_the_model_itself(tmp_path, monkeypatch, capsys):
    def fails(*_):
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")

    monkeypatch.setattr(measure, "Reference", fails)
    assert program.main(["--demo", "--output", str(tmp_path)]) == 2
    assert capsys.readouterr().err == "error: no memory for the unquantized model: CUDA out of memory; try a smaller --batch, or --device cpu\n"


def test_names_that_come_twice_and_a_text_that_is_short(tiny, capsys):
    asked = [str(tiny), "--text", str(tiny.parent / "text"), "--formats", "none,none", "--rotations", "plain,plain", "--tokens", "99999", "--length", "1024"]
    (tiny.parent / "text").write_text((tiny.parent / "text").read_text()[:8000])
    capsys.readouterr()
    assert program.main([*asked, "--device", "cpu", "--output", str(tiny.parent / "out")]) == 0
    said = capsys.readouterr()
    assert re.fullmatch(r"the text is shorter than --tokens 99999: it has [1-9] blocks of 1024 tokens\nnone, plain: 1 of 1\n", said.err)
    assert said.out.count("none               plain") == 1


def test_a_format_that_does_not_fit_is_said_and_the_others_go_on(tiny, capsys):
    asked = [str(tiny), "--text", str(tiny.parent / "text"), "--formats", "w4a16,kv8", "--rotations", "folded", "--tokens", "256", "--length", "64"]
    assert program.main([*asked, "--output", str(tiny.parent / "out")]) == 0
    data = json.loads((tiny.parent / "out" / "evaluation.json").read_text())
    assert list(data["refused"]) == ["w4a16|folded"] and list(data["rows"]) == ["kv8|folded"]
    assert "not measured: encoding int4:128: group=128 must divide n=448" in capsys.readouterr().out


def test_what_is_written_is_what_the_report_reads(demo):
    """analysis/models.py holds a file of ours to its form; it runs where PyTorch is not."""
    data, known = (json.loads(path.read_text()) for path in (demo / "evaluation.json", ROOT / "analysis" / "testdata" / "evaluation.json"))
    assert data.keys() == known.keys() - {"outliers"}
    assert data["about"].keys() == known["about"].keys() and data["summary"][0].keys() == known["summary"][0].keys()
    assert "/" not in data["about"]["model"] and len(data["about"]["model_sha256"]) == 64


def test_advice_names_the_simplest_rotation():
    def row(name, mode, kl, said):
        return {"format": name, "rotation": mode, "kl": kl, "kl_low": kl - 0.1, "kl_high": kl + 0.1, "verdict": said, "recovered": 1 - kl}

    rows = [row("a", "folded", 1.0, ""), row("a", "rotated", 0.3, "helps"), row("a", "r3", 0.35, "helps"), row("a", "r2", 0.9, "helps"),
            row("b", "rotated", 1.2, "hurts"), row("b", "r3", 1.0, "no difference"), row("c", "r3", 1.0, "no difference"), row("none", "rotated", 0.0, "")]  # fmt: skip
    assert program.advice(rows).splitlines() == [
        "rotation helps a (r3: 65 % of its KL gone)", "rotation hurts b (rotated)", "rotation makes no difference for c",
    ]  # fmt: skip


@pytest.mark.parametrize(("encoding", "k"), [("int4:row", 320), ("int4:128", 384), ("int4:32", 160), ("int4:96", 288), ("int8:row", 64)])
def test_gptq_has_less_error_on_its_inputs(encoding, k):
    """And none to take up where inputs do not depend on one another: there it rounds to nearest."""
    generator = torch.Generator().manual_seed(k)
    weight = torch.randn(24, k, generator=generator)
    nearest = fwht.quantize.round_trip(weight, encoding)
    assert torch.allclose(gptq.rounded(weight, torch.eye(k).double(), encoding).float(), nearest, atol=1e-6)
    x = (torch.randn(2000, k, generator=generator) @ torch.randn(k, k, generator=generator)).double()
    ours = gptq.rounded(weight, x.T @ x, encoding)
    wrong = [float((x @ (rounded.double() - weight.double()).T).norm()) for rounded in (ours, nearest)]
    assert wrong[0] < 0.8 * wrong[1]
    groups = ours.unflatten(1, (-1, k if encoding.endswith("row") else int(encoding.split(":")[1])))
    codes = 2 ** (int(encoding[3]) - 1) - 1
    assert all(len(group.unique()) <= 2 * codes + 1 for row in groups for group in row)  # one scale a group


def test_gptq_is_damped_by_a_hundredth():
    """Of two equal inputs the second takes up 1 / 1.01 of the first one's error; of the rows one lies above a half then, one below."""
    gram = torch.tensor([[1.0, 1, 0], [1, 1, 0], [0, 0, 1]]).double()
    assert gptq.rounded(torch.tensor([[0.4, 0.1041, 7], [0.4, 0.1039, 7]]), gram, "int4:row").tolist() == [[0, 1, 7], [0, 0, 7]]


def test_gptq_takes_an_input_that_is_never_used():
    weight, x = torch.randn(4, 64), torch.randn(200, 64).double()
    x[:, 5] = 0
    assert torch.isfinite(gptq.rounded(weight, x.T @ x, "int4:row")).all()


def test_gptq_of_layers_together_is_that_of_each():
    """Layers that take the same inputs are rounded as one: rows do not meet."""
    generator = torch.Generator().manual_seed(1)
    weight, x = torch.randn(56, 320, generator=generator), torch.randn(900, 320, generator=generator).double()
    for encoding in ("int4:row", "int4:64"):
        together = gptq.rounded(weight, x.T @ x, encoding)
        assert torch.allclose(together, torch.cat([gptq.rounded(part, x.T @ x, encoding) for part in weight.split((24, 32))]), rtol=1e-9)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize(("encoding", "k"), [("int4:row", 320), ("int4:128", 384), ("int4:96", 288), ("int8:row", 64)])
def test_gptq_by_a_graph_is_gptq(encoding, k):
    generator, columns = torch.Generator().manual_seed(k), gptq._Columns()
    for _ in range(3):  # the first makes the graph
        weight, x = torch.randn(24, k, generator=generator).cuda(), torch.randn(500, k, generator=generator).cuda().double()
        by_graph = gptq.rounded(weight, x.T @ x, encoding, columns)
        upper = []
        gptq.rounded(weight, x.T @ x, encoding, lambda w, u, *rest: upper.append((w, u, *rest)))
        assert torch.equal(by_graph, gptq._round_columns(*upper[0]))
    assert len(columns._graphs) == 1


def test_gptq_goes_on_without_a_graph(monkeypatch):
    """Where none can be captured: one warning, the same numbers, and nothing is tried again."""
    tries = []

    def graph_of(*given):
        tries.append(given)
        raise torch.cuda.OutOfMemoryError("CUDA out of memory\nand more")

    monkeypatch.setattr(gptq, "_graph_of", graph_of)
    columns = gptq._Columns()
    monkeypatch.setattr(columns, "_wants_graph", lambda w, upper: not columns._fails)
    generator = torch.Generator().manual_seed(2)
    weight, x = torch.randn(24, 256, generator=generator), torch.randn(500, 256, generator=generator).double()
    with pytest.warns(UserWarning, match="^fwht: GPTQ takes longer, without CUDA graphs: CUDA out of memory$") as said:
        for _ in range(2):
            assert torch.equal(gptq.rounded(weight, x.T @ x, "int4:row", columns), gptq.rounded(weight, x.T @ x, "int4:row"))
    assert len(said) == len(tries) == 1 and not columns._graphs
    assert not gptq._Columns()._wants_graph(weight, weight)  # on the host


def test_models_are_rotated_once_where_they_are_small(monkeypatch):
    """What is done to the model of one format is not in that of the next."""
    loads = []

    def load():
        loads.append(1)
        return model_of("llama").float()

    rotations = {mode: rotate.Rotation.parse(mode) for mode in ("plain", "rotated")}
    small = program._Rotated(load, rotations)
    first = small.of("rotated")
    with torch.no_grad():
        first.lm_head.weight.zero_()
    hooks.install(first, schemes.SCHEMES["w4a4-int4"], rotations["rotated"])
    again, wanted = small.of("rotated"), rotate.rotate_model(model_of("llama").float(), rotations["rotated"])
    assert len(loads) == 1 and not any(module._forward_pre_hooks for module in again.modules())
    assert all(torch.equal(a, b) for a, b in zip(again.parameters(), wanted.parameters(), strict=True))
    monkeypatch.setattr(program, "KEPT", 2 * sum(parameter.nbytes for parameter in again.parameters()) - 1)
    large = program._Rotated(load, rotations)
    for mode in ("plain", "rotated", "rotated"):
        large.of(mode)
    assert len(loads) == 4 and not large._kept


def test_stored_values_have_the_digits_of_float32(tmp_path):
    values = np.random.default_rng(0).random((5, 3))
    results = program._Results(tmp_path / "evaluation.json", {"model": "x"})
    results.put("kv4", "plain", values, None)
    results.end()
    again = program._Results(tmp_path / "evaluation.json", {"model": "x"})
    assert again.data == results.data and again.rows["kv4|plain"]["kl"] == results.rows["kv4|plain"]["kl"]
    assert np.array_equal(np.array(again.rows["kv4|plain"]["loss"], np.float32), values[:, 0].astype(np.float32))
    assert max(len(str(value)) for value in again.rows["kv4|plain"]["same"]) <= 13


def test_gptq_as_a_scheme(tmp_path, monkeypatch):
    """Calibrated on the text behind what is measured."""
    used = {}
    for owner, name, at in ((measure, "Reference", 1), (hooks, "install", 3)):
        monkeypatch.setattr(owner, name, lambda *given, name=name, at=at, call=getattr(owner, name): (used.update({name: given[at]}), call(*given))[1])
    asked = ["--demo", "--formats", "w4a16-row,w4a16-row-gptq,w4a16-gptq", "--rotations", "folded", "--tokens", "2048", "--calibration", "8"]
    assert program.main([*asked, "--output", str(tmp_path)]) == 0
    data = json.loads((tmp_path / "evaluation.json").read_text())
    ours, nearest = (np.array(data["rows"][f"{name}|folded"]["kl"]) for name in ("w4a16-row-gptq", "w4a16-row"))
    assert measure.interval(ours - nearest)[1] < 0 and data["about"]["calibration_blocks"] == len(used["install"]) == 8
    assert not (used["install"][:, None] == used["Reference"].blocks).all(-1).any()
    assert "128" in data["refused"]["w4a16-gptq|folded"]  # 448 inputs have no groups of 128
    with pytest.raises(ValueError, match="w4a16-row-gptq is calibrated on blocks of text"):
        hooks.install(model_of("llama"), schemes.SCHEMES["w4a16-row-gptq"], rotate.Rotation(), torch.zeros(0, 8, dtype=torch.int64))


def test_no_memory_for_a_scheme(tmp_path, monkeypatch, capsys):
    """It is said with what it needs, and the others are measured."""
    inner = hooks.install

    def install(model, scheme, *others):
        if scheme.name == "kv4":
            raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.")
        return inner(model, scheme, *others)

    monkeypatch.setattr(hooks, "install", install)
    asked = ["--demo", "--formats", "kv4,kv8", "--rotations", "folded", "--tokens", "1024", "--output", str(tmp_path)]
    assert program.main(asked) == 0
    data = json.loads((tmp_path / "evaluation.json").read_text())
    assert list(data["rows"]) == ["kv8|folded"]
    assert re.fullmatch(r"no memory: CUDA out of memory; it needs about 0\.0 GB, 0\.0 GB of them for weights \(--batch 8\)", data["refused"]["kv4|folded"])
    config = transformers.LlamaConfig(
        hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8, vocab_size=128256
    )
    words = program.needed(config, "float16", 8, 2048)
    assert words == "it needs about 19.1 GB, 16.1 GB of them for weights (--batch 8)"


def _logits(model, ids):
    with torch.no_grad():
        return model.double()(ids, use_cache=False).logits


def _as_it_is(folder):
    """By transformers, which knows no transforms."""
    config = transformers.AutoConfig.from_pretrained(folder)
    vars(config).pop("quantization_config", None)
    return transformers.AutoModelForCausalLM.from_pretrained(folder, config=config, dtype=torch.float32)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_model_with_r4_computes_the_same(family, tmp_path):
    """By this library, and by the package whose words its config.json has."""
    ids = torch.randint(0, 96, (2, 40), generator=torch.Generator().manual_seed(1))
    model = model_of(family).float()
    expected = _logits(model, ids)
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)  # in which the matrix is not formed
    try:
        fwht.evaluate.save_rotated(model.float(), tmp_path, "R1,R2,R4", seed=3)
    finally:
        torch.set_default_dtype(dtype)

    def off(other):
        return float((_logits(other, ids) - expected).norm() / expected.norm())

    assert off(fwht.evaluate.load_rotated(tmp_path, dtype=torch.float32)) < 2e-5
    assert off(_as_it_is(tmp_path)) > 0.1  # the online part is needed
    transform = pytest.importorskip("compressed_tensors.transform")
    config = json.loads((tmp_path / "config.json").read_text())["quantization_config"]
    assert config["quant_method"] == "compressed-tensors"
    theirs = _as_it_is(tmp_path)
    transform.apply_transform_config(theirs, transform.TransformConfig.model_validate(config["transform_config"]))
    matrix = {name: value for name, value in load_file(tmp_path / "model.safetensors").items() if "R4" in name}
    assert len(matrix) == 1
    assert theirs.load_state_dict(matrix, strict=False).unexpected_keys == []
    assert off(theirs) < 2e-5


def test_saving_from_the_command_line(tiny, capsys):
    for rotations, words in (("R1,R2", "R1, R2"), ("R1,R2,R4", "R1, R2, R4")):
        folder = tiny.parent / words
        assert program.main([str(tiny), "--save", str(folder), "--rotations", rotations]) == 0
        assert capsys.readouterr().out.endswith(f"the same model with {words} in its weights\n")
        assert (folder / "tokenizer.json").exists()
    ids = torch.arange(64)[None]
    expected = _logits(_as_it_is(tiny), ids)
    for folder, load in ((tiny.parent / "R1, R2", _as_it_is), (folder, fwht.evaluate.load_rotated)):
        assert (_logits(load(folder), ids) - expected).norm() < 0.02 * expected.norm()  # the demo's weights are bfloat16
    assert program.main([str(folder), "--text", str(tiny.parent / "text")]) == 2
    assert "is quantized or rotated already" in capsys.readouterr().err
    assert program.main([str(tiny), "--save", str(tiny.parent / "other"), "--rotations", ""]) == 2
    assert "no rotation ''" in capsys.readouterr().err
    for more, words in (
        ([str(tiny), "--save", "other", "--formats", "kv4"], "--formats is given, but --save measures nothing"),
        (["--demo", "--text", "text"], "--text text: --demo has a text of its own"),
    ):
        with pytest.raises(SystemExit):
            program.main(more)
        assert words in capsys.readouterr().err
    assert program.main([str(tiny), "--save", str(tiny.parent / "other"), "--rotations", "rotated"]) == 2
    assert "R3 and blocks are done online alone" in capsys.readouterr().err and not (tiny.parent / "other").exists()


def test_a_tokenizer_that_is_missing_is_said_before_anything_is_written(tiny, capsys):
    for path in tiny.glob("tokenizer*"):
        path.unlink()
    assert program.main([str(tiny), "--save", str(tiny.parent / "saved")]) == 2
    assert "tokenizer" in capsys.readouterr().err and not (tiny.parent / "saved").exists()


def test_the_folder_of_the_model_takes_the_results(tiny, capsys):
    asked = [str(tiny), "--text", str(tiny.parent / "text"), "--formats", "kv8", "--tokens", "256", "--length", "64", "--output", str(tiny)]
    for rotations, rows in (("plain", 1), ("plain,folded", 2)):
        assert program.main([*asked, "--rotations", rotations]) == 0, capsys.readouterr().err
        assert len(json.loads((tiny / "evaluation.json").read_text())["rows"]) == rows


def test_nothing_is_written_over(tiny, capsys, monkeypatch):
    """The source least of all, and before the model is loaded."""
    weights = (tiny / "model.safetensors").read_bytes()
    model = model_of("llama").float()
    before = [parameter.clone() for parameter in model.parameters()]
    for place, words in ((tiny, "tiny is not empty; a checkpoint is written to an empty folder"), (tiny.parent / "text", "text is a file; a checkpoint")):
        with pytest.raises(FileExistsError, match=words):
            fwht.evaluate.save_rotated(model, place)
        with monkeypatch.context() as patch:
            patch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", None)
            assert program.main([str(tiny), "--save", str(place)]) == 2
        assert words in capsys.readouterr().err
    assert (tiny / "model.safetensors").read_bytes() == weights
    assert all(a.equal(b) for a, b in zip(before, model.parameters(), strict=True))


def test_a_loaded_model_with_r4_is_not_saved_without_it(tmp_path):
    original = model_of("llama").float()
    with pytest.warns(UserWarning, match="R4 is in the weights alone"):
        fwht.evaluate.save_rotated(original, tmp_path / "a", "R4")
    model = fwht.evaluate.load_rotated(tmp_path / "a")
    for each in (original, model, copy.deepcopy(model)):
        with pytest.raises(NotImplementedError, match="has R4 online, which save_pretrained would lose"):
            each.save_pretrained(tmp_path / "b")
    before = [parameter.clone() for parameter in model.parameters()]
    for text in ("R1,R2", "R1,R2,R4"):
        with pytest.raises(ValueError, match="has R4 or blocks online already, as of load_rotated; rotate the original"):
            fwht.evaluate.save_rotated(model, tmp_path / "b", text)
    assert all(map(torch.equal, before, model.parameters())) and not (tmp_path / "b").exists()
    assert fwht.evaluate.load_rotated(tmp_path / "a", output_loading_info=True)[1]["missing_keys"] in ([], set())
    with pytest.raises(TypeError, match="config= is given, but .*a has R4"):
        fwht.evaluate.load_rotated(tmp_path / "a", config=model.config)
    path = tmp_path / "a" / "config.json"
    config = json.loads(path.read_text())
    for lack, key in ((config, "quantization_config"), (config["fwht"], "seed")):
        del lack[key]
        path.write_text(json.dumps(config))
        with pytest.raises(ValueError, match=f"a: config.json is of a rotated model, but lacks .*{key}"):
            fwht.evaluate.load_rotated(tmp_path / "a")


def test_a_folder_that_is_missing_is_not_looked_for_elsewhere(monkeypatch):
    monkeypatch.setattr(transformers.AutoConfig, "from_pretrained", None)
    with pytest.raises(FileNotFoundError, match="no/such is no folder with a config.json"):
        fwht.evaluate.load_rotated("no/such")


def test_a_folder_of_another_operator_is_refused(tmp_path):
    fwht.evaluate.save_rotated(model_of("llama").float(), tmp_path, "R4")
    config = json.loads((tmp_path / "config.json").read_text())
    config["fwht"]["operator"] = "7x32"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="rotated by the operator 7x32; this version has 28x8 for rows of 224"):
        fwht.evaluate.load_rotated(tmp_path)


EXAMPLE = ROOT / "python" / "examples" / "tasks" / "python_words.yaml"


@pytest.mark.parametrize(
    ("given", "found"),
    [("a.jsonl", "{}/a.jsonl"), ("[a, b]", ["{}/a", "{}/b"]), ("{test: [a, b], train: c}", {"test": ["{}/a", "{}/b"], "train": "{}/c"}),
     ("{test: hf://a}", {"test": "hf://a"})],
)  # fmt: skip
def test_data_lie_beside_their_task(tmp_path, given, found):
    (tmp_path / "x.yaml").write_text(f"task: x\ndataset_kwargs:\n  data_files: {given}\n")
    made = tasks._of_file(tmp_path / "x.yaml")["dataset_kwargs"]["data_files"]
    assert made == json.loads(json.dumps(found).replace("{}", str(tmp_path.resolve())))


def test_tasks_of_lm_eval_without_a_network(tmp_path, monkeypatch, capsys):
    pytest.importorskip("lm_eval")
    for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
        monkeypatch.setenv(name, "1")
    asked = ["--demo", "--formats", "w4a4-int4", "--rotations", "folded,rotated", "--tokens", "512", "--length", "128", "--tasks", str(EXAMPLE)]
    assert program.main([*asked, "--output", str(tmp_path)]) == 0
    data = json.loads((tmp_path / "evaluation.json").read_text())
    accuracy = [data["tasks"]["python_words"]["acc"], *(data["rows"][f"w4a4-int4|{mode}"]["tasks"]["python_words"]["acc"] for mode in ("folded", "rotated"))]
    assert re.fullmatch("python_words [0-9a-f]{16}", *data["about"]["tasks"])
    assert 0.25 < accuracy[0]["value"] <= 1 and all(0 <= each["value"] <= 1 and 0 < each["standard_error"] < 0.2 for each in accuracy)
    assert re.search(r"python_words, acc: 0\.\d+ \+- 0\.\d+ unquantized\n  w4a4-int4          folded 0\.\d+ \+- .*, rotated 0\.", capsys.readouterr().out)


@pytest.mark.parametrize(("content", "sentence"), [("- a", "it has no key `task`"), ("task: !function a.b", "is no task"), (None, "No such file")])
def test_tasks_that_are_none(tmp_path, capsys, content, sentence):
    pytest.importorskip("lm_eval")
    if content:
        (tmp_path / "x.yaml").write_text(content)
    assert program.main(["--demo", "--tasks", str(tmp_path / "x.yaml"), "--output", str(tmp_path)]) == 2
    assert sentence in capsys.readouterr().err


def test_tasks_without_lm_eval(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "lm_eval", None)
    assert program.main(["--demo", "--tasks", "mmlu", "--output", str(tmp_path)]) == 2
    assert '--tasks needs it: pip install ".[tasks]"' in capsys.readouterr().err


@pytest.mark.parametrize("blocks", [2, 3, 4, 8])
def test_few_blocks_seldom_tell_what_is_not_there(blocks):
    """Differences of blocks around nothing: one in twenty is a wrong verdict, give and take what 400 of them show."""
    generator = np.random.default_rng(blocks)
    wrong = 0
    for _ in range(400):
        low, high = measure.interval(generator.standard_normal(blocks), 500)
        wrong += low > 0 or high < 0
    assert wrong <= 400 * 0.09, wrong
