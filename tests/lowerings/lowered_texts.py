"""Lowers operators and networks for every platform in a process of its own, and tells digests of the programs.

`digests` starts processes with different hash seeds; each of them runs this file.
"""

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

PLATFORMS = ("cpu", "cuda", "tpu")
Program = tuple[Callable[..., Any], Sequence[Any]]  # a function and its arguments


def digests(seeds: Sequence[int], names: Sequence[str]) -> list[dict[str, str]]:
    """For each hash seed, digests of the programs with these names, or of all if there are none."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    command = [sys.executable, __file__, *names]
    with contextlib.ExitStack() as stack:
        started = []
        for seed in seeds:
            printed = stack.enter_context(tempfile.TemporaryFile("w+"))
            environment = os.environ | {"PYTHONPATH": path, "PYTHONHASHSEED": str(seed)}
            process = subprocess.Popen(command, env=environment, stdout=printed, stderr=subprocess.STDOUT, text=True)
            stack.callback(process.kill)
            started.append((process, printed))
        results = []
        for process, printed in started:
            failed = process.wait()
            printed.seek(0)
            text = printed.read()
            if failed:
                raise RuntimeError(text)
            results.append(json.loads(text.splitlines()[-1]))
    return results


def lower(function: Callable[..., Any], arguments: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Lowers a function for each platform."""
    import jax

    traced = jax.jit(lambda *arrays: function(*arrays)).trace(*arguments)
    for platform in PLATFORMS:
        yield platform, traced.lower(lowering_platforms=(platform,)).as_text()


# The programs


def attention() -> Program:
    """Attention with its gradient, and with every operand that its kernels take."""
    import jax
    import numpy as np

    import dmljax

    def summed(scale: Any, filling: Any, query: Any, bias: Any) -> Any:
        more: Any = {"mask": np.ones((128, 128), bool), "is_causal": True, "head_count": 2}
        more |= {"scale": scale, "mask_filter_value": filling, "relative_position_bias": bias}
        return dmljax.multihead_attention(query, query, query, **more).sum()

    shapes = (), (), (1, 128, 32), (1, 1, 1, 128)
    arguments = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
    return jax.value_and_grad(summed, (0, 1, 2)), arguments


def network() -> Program:
    import jax
    import numpy as np
    from onnx_models import small_network

    from dmljax import onnx

    model = onnx.load(small_network())
    return model.apply, (model.weights, jax.ShapeDtypeStruct((2, 3, 4, 4), np.float32))


def written_attention() -> Program:
    """The gradient of an attention whose nodes become one operation."""
    import jax
    import numpy as np
    from onnx import parser

    from dmljax import onnx

    model = onnx.load(parser.parse_model(WRITTEN_ATTENTION))
    x, bias = (jax.ShapeDtypeStruct(shape, np.float32) for shape in ((1, 2, 128, 8), (1, 1, 1, 128)))
    return jax.grad(lambda x, bias: model(x, x, x, bias).sum()), (x, bias)


WRITTEN_ATTENTION = """
<ir_version: 10, opset_import: ["": 21]>
f (float[1, 2, 128, 8] q, float[1, 2, 128, 8] k, float[1, 2, 128, 8] v, float[1, 1, 1, 128] bias)
    => (float[1, 2, 128, 8] y) {
    t = Transpose<perm = [0, 1, 3, 2]>(k)
    products = MatMul(q, t)
    scores = Add(products, bias)
    probs = Softmax<axis = -1>(scores)
    y = MatMul(probs, v)
}
"""


def graph() -> Program:
    """A DirectML graph of a network."""
    from onnx_models import small_network

    from dmljax import directml, onnx

    small_graph = onnx.load(small_network()).graph({"x": (2, 3, 4, 4)})
    return directml.lower(small_graph), [small_graph.inputs["x"].shape_dtype]


def layers() -> Program:
    """The layers of a decoder in a loop."""
    import jax
    from small_language_models import language_proto

    from dmljax import onnx

    model: Any = onnx.load(language_proto(layers=4), scan_layers=True)
    sizes = {"batch": 2, "length": 4, "past": 8, "total": 12}
    shapes = {input.name: [sizes.get(size, size) for size in input.sizes] for input in model.inputs}
    inputs = {input.name: jax.ShapeDtypeStruct(shapes[input.name], input.dtype) for input in model.inputs}
    return lambda weights, inputs: model.apply(weights, **inputs), (model.weights, inputs)


def language(part: int) -> Program:
    """The prefill of a language model's prompts, or the step that writes a token."""
    from small_language_models import write_folder

    from dmljax.onnx import language_model
    from dmljax.onnx.language.generation import generation_programs

    with tempfile.TemporaryDirectory() as folder:
        model = language_model(write_folder(Path(folder)))
    program = generation_programs(model.decoder, 2, 128, 160)[part]
    return program.function, (model.weights, *program.inputs)


def of_operator(operator: str) -> Program:
    from operator_calls import tame_call

    function, inputs = tame_call(operator)
    return function, (inputs,)


def gradient_of(operator: str) -> Program | None:
    import jax
    import pytest
    from operator_calls import differentiable_call

    try:
        function, floats = differentiable_call(operator)
    except pytest.skip.Exception:
        return None
    results = jax.eval_shape(function, floats)
    return lambda floats, grads: jax.vjp(function, floats)[1](grads), (floats, results)


def programs() -> dict[str, Callable[[], Program | None]]:
    from functools import partial

    from dmljax.directml import OPERATORS

    networks: dict[str, Callable[[], Program | None]] = {
        "attention": attention,
        "network": network,
        "graph": graph,
        "layers": layers,
        "written attention": written_attention,
        "prompt": partial(language, 0),
        "step": partial(language, 1),
    }
    return (
        networks
        | {operator: partial(of_operator, operator) for operator in OPERATORS}
        | {f"gradient of {operator}": partial(gradient_of, operator) for operator in OPERATORS}
    )


def main(names: Sequence[str]) -> None:
    every, digests_by_name = programs(), {}
    for name in names or every:
        program = every[name]()
        for platform, text in lower(*program) if program else ():
            digests_by_name[f"{name} for {platform}"] = hashlib.sha256(text.encode()).hexdigest()
    print(json.dumps(digests_by_name))


if __name__ == "__main__":
    main(sys.argv[1:])
