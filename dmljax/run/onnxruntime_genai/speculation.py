"""GenAI's speculative decoding: its options, the folders that it takes, and its statistics."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from dmljax.errors import InvalidDesc, InvalidType, Problem, Unsupported
from dmljax.onnx.language.drafts import MOST_DRAFTS, DraftCounts, Drafter, DraftOptions
from dmljax.onnx.language.model import LanguageModel
from dmljax.onnx.language.parts import DECODER, load_parts, types_of_inputs
from dmljax.onnx.language.settings import FILE, settings_of, with_layers_of_model
from dmljax.run.onnxruntime_genai.configuration import Folder
from dmljax.text import did_you_mean, show

# Options


def read_draft_options(content: Mapping[str, Any]) -> DraftOptions:
    """The options of a configuration."""
    values = content.get("speculative", {})
    if not isinstance(values, dict):
        raise InvalidDesc(Problem((FILE, "speculative"), "must be an object", show(values)))
    return with_draft_options(DraftOptions(), values)


def with_draft_options(known: DraftOptions, changes: Mapping[str, Any]) -> DraftOptions:
    """Sets options after checking them."""
    options: dict[str, Any] = {}
    for name, value in changes.items():
        if name not in DraftOptions._fields:
            rule = f"must be an option of GenAI's speculative decoding{did_you_mean(name, DraftOptions._fields)}"
            raise InvalidType(Problem(("speculative", name), rule, show(value)))
        if name not in _LEAST:
            if not isinstance(value, bool):
                raise InvalidType(Problem(("speculative", name), "must be True or False", show(value)))
            options[name] = value
            continue
        least, requirement = _LEAST[name]
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InvalidType(Problem(("speculative", name), "must be a number", show(value)))
        is_right = value == int(value) and (least <= value <= MOST_DRAFTS or (value == 0 and name == "ngram_size"))
        if not is_right:
            raise InvalidDesc(Problem(("speculative", name), f"must be {requirement}", show(value)))
        options[name] = int(value)
    return known._replace(**options)


_LEAST = {
    "max_draft_tokens": (1, f"an integer from 1 to {MOST_DRAFTS}"),
    "ngram_size": (2, f"0, or an integer from 2 to {MOST_DRAFTS}"),
    "min_adaptive_k": (0, f"an integer from 0 to {MOST_DRAFTS}"),
}


# Folders


def require_draft_support(content: Mapping[str, Any]) -> None:
    """Raises if a folder names a model that drafts, but not one that GenAI would use."""
    model = content["model"]
    draft, target = model.get("draft"), model.get("decoder")
    if draft is None:
        return
    if not isinstance(draft, dict) or not draft.get("filename"):
        raise InvalidDesc(Problem((), f"model.draft.filename is not set in {FILE}"))
    subject = "Speculative decoding does not support"
    parts = [part for part in (target, draft) if isinstance(part, dict)]
    if any("pipeline" in part for part in parts):
        raise Unsupported(Problem((), f"{subject} pipeline models"))
    if "vision" in model or "speech" in model:
        raise Unsupported(Problem((), f"{subject} multimodal (vision/audio) models"))
    if any(_slides(part) for part in parts):
        raise Unsupported(Problem((), f"{subject} physically sliding KV caches, which have lost what came before"))
    if any(part.get("layer_types") for part in parts):
        rule = f"{subject} LFM2 (hybrid SSM/attention) models, from whose states no token can be removed"
        raise Unsupported(Problem((), rule))


def _slides(part: Mapping[str, Any]) -> bool:
    window = part.get("sliding_window")
    return isinstance(window, dict) and bool(window.get("slide_key_value_cache"))


def load_draft(folder: Folder, files: Mapping[str, bytes], target: LanguageModel) -> LanguageModel | None:
    """Loads the model that drafts, if a folder has one."""
    model = folder._content["model"]
    if "draft" not in model:
        return None
    settings = settings_of(folder._folder, {**folder._content, "model": {**model, "decoder": model["draft"]}}, files)
    parts = load_parts(settings, None)
    outputs = {tensor.name: tensor for tensor in parts[DECODER].outputs}
    if (name := settings.names["logits"]) not in outputs:
        raise InvalidDesc(Problem((), f"Draft logits output '{name}' was not found in the ONNX model"))
    of_target = {tensor.name: tensor for tensor in target.model.outputs}[target.settings.names["logits"]]
    before, size = ((tensor.sizes or (None,))[-1] for tensor in (of_target, outputs[name]))
    if before != size:
        rule = f"Target and draft logit dimensions don't match. Target vocab: {before}, Draft vocab: {size}"
        raise InvalidDesc(Problem((), rule))
    draft = LanguageModel(with_layers_of_model(settings, types_of_inputs(parts[DECODER])), parts)
    for model_part in (target, draft):
        if model_part.decoder.batch_axes:
            rule = "Speculative decoding does not support layers with states, from which no token can be removed"
            raise Unsupported(Problem((), rule))
    return draft


# Generators

_BOUNDARIES = {"phi3": 4097, "phimoe": 4097, "phi3small": 8193}  # GenAI reads sequences of these lengths again


def drafter_of(
    folder: Folder, target: LanguageModel, draft: LanguageModel | None, options: DraftOptions, search: Mapping[str, Any]
) -> Drafter | None:
    """What drafts tokens for a generator; None if nothing does."""
    if options.ngram_chained_lookup and not options.ngram_size:
        rule = "speculative.ngram_chained_lookup requires speculative.ngram_size"
        raise InvalidDesc(Problem((), rule))
    if options.ngram_size:
        _require_lookups(folder, target, draft, search)
    elif draft is None:
        return None
    elif search["batch_size"] != 1 or search["no_repeat_ngram_size"]:
        name = "batch_size" if search["batch_size"] != 1 else "no_repeat_ngram_size"
        values = "> 1" if name == "batch_size" else "!= 0"
        raise Unsupported(Problem((), f"Speculative decoding does not support {name} {values}", search[name]))
    tables = target.decoder.tables
    boundary = _BOUNDARIES.get(folder.type) if tables is None else tables.most + 1
    return Drafter(options, draft.decoder if draft else None, boundary=boundary)


def _require_lookups(
    folder: Folder, target: LanguageModel, draft: LanguageModel | None, search: Mapping[str, Any]
) -> None:
    """Raises if GenAI would not look up n-grams."""
    subject, parts = "N-gram decoding", target.models.by_part
    if draft is not None:
        raise Unsupported(Problem((), f"{subject} cannot be combined with draft-model speculative decoding"))
    if search["batch_size"] != 1:
        raise Unsupported(Problem((), f"{subject} requires batch_size=1", search["batch_size"]))
    if [*parts] != [DECODER]:
        raise Unsupported(Problem((), f"{subject} requires a plain decoder-only text model"))
    decoder = folder._content["model"]["decoder"]
    if _slides(decoder) or decoder.get("layer_types") or target.decoder.batch_axes:
        raise Unsupported(Problem((), f"{subject} requires a rewindable KV cache"))
    sizes = {tensor.name: tensor.sizes or () for tensor in target.model.outputs}[target.settings.names["logits"]]
    if len(sizes) == 3 and sizes[1] == 1:
        rule = f"{subject} requires target logits for every verified token; pruned last-token-only logits are not"
        raise Unsupported(Problem((), rule))


# Statistics


def statistics_of(drafter: Drafter | None, buffered: int) -> dict[str, Any]:
    """GenAI's statistics; all 0 without drafts."""
    counts = DraftCounts() if drafter is None else drafter.counts
    known = {part.name: getattr(counts, part.name) for part in fields(counts) if part.name != "rounds_by_width"}
    reanchors, rounds = counts.target_reanchor_forward_passes, counts.rounds
    passes = counts.target_verify_forward_passes + reanchors + counts.target_reconciliation_forward_passes
    target = counts.total_target_verify_ms + counts.total_target_reanchor_ms
    proposed, evaluated = counts.draft_tokens_proposed, counts.draft_tokens_evaluated
    draft_cost, acceptance = _ratio(counts.total_draft_ms, proposed), _ratio(counts.draft_tokens_accepted, evaluated)
    drafts, emitted, cost = (_ratio(x, rounds) for x in (proposed, counts.tokens_emitted, target))
    expected = _ratio(
        sum(n * sum(acceptance**i for i in range(k + 1)) for k, n in counts.rounds_by_width.items()), rounds
    )
    baseline = _ratio(counts.total_target_reanchor_ms, reanchors)
    overhead = cost / baseline - 1 if baseline and rounds else 0.0
    whole = 1 + drafts * draft_cost / baseline + overhead if baseline and rounds else 0.0
    return {
        **known,
        "active_rounds": int(buffered > 0),
        "tokens_buffered": buffered,
        "target_forward_passes": passes,
        "effective_k": drafter.width.current if drafter else 0,
        "adaptive_k_increases": drafter.width.increases if drafter else 0,
        "adaptive_k_decreases": drafter.width.decreases if drafter else 0,
        "adaptive_k_observations": drafter.width.observations if drafter else 0,
        "adaptive_k_probes": drafter.width.probes if drafter else 0,
        "adaptive_k_throughput": drafter.width.throughput if drafter else 0.0,
        "cooldown_entries": drafter.cooldown.entries if drafter else 0,
        "cooldown_steps": drafter.cooldown.steps if drafter else 0,
        "cooldown_remaining": drafter.cooldown.remaining if drafter else 0,
        "ngram_grammar_candidate_rejections": 0,  # there are no grammars
        "formula_supported": rounds > 0,
        "total_target_ms": target,
        "avg_draft_ms_per_token": draft_cost,
        "acceptance_rate": acceptance,
        "avg_draft_tokens_per_round": drafts,
        "mean_emitted_tokens_per_round": emitted,
        "expected_tokens_per_round": expected,
        "avg_target_ms_per_round": cost,
        "target_baseline_ms_per_token": baseline,
        "target_overhead_ratio": overhead,
        "estimated_speedup": expected / whole if whole > 0 else 0.0,
        "observed_speedup": emitted / whole if whole > 0 else 0.0,
    }


def _ratio(part: float, whole: float) -> float:
    return part / whole if whole else 0.0
