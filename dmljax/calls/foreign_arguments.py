"""Maps the names of arguments in other libraries to those of dmljax."""

import inspect
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from dmljax.text import join_words

_PADDINGS = ("start_padding", "end_padding")
_KEY_HEADS = "num_kv_heads kv_num_heads num_key_value_heads kv_head_count kv_heads n_kv_heads"
_DROPOUT = "dropout dropout_p dropout_rate dropout_rng is_training training train deterministic"

# From the name of an argument in other libraries to what dmljax may call it; names in a tuple are used together.
_CALLED_HERE: dict[str, tuple[tuple[str, ...], ...]] = {
    **dict.fromkeys(("axis", "axes", "dim", "dims", "dimension"), (("axis",), ("axes",))),
    **dict.fromkeys(("level", "dml_feature_level", "minimum_feature_level"), (("feature_level",),)),
    **dict.fromkeys(("output_folder", "output_dir", "folder"), (("output_path",),)),
    **dict.fromkeys(("shape", "new_shape", "out_shape", "output_shape", "size"), (("output_sizes",), ("sizes",))),
    **dict.fromkeys(("begin", "start", "start_indices", "offset", "offsets"), (("starts",), ("value_start",))),
    **dict.fromkeys(
        ("kernel_size", "kernel_shape", "ksize", "window", "window_shape", "window_dimensions"), (("window_sizes",),)
    ),
    **dict.fromkeys(("stride", "window_strides"), (("strides",),)),
    **dict.fromkeys(("dilation", "rhs_dilation", "kernel_dilation", "window_dilation"), (("dilations",),)),
    **dict.fromkeys(("groups", "num_groups", "feature_group_count"), (("group_count",),)),
    **dict.fromkeys(("num_heads", "n_heads", "heads", "num_query_heads"), (("head_count",), ("query_head_count",))),
    "head_count": (("query_head_count",),),
    **dict.fromkeys(_KEY_HEADS.split(), (("key_value_head_count",),)),
    **dict.fromkeys(("x", "operand", "arr", "array"), (("input",), ("a",))),
    **dict.fromkeys(("y", "other"), (("b",),)),
    **dict.fromkeys(("kernel", "rhs", "weight", "weights", "w"), (("filter",), ("weight",), ("scale",))),
    **dict.fromkeys(("gamma", "scales"), (("scale",), ("scales",))),
    **dict.fromkeys(("beta",), (("bias",),)),
    "b1": (("beta1",),),
    "b2": (("beta2",),),
    **dict.fromkeys(("eps",), (("epsilon",),)),
    **dict.fromkeys(("var",), (("variance",),)),
    **dict.fromkeys(("reps", "multiples"), (("repeats",),)),
    "select_last_index": (("axis_direction",),),
    **dict.fromkeys(("exclusive",), (("has_exclusive_sum",), ("has_exclusive_product",))),
    **dict.fromkeys(("attn_mask", "attention_mask"), (("mask",),)),
    **dict.fromkeys(("causal",), (("is_causal",),)),
    **dict.fromkeys(("attn_bias", "attention_bias", "position_bias"), (("relative_position_bias",),)),
    **dict.fromkeys(("q",), (("query",),)),
    "k": (("key",),),
    **dict.fromkeys(("v",), (("value",),)),
    **dict.fromkeys(("pred", "cond"), (("condition",),)),
    **dict.fromkeys(("method", "mode"), (("interpolation_mode",), ("padding_mode",))),
    **dict.fromkeys(("constant_values", "constant_value", "pad_value"), (("padding_value",),)),
    **dict.fromkeys(("key", "rng", "rngs", "state"), (("input_state",),)),
    **dict.fromkeys(("seed", "random_seed", "generator"), (("input_state",), ("key",))),
    **dict.fromkeys(("input_ids", "inputs", "prompt", "tokens"), (("prompts",),)),
    **dict.fromkeys(("past_key_values", "cache"), (("state",),)),
    **dict.fromkeys(("output_folder", "output_dir", "out_dir"), (("output_path",),)),
    "input_features": (("audio",),),
    "pixel_values": (("images",),),
    "num_inference_steps": (("steps",),),
    "guidance_scale": (("guidance",),),
    "negative_prompt": (("negative",),),
    "dtype": (("data_type",),),
    "act": (("fused_activation",),),
    "activation": (("fused_activation",), ("activations",)),
    **dict.fromkeys(("negative_slope", "slope"), (("alpha",),)),
    **dict.fromkeys(("scale_factor", "scale_factors"), (("scales",), ("scale_size",))),
    "max_value": (("max",),),
    "min_value": (("min",),),
    "a_max": (("max",),),
    "a_min": (("min",),),
    "block_shape": (("block_size",),),
    "fill": (("fill_value",), ("value",)),
    "fun": (("function",),),
    "index": (("indices",),),
    "num_classes": (("depth",),),
    "on_value": (("values",),),
    "off_value": (("values",),),
    "out_type": (("dtype",),),
    "sizes": (("output_sizes",),),
    "return_indices": (("has_indices",),),
    "pad_width": (_PADDINGS,),
    "pads": (_PADDINGS,),
    "padding": (_PADDINGS,),
    "p": (("padding_value",),),
}

# Arguments of other libraries; the function, or parameters of all functions, that take something else; and the remedy.
_REMEDIES = (
    (
        f"{_KEY_HEADS} key_value_head_count",
        "multihead_attention",
        "multihead_attention1(query, key, value, query_head_count=8, key_value_head_count=2) has fewer heads of keys",
    ),
    (
        "query_head_count num_query_heads",
        "multihead_attention",
        "head_count=8 if keys have as many heads; multihead_attention1 takes query_head_count",
    ),
    (
        "softcap logit_softcap logits_soft_cap attn_logits_soft_cap",
        "mask_filter_value",
        "write it out: gemm(softmax(cap * jnp.tanh(gemm(query, key, transpose_b=True) / cap)), value)",
    ),
    (
        "local_window_size sliding_window window_size",
        "mask_filter_value",
        "a band hides far keys: mask=jnp.abs(jnp.arange(queries)[:, None] - jnp.arange(keys)) <= size",
    ),
    (
        "segment_ids q_segment_ids query_segment_ids",
        "mask_filter_value",
        "mask=segments[:, None, :, None] == segments[:, None, None, :]",
    ),
    (
        "query_seq_lengths key_value_seq_lengths seq_lengths sequence_lengths lengths kv_lengths",
        "mask_filter_value mask_type",
        "mask=lengths, mask_type='key_sequence_length'",
    ),
    (
        "is_training training train use_running_average",
        "mean variance",
        "batch_normalization_training learns from batches",
    ),
    (
        _DROPOUT,
        "",
        "there is no dropout; x * jax.random.bernoulli(key, 1 - rate, x.shape) / (1 - rate) drops elements of x",
    ),
    (
        "axis axes dim",
        "activation_softmax",
        "softmax is over the last axis; activation_softmax1(x, axes=0) takes others",
    ),
    (
        "axis axes dim",
        "activation_log_softmax",
        "log_softmax is over the last axis; activation_log_softmax1(x, axes=0) takes others",
    ),
    ("title titles name label labels", "arrays results columns", 'show({"relu": x}) titles an array'),
    ("where mask", "activation_softmax", "softmax(jnp.where(mask, x, -jnp.inf)) leaves elements out"),
    ("where mask", "activation_log_softmax", "log_softmax(jnp.where(mask, x, -jnp.inf)) leaves elements out"),
    ("where mask", "function input axes", "reduce(jnp.where(mask, x, 0), 'sum') leaves elements out"),
    (
        "initial",
        "function input axes",
        "reduce(x, 'max') of no elements is an error; jnp.max(x, initial=0) takes a first value",
    ),
    (
        "approximate",
        "activation_gelu",
        "it computes the error function; jax.nn.gelu(x, approximate=True) approximates it",
    ),
    ("inplace out", "", "arrays never change; the result is a new one"),
    (
        "dimension_numbers data_format",
        "start_padding",
        "images are (N, C, H, W): jnp.transpose(images, (0, 3, 1, 2)); filters are (out, in, H, W): "
        "jnp.transpose(kernel, (3, 2, 0, 1))",
    ),
    ("axis axes channel_axis", "mean variance", "channels are axis 1: jnp.moveaxis(x, -1, 1) moves the last there"),
    (
        "groups num_groups group_count",
        "normalize_variance",
        "mean_variance_normalization2(x.reshape(batch, groups, -1), axes=-1).reshape(x.shape)",
    ),
    ("lhs_dilation", "output_padding", "direction='backward' with strides is the transposed convolution"),
    ("preferred_element_type", "precision", "cast the arrays first: cast(x, dtype=jnp.float32)"),
    ("batch_first time_major", "recurrence", "steps come first: jnp.swapaxes(x, 0, 1)"),
    (
        "num_layers bidirectional",
        "recurrence direction",
        "direction='bidirectional' is both; call it again for each layer",
    ),
    ("largest descending", "top_k", "top_k1(x, k=k, axis_direction='increasing') selects the smallest"),
    ("sorted", "axis k", "the elements are always sorted"),
    (
        "block_size group_size",
        "scale zero_point",
        "a scale for each block: scale=jnp.ones((*x.shape[:-1], x.shape[-1] // 2))",
    ),
    ("bits num_bits", "scale zero_point dtype", "dtype='int8', 'uint8', 'int4' or 'uint4' says the number of bits"),
    ("dtype", "load", "a model keeps its types; model.apply(weights, x) takes weights that you have cast"),
    ("batch batch_size", "load", "each call has its own batch: model(x)"),
    (
        "device devices providers execution_providers platform backend",
        "load",
        "it computes where the arrays are: model(jax.device_put(x, jax.devices()[0]))",
    ),
    (
        "input_shapes shapes shape dynamic_axes",
        "load",
        "sizes are those of the arrays; model.graph(shapes) takes sizes",
    ),
    (
        "batch batch_size input_shapes shapes shape",
        "estimate",
        "give arrays or their types: jax.ShapeDtypeStruct((8, 2), 'float32')",
    ),
    ("chip device platform backend", "estimate", "target='h100' names the chip"),
    (
        "max_new_tokens max_tokens",
        "max_length do_sample",
        "max_length counts the prompt: max_length=len(prompt) + 20 adds at most 20 tokens",
    ),
    ("min_new_tokens", "min_length do_sample", "min_length counts the prompt: min_length=len(prompt) + 20"),
    ("num_beam_groups diversity_penalty", "num_beams", "beams form no groups: num_beams=4 keeps the four best"),
    ("num_return_sequences n num_images_per_prompt", "prompts", "give the prompt several times, in a list"),
    ("attention_mask padding_side pad_token_id", "do_sample", "prompts may differ in length: prompts=[[1, 2], [3]]"),
    (
        "eos_token_id stop stop_strings stopping_criteria",
        "do_sample",
        "the folder's genai_config.json has the end tokens; a loop over stream may stop anywhere",
    ),
    ("streamer stream", "do_sample", "stream gives tokens as they come"),
    ("use_cache", "do_sample", "caches are always used"),
    ("generation_config", "do_sample", "give its fields by name, such as max_length=100"),
    ("typical_p min_p epsilon_cutoff eta_cutoff", "do_sample", "top_k and top_p leave out unlikely tokens"),
    ("logits_processor logit_bias bad_words_ids", "do_sample", "a stream's logits may be set before each token"),
    ("output_scores output_logits return_dict_in_generate", "do_sample", "the method logits scores tokens"),
    ("keepdim keepdims", "", "the result keeps each dimension; jnp.squeeze removes those of size 1"),
    ("end ends stop limit_indices", "sizes", "sizes are numbers of elements, such as end - start"),
    (
        "output_sizes output_size output_shape",
        "ceil_mode",
        "sizes follow from the windows; ceil_mode=True rounds them up instead of down",
    ),
    (
        "output_sizes split split_sizes split_size_or_sections indices_or_sections sections num_outputs num_splits",
        "sizes axis",
        "sizes lists the size of each part along axis, such as (2, 2, 4)",
    ),
    ("hidden_size hidden_units", "recurrence", "the last size of recurrence is the hidden size"),
    ("reverse", "axis axis_direction", "axis_direction='decreasing' begins at the end"),
    ("largest descending", "k axis_direction", "axis_direction='increasing' selects the smallest"),
    (
        "axis",
        "scale zero_point",
        "scale and zero_point broadcast: scale.reshape(-1, 1, 1) has one number for each channel of (N, C, H, W)",
    ),
)

# Missing arguments; the function, or parameters of all functions, that need them; and what to give.
_GIVE = (
    ("batch_indices", "roi", "batch_indices=jnp.zeros(len(roi), int) takes all regions from the first image"),
    ("variance", "mean", "batch_normalization_training computes mean and variance"),
    ("function", "reduce", "reduce(x, 'sum') adds up all elements; 'average', 'max', 'min' and 'l2' are others"),
    ("axes", "", "axes=-1 is the last dimension, axes=range(x.ndim) all of them"),
    ("axis", "", "axis=0 is the first dimension, axis=-1 the last"),
    ("values", "depth", "values=jnp.array([0.0, 1.0]) gives the off and on values"),
    ("filter input_zero_point", "convolution_integer", "convolution_integer(x, None, filter) has no zero points"),
    (
        "start_padding end_padding",
        "padding_value",
        "start_padding=(0, 0, 1, 1), end_padding=(0, 0, 1, 1) is ((0, 0), (0, 0), (1, 1), (1, 1)) of jnp.pad",
    ),
    ("depth", "indices", "one_hot(indices[..., None], jnp.array([0.0, 1.0]), depth=3) has three classes"),
    ("head_count", "", "head_count=8 splits the last dimension into 8 heads"),
    (
        "query_head_count",
        "",
        "query_head_count=8, key_value_head_count=2 lets four heads of queries share each of keys",
    ),
    ("scale", "quantize", "scale=jnp.max(jnp.abs(x)) / 127, dtype='int8' keeps the signs; without dtype, it is uint8"),
    ("scale", "element_wise_quantize_linear", "scale=jnp.max(jnp.abs(x)) / 127, dtype='int8' keeps the signs"),
    ("window_sizes", "", "window_sizes=2, strides=2 halves an image"),
    ("target", "estimate", "target='h100' names the chip"),
    ("mesh", "", "mesh=jax.make_mesh((jax.device_count(),), ('model',)) has all devices"),
    ("loaded weights", "Model", "dmljax.onnx.load(path) reads a model"),
    ("weights", "Model.apply", "model.apply(model.weights, x) computes with the model's own"),
    ("path", "Model.save", "model.save('model.onnx') writes it"),
    ("source", "load", "dmljax.onnx.load('model.onnx')"),
    ("key", "Model.with_low_rank", "key=jax.random.key(0)"),
)


def remedy_for(
    name: str,
    function: str,
    signature: inspect.Signature,
    twins: Mapping[str, inspect.Signature],
    arguments: Mapping[str, Any],
) -> str | None:
    """Returns what to write instead of an argument that a function does not take; None if no hint applies.

    `twins` are the functions for other versions of the operator, which may take it.
    """
    parameters = signature.parameters
    remedy = next(_remedies(_REMEDIES, name, function, parameters), None)
    if remedy:
        return remedy
    if str(arguments.get(name)).upper() in ("SAME", "VALID") and set(_PADDINGS) <= {*parameters}:
        return _remedy_for_padding(arguments[name])
    matches = next(_names_here(name, parameters), None)
    if matches:
        return f"did you mean {join_words(matches)} for {name}?"
    for twin, other in twins.items():
        twin_names = (name,) if name in other.parameters else next(_names_here(name, other.parameters), None)
        if twin_names:
            return f"{twin} takes {join_words(twin_names)}"
    plain = name.replace("_", "").lower()
    equal = [parameter for parameter in parameters if parameter.replace("_", "").lower() == plain]
    longer = [parameter for parameter in parameters if parameter.startswith(f"{name}_")]
    near = equal or longer or get_close_matches(name.lower(), parameters, n=1)
    return f"did you mean {join_words(near)} for {name}?" if near else None


def _remedies(
    table: Iterable[tuple[str, str, str]], name: str, function: str, parameters: Container[str]
) -> Iterator[str]:
    """The remedies of a table for an argument of a function."""
    for names, required, remedy in table:
        if name in names.split() and all(key == function or key in parameters for key in required.split()):
            yield remedy


def _names_here(name: str, parameters: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    return (names for names in _CALLED_HERE.get(name, ()) if set(names) <= parameters.keys())


def _remedy_for_padding(mode: str) -> str:
    if mode.upper() == "SAME":
        return (
            "with strides=1, SAME is start_padding=(size - 1) // 2, end_padding=size // 2 for windows of that size; "
            "with others, "
            "start_padding, end_padding = zip(*jax.lax.padtype_to_pads(x.shape[2:], window, strides, 'SAME'))"
        )
    return "VALID is start_padding=0, end_padding=0, the default"


def remedy_for_missing(names: Sequence[str], function: str, signature: inspect.Signature) -> str | None:
    """Returns what to give for arguments that were left out; None if no hint applies."""
    remedies = (next(_remedies(_GIVE, name, function, signature.parameters), None) for name in names)
    return "; ".join(dict.fromkeys(filter(None, remedies))) or None
