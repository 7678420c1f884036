"""Arguments of the public functions besides operators: a wrong kind of value is refused by name, never by Python."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import dmljax.onnx
from dmljax import DmlError, dxdispatch, serialized

MODELS = Path(__file__).parents[1] / "notebooks" / "models"
ROUTING, DENSE, GEMM = MODELS / "top1_routing.json", MODELS / "dense.onnx", MODELS / "gemm.bin"

# A mapping, a path and a name may each be an array by mistake, whose truth and equality Python cannot tell.
WRONG = [np.ones((2, 2), np.float32), jnp.ones(2), np.zeros(0), [1, 2], 3, 2.5, object(), b"x", True]


def graph() -> Any:
    return serialized.load(GEMM)


def model() -> Any:
    return dmljax.onnx.load(DENSE)


def execution() -> Any:
    return dxdispatch.Execution(dxdispatch.load(ROUTING))


CALLS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "dxdispatch.load": ("path", dxdispatch.load),
    "dxdispatch.load, inputs": ("input_path", lambda value: dxdispatch.load(ROUTING, input_path=value)),
    "dxdispatch.load, names": (
        "free_dimension_name_overrides",
        lambda value: dxdispatch.load(ROUTING, free_dimension_name_overrides=value),
    ),
    "dxdispatch.load, denotations": (
        "free_dimension_denotation_overrides",
        lambda value: dxdispatch.load(ROUTING, free_dimension_denotation_overrides=value),
    ),
    "dxdispatch.load, shapes": ("binding_shapes", lambda value: dxdispatch.load(ROUTING, binding_shapes=value)),
    "dxdispatch.fuse": ("model", dxdispatch.fuse),
    "dxdispatch.Execution": ("model", dxdispatch.Execution),
    "dxdispatch.Execution, outputs": (
        "output_path",
        lambda value: dxdispatch.Execution(dxdispatch.load(ROUTING), output_path=value),
    ),
    "Execution.values": ("resource", lambda value: execution().values(value)),
    "Execution.compile": ("dispatchable", lambda value: execution().compile(value)),
    "serialized.load": ("path", serialized.load),
    "serialized.save": ("path", lambda value: serialized.save(graph(), value)),
    "onnx.load, constants": ("constants", lambda value: dmljax.onnx.load(DENSE, constants=value)),
    "onnx.load, sizes": ("maximum_sizes", lambda value: dmljax.onnx.load(DENSE, maximum_sizes=value)),
    "Model.graph": ("shapes", lambda value: model().graph(value)),
    "Model.save": ("path", lambda value: model().save(value)),
    "show": ("file", lambda value: dmljax.show(np.ones((2, 2)), file=value)),
}


@pytest.mark.parametrize("call", CALLS)
def test_a_value_of_a_wrong_kind_is_refused_by_name(call: str) -> None:
    argument, function = CALLS[call]
    for value in WRONG:
        with pytest.raises(DmlError, match=rf"\b{argument} must "):
            function(value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: execution().result(x), "index must be an integer"),
        (lambda x: dxdispatch.fuse(dxdispatch.load(ROUTING), is_repeated=x), "is_repeated must be true or false"),
        (lambda x: model().graph({"x": (1, 2)}, outputs=x), "outputs must "),
        (lambda x: dmljax.estimate(jnp.sin, jnp.ones(2), target="h100", extrapolate=x), "extrapolate must be true"),
        (
            lambda x: dmljax.estimate(jnp.sin, jnp.ones(2), target="h100", precision=x),
            "precision must be default, high",
        ),
        (lambda x: dmljax.estimate(jnp.sin, jnp.ones(2), target="h100", dtype=x), "dtype must be bfloat16"),
    ],
)
@pytest.mark.parametrize("value", [np.ones((2, 2), np.float32), jnp.ones((2, 2)), np.zeros(0, np.float32)], ids=str)
def test_the_truth_of_an_array_is_never_asked(call: Callable[[Any], Any], message: str, value: Any) -> None:
    if message == "outputs must " and value.size == 0:
        pytest.skip("no names")
    with pytest.raises(DmlError, match=message):
        call(value)


def test_right_values_of_other_kinds_are_taken(tmp_path: Path) -> None:
    assert dxdispatch.load(io.BytesIO(ROUTING.read_bytes())).resources.keys()
    serialized.save(graph(), str(tmp_path / "copy.bin"))
    assert repr(serialized.load(tmp_path / "copy.bin")) == repr(graph())
    assert execution().result(np.int64(0)) is not None
    assert dmljax.onnx.load(DENSE, constants=None)(jnp.ones((1, 2), jnp.float32)).shape == (1, 3)
    with pytest.raises(DmlError, match=r"dispatchable of the model; got 'rout', did you mean route\?"):
        execution().compile("rout")
