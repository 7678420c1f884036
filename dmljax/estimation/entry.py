"""Estimates the cost of a function, descriptor, graph or model, and of both programs of a language model."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, overload

from dmljax.calls.binding import check_arguments
from dmljax.errors import require, within
from dmljax.estimation.generation import Generation, prepare_generation, work_of
from dmljax.estimation.programs import prepare
from dmljax.estimation.report import Estimate
from dmljax.foundation.checks import boolean
from dmljax.foundation.programs.progress import Progress, listen, report
from dmljax.text import show

if TYPE_CHECKING:  # the package onnx is an extra
    from dmljax.onnx import LanguageModel


@overload
def estimate(
    function: "LanguageModel",
    *inputs: Any,
    target: str,
    precision: str | None = None,
    extrapolate: bool = False,
    mesh: Mapping[str, int] | None = None,
    generate: int | None = None,
    progress: bool | Callable[[Progress], Any] | None = None,
) -> Generation: ...


@overload
def estimate(
    function: Any,
    *inputs: Any,
    target: str,
    weights: Any = None,
    gradient: bool = False,
    optimizer: Any = None,
    precision: str | None = None,
    dtype: str | None = None,
    extrapolate: bool = False,
    mesh: Mapping[str, int] | None = None,
    specs: Any = None,
    progress: bool | Callable[[Progress], Any] | None = None,
) -> Estimate: ...


@check_arguments
def estimate(
    function: Any,
    *inputs: Any,
    target: str,
    weights: Any = None,
    gradient: bool = False,
    optimizer: Any = None,
    precision: str | None = None,
    dtype: str | None = None,
    extrapolate: bool = False,
    mesh: Mapping[str, int] | None = None,
    specs: Any = None,
    generate: int | None = None,
    progress: bool | Callable[[Progress], Any] | None = None,
) -> Estimate | Generation:
    """Estimates a function's cost on a chip that you do not have, from what XLA compiles for it on this CPU.

    `function` takes the `weights`, if any, and the `inputs`; only their shapes and types matter. A model of
    `dmljax.onnx` brings its own weights, and a descriptor, `directml.Graph` or DxDispatch model its own inputs. A
    function of `jax.jit` donates the arguments that it says. `target` is a chip of `dmljax.estimation.TARGETS`, such as
    h100 or v5e, or several such as `h100:8`, `v5e:16` or `v5e:4x4`.

    `gradient` estimates the derivative of the outputs' squares by the weights, or by the inputs if there are none.
    `optimizer`, one of optax's or "sgd", "momentum" or "adamw", estimates a step of training instead, with its state.
    `precision` sets the precision of products, as `jax.default_matmul_precision` does. `dtype`, such as "bfloat16",
    replaces the type of float32 and float64 weights and inputs. `extrapolate` compiles an ONNX model with 2 and with 4
    of its equal layers, and not with all, which may take minutes: kernels, bytes and seconds are linear in the depth.

    Several chips split the inputs' first dimension, and each holds all weights. `mesh={"data": 32, "model": 8}` names
    axes for them; the first axis splits the inputs. `specs` map names of weights to PartitionSpecs, by default those of
    `model.partition` along the axis `model`. Arrays and shapes with a NamedSharding keep its spec.

    For a language model, `inputs` may be the prompts, integers of the shape (sequences, tokens); the default is one of
    512 tokens. `generate` is how many tokens follow each, by default 128. The result has two estimates: `prompt` reads
    all prompts, and `token` adds a token to each sequence.

    The time is a lower bound, not a measurement: each kernel takes the longest of its launch, bytes, operations and
    exchange at the chip's peak rates. The extra `accelerators` installs the compilers. `progress=True` shows how far it
    is, as `dmljax.onnx.load` does.

    >>> estimate(jnp.sin, jnp.ones(8), target="h1000")
    Traceback (most recent call last):
    dmljax.directml.InvalidDesc: estimate: unknown chip 'h1000', did you mean h100? ...
    """
    with within("estimate"):
        extrapolate = boolean("extrapolate", extrapolate)
    if hasattr(function, "generation_programs"):
        with within("estimate"):
            others = {"weights": weights, "gradient": gradient, "optimizer": optimizer, "dtype": dtype, "specs": specs}
            for name, value in others.items():
                is_default = value is None or value is False
                require(name, is_default, "must be left out for a language model", show(value))
            work = work_of(inputs, generate)
        choices: dict[str, Any] = {"precision": precision, "extrapolate": extrapolate}
        with within("estimate"), listen(progress):
            report(f"compiling for {target}")
            return prepare_generation(function, work, target, mesh, **choices).estimate()
    with within("estimate"):
        require("generate", generate is None, "must be left out except for language models", generate)
    with within("estimate"), listen(progress):
        program = prepare(
            *(function, inputs, target, weights, mesh, specs), precision=precision, dtype=dtype, extrapolate=extrapolate
        )
        report(f"compiling for {target}")
        return program.estimate(gradient=gradient, optimizer=optimizer)
