"""Compiles every operator and networks for a GPU and a TPU, within a budget that only shrinks.

Needs the extras `accelerators` and `benchmarks`.
"""

import dataclasses
import json
import re
import sys
from collections.abc import Iterator
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from helpers import GATE, few_of
from jax.sharding import SingleDeviceSharding

import dmljax
from dmljax.estimation import chips, compile_for, targets
from dmljax.estimation.targets import place_of

for module in ("libtpu", "jax_cuda12_plugin"):
    pytest.importorskip(module, reason="the extra `accelerators` is not installed")
for module in ("torch", "onnxruntime", "onnx", "optax"):
    pytest.importorskip(module, reason="the extra `benchmarks` is not installed")

sys.path += [str(Path(__file__).parents[1] / folder) for folder in ("benchmarks", "benchmarks/variants")]
compilers: Any = import_module("compilers")
BUDGET = json.loads(compilers.BUDGET.read_text())
# The compiler for TPUs takes longest for these, or another operator shares their lowering.
SLOW = {
    *("NONZERO_COORDINATES", "SLICE_GRAD", "TOP_K", "TOP_K1"),
    *("MULTIHEAD_ATTENTION", "MULTIHEAD_ATTENTION1"),
    *("ROI_ALIGN_GRAD", "ROI_ALIGN", "QUANTIZED_LINEAR_CONVOLUTION", "LP_POOLING", "LP_POOLING1"),
    *("RESAMPLE", "RESAMPLE1", "RESAMPLE2", "RESAMPLE_GRAD", "AVERAGE_POOLING", "MAX_POOLING1"),
    *(set(compilers.NETWORKS) - {"LSTM of 2 layers"}),
    *compilers.REAL_SIZES,
}
FEW_SIZES = (
    *("gemm 4096, float32", "gemm 4096, bfloat16", "convolution 3x3 of 64x64x56x56, bfloat16"),
    *("softmax of 8192x8192, bfloat16", "layer norm of 8192x8192, bfloat16"),
)


@pytest.fixture(autouse=True)
def as_the_benchmark() -> Iterator[None]:
    """Sets up JAX as in the benchmark: one device, no 64-bit types, JAX's own promotion."""
    with jax.enable_x64(False), jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


@pytest.mark.parametrize("name", few_of(compilers.works(), *(set(compilers.works()) - SLOW), *FEW_SIZES))
def test_each_program_compiles_within_its_budget(name: str) -> None:
    if jax.__version__ != BUDGET["jax"]:
        pytest.skip(f"the budget is for JAX {BUDGET['jax']}; python tests/benchmarks/compilers.py writes another")
    needed, allowed = compilers.needed(name), BUDGET["budget"][name]
    for target, figures in needed.items():
        for what, value, most in zip(compilers.LIMITED, figures, allowed[target], strict=False):
            assert value <= most, f"{value} {what} on {target}; the budget is {most}"
    remedy = f"lower the budget: python tests/benchmarks/compilers.py --update {name!r}"
    assert needed == allowed, remedy if all(needed.values()) else "does not compile"


@pytest.mark.parametrize(("target", "size"), [("h100", 128), ("v5e", 128), ("v5e", 64)])
def test_attention_is_one_kernel(target: str, size: int) -> None:
    x = jax.ShapeDtypeStruct((1, 1024, 4 * size), np.float32)

    def attended(x: Any) -> Any:
        return dmljax.multihead_attention(x, x, x, head_count=4)

    assert compile_for(target, attended, x).cost.kernels == 1
    grads = compile_for(target, jax.grad(lambda x: attended(x).sum()), x).cost
    assert grads.bytes < 3 * (4 * 4 * 1024**2)  # the formula moves the scores more often


def test_kernels_fit_the_shared_memory_of_smaller_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = chips.Gpu("NVIDIA L4", 58, 128, shared_kib=100, cache_mib=48, major=8, features="NONE")
    l4 = dataclasses.replace(chips.TARGETS["a100"], kind=gpu)
    monkeypatch.setattr(chips, "TARGETS", {**chips.TARGETS, "l4": l4})
    monkeypatch.setattr(targets, "TARGETS", chips.TARGETS)
    for dtype in ("float32", "bfloat16"):
        heads = jax.ShapeDtypeStruct((1, 256, 2 * 128), dtype)
        attended = compile_for("l4", partial(dmljax.multihead_attention, head_count=2), *[heads] * 3)
        assert "attention" in attended.called
        product = import_module("real_sizes").product_of_4_bits(64, 512, 256, dtype)
        assert compile_for("l4", product.dmljax, *product.inputs).called == ("product_with_few_bits",)


def test_keys_are_written_into_caches_of_a_tpu_without_copies() -> None:
    cache = jax.ShapeDtypeStruct((16, 8, 4096, 64), jax.numpy.bfloat16)
    query, new = (jax.ShapeDtypeStruct((16, 1, heads * 64), cache.dtype) for heads in (32, 8))
    lengths = jax.ShapeDtypeStruct((16,), np.int32)

    def step(past_key: Any, past_value: Any, query: Any, new: Any, lengths: Any) -> Any:
        past: Any = {"past_key": past_key, "past_value": past_value, "past_sequence_lengths": lengths}
        sizes: Any = {"query_head_count": 32, "key_value_head_count": 8, "total_sequence_length": 4096}
        return dmljax.multihead_attention1(query, new, new, **past, **sizes, has_present=True)

    compiled = compile_for("v5e", step, cache, cache, query, new, lengths, donate_argnums=(0, 1))
    at_least = 2 * cache.size * 2 / 819e9  # reading both
    assert compiled.estimated_seconds < 1.5 * at_least


def compiled_text(target: str, function: Any, *shapes: Any) -> str:
    place = SingleDeviceSharding(place_of(target).devices[0])
    placed = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place) for x in shapes]
    return str(jax.jit(function).lower(*placed).compile().as_text())


# The names of races, and of a variant of each kind; those that ask for a device's libraries compile nowhere else
VARIANTS = {
    "attention 4x2048x16x128, bfloat16": "tile 128 x 128, 8 warps, 3 stages",
    "attention 4x2048x16x128, gradient, bfloat16": "tile 64 x 64, 4 warps, 3 stages",
    "decoding, 8 tokens to 4096 keys each, bfloat16": "heads as queries, 16 splits, tile 16 x 128, 8 warps, 2 stages",
    "LSTM of 50 steps, 1x128, float32": "one kernel",
    "GRU of 50 steps, 1x128, float32": "unrolled by 8, command buffers",
    "ResNet-50, 1x1, 256 to 64 of 56x56, float32": "one product, channels last",
    "ResNet-50, 3x3, 512 of 7x7, float32": "channels last by XLA",
    "gemm 4096, bfloat16": "no Triton",
}


@GATE
@pytest.mark.parametrize("name", VARIANTS)
def test_variants_compile_for_a_gpu(name: str) -> None:
    race = import_module("races").plan_of({}, is_small=False).races[name]
    work = race.build()
    variant = race.variants(work)[VARIANTS[name]]
    assert not variant.needs
    place = SingleDeviceSharding(place_of("h100").devices[0])
    inputs = jax.eval_shape(lambda *arrays: variant.arrange(*arrays), *work.inputs)
    placed = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place) for x in inputs]
    jax.clear_caches()
    with variant.context():
        program = jax.jit(lambda *arrays: variant.function(*arrays)).lower(*placed)
    text = program.compile(compiler_options=dict(variant.options) or None).as_text()
    is_kernel = VARIANTS[name].startswith(("tile", "heads", "one kernel"))
    assert ("__gpu$xla.gpu.triton" in str(text)) == is_kernel
    if "Triton" in VARIANTS[name]:
        assert "__cublas" in str(text)


@pytest.mark.parametrize("target", ["h100", "v5e"])
def test_a_mean_of_the_largest_numbers_adds_halves(target: str) -> None:
    x = jax.ShapeDtypeStruct((8,), np.float32)
    assert compiled_text(target, dmljax.element_wise_mean, x, x).count(" add(") == 2  # XLA merged them into one


def test_a_gpu_rounds_quotients_that_are_quantized_as_a_cpu_does() -> None:
    x, zero = jax.ShapeDtypeStruct((8,), np.float32), jax.ShapeDtypeStruct((8,), np.int8)
    text = compiled_text("h100", dmljax.element_wise_quantize_linear, x, x, zero)
    assert " divide(" in text
    assert not re.search(r"= f32\S* divide", text)  # which is off by up to 2 units in the last place


def test_choosing_operators_by_words_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    files = compilers.FILE, compilers.PAGE, compilers.BUDGET
    before = [file.read_bytes() for file in files]
    compilers.main(["bit_xor"])
    on_h100, on_v5e, *means = capsys.readouterr().out.splitlines()
    assert on_h100.split()[:4] == ["ELEMENT_WISE_BIT_XOR", "h100", "1.00", "1.5"]
    assert on_v5e.split()[:4] == ["ELEMENT_WISE_BIT_XOR", "v5e", "1.00", "1.7"]
    assert [mean.split(":")[0] for mean in means] == ["NVIDIA H100", "TPU v5e"]
    assert [file.read_bytes() for file in files] == before


def test_a_budget_only_shrinks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilers, "BUDGET", tmp_path / "budget.json")
    budget = {"GEMM": {"h100": [2, 1, 0, 0]}, "ARGMAX": {"h100": [9, 9, 9, 9]}}
    compilers.BUDGET.write_text(json.dumps({"jax": jax.__version__, "budget": budget}))
    counts = dict(zip(compilers.COUNTS, [3, 0, 0, 0], strict=True))
    compilers.lower_budget({"GEMM": {"h100": {"dmljax": counts}}, "GRU": {"h100": {"dmljax": counts}}})
    written = json.loads(compilers.BUDGET.read_text())
    assert written["budget"] == budget | {"GEMM": {"h100": [2, 0, 0, 0]}, "GRU": {"h100": [3, 0, 0, 0]}}
    compilers.BUDGET.write_text(json.dumps(written | {"jax": "another"}))
    compilers.lower_budget({"GEMM": {"h100": {"dmljax": counts}}})
    assert json.loads(compilers.BUDGET.read_text()) == {
        "jax": jax.__version__,
        "budget": {"GEMM": {"h100": [3, 0, 0, 0]}},
    }


def test_real_sizes_take_no_longer_than_jax_unless_the_budget_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compilers, "BUDGET", tmp_path / "budget.json")
    name, counts = "gemm 4096, float32", dict(zip(compilers.COUNTS, [3, 0, 0, 0], strict=True))

    def rivals(ours: float) -> dict[str, Any]:
        return {"dmljax": counts | {"microseconds": ours}, "jax.numpy": counts | {"microseconds": 2.0}, "roof": 1.0}

    assert compilers.limited(name, rivals(1.0)) == [3, 0, 0, 0, 1.05]
    assert compilers.limited(name, rivals(3.0)) == [3, 0, 0, 0, 1.5]
    assert compilers.limited("GEMM", rivals(3.0)) == [3, 0, 0, 0]
    assert compilers.limited(name, rivals(3.0) | {"jax.numpy": {"refused": "out of memory"}}) == [3, 0, 0, 0]
    assert compilers.limited(name, {"dmljax": {"refused": "out of memory"}}) == []
    compilers.BUDGET.write_text(json.dumps({"jax": jax.__version__, "budget": {name: {"h100": [3, 0, 0, 0, 1.2]}}}))
    for ours, most in ((3.0, 1.2), (2.2, 1.1), (2.0, 1.05)):
        compilers.lower_budget({name: {"h100": rivals(ours)}})
        assert json.loads(compilers.BUDGET.read_text())["budget"][name] == {"h100": [3, 0, 0, 0, most]}
