"""Adapters replace inputs of a model, in ONNX Runtime's sessions and in GenAI's generators, and their files are its."""

import gc
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import onnx.parser
import onnxruntime
import pytest
from helpers import GATE, assert_same_bits, compilations, refuses
from small_language_models import write_folder
from small_older_folders import WORDS, adapt_logits, write_stacked_folder

from dmljax.run import onnxruntime as ort, onnxruntime_genai as og

GRAPH = """\
<ir_version: 10, opset_import: ["": 21]>
f (float[N, 2] x, float[2, R] a, float[R, 2] b, int64[1] n) => (float[N, 2] y)
<float[2, 0] a = {}, float[0, 2] b = {}, int64[1] n = {3}> {
    p = MatMul(x, a)
    q = MatMul(p, b)
    s = Cast<to = 1>(n)
    t = Add(x, q)
    y = Mul(t, s)
}"""
X = np.array([[1, 2], [3, 4]], np.float32)
LIBRARIES = [onnxruntime, ort]


def low_rank(rank: int, number: float) -> dict[str, Any]:
    return {"a": np.full((2, rank), number, np.float32), "b": np.full((rank, 2), 3, np.float32)}


ADAPTERS: dict[str, dict[str, Any]] = {
    "narrow": low_rank(1, 2),
    "wide": low_rank(2, 0.5),
    "other": low_rank(2, 0.25),
    "times": {"n": np.array([7])},
    "input": {"x": X + 1},
    "unknown": {"zz": np.ones(2)},
    "long": {"n": np.array([7, 8])},
    "flat": {"a": np.ones(2, np.float32)},
    "double": {"a": np.ones((2, 1))},
}
TYPES = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64"]


def write(library: Any, path: Path, arrays: dict[str, Any]) -> Path:
    adapter = library.AdapterFormat()
    adapter.set_adapter_version(5)
    adapter.set_model_version(-9)
    values = {name: library.OrtValue.ortvalue_from_numpy(array) for name, array in arrays.items()}
    adapter.set_parameters(values)
    adapter.export_adapter(str(path))
    return path


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("adapters")
    onnx.save(onnx.parser.parse_model(GRAPH), folder / "model.onnx")
    for i, (name, arrays) in enumerate(ADAPTERS.items()):
        write(LIBRARIES[i % 2], folder / name, arrays)  # either library reads what the other writes
    return folder


# Files


@pytest.mark.parametrize(("writer", "reader"), [LIBRARIES, LIBRARIES[::-1]])
def test_each_library_reads_the_files_of_the_other(writer: Any, reader: Any, tmp_path: Path) -> None:
    arrays = {dtype: np.arange(6).astype(dtype).reshape(2, 3) for dtype in TYPES} | {"empty": np.zeros((0, 3))}
    read = reader.AdapterFormat.read_adapter(str(write(writer, tmp_path / "all", arrays)))
    assert (read.get_format_version(), read.get_adapter_version(), read.get_model_version()) == (1, 5, -9)
    values = read.get_parameters()
    assert values.keys() == arrays.keys()
    for name, array in arrays.items():
        assert_same_bits(values[name].numpy(), array)
        assert values[name].data_ptr() % 8 == 0 or not array.size  # ONNX Runtime computes with the file's memory


def test_bfloat16_has_its_own_type_in_files(tmp_path: Path) -> None:
    adapter = ort.AdapterFormat()
    bits = np.arange(4, dtype=np.uint16)
    adapter.set_parameters({"w": ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, 16)})
    adapter.export_adapter(str(tmp_path / "halves"))
    value = onnxruntime.AdapterFormat.read_adapter(str(tmp_path / "halves")).get_parameters()["w"]
    assert (value.element_type(), value.shape()) == (16, [4])


def test_arrays_of_numpy_become_an_adapter(tmp_path: Path) -> None:
    from dmljax.run.onnxruntime.capi.convert_npz_to_onnx_adapter import export_lora_parameters

    np.savez(tmp_path / "arrays.npz", **low_rank(2, 1))
    export_lora_parameters(tmp_path / "arrays.npz", 1, 2, str(tmp_path / "adapter"))
    read = onnxruntime.AdapterFormat.read_adapter(str(tmp_path / "adapter"))
    assert (read.get_adapter_version(), read.get_model_version(), {*read.get_parameters()}) == (1, 2, {"a", "b"})


def test_files_that_are_no_adapters_say_why(folder: Path, tmp_path: Path) -> None:
    data = (folder / "narrow").read_bytes()
    changed = {
        b"": "must be an adapter of ONNX Runtime, with TORT after the first four bytes",
        data[:100]: "must be an adapter of ONNX Runtime; its offsets must be within the 100 bytes of the file",
        data.replace(b"\1\0\0\0\5\0\0\0", b"\2\0\0\0\5\0\0\0"): "format_version must be 1; got 2",
    }
    for content, message in changed.items():
        (tmp_path / "file").write_bytes(content)
        for read in (ort.LoraAdapter().Load, ort.AdapterFormat.read_adapter):
            with refuses(message, RuntimeError):
                read(str(tmp_path / "file"))
    with refuses("must be a readable file", RuntimeError):
        ort.LoraAdapter().Load(str(tmp_path / "absent"))
    wrong: Any = tmp_path
    with refuses("file_path must be of type str", TypeError):
        ort.LoraAdapter().Load(wrong)
    for array in (np.array(7.0), np.array([True])):
        with refuses("w must be integers from 8 bits on, or floats, with at least one dimension", RuntimeError):
            write(ort, tmp_path / "file", {"w": array})
    with refuses("must be a writable file", RuntimeError):
        write(ort, tmp_path / "absent" / "file", {})


# Generators


NUMBERS = {"eleven": 11, "twelve": 12}  # the tokens that adapters make likeliest


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A model and its adapters."""
    folder = write_stacked_folder(tmp_path_factory.mktemp("model"))
    adapt_logits(folder / "model.onnx")
    model = og.Model(str(folder))
    adapters = og.Adapters(model)
    for name, token in NUMBERS.items():
        shift = np.zeros(WORDS, np.float32)
        shift[token] = 1e6
        adapters.load(str(write(ort, folder / name, {"shift": shift})), name)
    others = {"unknown": {"zz": np.ones(2)}, "long": {"shift": np.ones(9, "float32")}, "double": {"shift": np.ones(24)}}
    for name, arrays in others.items():
        adapters.load(str(write(ort, folder / name, arrays)), name)
    return model, adapters


def generator_of(model: Any, **options: Any) -> Any:
    params = og.GeneratorParams(model)
    params.set_search_options(**{"max_length": 12, "min_length": 12, **options})
    return og.Generator(model, params)


def tokens_of(generator: Any, count: int) -> list[Any]:
    tokens = []
    for _ in range(count):
        generator.generate_next_token()
        tokens.append(generator.get_next_tokens().tolist())
    return tokens


def test_generators_use_adapters_from_the_next_read_on(adapted: Any) -> None:
    model, adapters = adapted
    plain, generator, late = (generator_of(model) for _ in range(3))
    plain.append_tokens([5, 7, 4])
    first, second, third = tokens_of(plain, 3)
    generator.set_active_adapter(adapters, "twelve")
    generator.set_active_adapter(adapters, "eleven")  # of two for an input, the last counts
    generator.append_tokens([5, 7, 4])
    assert tokens_of(generator, 2) == [[11], [11]]
    assert generator.get_output("logits").argmax(-1).tolist() == [[11]]
    late.append_tokens([5, 7, 4])
    late.set_active_adapter(adapters, "eleven")  # the prompt has been read
    assert tokens_of(late, 2) == [first, [11]]
    late.rewind_to(3)
    assert tokens_of(late, 1) == [[11]]
    plain.set_active_adapter(adapters, "twelve")  # GenAI's model reads the last token only for the next one
    assert plain.get_logits().argmax(-1).tolist() == [[12]]
    assert tokens_of(plain, 1) == [[12]]
    assert plain.get_sequence(0).tolist() == [5, 7, 4, *first, *second, *third, 12]


@GATE
def test_sequences_that_have_ended_stay_ended_with_new_adapters(adapted: Any) -> None:
    model, adapters = adapted
    generator = generator_of(model, batch_size=2, min_length=0)
    generator.append_tokens(np.array([[5, 7], [9, 6]]))
    logits = generator.get_logits()
    logits[0, 0, 2], logits[1, 0, 8] = 1e6, 1e6  # the end, and another token
    generator.set_logits(logits)
    assert tokens_of(generator, 1) == [[2, 8]]
    generator.set_active_adapter(adapters, "twelve")
    assert tokens_of(generator, 2) == [[0, 12], [0, 12]]
    assert generator.get_sequence(1).tolist() == [9, 6, 8, 12, 12]


def test_another_adapter_of_a_generator_compiles_nothing(adapted: Any) -> None:
    model, adapters = adapted
    for name, token in NUMBERS.items():
        generator = generator_of(model)
        generator.set_active_adapter(adapters, name)
        with compilations() as events:
            generator.append_tokens([5, 7, 4])
            assert tokens_of(generator, 2) == [[token], [token]]
    assert events == []


def test_adapters_are_not_unloaded_while_a_generator_uses_them(adapted: Any, tmp_path: Path) -> None:
    model, _ = adapted
    adapters, others = og.Adapters(model), og.Adapters(model)
    path = str(write(ort, tmp_path / "file", {"shift": np.zeros(WORDS, np.float32)}))
    for container in (adapters, others):
        container.load(path, "style")

    def use() -> None:
        generator = generator_of(model)
        generator.set_active_adapter(adapters, "style")
        for call, message in {
            lambda: adapters.unload("style"): "Adapter still in use: style",
            lambda: generator.set_active_adapter(adapters, "none"): "Adapter not found: none",
            lambda: generator.set_active_adapter(
                others, "style"
            ): "Generator state can only register a single Adapters",
        }.items():
            with refuses(f"onnxruntime_genai: {message}", RuntimeError):
                call()

    use()
    gc.collect()
    adapters.unload("style")
    with refuses("Adapter not found: style", RuntimeError):
        generator_of(model).set_active_adapter(adapters, "style")


def test_adapters_have_names_of_their_own(adapted: Any, tmp_path: Path) -> None:
    model, adapters = adapted
    path, wrong = str(tmp_path / "absent"), cast(Any, 3)
    for call, message in {
        lambda: adapters.load(path, "eleven"): "Adapter already loaded: eleven",
        lambda: adapters.unload("none"): "Adapter not found: none",
        lambda: adapters.load(path, "absent"): "must be a readable file",
    }.items():
        with refuses(f"onnxruntime_genai: {message}", RuntimeError):
            call()
    for call, message in {
        lambda: og.Adapters(wrong): "model must be a Model; got 3",
        lambda: adapters.load(tmp_path, "x"): "adapter_file_path must be a text; got ",
        lambda: generator_of(model).set_active_adapter(adapters, wrong): "takes Adapters and a name; got ... and 3",
    }.items():
        with refuses(f"onnxruntime_genai: {message}", TypeError):
            call()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("unknown", "Invalid input name: zz (the inputs are first, second, shift)"),
        ("long", "Got invalid dimensions for input: shift for the following indices\n index: 0 Got: 9 Expected: 24\n"),
        ("double", "Unexpected input data type. Actual: (tensor(double)) , expected: (tensor(float))"),
    ],
)
def test_adapters_that_do_not_fit_a_model_are_refused_when_it_reads(name: str, message: str, adapted: Any) -> None:
    model, adapters = adapted
    generator = generator_of(model)
    generator.set_active_adapter(adapters, name)
    with refuses(f"onnxruntime_genai: {message}", RuntimeError):
        generator.append_tokens([5, 7, 4])


def test_a_model_without_inputs_for_adapters_refuses_their_arrays(tmp_path: Path) -> None:
    model = og.Model(str(write_stacked_folder(tmp_path / "model")))
    adapters, generator = og.Adapters(model), generator_of(model)
    adapters.load(str(write(ort, tmp_path / "file", {"shift": np.zeros(WORDS, np.float32)})), "style")
    generator.set_active_adapter(adapters, "style")
    with refuses("onnxruntime_genai: Invalid input name: shift", RuntimeError):
        generator.append_tokens([5, 7, 4])


def test_an_input_without_a_value_is_missed_when_the_model_reads(tmp_path: Path) -> None:
    folder = write_stacked_folder(tmp_path / "model")
    adapt_logits(folder / "model.onnx", has_defaults=False)
    generator = generator_of(og.Model(str(folder)))
    with refuses("onnxruntime_genai: Missing Input: first", RuntimeError):
        generator.append_tokens([5, 7, 4])


@GATE
def test_models_whose_states_forget_no_token_take_adapters_before_their_texts(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "model", has_state=True)
    model = og.Model(str(folder))
    adapters = og.Adapters(model)
    adapters.load(str(write(ort, tmp_path / "none", {})), "none")
    generator = generator_of(model)
    generator.append_tokens([5, 7, 4])
    generator.set_active_adapter(adapters, "none")
    generator.generate_next_token()
    generator.set_active_adapter(adapters, "none")
    with refuses("set_active_adapter must come before append_tokens for models whose states forget no", RuntimeError):
        generator.generate_next_token()
    generator.rewind_to(0)
    generator.append_tokens([5, 7, 4])


# Sessions


def run(library: Any, folder: Path, names: list[str], feed: dict[str, Any]) -> Any:
    session = library.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    options, adapters = library.RunOptions(), []
    for name in names:
        adapters.append(library.LoraAdapter())  # which ONNX Runtime's options do not keep
        adapters[-1].Load(str(folder / name))
        options.add_active_adapter(adapters[-1])
    (array,) = session.run(None, feed, options)
    values = {name: library.OrtValue.ortvalue_from_numpy(value) for name, value in feed.items()}
    assert_same_bits(session.run_with_ort_values(None, values, options)[0].numpy(), array)
    return array


@pytest.mark.parametrize(
    ("names", "fed"),
    [
        ([], {}),
        (["narrow"], {}),
        (["wide", "times"], {}),
        (["narrow", "wide"], {}),
        (["times"], {"n": np.array([2])}),
        (["input"], {}),
    ],
)
def test_adapters_replace_inputs_as_in_onnx_runtime(names: list[str], fed: dict[str, Any], folder: Path) -> None:
    expected, result = (run(library, folder, names, {"x": X, **fed}) for library in LIBRARIES)
    assert_same_bits(result, expected)


@pytest.mark.parametrize("name", ["unknown", "long", "flat", "double"])
def test_adapters_that_do_not_fit_raise_the_words_of_onnx_runtime(name: str, folder: Path) -> None:
    messages = []
    for library in LIBRARIES:
        with pytest.raises(library.capi.onnxruntime_pybind11_state.InvalidArgument) as raised:
            run(library, folder, [name], {"x": X})
        messages.append(str(raised.value).rstrip())
    assert messages[1].startswith(messages[0])


def test_another_adapter_of_the_same_sizes_compiles_nothing(folder: Path) -> None:
    session = ort.InferenceSession(str(folder / "model.onnx"))
    results = []
    for name in ("wide", "other"):
        options, adapter = ort.RunOptions(), ort.LoraAdapter()
        adapter.Load(str(folder / name))
        options.add_active_adapter(adapter)
        with compilations() as events:
            results += session.run(None, {"x": X}, options)
    assert events == []
    assert not np.array_equal(*results)


def test_only_adapters_are_given_to_runs() -> None:
    wrong: Any = ort.AdapterFormat()
    with refuses("adapter must be of type LoraAdapter", TypeError):
        ort.RunOptions().add_active_adapter(wrong)
    assert ort.LoraAdapter is ort.capi.onnxruntime_pybind11_state.LoraAdapter
