"""Makes models with fewer of their equal layers, from which the cost of all layers follows."""

from dataclasses import replace
from typing import TypeVar

from dmljax.errors import Problem, Unsupported, within
from dmljax.foundation.checks import integer_in
from dmljax.onnx.equal_layers import Layers, shortened
from dmljax.onnx.file import OnnxGraph
from dmljax.onnx.folder_models import DECODER
from dmljax.onnx.genai import Settings
from dmljax.onnx.language import LanguageModel
from dmljax.onnx.model import Model, graph_in_file, layers_of, part_of

M = TypeVar("M", Model, LanguageModel)


def count_layers(model: Model | LanguageModel) -> int:
    """Counts the equal layers of a model, in its longest sequence of them; 1 if it has none.

    Layers are not always those of the network: an exporter may have written the first or the last in another way.
    """
    layers = _longest(_decoder(model))
    return 1 if layers is None else len(layers.blocks)


def with_layers(model: M, count: int) -> M:
    """Makes a model with only the first `count` of its equal layers, as `count_layers` counts them.

    What follows the last layer reads the results of layer `count` instead. The inputs, outputs and weights that only
    the other layers have are gone, and the rest of the weights are shared. The model is for estimates: kernels, bytes
    and seconds are linear in the number of layers. Do not save it. Where a layer ends with the norm of the next, as in
    models of ONNX Runtime GenAI, the last norm has that layer's weights.
    """
    with within("onnx"):
        decoder = _decoder(model)
        layers = _longest(decoder)
        if layers is None:
            raise Unsupported(Problem("model", "must have equal layers", "none"))
        count = integer_in("count", count, 1, len(layers.blocks))
        graph = shortened(graph_in_file(decoder), layers, count)
        if isinstance(model, Model):
            return part_of(model, graph)
        graph, settings = _renumbered(graph, model.settings)
        return LanguageModel(settings, model.models.by_part | {DECODER: part_of(decoder, graph)})


def _decoder(model: Model | LanguageModel) -> Model:
    return model if isinstance(model, Model) else model.model


def _longest(model: Model) -> Layers | None:
    return max(layers_of(model), key=lambda layers: layers.saved, default=None)


def _renumbered(graph: OnnxGraph, settings: Settings) -> tuple[OnnxGraph, Settings]:
    """The graph with its caches numbered from 0, and the settings with the number of layers that have some."""
    patterns = [pattern for name, pattern in settings.names.items() if name.startswith(("past_", "present_"))]
    left = [i for i in range(settings.layers) if {pattern % i for pattern in patterns} & {*graph.input_names}]
    names = {pattern % old: pattern % new for new, old in enumerate(left) for pattern in patterns if old != new}

    def renamed(some: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(names.get(name, name) for name in some)

    nodes = (replace(node, inputs=renamed(node.inputs), outputs=renamed(node.outputs)) for node in graph.nodes)
    inputs, outputs = (
        tuple(replace(tensor, name=names.get(tensor.name, tensor.name)) for tensor in side)
        for side in (graph.inputs, graph.outputs)
    )
    return replace(graph, nodes=tuple(nodes), inputs=inputs, outputs=outputs), settings._replace(layers=len(left))
