"""The cost of a compiled module is counted as its chip would run it."""

import dataclasses

from dmljax.estimation import Cost, cost_of
from dmljax.estimation.hlo.cost import KernelCost, called_kernels, steps_of

ADD = """\
%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %s = f32[] add(%a, %b)
}"""


def cost(*computations: str) -> Cost:
    """The cost of computations, the last of which is the entry: a line for the result, and one per instruction."""
    texts = [ADD]
    for i, computation in enumerate(computations):
        head, *lines = computation.strip().splitlines()
        entry = "ENTRY " if i == len(computations) - 1 else ""
        texts.append("\n".join([f"{entry}%{head} {{", *(f"  {line.strip()}" for line in lines), "}"]))
    return cost_of("HloModule m\n\n" + "\n\n".join(texts))


def test_a_kernel_reads_its_operands_writes_its_result_and_computes_each_element() -> None:
    total = cost("""main (x: f32[8], y: f32[8]) -> f32[8]
        %x = f32[8]{0} parameter(0)
        %y = f32[8]{0} parameter(1)
        ROOT %z = f32[8]{0} multiply(%x, %y)""")
    assert total == Cost(kernels=1, bytes=96, element_operations=8, unestimated_bytes=96)


def test_instructions_that_run_nothing_are_not_kernels() -> None:
    total = cost("""main (x: f32[8]) -> (f32[2,4], f32[])
        %x = f32[8]{0} parameter(0)
        %c = f32[] constant(1)
        %b = f32[2,4]{1,0} bitcast(%x)
        %room = f32[99]{0} custom-call(), custom_call_target="AllocateBuffer"
        ROOT %t = (f32[2,4]{1,0}, f32[]) tuple(%b, %c)""")
    assert total == Cost()


def test_a_fusion_is_one_kernel() -> None:
    total = cost(
        """fused (p: f32[8,4]) -> f32[8]
        %p = f32[8,4]{1,0} parameter(0)
        %e = f32[8,4]{1,0} exponential(%p)
        %zero = f32[] constant(0)
        ROOT %r = f32[8]{0} reduce(%e, %zero), dimensions={1}, to_apply=%add""",
        """main (x: f32[8,4]) -> f32[8]
        %x = f32[8,4]{1,0} parameter(0)
        ROOT %f = f32[8]{0} fusion(%x), kind=kInput, calls=%fused""",
    )
    # A sum takes an operation for each element that it adds.
    assert (total.kernels, total.bytes, total.element_operations) == (1, 160, 64)


def test_a_window_takes_an_operation_for_each_of_its_elements() -> None:
    total = cost("""main (x: f32[8]) -> f32[6]
        %x = f32[8]{0} parameter(0)
        %zero = f32[] constant(0)
        ROOT %r = f32[6]{0} reduce-window(%x, %zero), window={size=3}, to_apply=%add""")
    assert total.element_operations == 18


def test_padding_takes_no_operations_and_windows_that_see_every_element_reduce_once() -> None:
    for result, window, operations in (
        ("f32[8]", "size=3 pad=1_1", 8 * 3 - 2),
        ("f32[4]", "size=3 stride=2 pad=0_1", 4 * 3 - 1),
        ("f32[8]", "size=15 pad=7_7", 8),  # as XLA for a TPU writes a sum that is broadcast
    ):
        total = cost(f"""main (x: f32[8]) -> {result}
            %x = f32[8]{{0}} parameter(0)
            %zero = f32[] constant(0)
            ROOT %r = {result}{{0}} reduce-window(%x, %zero), window={{{window}}}, to_apply=%add""")
        assert total.element_operations == operations


def test_only_the_slice_of_a_sliced_operand_is_read() -> None:
    total = cost(
        """fused (p: f32[100,8], i: s32[]) -> f32[8]
        %p = f32[100,8]{1,0} parameter(0)
        %i = s32[] parameter(1)
        %flat = f32[100,1,8]{2,1,0} bitcast(%p)
        %zero = s32[] constant(0)
        %row = f32[1,1,8]{2,1,0} dynamic-slice(%flat, %i, %zero, %zero), dynamic_slice_sizes={1,1,8}
        ROOT %r = f32[8]{0} bitcast(%row)""",
        """main (x: f32[100,8], n: s32[]) -> f32[8]
        %x = f32[100,8]{1,0} parameter(0)
        %n = s32[] parameter(1)
        ROOT %f = f32[8]{0} fusion(%x, %n), kind=kLoop, calls=%fused""",
    )
    assert total.bytes == 32 + 4 + 32


def test_an_operand_that_a_nested_fusion_only_renames_is_read() -> None:
    total = cost(
        """inner (p: f32[100,8]) -> f32[800]
        %p = f32[100,8]{1,0} parameter(0)
        ROOT %flat = f32[800]{0} bitcast(%p)""",
        """outer (p: f32[100,8]) -> f32[800]
        %p = f32[100,8]{1,0} parameter(0)
        %flat = f32[800]{0} fusion(%p), kind=kLoop, calls=%inner
        ROOT %r = f32[800]{0} negate(%flat)""",
        """main (x: f32[100,8]) -> f32[800]
        %x = f32[100,8]{1,0} parameter(0)
        ROOT %f = f32[800]{0} fusion(%x), kind=kLoop, calls=%outer""",
    )
    assert total.bytes == 2 * 3200


def test_only_the_update_of_an_in_place_update_is_written() -> None:
    total = cost(
        """fused (p: f32[100,8], u: f32[1,8], i: s32[]) -> f32[100,8]
        %p = f32[100,8]{1,0} parameter(0)
        %u = f32[1,8]{1,0} parameter(1)
        %i = s32[] parameter(2)
        ROOT %d = f32[100,8]{1,0} dynamic-update-slice(%p, %u, %i, %i)""",
        """main (x: f32[100,8], u: f32[1,8], n: s32[]) -> f32[100,8]
        %x = f32[100,8]{1,0} parameter(0)
        %u = f32[1,8]{1,0} parameter(1)
        %n = s32[] parameter(2)
        ROOT %f = f32[100,8]{1,0} fusion(%x, %u, %n), kind=kLoop, calls=%fused""",
    )
    assert total.bytes == 32 + 32 + 4 + 32


def test_scatters_count_each_element_once() -> None:
    total = cost("""main (x: f32[100], i: s32[5], u: f32[5]) -> f32[100]
        %x = f32[100]{0} parameter(0)
        %i = s32[5]{0} parameter(1)
        %u = f32[5]{0} parameter(2)
        ROOT %s = f32[100]{0} scatter(%x, %i, %u), to_apply=%add""")
    assert (total.bytes, total.gathered, total.element_operations) == (20 * 4, 5, 5)


BODY = """body (t: (s32[], f32[8])) -> (s32[], f32[8])
    %t = (s32[], f32[8]{0}) parameter(0)
    %i = s32[] get-tuple-element(%t), index=0
    %x = f32[8]{0} get-tuple-element(%t), index=1
    %y = f32[8]{0} negate(%x)
    ROOT %r = (s32[], f32[8]{0}) tuple(%i, %y)"""


def loop(condition: str, attributes: str = "") -> Cost:
    return cost(
        BODY,
        f"""condition (t: (s32[], f32[8])) -> pred[]
        %t = (s32[], f32[8]{{0}}) parameter(0)
        %i = s32[] get-tuple-element(%t), index=0
        %ten = s32[] constant(10)
        ROOT %c = pred[] {condition}""",
        f"""main (t: (s32[], f32[8])) -> (s32[], f32[8])
        %t = (s32[], f32[8]{{0}}) parameter(0)
        ROOT %w = (s32[], f32[8]{{0}}) while(%t), condition=%condition, body=%body{attributes}""",
    )


def test_a_loop_counts_as_often_as_it_runs() -> None:
    known = ', backend_config={"known_trip_count":{"n":"7"}}'
    # The GPU compiler notes the trip count; with the TPU compiler, it follows from the condition.
    for total, times in (
        (loop("compare(%i, %ten), direction=LT", known), 7),
        (loop("compare(%i, %ten), direction=LT"), 10),
    ):
        assert (total.kernels, total.bytes) == (2 * times, (64 + 9) * times)
        assert (total.loops, total.unbounded_loops, total.iterations) == (1, 0, times)


def test_a_loop_of_unknown_length_counts_once_and_says_so() -> None:
    total = loop("compare(%i, %ten), direction=NE")
    assert (total.kernels, total.loops, total.unbounded_loops) == (2, 1, 1)


def test_the_costliest_branch_of_a_conditional_counts_and_the_loops_of_all() -> None:
    total = cost(
        """little (x: f32[8]) -> f32[8]
        %x = f32[8]{0} parameter(0)
        ROOT %s = f32[8]{0} sort(%x), dimensions={0}, to_apply=%add""",
        """much (x: f32[8]) -> f32[8]
        %x = f32[8]{0} parameter(0)
        %y = f32[8]{0} negate(%x)
        ROOT %z = f32[8]{0} negate(%y)""",
        """main (p: pred[], x: f32[8]) -> f32[8]
        %p = pred[] parameter(0)
        %x = f32[8]{0} parameter(1)
        ROOT %c = f32[8]{0} conditional(%p, %x, %x), true_computation=%little, false_computation=%much""",
    )
    assert (total.kernels, total.bytes, total.conditionals, total.sorts) == (2, 128, 1, 1)


def test_the_costliest_branch_on_a_tpu_takes_the_most_cycles() -> None:
    total = cost(
        """far (x: f32[8]) -> f32[8]
        %x = f32[8]{0:T(8,128)} parameter(0)
        ROOT %y = f32[8]{0:T(8,128)} negate(%x), backend_config={"estimated_cycles":"70"}""",
        """near (x: f32[8]) -> f32[8]
        %x = f32[8]{0:T(8,128)S(1)} parameter(0)
        ROOT %y = f32[8]{0:T(8,128)S(1)} sine(%x), backend_config={"estimated_cycles":"700"}""",
        """main (p: s32[], x: f32[8], y: f32[8]) -> f32[8]
        %p = s32[] parameter(0)
        %x = f32[8]{0:T(8,128)} parameter(1)
        %y = f32[8]{0:T(8,128)S(1)} parameter(2)
        ROOT %c = f32[8]{0} conditional(%p, %x, %y), branch_computations={%far, %near}""",
    )
    assert (total.cycles, total.conditionals) == (700, 1)


def test_sorts_inside_fusions_and_behind_custom_calls_count() -> None:
    total = cost(
        """fused (p: f32[2,8]) -> f32[2,8]
        %p = f32[2,8]{1,0} parameter(0)
        ROOT %s = f32[2,8]{1,0} sort(%p), dimensions={1}, to_apply=%add""",
        """main (x: f32[2,8]) -> f32[2,8]
        %x = f32[2,8]{1,0} parameter(0)
        %f = f32[2,8]{1,0} fusion(%x), kind=kCustom, calls=%fused
        ROOT %c = f32[2,8]{1,0} custom-call(%f), custom_call_target="__cub$DeviceRadixSort\"""",
    )
    assert (total.kernels, total.sorts, total.element_operations) == (2, 2, 16 * 3)


def test_tpu_costs_use_main_memory_bytes_and_compiler_cycles() -> None:
    total = cost("""main (x: f32[8]) -> f32[8]
        %x = f32[8]{0:T(8,128)} parameter(0)
        %start = (f32[8]{0:T(8,128)S(1)}, f32[8]{0:T(8,128)}, u32[]{:S(2)}) copy-start(%x)
        %near = f32[8]{0:T(8,128)S(1)} copy-done(%start)
        %y = f32[8]{0:T(8,128)S(1)} negate(%near), backend_config={"estimated_cycles":"70"}
        ROOT %z = f32[8]{0:T(8,128)} sine(%y)""")
    assert (total.kernels, total.bytes, total.cycles, total.unestimated_bytes) == (2, 64, 70, 64)
    assert total.copied == 32


def kernel(config: str) -> Cost:
    """The cost of a call of a Pallas kernel."""
    return cost(f"""main (x: f32[8], y: f32[8]) -> f32[8]
        %x = f32[8]{{0}} parameter(0)
        %y = f32[8]{{0:S(1)}} parameter(1)
        ROOT %k = f32[8]{{0}} custom-call(%x, %y), custom_call_target="tpu_custom_call", backend_config={config}""")


def test_a_pallas_kernel_costs_what_it_declares_or_else_its_operands_and_results() -> None:
    declared = '"cost_estimate":{"flops":"700","transcendentals":"30","bytes_accessed":"9000"}'
    total = kernel(f'{{"custom_call_config":{{"body":"TUz","flops":1,{declared}}}}}')
    # Of what it reads, a copy into the core's memory has counted the 32 bytes of y.
    expected = Cost(kernels=1, bytes=9000 - 32, unestimated_bytes=9000, element_operations=30)
    assert total == dataclasses.replace(expected, products=700, halves=700, passes=700, declared=700)
    for config in ('{"custom_call_config":{"body":"TUz"}}', '{grid_x = 4 : i32, name = "mha_forward"}'):
        assert kernel(config) == Cost(kernels=1, bytes=64, unestimated_bytes=96, undeclared=1)
    nothing = '"cost_estimate":{"flops":"0","transcendentals":"0","bytes_accessed":"0"}'
    assert kernel(f"{{{nothing}}}") == Cost(kernels=1, bytes=64, unestimated_bytes=96)


def called(attributes: str) -> list[KernelCost]:
    lines = ["ENTRY %main (x: f32[8]) -> f32[8] {", "  %x = f32[8]{0} parameter(0)"]
    lines += [f'  ROOT %y = f32[8]{{0}} custom-call(%x), custom_call_target="some", {attributes}', "}"]
    return steps_of("\n".join(lines))


def test_pallas_kernels_are_named_after_their_functions() -> None:
    for attributes, name in {
        'metadata={op_name="jit(f)/jit(flash_attention)/pallas_call"}': "flash_attention",
        'metadata={op_name="jit(f)/jvp(jit(attention))/flash_dq_block=512/pallas_call"}': "flash_dq_block=512",
        'metadata={op_name="jit(f)/transpose(jvp(mha_backward))/pallas_call"}': "mha_backward",
        'metadata={op_name="f/custom_partitioning"}, backend_config={name = "mha_forward", x = 1}': "mha_forward",
    }.items():
        assert called_kernels(called(attributes)) == (name,)
    assert called_kernels(called('metadata={op_name="jit(f)/tanh"}')) == ()


def test_custom_calls_that_declare_no_cost_are_named() -> None:
    assert [step.custom_call for step in called("")] == ["", "some"]
    declared = '"cost_estimate":{"flops":"7","transcendentals":"3","bytes_accessed":"9"}'
    assert [step.custom_call for step in called(f"backend_config={{{declared}}}")] == ["", ""]


def test_a_tpus_own_kernel_for_attention_multiplies_scores_by_values() -> None:
    call = 'f32[2,4,6,3]{3,2,1,0} custom-call(%x, %y), custom_call_target="tpu_custom_call", metadata={op_name='
    total = product(("f32[2,4,6,5]{3,2,1,0}", "f32[2,4,5,3]{3,2,1,0}"), call + '"online-softmax"}')
    assert (total.products, total.passes, total.undeclared) == (2 * 2 * 4 * 6 * 5 * 3, 2 * 2 * 4 * 6 * 5 * 3, 0)


def product(operands: tuple[str, str], instruction: str) -> Cost:
    """The cost of an instruction of two operands, x and y."""
    x, y = operands
    return cost(f"""main (x: {x}, y: {y}) -> f32[1]
        %x = {x} parameter(0)
        %y = {y} parameter(1)
        ROOT %r = {instruction}""")


def test_a_product_takes_two_operations_for_each_of_its_terms() -> None:
    dot = "f32[3,4]{1,0} dot(%x, %y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    total = product(("f32[3,5]{1,0}", "f32[5,4]{1,0}"), dot)
    assert (total.products, total.full_products, total.halves, total.element_operations) == (120, 0, 240, 0)
    exact = product(("f32[3,5]{1,0}", "f32[5,4]{1,0}"), dot + ", operand_precision={highest,highest}")
    assert (exact.products, exact.full_products, exact.doubles, exact.halves, exact.passes) == (120, 120, 0, 0, 720)
    high = product(("f32[3,5]{1,0}", "f32[5,4]{1,0}"), dot + ", operand_precision={default,high}")
    assert (high.full_products, high.halves, high.passes) == (0, 240, 360)
    double = product(("f64[3,5]{1,0}", "f64[5,4]{1,0}"), dot)
    assert (double.full_products, double.doubles) == (120, 120)
    bytes_ = product(("s8[3,5]{1,0}", "s8[5,4]{1,0}"), dot)
    assert (bytes_.products, bytes_.halves, bytes_.passes) == (120, 60, 60)
    integers = product(("s32[3,5]{1,0}", "s32[5,4]{1,0}"), dot)
    assert (integers.products, integers.integer_products, integers.halves, integers.passes) == (120, 120, 0, 120)
    longs = product(("u64[3,5]{1,0}", "u64[5,4]{1,0}"), dot)
    assert (longs.integer_products, longs.full_products, longs.doubles) == (120, 0, 0)
    halves = product(("bf16[3,5]{1,0}", "bf16[5,4]{1,0}"), dot)
    assert (halves.products, halves.full_products, halves.halves) == (120, 0, 120)


def test_a_product_of_a_gpus_library_counts() -> None:
    gemm = (
        '(f32[3,4]{1,0}, s8[9]{0}) custom-call(%x, %y), custom_call_target="__cublas$gemm", backend_config='
        '{"gemm_backend_config":{"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"]}}}'
    )
    assert product(("f32[3,5]{1,0}", "f32[5,4]{1,0}"), gemm).products == 120


def test_a_convolution_multiplies_each_result_by_the_filter_of_its_channel() -> None:
    x, y = "f32[8,16,16,2]{3,2,1,0}", "f32[4,3,3,2]{3,2,1,0}"
    window = "window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_o01i->b01f"
    terms = 2 * (8 * 4 * 2) * (16 * 3 - 2) ** 2  # two of each axis's products read the padding
    images = "f32[8,16,16,4]{3,2,1,0}"
    assert product((x, y), f"{images} convolution(%x, %y), {window}").products == terms
    for name, operands, result in (
        ("convForward", (x, y), images),
        ("convBackwardInput", (images, y), x),
        ("convBackwardFilter", (x, images), y),
    ):
        call = f'({result}, u8[0]{{0}}) custom-call(%x, %y), {window}, custom_call_target="__cudnn${name}"'
        assert product(operands, call).products == terms


def test_a_tpus_batched_product_is_not_counted_as_a_longer_convolution() -> None:
    window = "window={size=4 stride=3 lhs_dilate=4}, dim_labels=0bf_0io->0bf"
    total = product(("f32[4,16,8]{2,1,0}", "f32[4,8,2]{2,1,0}"), f"f32[4,16,2]{{2,1,0}} convolution(%x, %y), {window}")
    assert total.products == 2 * 4 * 16 * 8 * 2


def test_devices_receive_only_the_bytes_they_lack() -> None:
    x, y = "f32[8]{0}", "f32[8]{0}"
    groups = "replica_groups={{0,1,2,3}}"
    for instruction, received in (
        ("f32[8]{0} all-reduce(%x), to_apply=%add", 48),  # a ring adds three quarters, and hands out three quarters
        ("f32[8]{0} all-reduce-start(%x), to_apply=%add", 48),
        ("f32[32]{0} all-gather(%x), dimensions={0}", 96),
        ("(f32[8]{0}, f32[32]{0}) all-gather-start(%x), dimensions={0}", 96),
        ("f32[2]{0} reduce-scatter(%x), dimensions={0}, to_apply=%add", 24),
        ("(f32[8]{0}, f32[2]{0}) reduce-scatter-start(%x), dimensions={0}, to_apply=%add", 24),
        ("((f32[8]{0}), f32[8]{0}) all-to-all-start(%x), dimensions={0}", 24),
    ):
        total = product((x, y), f"{instruction}, {groups}")
        assert (total.exchanged, total.kernels, total.element_operations) == (received, 1, 0)
    pairs = "source_target_pairs={{0,0},{1,2},{2,1}}"
    moved = product((x, y), f"(f32[8]{{0}}, f32[8]{{0}}, u32[], u32[]) collective-permute-start(%x), {pairs}")
    assert moved.exchanged == 32
    assert product((x, y), "f32[8]{0} all-reduce(%x), replica_groups={{0},{1}}, to_apply=%add").exchanged == 0
    for done in ("all-reduce-done", "reduce-scatter-done", "all-to-all-done"):
        assert product((x, y), f"f32[8]{{0}} {done}(%x)") == Cost()


def test_each_kernel_is_named_after_what_it_computes_or_reads() -> None:
    text = "\n".join(
        [
            "HloModule m",
            "ENTRY %main (x: f32[8]) -> f32[8] {",
            '  %x = f32[8]{0} parameter(0), metadata={op_name="x"}',
            '  %y = f32[8]{0} negate(%x), metadata={op_name="jit(f)/[node]/neg" stack_frame_id=1}',
            "  ROOT %z = f32[8]{0} negate(%y)",
            "}",
        ]
    )
    assert [(step.name, step.cost.kernels) for step in steps_of(text)] == [
        ("", 0),
        ("jit(f)/[node]/neg", 1),
        ("jit(f)/[node]/neg", 1),
    ]


def test_a_fused_kernel_is_named_after_its_last_part() -> None:
    text = "\n".join(
        [
            "HloModule m",
            "%fused (p: f32[8]) -> f32[8] {",
            '  %p = f32[8]{0} parameter(0), metadata={op_name="x"}',
            '  %e = f32[8]{0} exponential(%p), metadata={op_name="jit(f)/exp"}',
            '  %n = f32[8]{0} negate(%e), metadata={op_name="jit(f)/neg"}',
            "  ROOT %b = f32[8]{0} bitcast(%n)",
            "}",
            "ENTRY %main (x: f32[8]) -> f32[8] {",
            "  %x = f32[8]{0} parameter(0)",
            "  ROOT %y = f32[8]{0} fusion(%x), kind=kLoop, calls=%fused",
            "}",
        ]
    )
    assert [step.name for step in steps_of(text)] == ["", "jit(f)/neg"]
