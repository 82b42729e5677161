"""The static study: what cuobjdump prints, counted."""

from __future__ import annotations

import json

import pytest

from analysis import static_code
from analysis.conftest import make_context
from analysis.load import ResultsError

RESOURCES = """
Fatbin elf code:
================
arch = sm_90a
identifier = ../../variants/naive/naive.cu

Resource usage:
 Common:
  GLOBAL:0
 Function _Z5stagev:
  REG:26 STACK:8 SHARED:1024 LOCAL:0 CONSTANT[0]:560 TEXTURE:0 SURFACE:0 SAMPLER:0
"""
CODE = """
Fatbin ptx code:
================
arch = sm_80
identifier = ../../variants/naive/naive.cu

Fatbin elf code:
================
arch = sm_90a
identifier = ../../variants/naive/naive.cu

	code for sm_90
		Function : _Z5stagev
        /*0000*/                   LDC R1, c[0x0][0x28] ;       /* 0x0000 */
        /*0010*/              @!P0 LDG.E.128 R4, desc[UR4][R2.64] ; /* 0x0000 */
        /*0020*/                   FADD R4, R4, R5 ;            /* 0x0000 */
        /*0030*/                   STL [R1], R4 ;               /* 0x0000 */
        /*0040*/               @P1 BRA 0x20 ;                   /* 0x0000 */
        /*0050*/                   IMAD.MOV.U32 R3, RZ, RZ, RZ ; /* 0x0000 */
        /*0060*/                   EXIT ;                       /* 0x0000 */
        /*0070*/                   BRA 0x70;                    /* 0x0000 */
        /*0080*/                   NOP;                         /* 0x0000 */
"""


def test_resources_by_architecture_and_symbol():
    assert static_code.parse_resources(RESOURCES.splitlines())["sm_90a", "_Z5stagev"]["REG"] == 26


def test_instructions_by_class_without_padding():
    (code,) = static_code.parse_code(CODE.splitlines())
    assert (code.arch, code.symbol, static_code.variant_of(code.source)) == ("sm_90a", "_Z5stagev", "naive")
    assert code.loops == 1 and code.counts.total() == 7
    expected = {"global": 1, "fp32": 1, "local": 1, "move": 2, "other": 2}
    assert {name: count for name, count in code.counts.items() if count} == expected


def test_classes_are_told_apart():
    for opcode, name in {
        "HGMMA": "tensor", "SHFL": "shuffle", "LDS": "shared", "STSM": "shared", "LDG": "global",
        "LDGSTS": "global", "LDGDEPBAR": "barrier",
        "UBLKCP": "global", "LDL": "local", "FFMA": "fp32", "F2FP": "convert", "PRMT": "logic",
        "IADD3": "integer", "BAR": "barrier", "BRA": "other",
    }.items():  # fmt: skip
        assert static_code.classify(opcode) == name


def test_a_source_outside_the_variants_belongs_to_none():
    assert static_code.variant_of("../../experiments/profile/peaks.cu") == ""


def test_a_missing_tool_is_said_not_raised(tmp_path, capsys):
    static_code.run_static(tmp_path / "program", tmp_path, tmp_path)
    assert "cuobjdump was not found" in capsys.readouterr().err
    assert static_code.load_static(tmp_path) is None


def test_the_code_of_another_build_is_refused(tmp_path):
    program = tmp_path / "program"
    (tmp_path / "context.json").write_text(json.dumps(make_context(sources_hash="c0de" * 16)))
    program.write_bytes(b"\x7fELF" + b"c0de" * 16)
    static_code.refuse_other_sources(program, tmp_path)
    program.write_bytes(b"\x7fELF" + b"beef" * 16)
    with pytest.raises(ResultsError, match="built from other sources than"):
        static_code.refuse_other_sources(program, tmp_path)
