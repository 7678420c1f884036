"""GenAI's models, and how their next tokens are chosen."""

import secrets
from collections.abc import Mapping
from typing import Any

import jax

from dmljax.errors import DmlError, InvalidDesc, InvalidType, Problem, Unsupported
from dmljax.onnx.language.model import LanguageModel, model_of
from dmljax.onnx.language.sampling import OF_BEAMS
from dmljax.onnx.language.settings import FILE, settings_of
from dmljax.run.answers import Answering, refusing
from dmljax.run.onnxruntime_genai.configuration import LIBRARY, Config, Folder, require_type
from dmljax.run.onnxruntime_genai.processors import PROCESSORS, MultiModalProcessor
from dmljax.run.onnxruntime_genai.speculation import (
    load_draft,
    read_draft_options,
    require_draft_support,
    with_draft_options,
)
from dmljax.text import did_you_mean, show


class Model(Folder):
    """The models of a folder.

    A folder with a processor may lack models, or have some that dmljax cannot load: whatever needs these raises the
    reason.
    """

    _REFUSED = {
        "create_streaming_processor": "models that hear speech as it comes are not supported",
        "create_tokenizer": "write Tokenizer(model)",
        "generate": "GenAI no longer has it; write generator = Generator(model, params), "
        "generator.append_tokens(tokens), and generator.generate_next_token() until generator.is_done()",
    }

    def __init__(self, config: Any) -> None:
        configuration = config if isinstance(config, Config) else Config(config)
        super().__init__(configuration)
        self._loaded: LanguageModel | None = None
        self._refusal: DmlError | None = None
        self._draft: LanguageModel | None = None
        with refusing(LIBRARY):
            _require_no_pages(self._content)
            self._draft_options = read_draft_options(self._content)
            require_draft_support(self._content)
            try:
                self._loaded = model_of(settings_of(self._folder, self._content, configuration._files))
                self._draft = load_draft(self, configuration._files, self._loaded)
            except DmlError as error:
                if self.type not in PROCESSORS:
                    raise
                self._refusal = error

    @property
    def _model(self) -> LanguageModel:
        """The loaded models; raises the reason if they could not be loaded."""
        if self._loaded is None:
            with refusing(LIBRARY):
                raise self._refusal or InvalidDesc(Problem((), "has no models"))
        return self._loaded

    @property
    def device_type(self) -> str:
        """The device that JAX computes on, as GenAI spells it."""
        return {"cpu": "CPU", "gpu": "CUDA"}.get(jax.default_backend(), jax.default_backend().upper())

    def create_multimodal_processor(self) -> MultiModalProcessor:
        """Makes the processor of prompts with images or audio."""
        return MultiModalProcessor(self)


def _require_no_pages(content: Mapping[str, Any]) -> None:
    """Raises if a folder's caches have pages, which GenAI's Engine gives to requests."""
    engine = content.get("engine")
    if isinstance(engine, dict) and "dynamic_batching" in engine:
        rule, remedy = "not supported: its pages of caches belong to the Engine", "make the folder without pages"
        raise Unsupported(Problem((FILE, "engine", "dynamic_batching"), rule, remedy=remedy))


class GeneratorParams(Answering):
    """How the next tokens are chosen."""

    _REFUSED = {
        "input_ids": "GenAI no longer has it; write generator.append_tokens(tokens) after Generator(model, params)",
        **dict.fromkeys(
            ("set_inputs", "set_model_input", "whisper_input_features"),
            "GenAI no longer has it; write generator.set_inputs(inputs) after Generator(model, params)",
        ),
        **dict.fromkeys(
            ("try_graph_capture_with_max_batch_size", "try_use_cuda_graph_with_max_batch_size"),
            "GenAI no longer has it; leave it out, because XLA compiles the model in any case",
        ),
    }

    def __init__(self, model: Model) -> None:
        require_type("model", model, Model, "a Model")
        self._model, self._draft_options = model, model._draft_options
        with refusing(LIBRARY):
            self._options = _with_options(DEFAULTS, model._content.get("search", {}))
        if not self._options["max_length"]:
            self._options["max_length"] = model._texts.context_length

    def set_search_options(self, **options: Any) -> None:
        with refusing(LIBRARY):
            changed = _with_options(self._options, options)
            most = self._model._texts.context_length
            if changed["max_length"] > most:
                rule = f"must be at most {most}, the model's context_length"
                raise InvalidDesc(Problem("max_length", rule, changed["max_length"]))
            self._options = changed

    def set_speculative_options(self, **options: Any) -> None:
        with refusing(LIBRARY):
            self._draft_options = with_draft_options(self._draft_options, options)

    def get_speculative_options(self) -> dict[str, Any]:
        options = self._draft_options._asdict().items()
        return {name: value if isinstance(value, bool) else float(value) for name, value in options}

    def set_guidance(self, type: str, data: str, enable_ff_tokens: bool = False) -> None:
        """Raises, because dmljax has no grammars that guide the choice of tokens."""
        with refusing(LIBRARY):
            rule = "not supported: dmljax has no grammars"
            raise Unsupported(Problem("guidance", rule, show(type), remedy="ask for the format in the prompt"))

    def get_search_options(self) -> dict[str, Any]:
        return {name: value if isinstance(value, bool) else float(value) for name, value in self._options.items()}


DEFAULTS: Mapping[str, Any] = {
    "batch_size": 1,
    "chunk_size": 0,
    "diversity_penalty": 0.0,
    "do_sample": False,
    "early_stopping": True,
    "length_penalty": 1.0,
    "max_length": 0,
    "min_length": 0,
    "no_repeat_ngram_size": 0,
    "num_beams": 1,
    "num_return_sequences": 1,
    "past_present_share_buffer": False,
    "random_seed": -1,
    "repetition_penalty": 1.0,
    "temperature": 1.0,
    "top_k": 50,
    "top_p": 0.0,
}


def _with_options(known: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Sets options after checking them; those that tune memory are ignored."""
    options = dict(known)
    for name, value in changes.items():
        if name not in options:
            rule = f"must be an option of GenAI's search{did_you_mean(name, options)}"
            raise InvalidType(Problem(("search", name), rule, show(value)))
        default = DEFAULTS[name]
        is_whole = not isinstance(value, float) or value.is_integer()
        is_right = isinstance(value, bool) if isinstance(default, bool) else isinstance(value, int | float)
        if not is_right or isinstance(value, bool) != isinstance(default, bool):
            requirement = "True or False" if isinstance(default, bool) else "a number"
            raise InvalidType(Problem(("search", name), f"must be {requirement}", show(value)))
        if isinstance(default, int) and not is_whole:
            raise InvalidType(Problem(("search", name), "must be an integer", show(value)))
        options[name] = type(default)(value)
    return options


def options_of_generation(options: Mapping[str, Any]) -> dict[str, Any]:
    """Converts options to those of `LanguageModel.generate`, with a key if tokens are drawn."""
    names = ("max_length", "min_length", "repetition_penalty", "no_repeat_ngram_size", *OF_BEAMS)
    search = {name: options[name] for name in names if options["num_beams"] > 1 or name not in OF_BEAMS}
    is_drawn = options["do_sample"] and options["top_k"] != 1 and options["temperature"] != 0
    if not is_drawn:
        return {**search, "do_sample": False}
    seed = options["random_seed"]
    key = jax.random.key(secrets.randbits(32) if seed < 0 else seed)
    top_p = options["top_p"] or 1.0  # GenAI's 0 keeps all tokens
    drawn = {"temperature": options["temperature"], "top_k": options["top_k"], "top_p": top_p}
    return {**search, "do_sample": True, "key": key, **drawn}
