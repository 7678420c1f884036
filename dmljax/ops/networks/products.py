"""Matrix products: GEMM of floats, MATRIX_MULTIPLY_INTEGER of integers, and products of quantized matrices.

The matrices are the last two dimensions. The functions broadcast the dimensions before them, and neither transpose nor
repeat anything in memory. On an explicit mesh, each dimension of the result is sharded as in the matrix that it comes
from.

Args:
    a: Matrices, (batches, rows, inner size).
    b: Matrices, (batches, inner size, columns).
    a_scale: Scale of `a`: one number, or one for each row.
    b_scale: Scale of `b`: one number, or one for each column.
    a_zero_point: Subtracted from `a`: one integer, or one for each row. None means 0.
    b_zero_point: Subtracted from `b`: one integer, or one for each column. None means 0.

Returns:
    Array of (batches, rows, columns), in the type of `a`.
"""

from collections.abc import Iterator
from typing import Annotated, Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.typing import ArrayLike, DTypeLike

from dmljax import calls, descriptors as dml
from dmljax.errors import InvalidDesc, InvalidType, Problem, require
from dmljax.foundation.sizes import (
    Sizes,
    argument_name,
    remedy_for_open,
    require_broadcast,
    require_dimensions,
    spell_sizes,
)
from dmljax.lowerings.numbers.products import (
    integer_product,
    integer_product_as_floats,
    matrix_product,
    multiply_scales,
)
from dmljax.ops.elementwise.quantization import (
    QuantizedBinary,
    QuantizedOperands,
    ZeroPointOfA,
    ZeroPointOfB,
    ZeroPointOfOutputLikeA,
    quantize_rounded,
)
from dmljax.text import join_sizes, join_words
from dmljax.types import (
    FLOAT,
    INTEGER_8,
    INTEGER_UP_TO_32_BIT,
    ONLY_FLOAT32,
    ONLY_INT32,
    MatrixTransform,
    widened,
)

_ROWS, _COLUMNS = -2, -1

# Shared by all products


def _product_sizes(a: Sizes, b: Sizes, transpose_a: bool = False, transpose_b: bool = False) -> Sizes:
    require_dimensions("a", a, 2, at_end=transpose_a)
    require_dimensions("b", b, 2, at_end=not transpose_b)
    (rows, inner), (inner_of_b, columns) = a[-2:][:: -1 if transpose_a else 1], b[-2:][:: -1 if transpose_b else 1]
    if inner != inner_of_b:
        number = f"{inner} {'columns' if transpose_b else 'rows'}"
        rule = f"must have {number}, as many as {argument_name('a')} has {'rows' if transpose_a else 'columns'}"
        raise InvalidDesc(Problem("b", rule, f"shape {spell_sizes(b)}"))
    try:
        batch = jnp.broadcast_shapes(a[:-2], b[:-2])
    except ValueError:
        rule = "a and b must have shapes that broadcast before the last two dimensions"
        raise InvalidDesc(Problem((), rule, join_words((a, b)))) from None
    return (*batch, rows, columns)


def _matrices(
    a: Array, b: Array, *, transpose_a: bool = False, transpose_b: bool = False
) -> tuple[Array, Array, tuple[int, ...]]:
    """Returns the matrices to multiply, with as many dimensions as their product, and the shape of the product."""
    shape = _product_sizes(a.shape, b.shape, transpose_a, transpose_b)
    a, b = a.mT if transpose_a else a, b.mT if transpose_b else b
    return _reshape_to_rank(len(shape), a), _reshape_to_rank(len(shape), b), shape


def _reshape_to_rank(rank: int, x: Array) -> Array:
    """Returns `x` with `rank` dimensions: adds leading 1s, or drops those beyond the rank."""
    leading = range(x.ndim - rank)
    if all(x.shape[i] == 1 for i in leading):
        x = lax.squeeze(x, leading)
    return lax.expand_dims(x, range(rank - x.ndim))


def _expand_parameter(name: str, parameter: Array, shape: tuple[int, ...], axis: int) -> Array:
    """A scale or zero point with the dimensions of the result's `shape`, for its rows or for its columns."""
    column = parameter[:, None] if parameter.ndim == 1 and axis == _ROWS else parameter
    rows, columns = shape[-2:]
    whole = (*shape[:-2], rows, 1) if axis == _ROWS else (*shape[:-2], 1, columns)
    value = _reshape_to_rank(len(shape), column)
    if value.ndim > len(shape) or any(size not in (1, most) for size, most in zip(value.shape, whole, strict=True)):
        lines = f"{rows} rows of a" if axis == _ROWS else f"{columns} columns of b"
        rule, remedy = f"must have one element, or one for each of the {lines}", remedy_for_open(value.shape, whole)
        raise InvalidDesc(Problem(name, rule, f"shape {parameter.shape}", remedy=remedy))
    return value


def _zero_point(name: str, value: ArrayLike | None, matrix: Array, shape: tuple[int, ...], axis: int) -> Any:
    """Returns the zero point `name`, of the type of its matrix, or None."""
    if value is None:
        return None
    point = calls.integer_array(name, value)
    calls.require_type(name, point, matrix.dtype, name[0])
    return _expand_parameter(name, point, shape, axis)


def _narrow_integers(name: str, value: ArrayLike, bits: int) -> Array:
    x = calls.integer_array(name, value)
    rule = "must be int8 or uint8" if bits == 8 else f"must be of at most {bits} bits"
    require(name, x.dtype.itemsize * 8 <= bits, rule, x.dtype, InvalidType)
    return x


def _broadcast_summand(total: Array, name: str, summand: Array) -> tuple[Array, Array]:
    """The product `total`, and the argument `name` in its shape, type and sharding."""
    require_broadcast(name, summand.shape, total.shape, "the product")
    first, second = calls.broadcast(product=total, **{name: summand.astype(total.dtype)})
    return first, second


_PRODUCT = (
    "ATensor.Sizes are {{batches, channels, M, K}}, BTensor.Sizes are {{batches, channels, K, N}}, and "
    "OutputTensor.Sizes are {{batches, channels, M, N}}."
)


def _product_rules(*others: str, sentence: str = _PRODUCT) -> tuple[dml.Rule, ...]:
    """OutputTensor has the Sizes of ATensor times BTensor; they and `others` have the same DimensionCount."""

    def wrong_batches(desc: Any) -> Iterator[Problem]:
        if desc.a.sizes[:-2] != desc.b.sizes[:-2]:
            sizes = join_words(join_sizes(tensor.sizes) for tensor in (desc.a, desc.b))
            rule = "must have the same Sizes before the last two"
            yield Problem(("ATensor", "Sizes"), rule, sizes, [("BTensor", "Sizes")])

    batches = dml.Rule("ATensor.Sizes and BTensor.Sizes are the same before the last two.", wrong_batches)
    return dml.page_rules(dml.same_rank("a", "b", *others, "output"), batches, *dml.infer_rules(sentence))


def _parameter_rule(row_fields: tuple[str, ...], column_fields: tuple[str, ...]) -> dml.Rule:
    """Scales and zero points have one element, or one for each row of ATensor, or for each column of BTensor."""

    def check(desc: Any) -> Iterator[Problem]:
        if desc.output.rank < 2:
            return  # reported by the support tables
        rows, columns = desc.output.sizes[-2:]
        parameters_by_line = (
            (row_fields, rows, (rows, 1), "row of ATensor"),
            (column_fields, columns, (1, columns), "column of BTensor"),
        )
        for fields, count, last, line in parameters_by_line:
            for field in fields:
                tensor = getattr(desc, field)
                if tensor is None or tensor.element_count == 1 or tensor.sizes == (count,):
                    continue
                if tensor.sizes != (1,) * (tensor.rank - 2) + last:
                    rule = f"must have one element, or one for each {line}, with {join_sizes(last)} as the last Sizes"
                    yield Problem((desc.member(field).name, "Sizes"), rule, join_sizes(tensor.sizes))

    sentences = (
        f"{dml.name_members(fields)} {'has' if len(fields) == 1 else 'have'} one element, or one for each {line}"
        for fields, line in (
            (row_fields, "row of ATensor, with Sizes {{M}} or {{1, 1, M, 1}}"),
            (column_fields, "column of BTensor, with Sizes {{N}} or {{1, 1, 1, N}}"),
        )
    )
    return dml.Rule("; ".join(sentences) + ".", check)


# GEMM


@calls.operator_function
def gemm(
    a: calls.Operand,
    b: calls.Operand,
    c: calls.Operand | None = None,
    alpha: calls.WideNumber = 1.0,
    beta: calls.WideNumber = 1.0,
    *,
    transpose_a: bool = False,
    transpose_b: bool = False,
    fused_activation: Annotated[dml.ActivationLike, dml.FusableInto("DML_OPERATOR_GEMM")] | None = None,
    precision: calls.Precision | None = None,
) -> Array:
    """Multiplies matrices of floats, `alpha * (a @ b) + beta * c`, and applies an activation.

    Dimensions before the last two are batches, which broadcast. Everything is computed in at least float32 and rounded
    once, before the activation. By default, GPUs and TPUs round the factors of float32; pass a `precision` of
    "highest", or set `jax_default_matmul_precision`, for full precision.

    Args:
        c: Matrices to add, which broadcast to the result; None adds nothing.
        alpha: Factor of the product.
        beta: Factor of `c`.
        transpose_a: Whether `a` is (batches, inner size, rows).
        transpose_b: Whether `b` is (batches, columns, inner size).

    >>> a, b = jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([[1.0, 0.0], [2.0, 1.0]])
    >>> gemm(
    ...     a,
    ...     b,
    ...     jnp.array([0.5, -9.0]),
    ...     2.0,
    ...     transpose_b=True,
    ...     fused_activation="relu",
    ... ).tolist()
    [[2.5, 0.0], [6.5, 11.0]]
    """
    left, right, *summand = calls.floats_of_one_type(a=a, b=b, c=c).values()
    left, right, _ = _matrices(left, right, transpose_a=transpose_a, transpose_b=transpose_b)
    total = matrix_product(left, right, precision) * jnp.asarray(alpha, widened(left.dtype))
    if summand:
        total, addend = _broadcast_summand(total, "c", summand[0])
        total += jnp.asarray(beta, total.dtype) * addend
    return dml.apply_fused_activation(total.astype(left.dtype), fused_activation)


class GemmDesc(dml.Operator, function=gemm, infer=_product_sizes):
    a: dml.Input
    b: dml.Input
    c: dml.OptionalInput = None
    output: dml.Output
    trans_a: dml.Enumerator[MatrixTransform]
    trans_b: dml.Enumerator[MatrixTransform]
    alpha: dml.Float
    beta: dml.Float
    fused_activation: dml.FusedActivation = None
    arguments = {"trans_a": "transpose_a", "trans_b": "transpose_b"}
    support = dml.support(FL_1_0=dml.rows(dml.RANK_4, FLOAT), FL_4_0=dml.rows(dml.RANK_2_TO_4, FLOAT))
    rules = dml.page_rules(
        dml.same_type("a", "b", "c", "output"),
        *_product_rules(
            "c", sentence=f"{_PRODUCT} If TransA or TransB is TRANSPOSE, the last two of that tensor are swapped."
        ),
        dml.same_sizes("c", "output"),
        dml.LevelRule(
            "FusedActivation is an activation that can be fused into GEMM, is in the feature level, and has no "
            "tensors; a softmax needs level 6_1.",
            dml.FUSED_ACTIVATION.check,
        ),
    )

    derived = {
        "transpose_a": lambda desc: desc.trans_a is MatrixTransform.TRANSPOSE,
        "transpose_b": lambda desc: desc.trans_b is MatrixTransform.TRANSPOSE,
    }


# MATRIX_MULTIPLY_INTEGER


@calls.operator_function
def matrix_multiply_integer(
    a: ArrayLike, b: ArrayLike, a_zero_point: ZeroPointOfA | None = None, b_zero_point: ZeroPointOfB | None = None
) -> Array:
    """Multiplies matrices of int8 or uint8: `(a - a_zero_point) @ (b - b_zero_point)` in int32, where sums wrap around.

    Dimensions before the last two are batches, which broadcast.

    Returns:
        Array of (batches, rows, columns), in int32.

    >>> a, b = jnp.array([[0, 255], [3, 5]], "uint8"), jnp.array([[-128], [127]], "int8")
    >>> matrix_multiply_integer(a, b, jnp.array([0, 3], "uint8")).tolist()
    [[32385], [254]]
    """
    left, right, shape = _matrices(_narrow_integers("a", a, 8), _narrow_integers("b", b, 8))
    a_zero = _zero_point("a_zero_point", a_zero_point, left, shape, _ROWS)
    b_zero = _zero_point("b_zero_point", b_zero_point, right, shape, _COLUMNS)
    return integer_product(left, right, a_zero, b_zero)


def _integer_table(matrices: range, a_zero_point: range, b_zero_point: range) -> dml.Table:
    return dml.rows(
        matrices,
        INTEGER_8,
        a_zero_point=dml.Cell(a_zero_point, INTEGER_8),
        b_zero_point=dml.Cell(b_zero_point, INTEGER_8),
        output=ONLY_INT32,
    )


class MatrixMultiplyIntegerDesc(dml.Operator, function=matrix_multiply_integer, infer=_product_sizes):
    a: dml.Input
    a_zero_point: dml.OptionalInput = None
    b: dml.Input
    b_zero_point: dml.OptionalInput = None
    output: dml.Output
    support = dml.support(
        FL_2_1=_integer_table(dml.RANK_4, dml.RANK_4, dml.RANK_4),
        FL_4_0=_integer_table(dml.RANK_2_TO_4, dml.RANK_1_TO_4, dml.RANK_2_TO_4),
        FL_5_2=_integer_table(dml.RANK_2_TO_4, dml.RANK_1_TO_4, dml.RANK_1_TO_4),
    )
    rules = dml.page_rules(
        *_product_rules(),
        dml.same_type("a", "a_zero_point"),
        dml.same_type("b", "b_zero_point"),
        _parameter_rule(("a_zero_point",), ("b_zero_point",)),
    )


# MATRIX_MULTIPLY_INTEGER_TO_FLOAT


def _dequantized_product(
    a: Array, b: Array, a_scale: ArrayLike, b_scale: ArrayLike, a_zero_point: Any, b_zero_point: Any
) -> Array:
    """The product of two dequantized matrices in float32, or in float64 if a scale is of that type."""
    a, b, shape = _matrices(a, b)
    a_zero = _zero_point("a_zero_point", a_zero_point, a, shape, _ROWS)
    b_zero = _zero_point("b_zero_point", b_zero_point, b, shape, _COLUMNS)
    scales = [calls.float_array("a_scale", a_scale), calls.float_array("b_scale", b_scale)]
    wide = np.promote_types(*(widened(scale.dtype) for scale in scales))
    a_factor = _expand_parameter("a_scale", scales[0].astype(wide), shape, _ROWS)
    b_factor = _expand_parameter("b_scale", scales[1].astype(wide), shape, _COLUMNS)
    return multiply_scales(integer_product_as_floats(a, b, a_zero, b_zero, wide), a_factor, b_factor)


@calls.operator_function
def matrix_multiply_integer_to_float(
    a: ArrayLike,
    b: ArrayLike,
    a_scale: calls.Float,
    b_scale: calls.Float,
    a_zero_point: ZeroPointOfA | None = None,
    b_zero_point: ZeroPointOfB | None = None,
    bias: calls.Float | None = None,
) -> Array:
    """Multiplies quantized matrices of integers: `(a - a_zero_point) @ (b - b_zero_point) * a_scale * b_scale + bias`.

    Dimensions before the last two are batches, which broadcast. Sums of int8 and uint8 are exact, however long; wider
    integers are multiplied in float32. The sums are multiplied by one scale after the other in float32. Scales that are
    Python numbers are float32.

    Args:
        bias: Added to the product, to which it broadcasts; None adds nothing.

    Returns:
        Array of (batches, rows, columns), in the type of the scales.

    >>> a, b = jnp.array([[1, 2]], "int8"), jnp.array([[3], [4]], "int8")
    >>> matrix_multiply_integer_to_float(
    ...     a, b, 0.5, 0.25, jnp.array(1, "int8"), bias=10.0
    ... ).tolist()
    [[10.5]]
    """
    left, right = _narrow_integers("a", a, 32), _narrow_integers("b", b, 32)
    product = _dequantized_product(left, right, a_scale, b_scale, a_zero_point, b_zero_point)
    scale, _, *summand = calls.floats_of_one_type(a_scale=a_scale, b_scale=b_scale, bias=bias).values()
    if summand:
        product, addend = _broadcast_summand(product, "bias", summand[0])
        product += addend
    return product.astype(scale.dtype)


class MatrixMultiplyIntegerToFloatDesc(
    QuantizedOperands, function=matrix_multiply_integer_to_float, infer=_product_sizes
):
    bias: dml.OptionalInput = None
    output: dml.Output
    support = dml.support(
        FL_6_2=dml.rows(
            dml.RANK_1_TO_4,
            INTEGER_UP_TO_32_BIT,
            **dict.fromkeys(("a", "b"), dml.Cell(dml.RANK_2_TO_4, INTEGER_UP_TO_32_BIT)),
            **dict.fromkeys(("a_scale", "b_scale"), FLOAT),
            **dict.fromkeys(("bias", "output"), dml.Cell(dml.RANK_2_TO_4, FLOAT)),
        )
    )
    rules = dml.page_rules(
        dml.same_rank("a_scale", "a_zero_point", "b_scale", "b_zero_point"),
        dml.same_type("a", "a_zero_point", "b", "b_zero_point"),
        dml.same_type("a_scale", "b_scale", "bias", "output"),
        *_product_rules("bias"),
        dml.same_sizes("bias", "output"),
        _parameter_rule(("a_scale", "a_zero_point"), ("b_scale", "b_zero_point")),
    )


# QUANTIZED_LINEAR_MATRIX_MULTIPLY


@calls.operator_function
def quantized_linear_matrix_multiply(
    a: ArrayLike,
    a_scale: calls.Float,
    a_zero_point: ZeroPointOfA | None,
    b: ArrayLike,
    b_scale: calls.Float,
    b_zero_point: ZeroPointOfB | None,
    output_scale: calls.Float,
    output_zero_point: ZeroPointOfOutputLikeA | None = None,
    *,
    dtype: DTypeLike | None = None,
) -> Array:
    """Multiplies quantized matrices of int8 or uint8, and quantizes the product.

    Dimensions before the last two are batches, which broadcast. The integer sums are exact. They are multiplied in
    float32 by `a_scale`, then by `b_scale`. The product is divided by `output_scale`, rounded with halves to even, and
    saturated to the output's type.

    Args:
        output_scale: Scale of the result: one number, or one for each row.
        output_zero_point: Zero point of the result: one integer, or one for each row. None means 0.
        dtype: Integer type of the result; None means that of `output_zero_point`, else of `a`.

    Returns:
        Array of (batches, rows, columns), quantized.

    >>> a, b = jnp.array([[1, 2], [100, 100]], "int8"), jnp.array([[3], [4]], "int8")
    >>> quantized_linear_matrix_multiply(
    ...     a, 0.5, None, b, 1.0, None, 1.0, jnp.array(-3, "int8")
    ... ).tolist()
    [[3], [127]]
    """
    left, right = _narrow_integers("a", a, 8), _narrow_integers("b", b, 8)
    product = _dequantized_product(left, right, a_scale, b_scale, a_zero_point, b_zero_point)
    scale = _expand_parameter("output_scale", calls.float_array("output_scale", output_scale), product.shape, _ROWS)
    zero = output_zero_point
    if zero is not None:
        zero = calls.integer_array("output_zero_point", zero)
        zero = _expand_parameter("output_zero_point", zero, product.shape, _ROWS)
    return quantize_rounded("output", product, scale, zero, dtype, left.dtype)


_SCALES_AND_ZERO_POINTS = (
    *("a_scale", "a_zero_point", "b_scale", "b_zero_point"),
    *("output_scale", "output_zero_point"),
)


def _quantized_table(matrices: range, parameters: range) -> dml.Table:
    matrix_cells = dict.fromkeys(("a", "b", "output"), dml.Cell(matrices, INTEGER_8))
    scale_cells = dict.fromkeys(("a_scale", "b_scale", "output_scale"), ONLY_FLOAT32)
    return dml.rows(parameters, INTEGER_8, **matrix_cells, **scale_cells)


class QuantizedLinearMatrixMultiplyDesc(
    QuantizedBinary, function=quantized_linear_matrix_multiply, infer=_product_sizes
):
    support = dml.support(
        FL_2_1=_quantized_table(dml.RANK_4, dml.RANK_4),
        FL_4_0=_quantized_table(dml.RANK_2_TO_4, dml.RANK_1_TO_4),
    )
    rules = dml.page_rules(
        dml.same_rank(*_SCALES_AND_ZERO_POINTS),
        *QuantizedBinary.zero_point_rules,
        *_product_rules(),
        _parameter_rule(("a_scale", "a_zero_point", "output_scale", "output_zero_point"), ("b_scale", "b_zero_point")),
    )
