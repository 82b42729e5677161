"""What C refuses and Python never asks: the package checks it first, or has no way to say it."""

import ctypes
import json
import os

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


def test_the_flag_of_plans_that_own_no_scratch():
    handle, x = ctypes.c_void_p(), np.ones((2, 8), np.float32)
    assert _c.library.fwht_plan_create(problem(flags=_c.SCRATCH_OF_CALLER), None, -1, handle) == 0
    assert _c.library.fwht_plan_execute(handle, x.ctypes.data, x.ctypes.data, None) == 0 and np.allclose(x[:, 0], 8**0.5)  # it needs none
    _c.library.fwht_plan_destroy(handle)
    asked = problem(flags=_c.SCRATCH_OF_CALLER)
    refused(_c.library.fwht_plan_kept(asked, None, -1, handle), "flags=16 has unknown bits")


def test_kept_plans_are_of_one_number_of_threads():
    """Of a problem large enough for several."""
    made = []
    for threads in (1, 2, 1):
        asked, handle = problem(n=1024, rows=1024, in_stride=1024, out_stride=1024, threads=threads), ctypes.c_void_p()
        assert _c.library.fwht_plan_kept(asked, None, -1, handle) == 0, _c.last_error()
        made.append(json.loads(_c.library.fwht_plan_info_json(handle))["settings"]["threads"])
        _c.library.fwht_plan_destroy(handle)
    assert made == [1, min(2, len(os.sched_getaffinity(0))), 1]


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


@pytest.mark.parametrize(("name", "operator", "size"), [("signs", b"64+signs", 8), ("dense", b"d8x8", 256)])
def test_matrices_that_would_be_written(name, operator, size):
    """Signs, and dense factors, on memory of the result; beside it they are read."""
    memory = np.zeros(1024, np.float32)
    asked = _c.make_problem((2, 64), _c.F32, "float32", None, in_place=False, device=-1)
    asked.op_text = operator
    first = memory.ctypes.data
    operands = _c.Operands(ctypes.sizeof(_c.Operands), first + 1024, first + 2048)
    for place, fine in ((0, True), (2048 - size, True), (2048 - size + 4, False), (2048 + 508, False), (2048 + 512, True)):
        if name == "dense":  # what is not orthogonal is refused, too
            memory[place // 4 : (place + size) // 4] = np.eye(8, dtype=np.float32).ravel()
        setattr(operands, name, first + place)
        status = _c.library.fwht_transform_operands(ctypes.addressof(asked), None, ctypes.addressof(operands), -1, None)
        if fine:
            assert status == 0, _c.last_error()
        else:
            refused(status, f"{name}=")
            assert "overlap" in _c.last_error()


def test_misaligned_weights():
    asked = _c.LinearProblem(ctypes.sizeof(_c.LinearProblem), 1, 8, 64, 64, _c.F16, _c.ZERO_POINTS.index("symmetric"), 0, 0, 0)
    words, halves, order = np.zeros(70, np.int32), np.ones(8, np.float16), np.zeros(64, np.int32)
    rows, sorted_words = np.zeros(64, np.int32), np.zeros(70, np.int32)
    weights = _c.GptqWeights(ctypes.sizeof(_c.GptqWeights), words.ctypes.data, None, halves.ctypes.data, order.ctypes.data)
    assert _c.library.fwht_gptq_sort_rows(asked, weights, sorted_words.ctypes.data, rows.ctypes.data) == 0, _c.last_error()
    weights.qweight += 2
    refused(_c.library.fwht_gptq_sort_rows(asked, weights, sorted_words.ctypes.data, rows.ctypes.data), "qweight must be aligned to 4 bytes")


@pytest.mark.parametrize("name", ["qzeros", "signs", "dense"])
def test_tensors_that_a_layer_does_not_have(name):
    """Of a symmetric one that is rotated by all of k: they were ignored, and the result was that of another layer."""
    asked = _c.LinearProblem(ctypes.sizeof(_c.LinearProblem), 1, 8, 64, 64, _c.F16, _c.ZERO_POINTS.index("symmetric"), -1, 0, 0)
    plan, words, halves = ctypes.c_void_p(), np.zeros(70, np.int32), np.ones(64, np.float16)
    assert _c.library.fwht_linear_plan_create(asked, None, -1, plan) == 0, _c.last_error()
    packed = np.zeros(json.loads(_c.library.fwht_linear_plan_info_json(plan))["packed_bytes"], np.uint8)
    weights = _c.GptqWeights(ctypes.sizeof(_c.GptqWeights), words.ctypes.data, None, halves.ctypes.data)
    assert _c.library.fwht_linear_plan_pack(plan, weights, packed.ctypes.data, packed.size) == 0, _c.last_error()
    setattr(weights, name, words.ctypes.data)
    refused(_c.library.fwht_linear_plan_pack(plan, weights, packed.ctypes.data, packed.size), f"{name} is given, but f16/m1/n8/k64/w4g64/sym/rot has none")
    _c.library.fwht_linear_plan_destroy(plan)


BAD_REQUEST, FAILED = 1, 3
NO_DEVICE = 63  # the last number that may be given
ASKED = problem()


@pytest.mark.parametrize(
    "name, arguments",
    [
        ("walsh_spectrum_on", lambda x, y, z: (1, x, 3, 1, y, NO_DEVICE, None)),
        ("walsh_summaries_on", lambda x, y, z: (1, x, 3, 1, y, None, 0, NO_DEVICE, None)),
        ("walsh_largest_of_on", lambda x, y, z: (1, x, 3, 1, y, y + 64, z, 4096, NO_DEVICE, None)),
        ("dyadic_convolution_on", lambda x, y, z: (_c.F32, 8, 1, x, x, y, None, 0, NO_DEVICE, None)),
        ("dyadic_convolution_workspace", lambda x, y, z: (_c.F32, 8, 1, 0, NO_DEVICE, ctypes.c_int64())),
        ("rounds_on", lambda x, y, z: (_c.F32, 64, 1, 0, 1, z, x, y, NO_DEVICE, None)),
        ("rounds_to_codes_on", lambda x, y, z: (64, 1, 1, z, x, 8, y, y + 512, NO_DEVICE, None)),
        ("sketch_on", lambda x, y, z: (_c.F32, 8, 4, 0, 1, z, x, y, None, 0, NO_DEVICE, None)),
        ("sketch_workspace", lambda x, y, z: (_c.F32, 8, 4, 1, NO_DEVICE, ctypes.c_int64())),
        ("transform", lambda x, y, z: (ctypes.addressof(ASKED), None, x, x, NO_DEVICE, None)),
        ("plan_create", lambda x, y, z: (ASKED, None, NO_DEVICE, ctypes.c_void_p())),
        ("plan_kept", lambda x, y, z: (ASKED, None, NO_DEVICE, ctypes.c_void_p())),
    ],
)
def test_a_device_that_is_not_there(name, arguments):
    """No value breaks a rule: it is the machine that lacks something."""
    memory = np.zeros(4096, np.int64)
    first = -(-memory.ctypes.data // 256) * 256
    status = getattr(_c.library, "fwht_" + name)(*arguments(first, first + 4096, first + 8192))
    assert (status, "CUDA" in _c.last_error()) == (FAILED, True), _c.last_error()


@pytest.mark.parametrize("changes", [{"n": -4}, {"rows": -2}, {"dtype": 77}])
@pytest.mark.parametrize("device", [-1, 0])
def test_problems_of_kept_plans(changes, device):
    assert _c.library.fwht_plan_kept(problem(**changes), None, device, ctypes.c_void_p()) == BAD_REQUEST


@pytest.mark.parametrize("name", [b"\xed\xa0\x80", b"\xed\xbf\xbf", b"\xc0\x80", b"\xf5\x80\x80\x80", b"\xff", b"\xe2\x82"])
def test_messages_are_utf8(name):
    """A surrogate, forms that are too long, codes that do not exist, a character that is cut off."""
    handle = ctypes.c_void_p()
    assert _c.library.fwht_plan_create(problem(), name, -1, handle) != 0
    message = _c.library.fwht_last_error()
    assert b"?" in message and message.decode("utf-8")
    assert _c.library.fwht_plan_create(problem(), "größe€😀".encode(), -1, handle) != 0
    assert "größe€😀" in _c.library.fwht_last_error().decode("utf-8")
