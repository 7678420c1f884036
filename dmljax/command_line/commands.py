"""The commands of `dmljax`, with the options that `dmljax.command_line.cli` reads."""

import argparse
import json
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

import jax
from jax.sharding import AbstractMesh

import dmljax
from dmljax.command_line.describe import (
    OPERATORS_HEAD,
    coverage,
    explanation,
    explanation_text,
    find_operators,
    function_name,
    markdown_table,
    operator_list,
    operator_rows,
    operators_json,
    summaries,
    table,
)
from dmljax.command_line.terminal import FINDINGS, GREEN, RED, REFUSED, YELLOW, announce, color_text, quiet, say_error
from dmljax.descriptors.search import call_for
from dmljax.dxdispatch.execution import Dispatched, Execution, Repetition, trace
from dmljax.dxdispatch.fusion import fuse
from dmljax.dxdispatch.model import Dispatchable, DispatchModel, Finding, InvalidModel, UnopenedModel, UnreadableModel
from dmljax.dxdispatch.printing import result_json, result_pieces, total_milliseconds
from dmljax.dxdispatch.reading.reader import load
from dmljax.errors import DmlError, InvalidDesc, MissingFile, Problem, Unsupported, require, within
from dmljax.estimation import artifacts, generation, table as estimate_table
from dmljax.estimation.placement import ChipProgram, auto_types, program_of, sizes_of_mesh
from dmljax.estimation.programs import prepare, require_choices
from dmljax.estimation.report import amount
from dmljax.estimation.targets import Place, place_of
from dmljax.foundation.checks import find_damaged
from dmljax.foundation.files import require_picture, write_picture
from dmljax.text import did_you_mean, escape_controls, join_words, json_text, one_line
from dmljax.types import LATEST


def run(options: argparse.Namespace) -> int:
    """Runs DxDispatch models and ONNX models, or prints a model's operators as StableHLO, HLO or jaxprs."""
    if options.x64:
        jax.config.update("jax_enable_x64", True)
    for path in options.models:
        _require_file(path, f"`dmljax generate {escape_controls(path)}` continues texts")
        if _is_onnx(path):
            _run_onnx(path, options)
            continue
        model = _load(path, options)
        _warn(model.warnings)
        if len(options.models) > 1 and not options.json:
            print(f"{escape_controls(path)}:")
        _run_model(model, options)
    return 0


def report_error(error: Exception, *, as_json: bool) -> int:
    """Prints an error, for programs also as JSON, and returns the exit status."""
    findings = error.findings if isinstance(error, InvalidModel) else ()
    text = str(error) if isinstance(error, DmlError) else f"{type(error).__name__}: {error}"
    message, tip = text, None
    if not isinstance(error, DmlError):
        tip = "--debug prints the traceback"
    elif isinstance(error, MissingFile) and not error.problems[0].path and not findings:
        message = f"{one_line(error.filename)}: no such file"
    elif len(error.problems) == 1 and (remedy := error.problems[0].remedy):
        message, tip = text.removesuffix(f" ({remedy})"), remedy
    elif meant := _MEANT.search(text):
        message, tip = text[: meant.start()], meant[1]
    if as_json:
        print(json.dumps({"error": text, "findings": [finding.to_json() for finding in findings]}))
    if findings and not isinstance(error, UnopenedModel):
        print(text, file=sys.stderr)
        return REFUSED
    return say_error(message, tip)


_MEANT = re.compile(r", (did you mean .*\?)$")


def _load(path: str, options: argparse.Namespace) -> DispatchModel:
    return load(
        sys.stdin.buffer if path == "-" else path,
        input_path=options.input_path,
        feature_level=options.dml_feature_level or LATEST,
        free_dimension_name_overrides=dict(options.onnx_free_dim_name_override),
        free_dimension_denotation_overrides=dict(options.onnx_free_dim_denotation_override),
        binding_shapes=dict(options.binding_shape),
    )


def _require_file(path: str, remedy: str | None = None) -> None:
    """Raises if a path is a folder; the remedy is for a language model's folder."""
    if Path(path).is_dir():
        if _is_of_diffusion(Path(path)):
            remedy = "its models are text_encoder/model.onnx, unet/model.onnx and vae_decoder/model.onnx"
        elif not (Path(path) / "genai_config.json").exists():
            remedy = None
        rule = "the model must be a file, not a folder"
        raise InvalidDesc(Problem((), rule, escape_controls(path), remedy=remedy))


def _is_of_diffusion(path: Path) -> bool:
    """Whether a folder is of a diffusion model."""
    return (path / "model_index.json").exists()


def _is_onnx(path: str) -> bool:
    return path.lower().endswith(".onnx")


def _run_onnx(path: str, options: argparse.Namespace) -> None:
    # Imported here: the package onnx is an extra.
    from dmljax.command_line.onnx import timing
    from dmljax.command_line.onnx.example_inputs import files_by_name, make_inputs
    from dmljax.onnx import load as load_onnx

    if options.emit or options.fuse:
        option = "--emit" if options.emit else "--fuse"
        raise InvalidDesc(Problem((), f"{option} is only for DxDispatch models", escape_controls(path)))
    device = _device(options.platform)
    begin = time.perf_counter()
    model = load_onnx(path)
    loaded = time.perf_counter() - begin
    inputs = make_inputs(model, files_by_name(options.input), _sizes_of_inputs(model, options, dict(options.shape)))
    timed = timing.measure(model, inputs)
    other = timing.measure_in_onnxruntime(path, inputs) if options.compare else None
    differences = {
        name: timing.greatest_difference(result, other.results[name]) for name, result in timed.results.items() if other
    }
    if options.json:
        outputs = {
            name: {"type": jax.typeof(array).str_short(), "values": array.tolist()}
            for name, array in timed.results.items()
        }
        times = {"load": loaded, "compile": timed.compilation, "call": timed.median}
        compared = {"onnxruntime_call": other.median, "differences": differences} if other else {}
        print(json.dumps({"device": device.device_kind, "outputs": outputs, "seconds": times, **compared}))
        return
    print(f"Running on '{device.device_kind}'")
    print(f"{escape_controls(path)}: {model}")
    print(f"{loaded:.2f} s to load, {timed.compilation:.2f} s to compile, {timed.median * 1e3:.3f} ms for a call")
    for name, result in timed.results.items():
        print(f"{escape_controls(name)}: {timing.describe_result(result)}")
    if other:
        print(f"onnxruntime takes {other.median * 1e3:.3f} ms, and differs by at most:")
        for name, difference in differences.items():
            print(f"{escape_controls(name)}: {difference:.3g}")


def _sizes_of_inputs(
    model: Any, options: argparse.Namespace, shapes: Mapping[str, Sequence[int]] = MappingProxyType({})
) -> Any:
    """Collects the sizes of inputs from options; `--binding_shape` may also name outputs, which the model computes."""
    from dmljax.command_line.onnx.input_types import GivenSizes

    outputs = {tensor.name for tensor in model.outputs}
    names = {size for tensor in model.inputs for size in tensor.sizes or () if isinstance(size, str)}
    for name, _ in options.onnx_free_dim_name_override:
        rule = f"-f must name an open size of the inputs, {join_words(map(str, model.inputs))}"
        require((), name in names, rule, repr(name) + did_you_mean(name, names))
    of_inputs = {name: shape for name, shape in options.binding_shape if name not in outputs}
    known = {name: size for name, size in options.onnx_free_dim_name_override if isinstance(size, int)}
    return GivenSizes({**of_inputs, **shapes}, known, dict(options.onnx_free_dim_denotation_override))


def _run_model(model: DispatchModel, options: argparse.Namespace) -> None:
    device = _device(None if options.emit else options.platform)
    if options.fuse:
        is_repeated = options.milliseconds_to_run is not None
        model = fuse(model, is_repeated=is_repeated or max(options.dispatch_iterations, options.dispatch_repeat) > 1)
    if options.emit:
        _emit(model, options)
        return
    execution = Execution(model, output_path=options.output_path, device=device)
    say: Callable[[str], None] = (lambda text: None) if options.json else print
    say(f"Running on '{device.device_kind}'")
    compiled = {}
    for name in model.dispatchables:
        begin = time.perf_counter()
        with announce(f"compiling {escape_controls(name)}"):
            execution.compile(name)
        compiled[name] = (time.perf_counter() - begin) * 1e3
        if options.timing_verbosity >= 1:
            say(f"Initialize '{escape_controls(name)}': {compiled[name]:.4f} ms")
    repetition = Repetition(
        iterations=2**32 - 1 if options.milliseconds_to_run is not None else options.dispatch_iterations,
        runs=options.dispatch_repeat,
        milliseconds=options.milliseconds_to_run,
        interval_in_milliseconds=options.dispatch_interval,
    )
    results: list[Any] = []
    dispatched: list[Dispatched] = []
    for index in range(len(model.commands)):
        numbers = model.numbers_of(index) if options.print_commands else ()
        for number in numbers:
            say(f"[StartCmd][{number:04}]\t: {json_text(model.document.root['commands'][number])}")
        result = execution.result(index, repetition)
        if options.json:
            results.append(result_json(result, options.warmup_samples))
        else:
            sys.stdout.writelines(
                result_pieces(result, device.platform, options.timing_verbosity, options.warmup_samples)
            )
            print(flush=True)
        dispatched += [result] if isinstance(result, Dispatched) else []
        for number in numbers:
            say(f"[EndCmd][{number:04}]\t: hr=0x00000000 \n")
    milliseconds = total_milliseconds(dispatched, options.warmup_samples)
    if len(dispatched) > 1 and options.timing_verbosity >= 1:
        say(f"All {len(dispatched)} dispatches: {milliseconds:.4f} ms, the sum of the hot medians")
    if options.json:
        times = {"compile_milliseconds": compiled, "dispatch_milliseconds": milliseconds}
        print(json.dumps({"device": device.device_kind, **times, "results": results}))


def _device(platform: str | None) -> jax.Device:
    if platform:
        jax.config.update("jax_platforms", platform)
    try:
        with quiet():
            return jax.local_devices()[0]
    except Exception as error:  # JAX raises an AssertionError or a RuntimeError if it has no device
        reason = one_line(_REMEDY.sub("", str(error))) or "JAX gave no reason"
        if platform:
            # Without plugins, JAX complains about a plugin that nobody asked for.
            is_installed = "list of known backends" not in reason
            given = f"{platform} ({reason})" if is_installed else platform
            remedy = None if is_installed else _INSTALLED_BY.get(platform)
            rule = "--platform must name a platform that JAX has on this machine"
            raise InvalidDesc(Problem((), rule, given, remedy=remedy)) from None
        raise InvalidDesc(Problem((), f"JAX found no platform to run on ({reason})")) from None


_INSTALLED_BY = {
    "gpu": "for NVIDIA GPUs, pip install 'jax[cuda13]'",
    "cuda": "pip install 'jax[cuda13]'",
    "tpu": "pip install 'jax[tpu]'",
}
_REMEDY = re.compile(r" \((?:you may need|set JAX_PLATFORMS).*", re.DOTALL)  # JAX's advice, useless beside --platform


def _emit(model: DispatchModel, options: argparse.Namespace) -> None:
    platform = "cuda" if options.platform == "gpu" else options.platform  # as JAX's lowering calls it
    texts = {}
    for name, dispatchable in model.dispatchables.items():
        with model.part(*model.desc_place(name)):
            traced = trace(dispatchable)
        if options.emit == "jaxpr":
            texts[name] = str(traced.jaxpr)
            continue
        with jax.disable_jit(False):
            lowered = traced.lower(lowering_platforms=(platform,)) if platform else traced.lower()
        texts[name] = lowered.as_text(options.emit)
    if options.json:
        print(json.dumps(texts))
    else:
        for name, text in texts.items():
            print(f"// {escape_controls(name)}: {model.dispatchables[name].desc.title}\n{text.rstrip()}\n")


def check(options: argparse.Namespace) -> int:
    """Lists every error in DxDispatch models, and everything in ONNX models that dmljax does not support."""
    statuses = []
    for path in options.models:
        try:
            if options.weights:
                statuses.append(_check_weights(path, options))
                continue
            check_one = _check_folder if Path(path).is_dir() else _check_onnx if _is_onnx(path) else _check_model
            statuses.append(check_one(path, options))
        except (UnreadableModel, MissingFile) as error:  # the other models are checked all the same
            statuses.append(report_error(error, as_json=options.json))
    return max(statuses)


def _check_weights(path: str, options: argparse.Namespace) -> int:
    """Compares a file of weights with the artifact that takes them as an argument."""
    problems = [*map(str, artifacts.find_weight_problems(path, options.weights))]
    if options.json:
        print(json.dumps({"findings": problems}))
    else:
        _print_lines(options.weights, problems)
        count = color_text(_count_text(len(problems), "finding"), RED if problems else GREEN)
        print(f"{escape_controls(options.weights)}: {count} as the weights of {escape_controls(path)}")
    return FINDINGS if problems else 0


def _check_onnx(path: str, options: argparse.Namespace) -> int:
    from dmljax.command_line.onnx.checking import check_model

    result = check_model(path)
    if options.json:
        print(json.dumps(_check_json(result)))
    else:
        _print_lines(path, [*result.problems, *result.left])
        _print_counts(path, result)
    return FINDINGS if result.problems else 0


def _check_json(result: Any) -> dict[str, Any]:
    return {"findings": [*result.problems], "left_to_cpu": [*result.left], "nodes_left_to_cpu": result.nodes_left}


def _print_lines(path: object, lines: Iterable[str]) -> None:
    for line in lines:
        print(f"{escape_controls(str(path))}: {escape_controls(line)}")


def _print_counts(path: str, check: Any) -> None:
    count = color_text(_count_text(len(check.problems), "finding"), RED if check.problems else GREEN)
    nodes = f"{_count_text(check.nodes_left, 'node')} that ONNX Runtime's DirectML provider leaves to the CPU"
    print(f"{escape_controls(path)}: {count}, {nodes}")


def _check_folder(path: str, options: argparse.Namespace) -> int:
    # Imported here: the package onnx is an extra.
    from dmljax.command_line.onnx.checking import check_diffusion, check_folder

    _refuse_model_options(path, options)
    try:
        folder_check = (check_diffusion if _is_of_diffusion(Path(path)) else check_folder)(Path(path))
    except DmlError as error:  # no configuration; the other models are checked all the same
        return report_error(error, as_json=options.json)
    settings, whole = folder_check.settings, folder_check.whole
    if options.json:
        print(json.dumps({**_check_json(whole), **folder_check.to_json()}))
    else:
        if settings is not None:
            _print_lines(path, _describe_folder(settings, folder_check.weight_bytes, folder_check.cache_bytes))
        for file, check in folder_check.models.items():
            _print_lines(file, [*check.problems, *check.left])
        _print_lines(path, folder_check.problems)
        _print_counts(path, whole)
    return FINDINGS if whole.problems else 0


def _describe_folder(settings: Any, weight_bytes: Mapping[str, int], cache_bytes: int) -> Iterator[str]:
    """Describes a language model, with a sentence per line."""
    heads = f"{settings.heads} heads, " if settings.heads else ""
    caches = f"{settings.key_heads} key heads of {settings.head_size}"
    yield f"{settings.kind or 'a model'} of {settings.layers} layers, {heads}{caches}, {settings.vocabulary} tokens"
    ends = f"ends at {join_words(settings.end_tokens, 'or')}" if settings.end_tokens else "has no end token"
    yield f"context of {settings.context_length} tokens; {ends}"
    yield f"search: {', '.join(f'{name} {value}' for name, value in settings.search._asdict().items())}"
    if settings.others:
        others = (f", {other.file.name} as {part}" for part, other in settings.others.items())
        yield f"models: {settings.file.name} to decode{''.join(others)}"
    if weight_bytes:
        parts = join_words(f"{amount(size, 'B')} of {group}" for group, size in weight_bytes.items())
        yield f"weights of {amount(sum(weight_bytes.values()), 'B')}: {parts}"
        yield f"caches of {amount(cache_bytes, 'B')} for 1,000 tokens of a sequence"


def _check_model(path: str, options: argparse.Namespace) -> int:
    findings: Sequence[Finding] = ()
    try:
        model = _load(path, options)
        warnings = model.warnings
    except UnreadableModel:
        raise
    except InvalidModel as error:
        findings, warnings = error.findings, error.warnings
    if options.json:
        lists = {"findings": findings, "warnings": warnings}
        print(json.dumps({key: [finding.to_json() for finding in listed] for key, listed in lists.items()}))
    else:
        _warn(warnings, file=sys.stdout)
        for finding in findings:
            print(finding)
        count = color_text(_count_text(len(findings), "finding"), RED if findings else GREEN)
        name = "<stdin>" if path == "-" else escape_controls(path)
        print(f"{name}: {count} at {options.dml_feature_level or LATEST}")
    return FINDINGS if findings else 0


def estimate(options: argparse.Namespace) -> int:
    """Estimates the cost of DxDispatch and ONNX models on GPUs and TPUs that you do not have."""
    jax.config.update("jax_platforms", "cpu")  # or else JAX would look for the chips of the installed compilers
    with within("estimate"):
        require_choices(options.precision, options.dtype, options.optimizer)
    for target in options.targets:
        place_of(target)  # fail early if the chip is unknown or the extra is missing
    width = _terminal_width()
    listed: list[dict[str, Any]] = []
    all_fit = True
    for path in options.models:
        if Path(path).is_dir() and not _is_of_diffusion(Path(path)):
            generations = _estimate_folder(path, options)
            listed += [{"program": escape_controls(path), **estimated.to_json()} for estimated in generations]
            all_fit &= all(estimated.fits for estimated in generations)
            if not options.json:
                print(escape_controls(path), *generation.table(generations, width), "", sep="\n")
            continue
        _require_file(path)
        _require_unset(path, "is only for folders of language models", prompt=options.prompt, generate=options.generate)
        for title, function, inputs_of in (_onnx_programs if _is_onnx(path) else _programs)(path, options):
            columns = [*product(options.batch or [None], options.targets)]
            mesh = dict(options.mesh) or None
            inputs = [inputs_of(place_of(target), batch) for batch, target in columns]
            # All are prepared before the first is compiled, which may take minutes.
            names = ("precision", "dtype", "extrapolate")
            choices = {name: getattr(options, name) for name in names}
            all_prepared = [
                prepare(function, (*types.values(),), target, mesh=mesh, **choices)
                for types, (_, target) in zip(inputs, columns, strict=True)
            ]
            estimates = []
            for (batch, target), types, program in zip(columns, inputs, all_prepared, strict=True):
                of_batch = f", batch {batch}" if batch else ""
                with announce(f"compiling {title}{of_batch} for {target}"):
                    estimates.append(program.estimate(gradient=options.gradient, optimizer=options.optimizer))
                shapes = {name: jax.typeof(type_).str_short() for name, type_ in types.items()}
                listed.append({"program": title, "batch": batch, "inputs": shapes, **estimates[-1].to_json()})
                all_fit &= estimates[-1].fits
            if not options.json:
                batches = [batch for batch, _ in columns] if options.batch else []
                print(title, *_shapes(inputs), *estimate_table(estimates, batches, width), "", sep="\n")
    if options.json:
        print(json.dumps(listed, indent=1))
    return 0 if all_fit else FINDINGS


def _shapes(inputs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Tells the types of each input that were compiled."""
    for name in inputs[0]:
        types = dict.fromkeys(jax.typeof(types[name]).str_short() for types in inputs)
        yield f"{escape_controls(name)}: {join_words(types, 'or')}"


def _estimate_folder(path: str, options: argparse.Namespace) -> list[generation.Generation]:
    """Estimates the prompts and tokens of a language model for each batch and target."""
    # Imported here: the package onnx is an extra.
    from dmljax.onnx import language_model
    from dmljax.onnx.language.model import generation_programs

    _refuse_model_options(path, options, gradient=options.gradient, optimizer=options.optimizer)
    model = language_model(path, dtype=options.dtype)
    prompt, generated = options.prompt or _PROMPT, options.generate or _GENERATED
    room, context = prompt + generated, model.settings.context_length
    rule = f"and --generate must be at most {context} tokens in all, the model's context"
    require((), room <= context, f"--prompt {rule}", f"{prompt} and {generated}")
    choices = {"precision": options.precision, "extrapolate": options.extrapolate}
    prepared = []
    for batch, target in product(options.batch or [1], options.targets):

        def programs(model: Any, batch: int = batch) -> list[ChipProgram]:
            return [
                ChipProgram(part.function, model.weights, part.inputs, model.partition, donated=(1,), updates=True)
                for part in generation_programs(model, batch, prompt, room)
            ]

        work = generation.Work(batch, prompt, generated)
        mesh = dict(options.mesh)
        prepared.append(generation.prepare_generation(model, programs, work, target, mesh, **choices))
    estimates = []
    for program in prepared:
        title = f"{escape_controls(path)}, batch {program.work.batch} for {program.token.place.name}"
        with announce(f"compiling {title}"):
            estimates.append(program.estimate())
    return estimates


_PROMPT, _GENERATED = 512, 128  # tokens, unless --prompt and --generate say otherwise


def _refuse_model_options(path: str, options: argparse.Namespace, **others: object) -> None:
    """Raises if options are set that apply only to model files."""
    names = ("input_path", "dml_feature_level", *_SIZES)
    values = {name: getattr(options, name) for name in names}
    family = "diffusion" if _is_of_diffusion(Path(path)) else "language"
    _require_unset(path, f"is not for folders of {family} models", **values, **others)


_SIZES = ("onnx_free_dim_name_override", "onnx_free_dim_denotation_override", "binding_shape")


def _require_unset(path: str, rule: str, **values: object) -> None:
    for name, value in values.items():
        if value:
            raise InvalidDesc(Problem((), f"--{name} {rule}", escape_controls(path)))


def generate(options: argparse.Namespace) -> int:
    """Continues a text, or converses, with a language model, or makes a picture of a text with a diffusion model."""
    if _is_of_diffusion(options.folder):
        return _generate_picture(options)
    _refuse_options(options, _OF_DIFFUSION, "is only for folders of diffusion models")
    # Imported here: the package onnx is an extra.
    from dmljax.command_line.onnx.example_inputs import array_in
    from dmljax.onnx import language_model
    from dmljax.onnx.language.settings import Search
    from dmljax.onnx.language.tokens import Tokenizer

    model = language_model(options.folder)
    if options.chat:
        _require_unset(str(options.folder), "is not for conversations", audio=options.audio)
    if "encoder" in model.settings.others and options.audio is None:
        rule, remedy = "--audio must be given, because the folder has an encoder", "--audio FEATURES.npy"
        raise InvalidDesc(Problem((), rule, "none", remedy=remedy))
    audio = None if options.audio is None else array_in(options.audio)
    tokenizer = Tokenizer(options.folder, model.settings.vocabulary)
    search = {name: getattr(options, name) for name in Search._fields}
    is_drawn = model.settings.search.do_sample if options.do_sample is None else options.do_sample
    search["key"] = jax.random.key(options.seed) if is_drawn else None
    if options.chat:
        _converse(model, tokenizer, search, as_json=options.json)
        return 0
    prompt = _prompt(options)
    begin = time.perf_counter()
    tokens = tokenizer.tokens(prompt)
    with within("generate"):
        stream = model.stream(tokens, block=_BLOCK, audio=audio, **search)
    text, news, first, rate = _print_stream(tokenizer, stream, begin, is_silent=options.json)
    if options.json:
        times = {"seconds_to_first_token": first, "tokens_per_second": rate}
        print(json.dumps({"text": text, "tokens": news, "prompt_tokens": len(tokens), **times}))
        return 0
    speed = f", then {rate:.1f} tokens per second" if rate else ""
    count = _count_text(len(tokens), "token")
    print(f"\nprompt of {count}, {len(news)} new: {first:.2f} s with compilation{speed}", file=sys.stderr)
    return 0


_BLOCK = 8  # tokens that come at once
_OF_DIFFUSION = ("output", "negative", "steps", "guidance", "height", "width", "scheduler")
_OF_LANGUAGE = (
    "chat",
    "audio",
    "max_length",
    "min_length",
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "repetition_penalty",
    "no_repeat_ngram_size",
)


def _set_options(options: argparse.Namespace, names: Sequence[str]) -> dict[str, Any]:
    """Returns the options that the user set."""
    return {name: value for name in names if (value := getattr(options, name)) is not None and value is not False}


def _refuse_options(options: argparse.Namespace, names: Sequence[str], rule: str) -> None:
    """Raises if options are set that another kind of folder takes."""
    for name in _set_options(options, names):
        raise InvalidDesc(Problem((), f"--{name} {rule}", escape_controls(str(options.folder))))


def _prompt(options: argparse.Namespace) -> str:
    text: str | None = options.prompt
    return sys.stdin.read().removesuffix("\n") if text is None else text


def _generate_picture(options: argparse.Namespace) -> int:
    """Draws a picture of a prompt, and writes it to a file."""
    # Imported here: the package onnx is an extra.
    from dmljax.onnx.diffusion.model import diffusion_model, read_diffusion_settings
    from dmljax.onnx.diffusion.schedulers import scheduler_of

    _refuse_options(options, _OF_LANGUAGE, "is only for folders of language models")
    require((), options.output is not None, "--output must name the picture's file", remedy="-o picture.png")
    require_picture(options.output)
    choices = _set_options(options, _OF_DIFFUSION[1:])
    with within("generate"):
        scheduler_of(read_diffusion_settings(options.folder).scheduler, options.scheduler)  # before weights are read
        model = diffusion_model(options.folder)
        prompt = _prompt(options)
        for text in (prompt, options.negative or ""):
            if model.tokenizer.is_cut(text):
                message = (
                    f"the end is lost: the text encoder reads {model.tokenizer.length} tokens of {one_line(text)!r}"
                )
                print(f"{color_text('warning', YELLOW, sys.stderr)}: {message}", file=sys.stderr)
        begin = time.perf_counter()
        image = jax.block_until_ready(model.generate(prompt, key=jax.random.key(options.seed), **choices))[0]
        seconds = time.perf_counter() - begin
        write_picture(options.output, image)
    height, width, _ = image.shape
    if options.json:
        sizes = {"height": height, "width": width}
        print(json.dumps({"file": str(options.output), **sizes, "seconds": seconds}))
        return 0
    print(f"{escape_controls(str(options.output))}: {width} x {height} pixels, {seconds:.2f} s with compilation")
    return 0


def _print_stream(
    tokenizer: Any, stream: Iterator[int], begin: float, *, is_silent: bool
) -> tuple[str, list[int], float, float | None]:
    """Prints text as it arrives; returns it with its tokens, the seconds to the first block, and the rate after it."""
    piece, texts, tokens, times = tokenizer.pieces(), [], [], []
    for token in stream:
        times.append(time.perf_counter())
        tokens.append(token)
        texts.append(piece(token))
        if not is_silent:
            print("\n".join(map(escape_controls, texts[-1].split("\n"))), end="", flush=True)
    first = (times[0] if times else time.perf_counter()) - begin
    rate = (len(times) - _BLOCK) / (times[-1] - times[0]) if len(times) > _BLOCK else None
    return "".join(texts), tokens, first, rate


def _converse(model: Any, tokenizer: Any, search: dict[str, Any], *, as_json: bool) -> None:
    """Answers each line of standard input as the next message of a conversation."""
    messages: list[dict[str, str]] = []
    state: Any = None
    before: list[int] = []
    while True:
        if sys.stdin.isatty():
            print("> ", end="", file=sys.stderr, flush=True)
        if not (line := sys.stdin.readline()):
            return
        if not line.strip():
            continue
        messages.append({"role": "user", "content": line.strip()})
        tokens = tokenizer.conversation(messages)
        if tokens[: len(before)] != before:  # the template does not write the answer as the model did
            state, before = None, []
        with within("generate"):
            stream = model.stream(tokens[len(before) :], block=_BLOCK, state=state, **search)
        text, news, *_ = _print_stream(tokenizer, stream, time.perf_counter(), is_silent=as_json)
        print(json.dumps({"text": text, "tokens": news}) if as_json else "", flush=True)
        messages.append({"role": "assistant", "content": text})
        state, before = stream.state, tokens + news


def compile(options: argparse.Namespace) -> int:
    """Saves a model as a StableHLO artifact that `jax.export` runs without dmljax."""
    jax.config.update("jax_platforms", "cpu")  # JAX would look for the chips of the compilers that are installed
    platforms, count = artifacts.platforms_of(options.targets)
    path, file = options.model, escape_controls(options.output)
    _require_file(path, f"compile its ONNX model, or `dmljax estimate {escape_controls(path)}` tells its cost")
    artifacts.require_file(options.output)
    with announce(f"exporting {escape_controls(path)} for {join_words(platforms)}"), within("compile"), _advise_sizes():
        sizes = sizes_of_mesh((), join_words(options.targets), count, dict(options.mesh) or None)
        mesh = AbstractMesh(tuple(sizes.values()), tuple(sizes), axis_types=auto_types(sizes)) if count > 1 else None
        program = _program_to_serve(path, options, mesh)
        artifact = artifacts.export_program(program, platforms, mesh)
        if mesh:
            size, digest = artifacts.write_with_weights(artifact, program.weights, options.output)
        else:
            size = artifacts.write(artifact, options.output)
    description = artifacts.describe(artifact, len(program.weights) if mesh else 0)
    damaged = [str(problem) for problem in find_damaged(program.weights)]
    if options.json:
        weights = {"weights": f"{options.output}.npz", "weights_sha256": digest} if mesh else {}
        print(json.dumps({"file": options.output, "bytes": size, **weights, **description, "warnings": damaged}))
        return 0
    for warning in damaged:
        print(f"{color_text('warning', YELLOW, sys.stderr)}: {escape_controls(f'{path}: {warning}')}", file=sys.stderr)
    print(f"{file}: {size} bytes for {join_words(platforms)}")
    types = f"({', '.join(description['inputs'])}) -> ({', '.join(description['outputs'])})"
    if mesh:
        axes = ",".join(f"{name}={size}" for name, size in sizes.items())
        print(f"{file}.npz: the weights, an argument, SHA-256 {digest}\n{types} on a mesh of {axes}")
        print(f"`dmljax check {file} --weights {file}.npz` compares them; notebooks/serving.md shows how to run it")
    else:
        print(f"{types}\njax.export.deserialize(data).call(...) runs it, where data is the content of the file")
    return 0


@contextmanager
def _advise_sizes() -> Iterator[None]:
    """Advises options instead of constraints of `jax.export`, which commands do not take."""
    try:
        yield
    except DmlError as error:
        error.args = tuple(replace(problem, remedy=_as_options(problem.remedy)) for problem in error.problems)
        raise


def _as_options(remedy: str | None) -> str | None:
    match = _CONSTRAINTS.fullmatch(remedy or "")
    return " ".join(f"-f {name}:SIZE" for name in dict.fromkeys(_NAMES.findall(match[1]))) if match else remedy


_CONSTRAINTS = re.compile(r"jax\.export\.symbolic_shape\(\.\.\., constraints=(.*)\)")
_NAMES = re.compile(r"\b(?!(?:floordiv|mod|max|min)\b)[A-Za-z_]\w*")


def _program_to_serve(path: str, options: argparse.Namespace, mesh: AbstractMesh | None) -> ChipProgram:
    """Builds the program to serve; open sizes stay open."""
    names = dict(options.onnx_free_dim_name_override)
    multiples = {name: size for name, size in names.items() if not isinstance(size, int)}
    if not _is_onnx(path):
        for factor, symbol in multiples.values():
            raise InvalidDesc(Problem((), f"{factor}*{symbol} is only for ONNX models", escape_controls(path)))
        if mesh:
            raise InvalidDesc(Problem((), "several chips are only for ONNX models", escape_controls(path)))
        descs = [desc for _, desc, _ in _programs(path, options)]
        if len(descs) != 1:
            raise InvalidDesc(Problem((), f"{escape_controls(path)} must have exactly one dispatchable", len(descs)))
        function = Dispatchable(descs[0])
        program = program_of(descs[0], (), None)
        weights = dict(getattr(descs[0], "constants", program.weights or {}))
        return program._replace(function=lambda weights, *inputs: function(*inputs), weights=weights)
    from dmljax.command_line.onnx.input_types import open_types_of_inputs
    from dmljax.onnx import load as load_onnx

    model = load_onnx(path)
    if model.is_random:
        remedy = "export it in Python, as a function of a key, with jax.export.export"
        raise Unsupported(Problem((), f"{escape_controls(path)} draws random numbers", remedy=remedy))
    divisor = mesh.axis_sizes[0] if mesh else 1
    types = open_types_of_inputs(model, _sizes_of_inputs(model, options), options.batch, divisor, multiples)
    if mesh:
        return program_of(model, tuple(types), None)
    # Call the model itself, not `apply`: it computes now whatever depends only on its weights.
    return ChipProgram(lambda weights, *inputs: model(*inputs), model.weights, tuple(types))


Inputs = Callable[[Place, int | None], Mapping[str, Any]]  # the types of inputs for some chips and a batch


def _programs(path: str, options: argparse.Namespace) -> Iterator[tuple[str, Any, Inputs]]:
    """The dispatchables of a DxDispatch model, or a serialized graph: the title, function and inputs of each."""
    if options.batch:
        raise InvalidDesc(Problem((), "--batch is only for ONNX models", escape_controls(path)))
    if path.lower().endswith(".bin"):
        yield escape_controls(path), dmljax.serialized.load(path), lambda place, batch: {}
        return
    model = _load(path, options)
    _warn(model.warnings)
    for name, dispatchable in model.dispatchables.items():
        yield f"{escape_controls(name)}: {dispatchable.desc.title}", dispatchable.desc, lambda place, batch: {}


def _onnx_programs(path: str, options: argparse.Namespace) -> Iterator[tuple[str, Any, Inputs]]:
    """Yields an ONNX model; without `--batch`, each chip gets one example."""
    from dmljax.command_line.onnx.input_types import types_of_inputs
    from dmljax.onnx import load as load_onnx

    model = load_onnx(path)
    sizes = _sizes_of_inputs(model, options)

    def inputs_of(place: Place, batch: int | None) -> Mapping[str, Any]:
        count = len(place.devices)
        types = types_of_inputs(model, sizes, batch or (count if count > 1 else None))
        return dict(zip((tensor.name for tensor in model.inputs), types, strict=True))

    yield escape_controls(path), model, inputs_of


def _terminal_width() -> int | None:
    """The width of the terminal, or None where the output goes to a file or another program."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _count_text(count: int, noun: str) -> str:
    return f"{count or 'no'} {noun}{'' if count == 1 else 's'}"


def _warn(warnings: Sequence[Finding], file: Any = None) -> None:
    file = file or sys.stderr
    for warning in warnings:
        print(f"{color_text('warning', YELLOW, file)}: {warning}", file=file)


def ops(options: argparse.Namespace) -> int:
    """Lists all operators, or those that match the words."""
    words = " ".join(options.words)
    if options.json:
        print(json.dumps(summaries(words), indent=1))
        return 0
    if options.markdown:
        lines = markdown_table(operator_rows(words), OPERATORS_HEAD)
    else:
        lines = table(operator_rows(words, _terminal_width()), OPERATORS_HEAD)
    print("\n".join(lines))
    if not words:
        print(f"\n{coverage()}")
    return 0


def explain(options: argparse.Namespace) -> int:
    """Explains an operator with its rules and an example, or lists the operators that match the words."""
    words = " ".join(options.words)
    operator, *others = operators = find_operators(words)
    if others:
        width = shutil.get_terminal_size().columns
        print(
            json.dumps(operators_json(operators), indent=1)
            if options.json
            else "\n".join(operator_list(operators, width))
        )
        if not options.json:
            print(f"tip: `dmljax explain {function_name(operator)}` shows one in full", file=sys.stderr)
        return 0
    _device(None)  # raises early if JAX has no platform to compute the example on
    width = min(shutil.get_terminal_size().columns, 120)
    print(json.dumps(explanation(operator), indent=1) if options.json else explanation_text(operator, width))
    call = call_for(words)
    if call is not None and not options.json:
        print(f"tip: {words} is {call}", file=sys.stderr)
    return 0
