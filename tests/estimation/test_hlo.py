"""The text of compiled HLO modules is read as XLA means it."""

from dmljax.estimation.hlo.parser import HloTensor, Instruction, parse

TEXT = """\
HloModule jit_f, is_scheduled=true, entry_computation_layout={(f32[8,4]{1,0})->(f32[8,4]{1,0}, s32[])}

FileNames
1 "f.py"

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b), metadata={op_name="jit(f)/add(x)"}
}

ENTRY %main.7 (x.1: f32[8,4], n.1: (s32[], s4[5])) -> (f32[8,4], s32[]) {
  %n.1 = (s32[], /*index=1*/s4[5]{0}) parameter(1)
  %x.1 = f32[8,4]{1,0:T(8,128)(2,1)S(1)} parameter(0), sharding={replicated}
  %zero = f32[] constant(0)
  %name.2 = s32[] get-tuple-element(%n.1), index=0
  %reduce-window.3 = f32[8,4]{1,0} reduce-window(%x.1, %zero), window={size=3x2 pad=1_1x0_1}, to_apply=%add
  ROOT %tuple.3 = (f32[8,4]{1,0}, s32[]) tuple(%reduce-window.3, %name.2)
}
"""


def instruction(name: str) -> Instruction:
    return parse(TEXT).computations["main.7"].instructions[name]


def test_computations_keep_their_order_and_the_entry_is_known() -> None:
    module = parse(TEXT)
    assert list(module.computations) == ["add", "main.7"]
    assert (module.entry, module.devices) == ("main.7", 1)
    assert parse(TEXT.replace(", entry", ", num_partitions=4, replica_count=2, entry", 1)).devices == 8


def test_a_tensor_has_a_type_sizes_and_a_memory() -> None:
    assert instruction("x.1").results == (HloTensor("f32", (8, 4), memory_space=1),)
    assert instruction("zero").results == (HloTensor("f32", ()),)
    assert instruction("zero").results[0].elements == 1


def test_a_tuple_has_its_tensors_as_results() -> None:
    assert instruction("n.1").results == (HloTensor("s32", ()), HloTensor("s4", (5,)))
    assert [tensor.bytes for tensor in instruction("n.1").results] == [4, 3]


def test_bytes_follow_from_the_type() -> None:
    sizes = {"pred": 1, "bf16": 2, "f64": 8, "u2": 1, "f8e4m3fn": 1, "f4e2m1fn": 1, "token": 0, "c64": 8}
    assert {dtype: HloTensor(dtype, ()).bytes for dtype in sizes} == sizes
    assert HloTensor("f32", (3, 0)).bytes == 0


def test_operands_and_callees_are_names() -> None:
    window = instruction("reduce-window.3")
    assert window.operands == ("x.1", "zero")
    assert window.callees == ("add",)
    assert window.callee("to_apply") == "add"
    assert window.callee("body") is None


def test_every_branch_of_a_conditional_is_a_callee() -> None:
    text = "ENTRY %e (p: s32[]) -> f32[] {\n  ROOT %c = f32[] conditional(%p, %a, %a), {branches}\n}"
    for branches, expected in (
        ("branch_computations={%f, %g.1}, metadata={}", ("f", "g.1")),
        ("true_computation=%f, false_computation=%g", ("f", "g")),
    ):
        root = parse(text.replace("{branches}", branches)).computations["e"].root
        assert root.callees == expected


def test_the_users_of_an_instruction_read_its_result() -> None:
    main = parse(TEXT).computations["main.7"]
    assert [user.name for user in main.users["x.1"]] == ["reduce-window.3"]
    assert [parameter.name for parameter in main.parameters] == ["x.1", "n.1"]
    assert main.root.name == "tuple.3"
