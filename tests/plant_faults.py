"""Shows that the tests bite: plants one fault at a time in a copy of dmljax, and sees the tests catch each.

Run `python tests/plant_faults.py`; `python tests/plant_faults.py narrow bands` plants only what these words match.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

TESTS = Path(__file__).parent
PACKAGE = TESTS.parent / "dmljax"


@dataclass(frozen=True)
class Fault:
    """A change of one place in one module, which some test in `tests` must notice."""

    what: str
    module: str
    right: str
    wrong: str
    tests: str
    x64: bool = True


INDEXING, GENERATION, REDUCTION = "ops/indexing.py", "ops/generation.py", "ops/reduction.py"
ELEMENTARY, ARITHMETIC, CLIPPING = "ops/elementary.py", "ops/arithmetic.py", "ops/clipping.py"
MOVEMENT, ON_MOVEMENT = "ops/movement.py", "ops/test_movement.py"
LOGIC, BITS, QUANTIZATION, ACTIVATION = "ops/logic.py", "ops/bitwise.py", "ops/quantization.py", "ops/activation.py"
ON_ELEMENTARY, ON_ARITHMETIC, ON_CLIPPING = "ops/test_elementary.py", "ops/test_arithmetic.py", "ops/test_clipping.py"
ON_LOGIC, ON_BITS, ON_QUANTIZATION = "ops/test_logic.py", "ops/test_bitwise.py", "ops/test_quantization.py"
ON_INDEXING, ON_GENERATION = "ops/test_indexing.py", "ops/test_generation.py"
ON_ACTIVATION, ON_REDUCTION, ON_SOFTMAX = "ops/test_activation.py", "ops/test_reduction.py", "ops/test_softmax.py"
ON_SHARDING, ON_FUSION = "test_sharding.py", "test_fusion.py"
ON_ACCURACY, ON_DERIVATIVES = "test_accuracy.py", "test_derivatives.py"
ON_FUNCTION, ON_TENSOR, ON_OPERATOR, ON_EVERY = (
    "calls/test_calls.py",
    "test_tensor.py",
    "descriptors/test_descriptors.py",
    "test_every_operator.py",
)
EXACT = "numerics/exact.py"
CONVERSION, SEQUENCE = "numerics/conversion.py", "numerics/sequence.py"
EXECUTION = "dxdispatch/execution.py"
ON_DXDISPATCH, ON_EXECUTION = "dxdispatch/test_dxdispatch.py", "dxdispatch/test_execution.py"
ON_JSON, ON_CLI = "dxdispatch/test_json.py", "test_command_line.py"
JSON, FILES = "dxdispatch/text.py", "dxdispatch/files.py"
ON_MEMBERS = "descriptors/test_members.py"
ON_GROWTH, ON_ERRORS = "dxdispatch/test_growth.py", "test_errors.py"

FAULTS = [
    Fault(
        "the last of several equal elements is hot",
        "numerics/along_axes.py",
        "none), axes, largest=last)",
        "-1 - none), axes, largest=True)",
        ON_SOFTMAX,
    ),
    Fault(
        "the direction of a tie is ignored",
        "numerics/along_axes.py",
        "none), axes, largest=last)",
        "none), axes, largest=False)",
        ON_REDUCTION,
    ),
    Fault(
        "the end of a row is not looked at",
        "numerics/along_axes.py",
        "for start in range(0, size, width))",
        "for start in range(0, size - width + 1, width))",
        ON_SOFTMAX,
    ),
    Fault(
        "a short row is looked at from the wrong end",
        "numerics/along_axes.py",
        "reversed(range(size)) if last",
        "reversed(range(size)) if not last",
        ON_REDUCTION,
    ),
    Fault(
        "axes count in the order they are listed in",
        "calls/arrays.py",
        "sorted(normal_axis",
        "list(normal_axis",
        ON_SOFTMAX,
    ),
    Fault("subnormals count as zero", "numerics/floats.py", "return _magnitude(x) != 0", "return x != 0", ON_INDEXING),
    Fault("subnormals are all equal", "numerics/floats.py", "if x.dtype not in FLOATS:", "if True:", ON_SOFTMAX),
    Fault(
        "-0 is less than +0",
        "numerics/floats.py",
        "-magnitude if zeros_are_equal else ~magnitude",
        "~magnitude",
        ON_SOFTMAX,
    ),
    Fault(
        "NaN is ordered by its sign",
        "numerics/floats.py",
        "magnitude > _infinity(x),",
        "magnitude > magnitude,",
        ON_SOFTMAX,
    ),
    Fault(
        "NaN is not the smallest",
        "numerics/along_axes.py",
        "keys = sort_keys(input, nan_is_largest=largest)\n    extreme",
        "keys = sort_keys(input, nan_is_largest=True)\n    extreme",
        ON_REDUCTION,
    ),
    Fault(
        "signalling NaN are quietened", "numerics/floats.py", "floats[0].dtype == jnp.bfloat16", "False", ON_INDEXING
    ),
    Fault(
        "unsigned indices are read as signed",
        INDEXING,
        "limits = np.iinfo(indices.dtype)",
        'indices = indices.astype(f"int{indices.dtype.itemsize * 8}")\n    limits = np.iinfo(indices.dtype)',
        ON_INDEXING,
    ),
    Fault(
        "negative indices do not count from the end",
        INDEXING,
        "jnp.where(clamped < 0, number(size, dtype),",
        "jnp.where(clamped < 0, np.zeros((), dtype),",
        ON_INDEXING,
    ),
    Fault(
        "an index of one_hot never counts from the end",
        INDEXING,
        "jnp.where(index < 0, number(depth, dtype),",
        "jnp.where(index < 0, np.zeros((), dtype),",
        ON_INDEXING,
    ),
    Fault(
        "narrow indices wrap",
        INDEXING,
        "lax.broadcasted_iota(position.dtype, sizes, axis) == position",
        "lax.broadcasted_iota(indices.dtype, sizes, axis) == position.astype(indices.dtype)",
        ON_INDEXING,
    ),
    Fault("indices are not clamped", INDEXING, "jnp.clip(indices, lowest, last)", "indices", ON_INDEXING),
    Fault(
        "an index out of range is clamped, not ignored",
        INDEXING,
        "return index.astype(dtype) + from_end",
        "return jnp.clip(index.astype(dtype) + from_end, np.zeros((), dtype), number(depth - 1, dtype))",
        ON_INDEXING,
    ),
    Fault(
        "on and off are computed with",
        INDEXING,
        "return jnp.where(is_hot, on, off)",
        "return off + (on - off) * is_hot.astype(on.dtype)",
        ON_INDEXING,
    ),
    Fault(
        "the count stops at size",
        "numerics/compaction.py",
        "return bits.row_count, elements",
        "return jnp.minimum(bits.row_count, np.uint32(size)), elements",
        ON_INDEXING,
    ),
    Fault(
        "a row too few is filled",
        INDEXING,
        "lax.iota(jnp.uint32, size) < count",
        "lax.iota(jnp.uint32, size) <= count",
        ON_INDEXING,
    ),
    Fault(
        "the bits of a word run backwards",
        "numerics/compaction.py",
        "<< place, axis=2",
        "<< (31 - place), axis=2",
        ON_INDEXING,
    ),
    Fault(
        "what pads a run counts as elements",
        "numerics/compaction.py",
        "lax.div(word, words_per_run) * number(run, jnp.uint32)",
        "lax.div(word, words_per_run) * words_per_run * np.uint32(32)",
        ON_INDEXING,
    ),
    Fault(
        "a row is of the next word",
        "numerics/compaction.py",
        "(jnp.uint32(2) << place) - 1",
        "(jnp.uint32(1) << place) - 1",
        ON_INDEXING,
    ),
    Fault(
        "a sum counts its own block twice",
        "numerics/compaction.py",
        "(_running_sum(totals) - totals)",
        "_running_sum(totals)",
        ON_INDEXING,
    ),
    Fault(
        "the loop over chunks ends a chunk early",
        "numerics/compaction.py",
        "return state[0] * (size * 32)",
        "return (state[0] + 1) * (size * 32)",
        ON_INDEXING,
    ),
    Fault(
        "a batch waits for a loop",
        "numerics/compaction.py",
        "jax.vmap(every, in_axes",
        "jax.vmap(first, in_axes",
        ON_INDEXING,
    ),
    Fault(
        "results cannot be exported",
        INDEXING,
        "jax.export.register_namedtuple_serialization(",
        "(lambda *_, **__: None)(",
        ON_INDEXING,
    ),
    Fault(
        "an axis of the mesh shards two dimensions",
        "numerics/sharding.py",
        "used.isdisjoint(_names(axes))",
        "True",
        ON_SHARDING,
    ),
    Fault(
        "explicit meshes are left to JAX",
        "numerics/sharding.py",
        "    if mesh is None:\n",
        "    if True:\n",
        ON_SHARDING,
    ),
    Fault(
        "rows are sharded where the mesh does not divide them",
        "numerics/sharding.py",
        "for name in _names(axes)) == 0",
        "for name in _names(axes)) >= 0",
        ON_SHARDING,
    ),
    Fault(
        "a Python number is never weak",
        "calls/arguments.py",
        "return value if is_weak and",
        "return value if False and",
        ON_FUNCTION,
    ),
    Fault(
        "rows are reduced in memory",
        "numerics/along_axes.py",
        "cpu=partial(_reduce_in_parts, reduce, combine), default=whole",
        "cpu=whole, default=whole",
        ON_FUSION,
    ),
    Fault(
        "the keys of a row stay in memory",
        "numerics/along_axes.py",
        "input, extreme = lax.optimization_barrier((input, extreme))",
        "input, extreme = input, extreme",
        ON_FUSION,
    ),
    Fault("leading coordinates are kept", INDEXING, "[-columns:]", "[:columns]", ON_INDEXING),
    Fault(
        "a gather has no gradient",
        INDEXING,
        "copied(fetch, (input,), position)",
        "copied(fetch, (lax.stop_gradient(input),), position)",
        ON_INDEXING,
    ),
    Fault(
        "tuples are clamped by the batch's sizes",
        INDEXING,
        "input.shape[batch:tuple_end],",
        "input.shape[: tuple_end - batch],",
        ON_INDEXING,
    ),
    Fault("a band is one diagonal too wide", GENERATION, "before_end = x <", "before_end = x <=", ON_GENERATION),
    Fault("an empty band is an inverted one", GENERATION, "(end >= begin)", "(end > begin)", ON_GENERATION),
    Fault(
        "a low diagonal enters in column 1",
        GENERATION,
        "jnp.where(y < shift, np.zeros((), y.dtype)",
        "jnp.where(y < shift, np.ones((), y.dtype)",
        ON_GENERATION,
    ),
    Fault(
        "bands at INT32_MIN wrap",
        GENERATION,
        "np.array(min(distance, size), dtype)",
        "np.array(distance & 0xFFFF, dtype)",
        ON_GENERATION,
    ),
    Fault(
        "a number that does not fit is wrapped",
        "scalars.py",
        "if not lowest <= number <= highest or",
        "number = number % (highest + 1)\n    if",
        ON_GENERATION,
    ),
    Fault(
        "-0 and 0 are one scalar",
        "scalars.py",
        "np.asarray(exact(value, data_type.dtype)).view",
        "np.asarray(exact(value, data_type.dtype) + 0).view",
        ON_GENERATION,
    ),
    Fault(
        "True is an axis",
        "checks.py",
        """    try:
        if isinstance(value, bool | np.bool_):""",
        """    try:
        if False:""",
        ON_INDEXING,
    ),
    Fault(
        "64-bit integers are cut without a word",
        "calls/arguments.py",
        "if not limits.min <= extreme <= limits.max:",
        "if False:",
        ON_FUNCTION,
        x64=False,
    ),
    Fault(
        "a page's table begins a level early",
        INDEXING,
        "FL_4_1=dml.rows(dml.RANK_1_TO_8, indices=INDEX, values",
        "FL_4_0=dml.rows(dml.RANK_1_TO_8, indices=INDEX, values",
        ON_EVERY,
    ),
    Fault(
        "a page's table has one type too many",
        REDUCTION,
        "FL_3_0=dml.rows(dml.RANK_1_TO_8, input=UP_TO_32_BIT, output=INDEX)",
        "FL_3_0=dml.rows(dml.RANK_1_TO_8, input=UP_TO_32_BIT, output=UP_TO_32_BIT | INDEX)",
        ON_EVERY,
    ),
    Fault(
        "a newer table does not replace the older",
        "descriptors/validation.py",
        "tables[-1].items()",
        "tables[0].items()",
        ON_EVERY,
    ),
    Fault("sizes in bytes are not rounded up", "tensor.py", "-(-bits // 32) * 4", "-(-bits // 8)", ON_TENSOR),
    Fault(
        "strides are ignored",
        "tensor.py",
        "for stride in self.strides or packed_strides",
        "for stride in packed_strides",
        ON_TENSOR,
    ),
    Fault("an output may overlap itself", "tensor.py", "if self.overlaps:", "if False:", ON_TENSOR),
    Fault(
        "AxisCount is not checked", "descriptors/members.py", "if count is not None and", "if False and", ON_OPERATOR
    ),
    Fault(
        "a sequence is computed, not accumulated",
        "dxdispatch/reader.py",
        "return np.add.accumulate(steps, dtype=steps.dtype)",
        "return (start + delta * np.arange(count)).astype(steps.dtype)",
        ON_DXDISPATCH,
    ),
    Fault(
        "initial values lie at the start of a buffer",
        "dxdispatch/model.py",
        "buffer[self.offset_in_bytes : self.offset_in_bytes + self.initial_values.size]",
        "buffer[: self.initial_values.size]",
        ON_DXDISPATCH,
    ),
    Fault(
        "an integer may be out of range",
        "dxdispatch/reader.py",
        "if type(value) is not int or not limits.min <= value <= limits.max:",
        "if type(value) is not int:",
        ON_DXDISPATCH,
    ),
    Fault(
        "a tensor may leave its buffer",
        "dxdispatch/reader.py",
        "if offset + size > resource.size_in_bytes:",
        "if size > resource.size_in_bytes:",
        ON_DXDISPATCH,
    ),
    Fault(
        "two outputs may share bytes",
        "dxdispatch/reader.py",
        "if resource == binding.resource and begin < other_end",
        "if False and begin < other_end",
        ON_DXDISPATCH,
    ),
    Fault(
        "a file may be written beside the folder",
        "dxdispatch/files.py",
        'or ".." in path.parts or path.anchor',
        "",
        ON_DXDISPATCH,
    ),
    Fault(
        "a link may lead out of the folder",
        "dxdispatch/files.py",
        "if not path.is_relative_to(root) or",
        "if",
        ON_EXECUTION,
    ),
    Fault(
        "an offset of a binding counts for nothing",
        "dxdispatch/execution.py",
        "return tensor.read(_bytes_at(buffers, binding))",
        "return tensor.read(buffers[binding.resource].data)",
        ON_EXECUTION,
    ),
    Fault(
        "what DirectML owns is read at each dispatch",
        "dxdispatch/execution.py",
        "_read(tensor, self._owned, owned[key])",
        "_read(tensor, self.buffers, owned[key])",
        ON_EXECUTION,
    ),
    Fault(
        "a name that comes again goes unnoticed",
        "dxdispatch/text.py",
        "if name in members and",
        "if False and",
        ON_JSON,
    ),
    Fault(
        "a line is counted from 0",
        "dxdispatch/text.py",
        """part * _PART, offset) + 1""",
        """part * _PART, offset)""",
        ON_JSON,
    ),
    Fault(
        "numbers have as many digits as they need",
        "dxdispatch/printing.py",
        'map("%g".__mod__, values.tolist())',
        "map(str, values.tolist())",
        ON_EXECUTION,
    ),
    Fault("an error ends with status 0", "cli.py", "    return REFUSED\n\n\n# The", "    return 0\n\n\n# The", ON_CLI),
    Fault(
        "a number's type is not the operands'",
        "calls/arguments.py",
        "as_scalar(key, x, dtypes[0], NUMBER, is_weak=False)",
        "x",
        ON_ARITHMETIC,
    ),
    Fault(
        "a bias of integers may have a fraction",
        "descriptors/rules.py",
        'yield from fitting(("ScaleBias", name)',
        'yield from () and fitting(("ScaleBias", name)',
        ON_ELEMENTARY,
    ),
    Fault(
        "a fused activation may have tensors",
        "descriptors/bases.py",
        "for leaf in activation.leaves():",
        "for leaf in ():",
        ON_ARITHMETIC,
    ),
    Fault(
        "a fused activation may come from a later level",
        "descriptors/bases.py",
        "if introduced > feature_level:",
        "if False:",
        ON_ARITHMETIC,
    ),
    Fault(
        "a fused activation obeys no rule",
        "descriptors/bases.py",
        "for problem in activation.attribute_rules(feature_level):",
        "for problem in ():",
        ON_ARITHMETIC,
    ),
    Fault(
        "the output's type is the function's default",
        "descriptors/base.py",
        '"dtype": output.dtype, ',
        "",
        ON_LOGIC,
    ),
    Fault(
        "absent tensors are not told to functions",
        "descriptors/base.py",
        "type(self).function(**absent | inputs,",
        "type(self).function(**inputs,",
        ON_QUANTIZATION,
    ),
    Fault(
        "a NaN on the right is below all numbers",
        "numerics/floats.py",
        "sort_keys(a, nan_is_largest=False) >= sort_keys(b, nan_is_largest=True)",
        "sort_keys(a, nan_is_largest=False) >= sort_keys(b, nan_is_largest=False)",
        ON_LOGIC,
    ),
    Fault(
        "the larger zero depends on the order",
        "numerics/floats.py",
        "partial(sort_keys, nan_is_largest=True, zeros_are_equal=False)",
        "partial(sort_keys, nan_is_largest=True)",
        ON_ARITHMETIC,
    ),
    Fault(
        "a quotient by one number is rounded twice",
        "numerics/exact.py",
        "jnp.where(jnp.isnan(a), a, b))",
        "jnp.broadcast_to(b, a.shape))",
        ON_ACCURACY,
    ),
    Fault(
        "a ScaleBias rounds the product",
        "numerics/exact.py",
        "_zero_unless_finite(_product_error(high, x, factor) + _sum_error(total, high, scaled))",
        "_zero_unless_finite(_sum_error(total, high, scaled))",
        ON_ELEMENTARY,
    ),
    Fault(
        "half of a large exponential is infinite",
        "numerics/special.py",
        "return times_exp(jnp.full_like(x, 0.5), jnp.abs(x), jnp.zeros_like(x))",
        "return exp(jnp.abs(x)) / 2",
        ON_ELEMENTARY,
    ),
    Fault(
        "the angle of the origin is always 0",
        "numerics/special.py",
        "is_left = jnp.signbit(x)",
        "is_left = x < 0",
        ON_ARITHMETIC,
    ),
    Fault(
        "the sign of NaN is NaN",
        ELEMENTARY,
        "greater(input, zero).astype(input.dtype) - greater(zero, input).astype(input.dtype)",
        "jnp.sign(input)",
        ON_ELEMENTARY,
    ),
    Fault(
        "halves go away from zero",
        ELEMENTARY,
        "lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)",
        "lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)",
        ON_ELEMENTARY,
    ),
    Fault(
        "rounding toward infinity goes up",
        ELEMENTARY,
        "RoundingMode.TOWARD_INFINITY: lambda x: lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)",
        "RoundingMode.TOWARD_INFINITY: jnp.ceil",
        ON_ELEMENTARY,
    ),
    Fault(
        "the mean of integers drops its half downward",
        ARITHMETIC,
        "below + jnp.where(below < 0, differing & one, jnp.zeros((), a.dtype))",
        "below",
        ON_ARITHMETIC,
    ),
    Fault(
        "half of a large sum is infinite",
        ARITHMETIC,
        "jnp.where(jnp.isinf(total), a / 2 + b / 2, total / 2)",
        "total / 2",
        ON_ARITHMETIC,
    ),
    Fault(
        "a modulus of 0 has the sign of the dividend",
        ARITHMETIC,
        "jnp.where(modulus == 0, signed_zeros_of(b), modulus)",
        "modulus",
        ON_ARITHMETIC,
    ),
    Fault(
        "the modulus has the sign of the dividend",
        ARITHMETIC,
        "((remainder < zero) != (b < zero))",
        "False",
        ON_ARITHMETIC,
    ),
    Fault(
        "the difference of 16-bit floats is rounded before it is squared",
        ARITHMETIC,
        "difference = a.astype(wide) - b.astype(wide)",
        "difference = (a - b).astype(wide)",
        ON_ACCURACY,
    ),
    Fault(
        "an odd power of a negative base is positive",
        ARITHMETIC,
        "jnp.where(jnp.signbit(base) & is_odd, -power, power)",
        "power",
        ON_ARITHMETIC,
    ),
    Fault(
        "a broken power of a negative base is a number",
        ARITHMETIC,
        "jnp.where((base < 0) & ~is_whole, jnp.full((), np.nan, base.dtype), power)",
        "power",
        ON_ARITHMETIC,
    ),
    Fault(
        "a negative power of an integer is a positive one",
        ARITHMETIC,
        "return jnp.where(is_negative, reciprocal, power)",
        "return power",
        ON_ARITHMETIC,
    ),
    Fault(
        "a large exponent is rounded to a float",
        ARITHMETIC,
        "for part in (exponent - low, low)",
        "for part in (exponent, 0 * low)",
        ON_ARITHMETIC,
    ),
    Fault(
        "the slope of a power is multiplied by a logarithm of 0",
        ARITHMETIC,
        "jnp.log(jnp.where(is_flat, jnp.ones_like(base), base))",
        "jnp.log(base)",
        ON_DERIVATIVES,
    ),
    Fault(
        "the upper bound wins",
        CLIPPING,
        "return _at_least(_at_most(unclipped, max), min)",
        "return _at_most(_at_least(unclipped, min), max)",
        ON_CLIPPING,
    ),
    Fault(
        "a lower bound beyond the type is refused",
        "scalars.py",
        "None if dtype in INTEGERS and _python_number(value) < np.iinfo(dtype).min else _cast(value, dtype)",
        "_cast(value, dtype)",
        ON_CLIPPING,
    ),
    Fault(
        "the gradient at the upper bound passes",
        CLIPPING,
        "selected(greater_equal(x, jnp.asarray(max, x.dtype)), zero, gradient)",
        "selected(~greater_equal(jnp.asarray(max, x.dtype), x), zero, gradient)",
        ON_CLIPPING,
    ),
    Fault(
        "either is both",
        LOGIC,
        "(a_holds ^ b_holds)",
        "(a_holds | b_holds)",
        ON_LOGIC,
    ),
    Fault(
        "an infinity of either sign is positive",
        LOGIC,
        "IsInfinityMode.POSITIVE: ~jnp.signbit(input)",
        "IsInfinityMode.POSITIVE: jnp.ones_like(input, bool)",
        ON_LOGIC,
    ),
    Fault(
        "a subnormal condition does not hold",
        LOGIC,
        "selected(is_nonzero(condition), a, b)",
        "selected(condition != 0, a, b)",
        ON_LOGIC,
    ),
    Fault(
        "a shift drags the sign along",
        "ops/bitwise.py",
        "_apply_to_bits(lax.shift_right_logical, a, b)",
        "_apply_to_bits(lax.shift_right_arithmetic, a, b)",
        ON_BITS,
    ),
    Fault(
        "places count modulo the width",
        "ops/bitwise.py",
        "_apply_to_bits(lax.shift_left, a, b)",
        "_apply_to_bits(lambda a, b: lax.shift_left(a, b & (8 * a.dtype.itemsize - 1)), a, b)",
        ON_BITS,
    ),
    Fault(
        "halves of steps go away from zero",
        QUANTIZATION,
        "lax.RoundingMethod.TO_NEAREST_EVEN",
        "lax.RoundingMethod.AWAY_FROM_ZERO",
        ON_QUANTIZATION,
    ),
    Fault(
        "steps wrap around before the zero point",
        QUANTIZATION,
        "jnp.clip(steps, -(2**20), 2**20)",
        "jnp.clip(steps, -128, 2**20)",
        ON_QUANTIZATION,
    ),
    Fault(
        "a distance from the zero point wraps",
        QUANTIZATION,
        "(higher.astype(unsigned) - lower.astype(unsigned)).astype(dtype)",
        "(higher - lower).astype(dtype)",
        ON_QUANTIZATION,
    ),
    Fault(
        "a zero point may always lack",
        QUANTIZATION,
        "if self.zero_point is None and feature_level < FeatureLevel.FL_6_2:",
        "if False:",
        ON_QUANTIZATION,
    ),
    Fault(
        "a negative NaN becomes 0",
        ACTIVATION,
        "selected(is_nan(input), input, zero)",
        "zero",
        ON_ACTIVATION,
    ),
    Fault(
        "zero is above a threshold of zero",
        ACTIVATION,
        "selected(greater(x, zero), gradient, zero)",
        "selected(greater_equal(x, zero), gradient, zero)",
        ON_ACTIVATION,
    ),
    Fault(
        "an exponential is made of what is not below zero",
        ACTIVATION,
        "function(jnp.where(is_below, x, zero))",
        "function(x)",
        ON_DERIVATIVES,
    ),
    Fault(
        "the threshold of an integer is cut",
        ACTIVATION,
        "jnp.floor(bound), jnp.zeros_like(bound)",
        "jnp.trunc(bound), jnp.zeros_like(bound)",
        ON_ACTIVATION,
    ),
    Fault(
        "an alpha of 0 makes NaN",
        ACTIVATION,
        "return jnp.where(alpha == 0, jnp.zeros_like(x), curve)",
        "return curve + 0 * ratio",
        ON_ACTIVATION,
    ),
    Fault(
        "a steepness of any size is allowed",
        ACTIVATION,
        "if feature_level < FeatureLevel.FL_6_4 and not self.steepness.item >= 1:",
        "if False:",
        ON_ACTIVATION,
    ),
    Fault(
        "a steepness is never below 1",
        ACTIVATION,
        "feature_level < FeatureLevel.FL_6_4 and not",
        "not",
        ON_ACTIVATION,
    ),
    Fault(
        "a large softplus is infinite",
        ACTIVATION,
        "jnp.where(steep > 100, x, curve)",
        "curve",
        ON_ACCURACY,
    ),
    Fault(
        "the largest of a row rounds the others away",
        "ops/softmax.py",
        "distance - (lax.log1p(others + repeated) - low)",
        "distance - (lax.log(1 + others + repeated) - low)",
        ON_SOFTMAX,
    ),
    Fault(
        "of several largest one counts",
        "ops/softmax.py",
        "sum_along(is_largest.astype(x.dtype), axes) - 1",
        "0 * others",
        ON_SOFTMAX,
    ),
    Fault(
        "a matrix may have batches",
        "ops/softmax.py",
        "if self.input.effective_rank > 2:",
        "if False:",
        ON_SOFTMAX,
    ),
    Fault(
        "operands stay sharded as they are",
        "calls/arrays.py",
        "return sharded_alike(*(jnp.broadcast_to(given, shape) for given in arrays.values()))",
        "return tuple(jnp.broadcast_to(given, shape) for given in arrays.values())",
        ON_SHARDING,
    ),
    Fault(
        "the derivative of a modulus counts times of a constant",
        ARITHMETIC,
        "_remainder.defjvp(partial(_remainder_jvp, _remainder), symbolic_zeros=True)",
        "_remainder.defjvp(partial(_remainder_jvp, _remainder))",
        ON_DERIVATIVES,
    ),
    Fault(
        "below the smallest exponent comes the largest",
        ARITHMETIC,
        "jnp.where(exponent == smallest, jnp.full_like(exponent, smallest + 1), exponent - 1)",
        "exponent - 1",
        ON_DERIVATIVES,
    ),
    Fault(
        "a tiny exponential is zero before it is multiplied",
        "numerics/special.py",
        "return factor * self.first * self.mantissa * self.second * self.third",
        "return factor * self.value()",
        ON_ACCURACY,
    ),
    Fault(
        "the slope of a hyperbolic tangent is out of range",
        "numerics/special.py",
        "    return exp_product(a, b, power, jnp.zeros_like(x)) * (4 / ((1 + shrunk) * (1 + shrunk)))",
        "    return a * b / (cosh(x) * cosh(x))",
        ON_DERIVATIVES,
    ),
    Fault(
        "steps lead one way alone",
        "tensor.py",
        "np.arange(-inner_count, inner_count + 1)",
        "np.arange(inner_count + 1)",
        ON_TENSOR,
    ),
    Fault(
        "steps of one group never lead nowhere",
        "tensor.py",
        "if zeros > 1 or _any_in_both_groups",
        "if _any_in_both_groups",
        ON_TENSOR,
    ),
    Fault(
        "steps of the other group never lead nowhere",
        "tensor.py",
        "if np.count_nonzero(back == 0) > 1:",
        "if False:",
        ON_TENSOR,
    ),
    Fault(
        "steps along one dimension have no end",
        "tensor.py",
        "((away % stride == 0) & (away <= stride * count))",
        "(away % stride == 0)",
        ON_TENSOR,
    ),
    Fault(
        "the last dimension is not looked at for overlaps",
        "tensor.py",
        "while steps and steps[-1][0] > _reach",
        "while steps and steps[-1][0] >= _reach",
        ON_TENSOR,
    ),
    Fault(
        "each way of steps is looked at alone",
        "tensor.py",
        "_groups(steps), key=_distance_count)",
        "_groups(steps), key=lambda groups: -len(groups[0]))",
        ON_TENSOR,
    ),
    Fault(
        "the parts of a text are one",
        "dxdispatch/text.py",
        "_PART = 4096",
        "_PART = 2**40",
        ON_GROWTH,
    ),
    Fault(
        "a plain list is looked through for each element",
        "dxdispatch/text.py",
        "if offset not in self.plain_lists:",
        "if True:",
        ON_JSON,
    ),
    Fault(
        "a repeated name is no value",
        "dxdispatch/text.py",
        "self.count += 1",
        "self.count += len(self.path) < 2",
        ON_JSON,
    ),
    Fault(
        "all repeated names are kept",
        JSON,
        "if name in members and len(self.repeated) < MAX_PROBLEMS:",
        "if name in members and len(self.repeated) < 10:",
        ON_GROWTH,
    ),
    Fault(
        "known names are looked through for each name",
        "dxdispatch/reader.py",
        "known = set(names)",
        "known = tuple(names)",
        ON_GROWTH,
    ),
    Fault(
        "the name of a place is as long as it is",
        "errors.py",
        "short = name if len(name) <= 100 else",
        "short = name if True else",
        ON_ERRORS,
    ),
    Fault(
        "long names are looked at for one that is near",
        "text.py",
        "if len(one) <= 100}",
        "}",
        ON_GROWTH,
    ),
    Fault(
        "an array has any number of dimensions",
        "dxdispatch/files.py",
        "if len(dimensions) > _MAX_DIMENSIONS:",
        "if False:",
        ON_GROWTH,
    ),
    Fault(
        "all that is wrong is told",
        "errors.py",
        "if len(refusals) == MAX_PROBLEMS:",
        "if False:",
        ON_ERRORS,
    ),
    Fault(
        "a place is put before the first problem alone",
        "errors.py",
        "tuple(problem.inside(where) for problem in self.problems)",
        "(self.problems[0].inside(where), *self.problems[1:])",
        ON_ERRORS,
    ),
    Fault(
        "what was given is kept as it is",
        "errors.py",
        "None if given is None else str(given)",
        "given",
        ON_ERRORS,
    ),
    Fault(
        "a name is spelled like an identifier",
        "errors.py",
        "if short.isidentifier() else",
        "if short else",
        ON_ERRORS,
    ),
    Fault(
        "arrays that share a count may differ in length",
        "descriptors/base.py",
        "if len(set(by_name.values())) > 1:",
        "if False:",
        ON_MEMBERS,
    ),
    Fault(
        "a second operator replaces the first",
        "descriptors/base.py",
        "if operator.type in OPERATORS:",
        "if False:",
        ON_MEMBERS,
    ),
    Fault(
        "the tensors of an array are those of the first",
        "descriptors/lowering.py",
        "values.extend(value)",
        "values.extend([value[0]] * len(value))",
        ON_MEMBERS,
    ),
    Fault(
        "outputs that are absent are not there",
        "descriptors/lowering.py",
        "None if getattr(desc, field) is None else next(present)",
        "next(present, None)",
        ON_MEMBERS,
    ),
    Fault(
        "descs of another layout are other computations",
        "descriptors/lowering.py",
        "_compile(_without_layout(desc))",
        "_compile(desc)",
        ON_MEMBERS,
    ),
    Fault(
        "JAX arrays of any size are computed with",
        "descriptors/lowering.py",
        "iter(_require_match(leaf, value) for leaf",
        "iter(value for leaf",
        ON_OPERATOR,
    ),
    Fault(
        "modules carry the name of a wrapper",
        "calls/decorator.py",
        "traced.__name__ = traced.__qualname__ = function.__name__",
        "traced.__qualname__ = function.__name__",
        ON_MEMBERS,
    ),
    Fault(
        "a member may be hidden by what a descriptor calls so itself",
        "descriptors/base.py",
        "return type(self).function(**absent",
        "return self.function(**absent",
        ON_MEMBERS,
    ),
    Fault(
        "a NumPy number alone or beside a weakly typed array is weak",
        "calls/arguments.py",
        "return number if is_weak else _quickest(number)",
        "return _quickest(number)",
        ON_FUNCTION,
        x64=False,
    ),
    Fault(
        "a number beside an array stays weak",
        "calls/arguments.py",
        "if value.dtype == dtype and not is_weak:",
        "if value.dtype == dtype:",
        ON_FUNCTION,
        x64=False,
    ),
    Fault(
        "-0 is remembered as 0",
        "calls/decorator.py",
        "math.copysign(1, value))  #",
        "1)  #",
        ON_FUNCTION,
    ),
    Fault(
        "a subnormal number is rounded on the device",
        "calls/arguments.py",
        "abs(number) >= 2.0**-126",
        "True",
        ON_FUNCTION,
    ),
    Fault(
        "each tensor of an array is bound to the first resource",
        "dxdispatch/reader.py",
        "for i, one in enumerate(sources):",
        "for i, one in enumerate(sources[:1] * len(sources)):",
        ON_MEMBERS,
    ),
    Fault(
        "an error of JSON is not sent",
        JSON,
        "return type(self), (*self.problems, self.line, self.column)",
        "return type(self), self.problems",
        ON_ERRORS,
    ),
    Fault(
        "an invalid model is sent as its text",
        "dxdispatch/model.py",
        "return type(self), (self.findings, self.warnings)",
        "return type(self), (self.args,)",
        ON_ERRORS,
    ),
    Fault(
        "a path is told as it is",
        "text.py",
        "return escape_controls(text if len(text) <= 300 else",
        "return str(text if len(text) <= 300 else",
        ON_DXDISPATCH,
    ),
    Fault(
        "a file begins a line",
        "dxdispatch/model.py",
        "(escape_controls(self.file), self.line",
        "(self.file, self.line",
        ON_DXDISPATCH,
    ),
    Fault(
        "a hint begins a line",
        "text.py",
        "did you mean {escape_controls(by_lower[close[0]])}?",
        "did you mean {by_lower[close[0]]}?",
        ON_DXDISPATCH,
    ),
    Fault(
        "a target may have any character",
        "dxdispatch/files.py",
        'if any(category(character) == "Cc" for character in text):',
        "if False:",
        ON_DXDISPATCH,
    ),
    Fault(
        "a target may have a name of any length",
        "dxdispatch/files.py",
        "len(part.encode()) > _MAX_NAME_BYTES",
        "len(part) > _MAX_NAME_BYTES",
        ON_DXDISPATCH,
    ),
    Fault(
        "a file is written where it is wanted",
        "dxdispatch/files.py",
        "with _replacing(path) as file:",
        'with path.open("wb") as file:',
        ON_EXECUTION,
    ),
    Fault(
        "what is left of a file stays",
        "dxdispatch/files.py",
        "    finally:\n        beside.unlink(missing_ok=True)",
        "    finally:\n        pass",
        ON_EXECUTION,
    ),
    Fault(
        "a file loses its mode",
        "dxdispatch/files.py",
        "if mode is not None:",
        "if False:",
        ON_EXECUTION,
    ),
    Fault(
        "a platform that lacks is an error of JAX",
        "cli.py",
        "except Exception as error:  # JAX asserts",
        "except RuntimeError as error:  # JAX asserts",
        ON_CLI,
    ),
    Fault(
        "a closed output goes unnoticed",
        "cli.py",
        "if sys.stdout is None:",
        "if False:",
        ON_CLI,
    ),
    Fault(
        "a closed output for errors goes unnoticed",
        "cli.py",
        "if sys.stderr is None:",
        "if False:",
        ON_CLI,
    ),
    Fault(
        "a full output is an error of Python",
        "cli.py",
        "if isinstance(error, OSError) and error.filename is None:",
        "if False:",
        ON_CLI,
    ),
    Fault(
        "what is compiled is not called where jit is disabled",
        "dxdispatch/execution.py",
        "with jax.disable_jit(False):\n            begin",
        "with jax.disable_jit(jax.config.jax_disable_jit):\n            begin",
        ON_CLI,
    ),
    Fault(
        "nothing is traced where jit is disabled",
        "dxdispatch/execution.py",
        "with jax.disable_jit(False):  # JAX",
        "with jax.disable_jit(jax.config.jax_disable_jit):  # JAX",
        ON_CLI,
    ),
    Fault(
        "commands are printed as they are",
        "cli.py",
        "{json_text(command)}",
        "{json.dumps(command, ensure_ascii=False)}",
        ON_CLI,
    ),
    Fault(
        "the errors of small products are flushed",
        "numerics/exact.py",
        "(a, a_exponent), (b, b_exponent) = _centred(lax.stop_gradient(a)), _centred(lax.stop_gradient(b))",
        "a_exponent = b_exponent = jnp.zeros((), np.int32)",
        ON_ACCURACY,
    ),
    Fault(
        "a line is computed at the scale of its operands",
        "numerics/exact.py",
        "(is_small.astype(np.int32) - is_large.astype(np.int32))",
        "(-is_large.astype(np.int32))",
        ON_ACCURACY,
    ),
    Fault(
        "a product with infinity has a slope",
        "numerics/exact.py",
        "return jnp.where(jnp.isinf(x), jnp.zeros_like(x), x)",
        "return x",
        ON_DERIVATIVES,
    ),
    Fault(
        "what is divided twice is divided by a product",
        "numerics/exact.py",
        "lax.div(jnp.where(jnp.isnan(b), b, a), ",
        "lax.div(a, ",
        ON_DERIVATIVES,
    ),
    Fault(
        "a quotient has no second part",
        ACTIVATION,
        "    ratio, low = exact_quotient(x, alpha)\n    # Where",
        "    ratio, low = quotient(x, alpha), jnp.zeros_like(x)\n    # Where",
        ON_ACCURACY,
    ),
    Fault(
        "a subnormal quotient is lost",
        ACTIVATION,
        "jnp.where(is_near, near, ",
        "jnp.where(is_near & (ratio > 1), near, ",
        ON_ACCURACY,
    ),
    Fault(
        "an exponential is infinite before it is multiplied",
        ACTIVATION,
        "jnp.where(ratio > 60, far, curve)",
        "curve",
        ON_ACCURACY,
    ),
    Fault(
        "a product of three is one of two first",
        ACTIVATION,
        "triple_product(gamma, alpha, special.expm1(x)))",
        "gamma * (alpha * special.expm1(x)))",
        ON_ACCURACY,
    ),
    Fault(
        "a small argument of tanh is flushed",
        ACTIVATION,
        "jnp.abs(steep) < 2**-64, line",
        "jnp.abs(steep) < 0, line",
        ON_ACCURACY,
    ),
    Fault(
        "a curve is as good as its neighbour near zero",
        "numerics/special.py",
        "jnp.where(jnp.abs(x) < 0.7, near",
        "jnp.where(jnp.abs(x) < 1.4, near",
        ON_ACCURACY,
    ),
    Fault(
        "what is beyond all floats is a little more than zero",
        "numerics/special.py",
        "jnp.where(x < lowest, jnp.zeros_like(x), 1 + (reduced + square))",
        "1 + (reduced + square)",
        ON_ACCURACY,
    ),
    Fault(
        "a sum forgets what rounding took",
        "numerics/along_axes.py",
        "return total, (a[1] + b[1]) + error",
        "return total, a[1] + b[1]",
        ON_ACCURACY,
    ),
    Fault(
        "a row is computed once for each loop",
        "ops/softmax.py",
        "    x = in_memory(x)\n",
        "    x = x + 0\n",
        ON_ACCURACY,
    ),
    Fault(
        "little exponentials are flushed before they are added",
        "ops/softmax.py",
        "special.times_exp(scale, distance, low)",
        "scale * special.exp(distance, low)",
        ON_ACCURACY,
    ),
    Fault(
        "a coin's entropy is flushed",
        ACTIVATION,
        "    return -jnp.where(-distance < special.TINY, far, near)",
        "    return -near",
        ON_DERIVATIVES,
    ),
    Fault(
        "0 to the power of 0 has a slope",
        ARITHMETIC,
        "(power == 0) | ((base == 0) & (exponent == 0))",
        "(power == 0)",
        ON_DERIVATIVES,
    ),
    Fault(
        "a traced Python integer is refused",
        "calls/arguments.py",
        "if dtype in INTEGERS and is_weak and value.dtype in INTEGERS:",
        "if False:",
        ON_ARITHMETIC,
    ),
    Fault(
        "a traced bound wraps",
        "calls/arguments.py",
        "LOWER_BOUND = Number(lower_bound, traced=_clamp)",
        "LOWER_BOUND = Number(lower_bound)",
        ON_CLIPPING,
    ),
    Fault(
        "float64 is quantized in float32",
        QUANTIZATION,
        "wide = np.promote_types(value.dtype, _type_of_scale(divisor))",
        "wide = np.float32",
        ON_QUANTIZATION,
    ),
    Fault(
        "a Python number is a scale of float64",
        QUANTIZATION,
        "return np.dtype(np.float32) if scale.weak_type else widened(scale.dtype)",
        "return widened(scale.dtype)",
        ON_QUANTIZATION,
    ),
    Fault(
        "rows are found on one device outside of a mesh alone",
        "numerics/compaction.py",
        "jnp.broadcast_to(jnp.zeros_like(bits.begins)[:, None], (group_count, 32))",
        "jnp.zeros((group_count, 32), jnp.uint32)",
        ON_SHARDING,
    ),
    Fault(
        "a slice begins at the start of the window in both directions",
        MOVEMENT,
        "return [start if stride > 0 else start + size - 1 for",
        "return [start for",
        ON_MOVEMENT,
    ),
    Fault(
        "a slice may end beyond its window",
        MOVEMENT,
        "if not 1 <= count <= most[i]:",
        "if count < 1:",
        ON_MOVEMENT,
    ),
    Fault(
        "a slice may end beyond its input by one",
        MOVEMENT,
        "if last >= input.shape[i]:",
        "if last > input.shape[i]:",
        ON_MOVEMENT,
    ),
    Fault(
        "a descriptor's slice may end beyond its input by one",
        MOVEMENT,
        "if last >= limit:",
        "if last > limit:",
        ON_MOVEMENT,
    ),
    Fault(
        "a window may end beyond its input by one",
        MOVEMENT,
        "elif offset + size > limit:",
        "elif offset + size > limit + 1:",
        ON_MOVEMENT,
    ),
    Fault(
        "a slice with negative strides is not reversed",
        MOVEMENT,
        "lax.rev(found, backwards) if backwards else found",
        "found",
        ON_MOVEMENT,
    ),
    Fault(
        "the gradient of a slice is not reversed",
        MOVEMENT,
        "forwards = lax.rev(gradient, backwards) if backwards else gradient",
        "forwards = gradient",
        ON_MOVEMENT,
    ),
    Fault(
        "the gradient of a slice lies too densely",
        MOVEMENT,
        "(low, size - low - length - 1, step - 1)",
        "(low, size - low - (length // step) - 1, 0)",
        ON_MOVEMENT,
    ),
    Fault(
        "the gradient of a slice makes signalling NaNs of bfloat16 quiet",
        MOVEMENT,
        "if given.dtype == jnp.bfloat16:",
        "if False:",
        ON_MOVEMENT,
    ),
    Fault(
        "the parts of a split come in the other order",
        MOVEMENT,
        "tuple(lax.split(floats[0], sizes, axis=axis))",
        "tuple(lax.split(floats[0], sizes[::-1], axis=axis))",
        ON_MOVEMENT,
    ),
    Fault(
        "parts of a split may leave some of the input out",
        MOVEMENT,
        "if sum(sizes) != input.shape[axis]:",
        "if sum(sizes) > input.shape[axis]:",
        ON_MOVEMENT,
    ),
    Fault(
        "a join makes signalling NaNs of bfloat16 quiet",
        MOVEMENT,
        "copy = lambda *given: copied(lambda floats, _: move(*floats), given)",
        "copy = move",
        ON_MOVEMENT,
    ),
    Fault(
        "a sequence of arrays may be one array",
        "calls/decorator.py",
        "if self.has_sequences:",
        "if False:",
        ON_MOVEMENT,
    ),
    Fault(
        "a join takes arrays of other types",
        MOVEMENT,
        "if x.dtype != first.dtype:",
        "if False:",
        ON_MOVEMENT,
    ),
    Fault(
        "a descriptor's parts need not add up",
        MOVEMENT,
        "if len(alike) == len(tensors) and total != entire.sizes[desc.axis]:",
        "if False:",
        ON_MOVEMENT,
    ),
    Fault(
        "a tile may be repeated no times",
        MOVEMENT,
        'check_size(("repeats", i), repeat, 1)',
        'check_size(("repeats", i), repeat, 0)',
        ON_MOVEMENT,
    ),
    Fault(
        "blocks have one order of channels on the way to depth",
        MOVEMENT,
        "(row, column, c) if order is DepthSpaceOrder.DEPTH_COLUMN_ROW else (c, row, column)",
        "(row, column, c)",
        ON_MOVEMENT,
    ),
    Fault(
        "rows and columns of a block are swapped on the way to space",
        MOVEMENT,
        "c, first + 3, row, first + 4, column",
        "c, first + 3, column, first + 4, row",
        ON_MOVEMENT,
    ),
    Fault(
        "a block need not divide the channels",
        MOVEMENT,
        "if input.shape[axis] % divisor:",
        "if axis != -3 and input.shape[axis] % divisor:",
        ON_MOVEMENT,
    ),
    Fault(
        "a sharded dimension of a copy is gathered",
        MOVEMENT,
        "kept.append(dividing_axes(first, size, x))",
        "kept.append(None)",
        ON_SHARDING,
    ),
    *(
        Fault(what, CONVERSION, right, wrong, ON_ELEMENTARY)
        for what, right, wrong in (
            (
                "a float64 is rounded twice on its way to 16 bits",
                "_narrowed(x, dtype)\n    return cast",
                "x.astype(dtype)\n    return cast",
            ),
            (
                "a float64 becomes no subnormal float32",
                "jnp.where(is_small, small, jnp",
                "jnp.where(is_small, x.astype(np.float32), jnp",
            ),
            (
                "a subnormal float32 becomes no float64",
                "return single.astype(dtype) if x.dtype == np.float16",
                "return single.astype(dtype) if True",
            ),
            ("halves are rounded up on other platforms", "- one + ((x >> places) & one)", ""),
            (
                "other platforms end before the end of a range",
                "jnp.where(x > highest, dtype.type(limits.max), inside.astype(dtype))",
                "inside.astype(dtype)",
            ),
            (
                "NaN is the lowest integer on other platforms",
                "jnp.where(is_nan(x), jnp.zeros_like(x), x)",
                "jnp.where(is_nan(x), lowest, x)",
            ),
            (
                "an integer is rounded twice on its way to bfloat16",
                "is_held = x < number(1 << held)",
                "is_held = x == x",
            ),
            ("a conversion to bool loses subnormals", "return is_nonzero(x)", "return x.astype(dtype)"),
        )
    ),
    *(
        Fault(what, SEQUENCE, right, wrong, ON_GENERATION)
        for what, right, wrong in (
            (
                "a sequence is rounded twice where little is left",
                "is_simple &= lax.round(end, lax.RoundingMethod.TO_NEAREST_EVEN) == end",
                "is_simple &= True",
            ),
            (
                "a sequence of 16 bits is rounded twice",
                "_sum_to_odd(first, second) if self.is_short",
                "first + second if self.is_short",
            ),
            ("what is left of a sum is forgotten", "lower + rest", "lower"),
            ("a sequence begins at 0 in place of -0", "jnp.where(is_first, self.start, value)", "value"),
            (
                "subnormal elements become zeros",
                "jnp.where(is_small, small, times",
                "jnp.where(is_small, jnp.zeros_like(small), times",
            ),
        )
    ),
    Fault(
        "a sequence of integers counts in its own type",
        GENERATION,
        "np.uint64 if start.dtype.itemsize == 8 else np.uint32",
        "np.uint8",
        ON_GENERATION,
    ),
    Fault(
        "any number of an unsigned type may be negative",
        "descriptors/members.py",
        "if self.is_step and not",
        "if not",
        ON_GENERATION,
    ),
    Fault("a negative step may be of any size", "scalars.py", "number < -highest or ", "", ON_GENERATION),
    Fault(
        "integers of 32 bits are cast at level 1_0",
        ELEMENTARY,
        "dml.unary(dml.RANK_4, UP_TO_32_BIT - INTEGER_32)",
        "dml.unary(dml.RANK_4, UP_TO_32_BIT)",
        ON_ELEMENTARY,
    ),
    Fault(
        "a file of a model may be a folder",
        "dxdispatch/reader.py",
        'if target.startswith(f"{folder}/"):',
        "if False:",
        ON_DXDISPATCH,
    ),
]


def caught(fault: Fault | None, tests: list[str], *, x64: bool) -> tuple[bool, str]:
    """Whether the tests fail on a copy with the fault, and the first one that does."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "dmljax"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        if fault:
            source = (copy / fault.module).read_text()
            if source.count(fault.right) != 1:
                raise SystemExit(f"{fault.module} must have {fault.right!r} once, to plant {fault.what!r} there")
            changed = source.replace(fault.right, fault.wrong)
            (copy / fault.module).write_text(changed)
        # Python looks for modules in the folder that it starts in first, so that the copy is what the tests import.
        pytest = [sys.executable, "-m", "pytest", "-c", str(TESTS.parent / "pyproject.toml"), "-p", "no:cacheprovider"]
        command = [*pytest, "-x", "-q", "--no-header", *(str(TESTS / test) for test in tests)]
        environment = os.environ | {"JAX_ENABLE_X64": str(int(x64)), "PYTHONDONTWRITEBYTECODE": "1"}
        run = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1):  # no test ran, or pytest was interrupted: neither tells anything
        raise SystemExit(run.stdout + run.stderr)
    failures = [line.split(" - ")[0] for line in run.stdout.splitlines() if line.startswith("FAILED")]
    return run.returncode == 1, (failures or ["none"])[0].rpartition("tests/")[2]


def main(words: list[str]) -> int:
    chosen = [fault for fault in FAULTS if not words or any(word in fault.what for word in words)]
    for x64 in {fault.x64 for fault in chosen}:
        files = sorted({fault.tests for fault in chosen if fault.x64 is x64})
        failed, first = caught(None, files, x64=x64)
        if failed:
            print(f"without any fault, {first} fails")
            return 1
    survivors = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:  # each plants its fault in a copy of its own
        for told, failed in pool.map(planted, chosen):
            survivors += not failed
            print(told, flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} faults caught")
    return 1 if survivors else 0


def planted(fault: Fault) -> tuple[str, bool]:
    """What came of a fault, and whether it was caught."""
    start = time.monotonic()
    failed, first = caught(fault, [fault.tests], x64=fault.x64)
    return f"{'caught' if failed else 'SURVIVES':8} {fault.what}: {first} ({time.monotonic() - start:.0f} s)", failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
