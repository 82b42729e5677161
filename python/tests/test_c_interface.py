"""What C refuses and Python never asks: the package checks it first, or has no way to say it."""

import ctypes

import numpy as np
import pytest

from fwht import _c


def problem(**changes):
    made = _c.make_problem((2, 8), _c.F32, "float32", None, in_place=True, device=-1)
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def refused(status, words):
    assert status != 0 and _c.last_error().startswith(words), _c.last_error()


@pytest.mark.parametrize("changes, words", [({"flags": 1 << 30}, "flags=1073741824 has unknown bits"), ({"threads": -1}, "threads=-1 must not be negative")])
def test_a_problem(changes, words):
    handle = ctypes.c_void_p()
    refused(_c.library.fwht_plan_create(problem(**changes), None, -1, handle), words)
    assert _c.library.fwht_plan_create(problem(), None, -1, handle) == 0
    _c.library.fwht_plan_destroy(handle)


@pytest.mark.parametrize("encoding", ["e4m3:row", "e4m3:128", "int4:row", "mxfp8:128x4"])
@pytest.mark.parametrize("n, rows", [(0, 1), (-128, 1), (2**62, 2**62), (128, 2**60), (128, 2**62), (128, -1)])
def test_sizes_that_no_memory_has(encoding, n, rows):
    """Products of them would wrap, and a division by the first ended the process."""
    assert _c.library.fwht_encoding_info_json(encoding.encode(), 128, 2) is not None
    assert _c.library.fwht_encoding_info_json(encoding.encode(), n, rows) is None
    assert f"n={n}" in _c.last_error() or f"rows={rows}" in _c.last_error()


def test_negative_scales_bytes():
    x, asked = np.ones((2, 8), np.float32), problem()
    operands = _c.Operands(ctypes.sizeof(_c.Operands), x.ctypes.data, x.ctypes.data)
    assert _c.library.fwht_transform_operands(ctypes.addressof(asked), None, ctypes.addressof(operands), -1, None) == 0
    operands.scales_bytes = -1
    refused(_c.library.fwht_transform_operands(ctypes.addressof(asked), None, ctypes.addressof(operands), -1, None), "scales_bytes=-1 must not be")


def test_misaligned_weights():
    asked = _c.LinearProblem(ctypes.sizeof(_c.LinearProblem), 1, 8, 64, 64, _c.F16, _c.ZERO_POINTS.index("symmetric"), 0, 0, 0)
    words, halves, order = np.zeros(70, np.int32), np.ones(8, np.float16), np.zeros(64, np.int32)
    rows, sorted_words = np.zeros(64, np.int32), np.zeros(70, np.int32)
    weights = _c.GptqWeights(ctypes.sizeof(_c.GptqWeights), words.ctypes.data, None, halves.ctypes.data, order.ctypes.data)
    assert _c.library.fwht_gptq_sort_rows(asked, weights, sorted_words.ctypes.data, rows.ctypes.data) == 0, _c.last_error()
    weights.qweight += 2
    refused(_c.library.fwht_gptq_sort_rows(asked, weights, sorted_words.ctypes.data, rows.ctypes.data), "qweight must be aligned to 4 bytes")


@pytest.mark.parametrize("name", [b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xc0\x80", b"\xf5\x80\x80\x80", b"\xff", b"\xe2\x82"])
def test_messages_are_utf8(name):
    """A surrogate, forms that are too long, codes that do not exist, a character that is cut off."""
    handle = ctypes.c_void_p()
    assert _c.library.fwht_plan_create(problem(), name, -1, handle) != 0
    message = _c.library.fwht_last_error()
    assert b"?" in message and message.decode("utf-8")
    assert _c.library.fwht_plan_create(problem(), "größe€😀".encode(), -1, handle) != 0
    assert "größe€😀" in _c.library.fwht_last_error().decode("utf-8")
