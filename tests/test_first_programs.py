"""Fifteen programs as users might write them on the first try, each compared with plain JAX or NumPy."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from helpers import GATE

import dmljax
import dmljax.onnx
from dmljax import directml


@pytest.fixture(autouse=True)
def jax_as_users_have_it() -> Iterator[None]:
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


MODELS = Path(__file__).parents[1] / "notebooks" / "models"


def random(*shape: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def require_close(result: Any, expected: Any) -> None:
    np.testing.assert_allclose(result, expected, rtol=2e-5, atol=2e-6)


@GATE
def test_tokens_go_to_their_best_two_experts() -> None:
    tokens, router, experts = random(6, 8), random(8, 4, seed=1), random(4, 8, 5, seed=2)

    @jax.jit
    def layer(tokens: Any) -> Any:
        logits = tokens @ router
        scores, best = dmljax.top_k(logits, axis=-1, k=2)
        gates = dmljax.activation_softmax(scores)
        weights = dmljax.gather(experts, best, axis=0)
        load = dmljax.reduce(dmljax.one_hot(best[..., None], jnp.array([0, 1]), axis=-1, depth=4), "sum", axes=(0, 1))
        return jnp.einsum("tkh,tk->th", jnp.einsum("td,tkdh->tkh", tokens, weights), gates), load[0, 0]

    result, load = layer(tokens)
    logits = tokens @ router
    order = np.argsort(-logits, axis=-1)[:, :2]
    gates = jax.nn.softmax(np.take_along_axis(logits, order, 1))
    each = np.einsum("td,edh->teh", tokens, experts)
    require_close(result, np.einsum("tkh,tk->th", np.take_along_axis(each, order[..., None], 1), gates))
    assert load.tolist() == np.bincount(order.ravel(), minlength=4).tolist()


@GATE
def test_attention_is_masked_by_order_and_by_length() -> None:
    query, key, value = random(3, 2, 5, 8)
    lengths = jnp.array([5, 3])

    def attention(query: Any, key: Any, value: Any, length: Any) -> Any:
        places = jnp.arange(5)
        is_before = dmljax.element_wise_logical_greater_than_or_equal(places[:, None], places)
        is_there = dmljax.element_wise_logical_less_than(places, length)
        scores = dmljax.gemm(query, key, transpose_b=True, alpha=8**-0.5)
        mask = dmljax.element_wise_logical_and(is_before, is_there)
        return dmljax.activation_softmax(dmljax.element_wise_if(mask, scores, -jnp.inf)) @ value

    @jax.jit
    def plain(query: Any, key: Any, value: Any) -> Any:
        heads = [operand[:, :, None] for operand in (query, key, value)]
        return jax.nn.dot_product_attention(*heads, is_causal=True, key_value_seq_lengths=lengths.astype("int32"))[
            :, :, 0
        ]

    batched = jax.jit(jax.vmap(attention))
    require_close(batched(query, key, value, lengths), plain(query, key, value))
    attentions = (lambda *operands: batched(*operands, lengths)), plain
    grads, expected_grads = (
        jax.jit(
            jax.grad(lambda *operands, attention=attention: jnp.sin(attention(*operands)).sum(), argnums=(0, 1, 2))
        )(query, key, value)
        for attention in attentions
    )
    for grad, expected in zip(grads, expected_grads, strict=True):
        require_close(grad, expected)


def test_a_beam_search_runs_in_a_scan() -> None:
    beams, vocabulary, steps = 3, 7, 5
    transitions = random(vocabulary, vocabulary)

    def step(state: Any, i: Any) -> Any:
        sequences, scores = state
        last = jnp.where(i == 0, 0, sequences[:, i - 1])
        logits = dmljax.gather(transitions, last, axis=0)
        total = scores[:, None] + dmljax.activation_log_softmax(logits)
        scores, places = dmljax.top_k(total.reshape(-1), axis=0, k=beams)
        parent, token = places // vocabulary, places % vocabulary
        sequences = dmljax.gather(sequences, parent, axis=0).at[:, i].set(token)
        return (sequences, scores), None

    start = jnp.zeros((beams, steps), jnp.int32), jnp.array([0, -jnp.inf, -jnp.inf])
    (sequences, scores), _ = jax.jit(lambda start: jax.lax.scan(step, start, jnp.arange(steps)))(start)

    logs = np.asarray(jax.nn.log_softmax(transitions))
    best = [(0.0, [0])]
    for _ in range(steps):
        longer = [
            (score + logs[path[-1], token], [*path, token]) for score, path in best for token in range(vocabulary)
        ]
        best = sorted(longer, key=lambda beam: -beam[0])[:beams]
    assert sequences.tolist() == [path[1:] for _, path in best]
    require_close(scores, [score for score, _ in best])


@GATE
def test_the_largest_gradients_are_sent_and_the_rest_accumulates() -> None:
    gradient = random(4, 6)

    @jax.jit
    def compress(gradient: Any) -> Any:
        values, _ = dmljax.top_k(jnp.abs(gradient).reshape(-1), axis=0, k=5)
        is_large = dmljax.element_wise_logical_greater_than_or_equal(jnp.abs(gradient), values[-1])
        count, coordinates = dmljax.nonzero_coordinates(is_large, size=8, fill_value=-1)
        sent = dmljax.gather_nd(gradient, jnp.maximum(coordinates, 0))
        return count, coordinates, jnp.where(jnp.arange(8) < count, sent, 0)

    count, coordinates, sent = compress(gradient)
    used = coordinates[:count]
    rebuilt = dmljax.scatter_nd(jnp.zeros_like(gradient), used, sent[:count])
    is_large = np.abs(gradient) >= np.sort(np.abs(gradient).ravel())[-5]
    assert int(count) == 5
    assert coordinates[count:].tolist() == [[-1, -1]] * 3
    assert rebuilt.tolist() == np.where(is_large, gradient, 0).tolist()
    assert gradient[~is_large].tolist() == np.asarray(gradient - rebuilt)[~is_large].tolist()


def test_a_classifier_learns_from_smoothed_labels() -> None:
    x, weights = random(16, 5), jnp.zeros((5, 3))
    labels = jnp.arange(16) % 3

    def loss(weights: Any) -> Any:
        smooth = dmljax.one_hot(labels[:, None], jnp.array([0.1 / 3, 0.9 + 0.1 / 3]), axis=-1, depth=3)
        return -(smooth * dmljax.activation_log_softmax(x @ weights)).sum(axis=-1).mean()

    def plain(weights: Any) -> Any:
        smooth = optax.smooth_labels(jax.nn.one_hot(labels, 3), 0.1)
        return optax.softmax_cross_entropy(x @ weights, smooth).mean()

    step, plain_step = (
        jax.jit(lambda weights, loss=loss: weights - 0.5 * jax.grad(loss)(weights)) for loss in (loss, plain)
    )
    expected = weights
    for _ in range(5):
        weights, expected = step(weights), plain_step(expected)
    require_close(weights, expected)


@GATE
def test_an_image_becomes_a_batch_of_patches() -> None:
    image = np.random.default_rng(0).integers(0, 256, (40, 36, 3), np.uint8)
    mean, deviation = np.array([0.5, 0.4, 0.3], np.float32), np.array([0.2, 0.3, 0.4], np.float32)

    @jax.jit
    def prepare(image: Any) -> Any:
        x = dmljax.cast(image, dtype="float32") / 255
        x = x.transpose(2, 0, 1)[None]
        x = dmljax.slice(x, starts=(0, 0, 4, 2), sizes=(1, 3, 32, 32))
        x = dmljax.resample2(x, scales=(1, 1, 0.5, 0.5), interpolation_mode="linear")
        x = dmljax.batch_normalization(x, mean, deviation**2, epsilon=0)
        return dmljax.space_to_depth(x, block_size=4)

    cropped = image[4:36, 2:34].astype(np.float32) / 255
    small = jax.image.resize(cropped, (16, 16, 3), "linear", antialias=False)
    normal = (small - mean) / deviation
    patches = normal.reshape(4, 4, 4, 4, 3).transpose(1, 3, 4, 0, 2).reshape(1, 48, 4, 4)
    require_close(prepare(image), patches)


def test_a_quantized_layer_is_trained_through_its_rounding() -> None:
    x, weights = random(8, 6), jnp.asarray(random(6, 4, seed=1))
    scale = jnp.float32(0.05)

    def fake(weights: Any) -> Any:
        q = dmljax.element_wise_quantize_linear(weights, scale, jnp.int8(0))
        back = dmljax.element_wise_dequantize_linear(q, scale, jnp.int8(0))
        return weights + jax.lax.stop_gradient(back - weights)

    grad = jax.jit(jax.grad(lambda weights: jnp.square(x @ fake(weights)).sum()))(weights)
    rounded = np.clip(np.round(weights / scale), -128, 127) * 0.05
    np.testing.assert_allclose(grad, 2 * x.T @ (x @ rounded), rtol=1e-4, atol=1e-4)

    q = dmljax.element_wise_quantize_linear(weights, scale, jnp.int8(0))
    quantized, x_scale, x_zero = dmljax.dynamic_quantize_linear(x)
    result = dmljax.matrix_multiply_integer_to_float(quantized, q, a_scale=x_scale, a_zero_point=x_zero, b_scale=scale)
    about = (np.asarray(quantized).astype(np.float32) - float(x_zero)) * float(x_scale)
    require_close(result, about @ rounded)
    np.testing.assert_allclose(result, x @ rounded, atol=0.1)


@GATE
def test_causal_attention_is_mapped_over_examples_and_differentiated() -> None:
    query, key, value = random(3, 4, 6, 16)

    def loss(query: Any, key: Any, value: Any) -> Any:
        return dmljax.multihead_attention(query[None], key[None], value[None], head_count=2, is_causal=True).sum()

    def plain(query: Any, key: Any, value: Any) -> Any:
        heads = (x.reshape(6, 2, 8) for x in (query, key, value))
        return jax.nn.dot_product_attention(*heads, is_causal=True).sum()

    actual, expected = (
        jax.jit(jax.vmap(jax.grad(function, argnums=(0, 1, 2))))(query, key, value) for function in (loss, plain)
    )
    for grad, other in zip(actual, expected, strict=True):
        require_close(grad, other)


@GATE
def test_a_tree_of_parameters_takes_a_step_of_adam() -> None:
    parameters = {"w": random(3, 2), "b": random(2)}
    zeros, grads = jax.tree.map(jnp.zeros_like, parameters), jax.tree.map(jnp.cos, parameters)

    @jax.jit
    def update(parameters: Any, first: Any, second: Any, grads: Any) -> Any:
        results = jax.tree.map(
            lambda p, m, v, g: dmljax.adam_optimizer(
                p, m, v, g, 1, learning_rate=1e-3, beta1=0.9, beta2=0.999, epsilon=1e-8
            ),
            *(parameters, first, second, grads),
        )
        return jax.tree.map(lambda result: result.parameters, results, is_leaf=lambda node: hasattr(node, "parameters"))

    adam = optax.adam(1e-3)
    steps, _ = adam.update(grads, adam.init(parameters))
    jax.tree.map(require_close, update(parameters, zeros, zeros, grads), optax.apply_updates(parameters, steps))


def test_weights_of_4_bits_in_blocks_are_multiplied() -> None:
    weights, x = random(64, 32), random(1, 32, seed=1)
    scale = np.abs(weights.reshape(64, 2, 16)).max(-1) / 7
    codes = dmljax.quantize(weights, scale, dtype=jnp.int4)
    result = jax.jit(lambda x, codes, scale: dmljax.gemm(x, dmljax.dequantize(codes, scale), transpose_b=True))(
        x, codes, scale
    )
    wide = np.repeat(scale, 16, axis=1)
    np.testing.assert_allclose(result, x @ (np.round(weights / wide) * wide).T, rtol=1e-4, atol=1e-4)


def test_tokens_learn_their_places_in_the_queues_of_experts() -> None:
    logits = random(6, 3)

    @jax.jit
    def places(logits: Any) -> Any:
        choice = dmljax.activation_hardmax(logits)
        before = dmljax.cumulative_summation(choice, axis=0, has_exclusive_sum=True)
        return dmljax.reduce(before * choice, "sum", axes=1)[:, 0]

    experts = logits.argmax(1)
    assert places(logits).tolist() == [int((experts[:i] == expert).sum()) for i, expert in enumerate(experts)]


def test_a_descriptor_with_a_fused_activation_is_lowered() -> None:
    image, filters, bias = random(1, 3, 8, 8), random(4, 3, 3, 3, seed=1), random(1, 4, 1, 1, seed=2)
    x, w, b, y = (
        directml.TensorDesc("FLOAT32", sizes) for sizes in (image.shape, filters.shape, bias.shape, (1, 4, 8, 8))
    )
    convolve = directml.lower(
        directml.ConvolutionDesc(
            input=x,
            filter=w,
            bias=b,
            output=y,
            mode="CROSS_CORRELATION",
            direction="FORWARD",
            strides=(1, 1),
            dilations=(1, 1),
            start_padding=(1, 1),
            end_padding=(1, 1),
            output_padding=(0, 0),
            group_count=1,
            fused_activation=directml.ActivationReluDesc(),
        )
    )
    plain = jax.lax.conv_general_dilated(image, filters, (1, 1), [(1, 1)] * 2) + bias
    np.testing.assert_allclose(jax.jit(convolve)(image, filters, bias), jax.nn.relu(plain), rtol=1e-4, atol=1e-4)


def test_a_graph_of_a_cpp_program_is_written_in_python() -> None:
    # DML_GEMM_OPERATOR_DESC with a fused ReLU, and a DML_REDUCE_OPERATOR_DESC after it
    x = directml.TensorDesc("FLOAT32", (1, 1, 2, 3))
    w = directml.TensorDesc("FLOAT32", (1, 1, 3, 4))
    y = directml.TensorDesc("FLOAT32", (1, 1, 2, 4))
    total = directml.TensorDesc("FLOAT32", (1, 1, 2, 1))
    gemm = directml.GemmDesc(
        a=x,
        b=w,
        output=y,
        trans_a="NONE",
        trans_b="NONE",
        alpha=1.0,
        beta=0.0,
        fused_activation=directml.ActivationReluDesc(),
    )
    best = directml.ReduceDesc(input=y, output=total, function="SUM", axes=(3,))
    graph = directml.Graph(
        inputs={"x": x, "w": w},
        nodes={"gemm": gemm, "best": best},
        edges={"gemm.a": "x", "gemm.b": "w", "best.input": "gemm.output"},
        outputs={"y": "gemm.output", "total": "best.output"},
    )
    directml.validate(graph, "FL_6_4")
    inputs = random(1, 1, 2, 3), random(1, 1, 3, 4, seed=1)
    results = directml.lower(graph)(*inputs)
    expected = np.maximum(inputs[0] @ inputs[1], 0)
    require_close(results["y"], expected)
    require_close(results["total"], expected.sum(axis=3, keepdims=True))


@GATE
def test_a_program_of_pydirectml_is_written_from_memory() -> None:
    import dmljax.pydirectml as pydirectml

    device = pydirectml.Device(True, False)
    builder = pydirectml.GraphBuilder(device)
    image = pydirectml.input_tensor(builder, 0, pydirectml.TensorDesc(pydirectml.TensorDataType.FLOAT32, [1, 2, 5, 5]))
    filters = pydirectml.input_tensor(
        builder, 1, pydirectml.TensorDesc(pydirectml.TensorDataType.FLOAT32, [3, 2, 3, 3])
    )
    head = pydirectml.input_tensor(builder, 2, pydirectml.TensorDesc(pydirectml.TensorDataType.FLOAT32, [1, 1, 12, 4]))
    convolved = pydirectml.convolution(
        image,
        filters,
        strides=[1, 1],
        start_padding=[1, 1],
        end_padding=[1, 1],
        fused_activation=pydirectml.FusedActivation(pydirectml.OperatorType.ACTIVATION_RELU),
    )
    pooled = pydirectml.max_pooling(convolved, window_sizes=[2, 2], strides=[2, 2]).values
    flat = pydirectml.reinterpret(pooled, pydirectml.TensorDataType.FLOAT32, [1, 1, 1, 12], [12, 12, 12, 1])
    scored = pydirectml.activation_soft_max(pydirectml.gemm(flat, head))
    operator = builder.build(pydirectml.ExecutionFlags.NONE, [scored])
    x, w, h = random(1, 2, 5, 5), random(3, 2, 3, 3, seed=1), random(1, 1, 12, 4, seed=2)
    bindings = [pydirectml.Binding(image, x), pydirectml.Binding(filters, w), pydirectml.Binding(head, h)]
    outputs = device.compute(operator, bindings, [scored])
    actual = np.array(outputs[0], np.float32)

    plain = jax.nn.relu(jax.lax.conv(jnp.asarray(x), jnp.asarray(w), (1, 1), "SAME"))
    largest = jax.lax.reduce_window(plain, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    require_close(actual.reshape(1, 4), jax.nn.softmax(largest.reshape(1, 12) @ h[0, 0]))


def test_an_onnx_model_is_tuned_with_optax() -> None:
    model = dmljax.onnx.load(MODELS / "dense.onnx")
    x, target = jnp.asarray(random(32, 2)), jnp.asarray(random(32, 3, seed=1))
    optimizer = optax.adam(1e-2)

    def tuned(apply: Any, weights: Any) -> Any:
        state = optimizer.init(weights)

        @jax.jit
        def step(weights: Any, state: Any) -> Any:
            loss, grad = jax.value_and_grad(lambda weights: jnp.square(apply(weights, x) - target).mean())(weights)
            updates, state = optimizer.update(grad, state)
            return optax.apply_updates(weights, updates), state, loss

        losses = []
        for _ in range(10):
            weights, state, loss = step(weights, state)
            losses.append(float(loss))
        return weights, losses

    weights, losses = tuned(model.apply, model.weights)
    expected, plain_losses = tuned(lambda weights, x: jax.nn.relu(x @ weights["w"] + weights["b"]), model.weights)
    assert losses[-1] < losses[0]
    require_close(losses, plain_losses)
    for name, value in expected.items():
        require_close(weights[name], value)
