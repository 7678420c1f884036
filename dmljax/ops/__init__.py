"""The operators, a module per family.

Args:
    input: Array of any shape.
    a: First array; `a` and `b` broadcast to one shape.
    b: Second array.
    scale_bias: `input * scale + bias` is computed first; None leaves `input` as it is.
    input_gradient: Gradient with respect to the forward operator's result, in its shape (`grad_output`).
    output_sizes: Shape of the result.
    fused_activation: Applied to the result: a name such as "relu", dmljax's function, its partial, or a descriptor.
    precision: Precision of the products, as in `jax.lax.dot`; None follows `jax_default_matmul_precision`.
    window_sizes: Sizes of a window: one number for all spatial dimensions, or one for each.
    strides: Distances between windows: one number for all spatial dimensions, or one for each.
    dilations: Distances between elements of a window: one number for all spatial dimensions, or one for each.
    start_padding: Padding before each spatial dimension, in elements: one number for all, or one for each.
    end_padding: Padding after each spatial dimension, in elements: one number for all, or one for each.
    interpolation_mode: Whether to take the nearest element, or to average the nearest ones linearly.
    output_scale: Scale of the result.
    output_zero_point: Zero point of the result; None means 0.

Returns:
    Array of the shape and type of `input`.
"""
