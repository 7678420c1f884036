"""Whole networks through PyDirectML beside PyTorch and ONNX Runtime: Microsoft's samples, with random weights.

`python tests/benchmarks/networks.py` prints how many times as long as dmljax the others need, what the first result of
a fresh process takes, and its memory. Words choose networks, `--batch 8` the batch.
"""

import argparse
import importlib
import io
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from timing import Effort, medians

SEED = 2021
DMLJAX, TORCH, ONNX = "dmljax", "torch", "onnxruntime"
EPSILON = 1e-5

# The networks, of layers as each library has them


def squeezenet(layers: Any, x: Any) -> Any:
    """SqueezeNet 1.1, as the sample squeezenet.py has it."""
    x = layers.pooled(layers.convolved(x, 3, 64, 3, stride=2, is_rectified=True), 3, 2)
    channels = 64
    for squeezed, expanded, is_pooled in (
        *((16, 64, False), (16, 64, True), (32, 128, False), (32, 128, True)),
        *((48, 192, False), (48, 192, False), (64, 256, False), (64, 256, False)),
    ):
        x = layers.convolved(x, channels, squeezed, 1, is_rectified=True)
        narrow = layers.convolved(x, squeezed, expanded, 1, is_rectified=True)
        wide = layers.convolved(x, squeezed, expanded, 3, padding=1, is_rectified=True)
        x, channels = layers.joined(narrow, wide), 2 * expanded
        if is_pooled:
            x = layers.pooled(x, 3, 2)
    x = layers.convolved(x, channels, 1000, 1, is_rectified=True)
    return layers.probabilities(layers.averaged(x, 13))


def mobilenet(layers: Any, x: Any) -> Any:
    """MobileNetV2, as the sample mobilenet.py has it."""

    def block(x: Any, channels: int, outputs: int, size: int, is_rectified: bool = True, **slide: int) -> Any:
        x = layers.convolved(x, channels, outputs, size, **slide)
        return layers.normalized(x, outputs, is_rectified=is_rectified, is_known=True)

    x, channels = block(x, 3, 32, 3, stride=2, padding=1), 32
    for factor, outputs, count, stride in (
        *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 1), (6, 96, 3, 2), (6, 160, 3, 2), (6, 320, 1, 1)),
    ):
        for i in range(count):
            wide = channels * factor
            y = block(x, channels, wide, 1)
            y = block(y, wide, wide, 3, stride=stride if i == 0 else 1, padding=1, groups=wide)
            y = block(y, wide, outputs, 1, is_rectified=False)
            x, channels = layers.added(x, y) if i > 0 else y, outputs
    x = layers.averaged(block(x, channels, 1280, 1), 7)
    return layers.probabilities(layers.convolved(x, 1280, 1000, 1))


def candy(layers: Any, x: Any) -> Any:
    """The style network of the sample candy.py, but that each image of a batch has its own mean and variance."""
    x = layers.reflected(x, 40)
    for channels, outputs, size, stride in ((3, 16, 9, 1), (16, 32, 3, 2), (32, 64, 3, 2)):
        x = layers.convolved(x, channels, outputs, size, stride=stride, padding=size // 2)
        x = layers.normalized(x, outputs, is_rectified=True)
    for _ in range(5):
        y = layers.normalized(layers.convolved(x, 64, 64, 3), 64, is_rectified=True)
        y = layers.normalized(layers.convolved(y, 64, 64, 3), 64, is_rectified=False)
        x = layers.added(y, layers.cropped(x, 2))
    for channels, outputs in ((64, 32), (32, 16)):
        x = layers.cropped(layers.enlarged(x, channels, outputs, 3), 1)
        x = layers.normalized(x, outputs, is_rectified=True)
    return layers.painted(layers.convolved(x, 16, 3, 9, padding=4))


NETWORKS: dict[str, tuple[Callable[[Any, Any], Any], int]] = {  # with the height and width of their pictures
    "squeezenet": (squeezenet, 224),
    "mobilenet": (mobilenet, 224),
    "candy": (candy, 720),
}


class Weights:
    """Random weights, the same ones in the same order for each library."""

    def __init__(self) -> None:
        self._rng = np.random.default_rng(SEED)

    def filters(self, *sizes: int, terms: int) -> Any:
        return (self._rng.standard_normal(sizes) * np.sqrt(2 / terms)).astype(np.float32)

    def numbers(self, channels: int, middle: float = 0) -> Any:
        return (middle + 0.1 * self._rng.standard_normal((1, channels, 1, 1))).astype(np.float32)


# PyDirectML


class InPyDirectML:
    """Layers that are added to a graph, and the bindings of its inputs."""

    def __init__(self, picture: Any) -> None:
        import dmljax.pydirectml

        self.dml: Any = dmljax.pydirectml
        self.weights = Weights()
        self.device = self.dml.Device()
        self.builder = self.dml.GraphBuilder(self.device)
        self.bindings: list[Any] = []
        self.picture = self.bound(picture)
        self.no = self.dml.FusedActivation()
        self.relu = self.dml.FusedActivation(self.dml.OperatorType.ACTIVATION_RELU)

    def bound(self, array: Any) -> Any:
        desc = self.dml.TensorDesc(self.dml.TensorDataType.FLOAT32, array.shape)
        expression = self.dml.input_tensor(self.builder, len(self.bindings), desc)
        self.bindings.append(self.dml.Binding(expression, array))
        return expression

    def sizes(self, x: Any) -> list[int]:
        found: list[int] = x.get_output_desc().sizes
        return found

    def convolved(
        self,
        x: Any,
        channels: int,
        outputs: int,
        size: int,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
        is_rectified: bool = False,
    ) -> Any:
        terms = channels // groups
        return self.dml.convolution(
            x,
            self.bound(self.weights.filters(outputs, terms, size, size, terms=terms * size * size)),
            self.bound(self.weights.numbers(outputs)),
            strides=[stride] * 2,
            start_padding=[padding] * 2,
            end_padding=[padding] * 2,
            group_count=groups,
            fused_activation=self.relu if is_rectified else self.no,
        )

    def enlarged(self, x: Any, channels: int, outputs: int, size: int) -> Any:
        count, _, *space = self.sizes(x)
        return self.dml.convolution(
            x,
            self.bound(self.weights.filters(channels, outputs, size, size, terms=channels * size * size // 4)),
            self.bound(self.weights.numbers(outputs)),
            direction=self.dml.ConvolutionDirection.BACKWARD,
            strides=[2, 2],
            output_padding=[1, 1],
            output_sizes=[count, outputs, *((one - 1) * 2 + size + 1 for one in space)],
        )

    def normalized(self, x: Any, channels: int, is_rectified: bool, is_known: bool = False) -> Any:
        numbers = [
            self.bound(self.weights.numbers(channels, middle)) for middle in (0, 1, 1, 0)[0 if is_known else 2 :]
        ]
        activation = self.relu if is_rectified else self.no
        if is_known:
            return self.dml.batch_normalization(x, *numbers, True, EPSILON, activation)
        return self.dml.mean_variance_normalization(x, *numbers, [2, 3], True, EPSILON, activation)

    def pooled(self, x: Any, size: int, stride: int) -> Any:
        return self.dml.max_pooling(x, [size] * 2, [stride] * 2).values

    def averaged(self, x: Any, size: int) -> Any:
        return self.dml.average_pooling(x, [1, 1], [size] * 2, [0, 0], [0, 0], False)

    def joined(self, *parts: Any) -> Any:
        return self.dml.join(list(parts), 1)

    def added(self, x: Any, y: Any) -> Any:
        return self.dml.add(x, y)

    def reflected(self, x: Any, amount: int) -> Any:
        amounts = [0, 0, amount, amount]
        return self.dml.padding(x, self.dml.PaddingMode.REFLECTION, 0, amounts, amounts)

    def cropped(self, x: Any, amount: int) -> Any:
        count, channels, *space = self.sizes(x)
        sizes = [count, channels, *(one - 2 * amount for one in space)]
        return self.dml.slice(x, [0, 0, amount, amount], sizes, [1] * 4)

    def probabilities(self, x: Any) -> Any:
        sizes = [1, 1, *self.sizes(x)[:2]]  # its input has two dimensions
        return self.dml.activation_soft_max(self.dml.reinterpret(x, self.dml.TensorDataType.FLOAT32, sizes, None))

    def painted(self, x: Any) -> Any:
        return self.dml.activation_linear(self.dml.activation_tanh(x), 150, 127.5)


def in_pydirectml(network: Callable[[Any, Any], Any], picture: Any) -> Callable[[], Any]:
    """A call that computes the network."""
    compute, _ = compute_and_function(network, picture)
    return lambda: np.asarray(compute()[0])


def compute_and_function(
    network: Callable[[Any, Any], Any], picture: Any
) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """A call of `Device.compute`, and one of the compiled function alone, on arrays that are there."""
    import jax

    layers = InPyDirectML(picture)
    outputs = [network(layers, layers.picture)]
    model = layers.builder.build(layers.dml.ExecutionFlags.NONE, outputs)
    arrays = [jax.device_put(binding._array) for binding in layers.bindings]
    return (
        lambda: layers.device.compute(model, layers.bindings, outputs),
        lambda: jax.block_until_ready(model.function(*arrays)),
    )


# PyTorch, and ONNX Runtime with what PyTorch exports


class InTorch:
    """Layers that are computed, with weights that are drawn the first time and then read in the same order."""

    def __init__(self) -> None:
        import torch

        self.torch, self.functional = torch, torch.nn.functional
        self.weights, self.kept = Weights(), torch.nn.ParameterList()
        self.next = 0

    def of(self, draw: Callable[[], Any]) -> Any:
        if self.next == len(self.kept):
            self.kept.append(self.torch.nn.Parameter(self.torch.from_numpy(draw()), requires_grad=False))
        self.next += 1
        return self.kept[self.next - 1]

    def numbers(self, channels: int, middle: float = 0) -> Any:
        return self.of(lambda: self.weights.numbers(channels, middle).ravel())

    def convolved(
        self,
        x: Any,
        channels: int,
        outputs: int,
        size: int,
        stride: int = 1,
        padding: int = 0,
        groups: int = 1,
        is_rectified: bool = False,
    ) -> Any:
        terms = channels // groups
        filters = self.of(lambda: self.weights.filters(outputs, terms, size, size, terms=terms * size * size))
        y = self.functional.conv2d(x, filters, self.numbers(outputs), stride, padding, 1, groups)
        return self.torch.relu_(y) if is_rectified else y

    def enlarged(self, x: Any, channels: int, outputs: int, size: int) -> Any:
        filters = self.of(
            lambda: self.weights.filters(channels, outputs, size, size, terms=channels * size * size // 4)
        )
        return self.functional.conv_transpose2d(x, filters, self.numbers(outputs), 2, 0, 1)

    def normalized(self, x: Any, channels: int, is_rectified: bool, is_known: bool = False) -> Any:
        numbers = [self.numbers(channels, middle) for middle in (0, 1, 1, 0)[0 if is_known else 2 :]]
        if is_known:
            y = self.functional.batch_norm(x, *numbers, False, 0.0, EPSILON)
        else:
            y = self.functional.instance_norm(x, None, None, *numbers, eps=EPSILON)
        return self.torch.relu_(y) if is_rectified else y

    def pooled(self, x: Any, size: int, stride: int) -> Any:
        return self.functional.max_pool2d(x, size, stride)

    def averaged(self, x: Any, size: int) -> Any:
        return self.functional.avg_pool2d(x, size, 1)

    def joined(self, *parts: Any) -> Any:
        return self.torch.cat(parts, 1)

    def added(self, x: Any, y: Any) -> Any:
        return x + y

    def reflected(self, x: Any, amount: int) -> Any:
        return self.functional.pad(x, [amount] * 4, mode="reflect")

    def cropped(self, x: Any, amount: int) -> Any:
        return x[:, :, amount:-amount, amount:-amount]

    def probabilities(self, x: Any) -> Any:
        return self.torch.softmax(x.flatten(1)[None, None], -1)

    def painted(self, x: Any) -> Any:
        return self.torch.tanh(x) * 150 + 127.5


def as_module(network: Callable[[Any, Any], Any]) -> Any:
    """The network as a module of PyTorch."""
    import torch

    class Module(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = InTorch()
            self.kept = self.layers.kept

        def forward(self, x: Any) -> Any:
            self.layers.next = 0
            return network(self.layers, x)

    return Module().eval()


def in_torch(network: Callable[[Any, Any], Any], picture: Any) -> Callable[[], Any]:
    """A call that computes the network."""
    import torch

    module, x = as_module(network), torch.from_numpy(picture)

    def call() -> Any:
        with torch.inference_mode():
            return module(x).numpy()

    return call


def exported(network: Callable[[Any, Any], Any], picture: Any) -> bytes:
    """The network as an ONNX model that PyTorch writes."""
    import torch

    module, x, file = as_module(network), torch.from_numpy(picture), io.BytesIO()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module(x)  # which draws the weights
        torch.onnx.export(module, (x,), file, dynamo=False, input_names=["x"], opset_version=17)
    return file.getvalue()


def in_onnxruntime(model: bytes, picture: Any) -> Callable[[], Any]:
    """A call that computes the model."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return lambda: session.run(None, {"x": picture})[0]


# Measuring


def picture_of(name: str, batch: int) -> Any:
    """A picture of noise."""
    size = NETWORKS[name][1]
    return np.random.default_rng(SEED + 1).standard_normal((batch, 3, size, size)).astype(np.float32)


def rivals(name: str, batch: int) -> dict[str, Callable[[], Any]]:
    """A call of each rival, whose results were compared."""
    network, picture = NETWORKS[name][0], picture_of(name, batch)
    calls = {
        DMLJAX: in_pydirectml(network, picture),
        TORCH: in_torch(network, picture),
        ONNX: in_onnxruntime(exported(network, picture), picture),
    }
    expected = calls[TORCH]()
    for rival, call in calls.items():
        np.testing.assert_allclose(call(), expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max(), err_msg=rival)
    return calls


def alone(name: str, batch: int, rival: str) -> None:
    """Prints the seconds until the first result, imports not included, and the most memory of this process in MB."""
    network, picture = NETWORKS[name][0], picture_of(name, batch)
    module, make = {DMLJAX: ("dmljax.pydirectml", in_pydirectml), TORCH: ("torch", in_torch)}[rival]
    importlib.import_module(module)
    start = time.perf_counter()
    call = make(network, picture)
    call()
    first = time.perf_counter() - start
    for _ in range(3):
        call()
    # The most that `getrusage` tells begins with what the process that started this one had.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(json.dumps({"first": first, "peak": int(status["VmHWM"].split()[0]) / 1024}))


def in_fresh_process(name: str, batch: int, rival: str) -> dict[str, float]:
    """What `alone` prints."""
    command = [sys.executable, __file__, name, "--batch", str(batch), "--alone", rival]
    finished = subprocess.run(command, capture_output=True, check=True, text=True)
    found: dict[str, float] = json.loads(finished.stdout)
    return found


def compute_overheads(effort: Effort) -> dict[str, float]:
    """Microseconds that `Device.compute` takes beside the compiled function: a network of few numbers, and SqueezeNet.

    The first has as many inputs as SqueezeNet, whose own time varies by more than the difference.
    """
    works = {
        "one sum": (lambda layers, x: layers.added(x, x), np.ones((1, 1, 2, 2), np.float32)),
        "53 inputs": (_sums, np.ones((1, 1, 2, 2), np.float32)),
        "squeezenet": (squeezenet, picture_of("squeezenet", 1)),
    }
    found = {}
    for name, (network, picture) in works.items():
        compute, function = compute_and_function(network, picture)
        seconds = medians({"compute": compute, "function": function}, effort)
        found[name] = (seconds["compute"] - seconds["function"]) * 1e6
    return found


def _sums(layers: Any, x: Any) -> Any:
    for _ in range(52):
        x = layers.added(x, layers.bound(np.ones((1, 1, 2, 2), np.float32)))
    return x


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("networks", nargs="*", choices=[[], *NETWORKS], help="all by default")
    parser.add_argument("--batch", type=int, action="append", help="1 and 8 by default")
    parser.add_argument("--rounds", type=int, default=7, help="of blocks of calls, 7 by default")
    parser.add_argument("--alone", choices=[DMLJAX, TORCH], help=argparse.SUPPRESS)
    given = parser.parse_args()
    names, batches = given.networks or list(NETWORKS), given.batch or [1, 8]
    if given.alone:
        alone(names[0], batches[0], given.alone)
        return
    effort = Effort(rounds=given.rounds, block_seconds=0.1)
    print("`compute` beside the compiled function:", end=" ")
    print(", ".join(f"{name} {value:.0f} us" for name, value in compute_overheads(effort).items()), flush=True)
    columns = ["dmljax, ms", "torch / dmljax", "onnxruntime / dmljax", "first result, s", "peak / torch's"]
    print(f"| network | batch | {' | '.join(columns)} |")
    print("|---|" + "---:|" * 6)
    for name in names:
        for batch in batches:
            seconds = medians(rivals(name, batch), effort)
            own, other = (in_fresh_process(name, batch, rival) for rival in (DMLJAX, TORCH))
            cells = [
                f"{seconds[DMLJAX] * 1e3:.1f}",
                *(f"{seconds[rival] / seconds[DMLJAX]:.2f}" for rival in (TORCH, ONNX)),
                f"{own['first']:.1f}",
                f"{own['peak'] / other['peak']:.2f} ({own['peak']:.0f} MB)",
            ]
            print(f"| {name} | {batch} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
