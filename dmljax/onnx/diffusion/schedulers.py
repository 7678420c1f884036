"""The schedulers of diffusion models: tables of timesteps, and of the factors of each step.

Every scheduler here is linear. A call at a timestep estimates something from the latents and the model's output, mostly
the image without noise; the next latents are a sum of the latents, this and earlier estimates, and new noise.
Only the factors differ, and they do not depend on the latents.

Latents are `signal * image + noise * (normal numbers)` with `signal² + noise² = 1`. Where a paper has `image + sigma *
(normal numbers)` instead, its latents are sqrt(1 + sigma²) times these, but its model takes these.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dmljax.errors import InvalidDesc, Problem, Unsupported, all_checked, require
from dmljax.foundation.checks import integer_in
from dmljax.text import did_you_mean, join_words, json_text, show

FILE = "scheduler/scheduler_config.json"
REACH = 5  # estimates that a step may use, including its own

Numbers = NDArray[np.floating[Any]]


class Table(NamedTuple):
    """The calls of a model, a row each."""

    timesteps: Numbers
    start: float  # the standard deviation of the first latents
    of_latents: Numbers  # an estimate is this times the latents, ...
    of_output: Numbers  # ... plus this times the output
    kept: Numbers  # the next latents are this times the latents, ...
    taken: Numbers  # ... plus these (rows, REACH) times the estimates from the newest on, ...
    noise: Numbers  # ... plus this times new normal numbers


class Options(NamedTuple):
    """The options of a scheduler, with their names in `scheduler_config.json`."""

    num_train_timesteps: int = 1000
    beta_start: float = 0.0001
    beta_end: float = 0.02
    beta_schedule: str = "linear"
    trained_betas: Any = None
    prediction_type: str = "epsilon"
    timestep_spacing: str = "leading"
    steps_offset: int = 0
    set_alpha_to_one: bool = True
    rescale_betas_zero_snr: bool = False
    clip_sample: bool = False
    final_sigmas_type: str = "zero"
    use_karras_sigmas: bool = False
    skip_prk_steps: bool = False
    original_inference_steps: int = 50
    timestep_scaling: float = 10.0
    solver_order: int = 2
    solver_type: str = "midpoint"
    lower_order_final: bool = True
    euler_at_final: bool = False


class Scheduler(NamedTuple):
    """A scheduler: its name in `KINDS`, and its options."""

    kind: str
    options: Options

    @property
    def is_random(self) -> bool:
        """Whether its steps add noise."""
        return KINDS[self.kind].is_random

    def table(self, steps: int) -> Table:
        """The table for a number of steps."""
        options = self.options
        most = options.original_inference_steps if self.kind == "lcm" else options.num_train_timesteps
        return KINDS[self.kind].table(options, integer_in("steps", steps, 1, most))


class SchedulerKind(NamedTuple):
    """A kind of scheduler: the table that it needs, and the options that it takes."""

    name: str  # of the class, as files have it
    table: Callable[[Options, int], Table]
    defaults: Mapping[str, Any]
    fixed: Mapping[str, Any] = {}  # the only supported values of fields
    is_random: bool = False


def scheduler_of(content: Mapping[str, Any], kind: str | None = None) -> Scheduler:
    """The scheduler that a file describes, or another kind with the file's options; one error lists all wrong fields.

    A missing field has the default of the kind; fields that only other kinds have do not count.
    """
    if kind is None:
        name = content.get("_class_name")
        kind = next((key for key, definition in KINDS.items() if definition.name == name), None)
        if kind is None:
            rule = f"must be one of {join_words([entry.name for entry in KINDS.values()], 'or')}"
            remedy = "scheduler='euler' takes another one"
            raise Unsupported(Problem((FILE, "_class_name"), rule, show(name), remedy=remedy))
    elif kind not in KINDS:
        raise InvalidDesc(Problem("scheduler", f"must be one of {join_words(KINDS, 'or')}", show(kind)))
    definition = KINDS[kind]
    fixed = {**_FIXED, **definition.fixed}
    values = {**definition.defaults, **{name: value for name, value in content.items() if name[:1] != "_"}}
    if content.get("_class_name") == definition.name:
        all_checked(*(partial(_require_known, name) for name in values))
    all_checked(*(partial(_check, name, value, fixed, name in content) for name, value in values.items()))
    options = Options(**{name: values[name] for name in Options._fields if name in values})
    if options.rescale_betas_zero_snr and options.prediction_type == "epsilon" and kind in ("ddim", "lcm"):
        rule = "must not be epsilon with rescale_betas_zero_snr, where the first latents have no signal"
        raise InvalidDesc(Problem((FILE, "prediction_type"), rule))
    return Scheduler(kind, options)


def _require_known(name: str) -> None:
    known = (*Options._fields, *_FIXED, *_WITHOUT_EFFECT)
    require((FILE, name), name in known, f"unknown field{did_you_mean(name, known)}")


def _check(name: str, value: Any, fixed: Mapping[str, Any], is_given: bool) -> None:
    """Raises if a field is wrong or not supported."""
    if name in _RULES and not _RULES[name][0](value):
        raise InvalidDesc(Problem((FILE, name), f"must be {_RULES[name][1]}", show(value)))
    allowed_values = fixed.get(name, (value,))
    if value not in allowed_values:
        rule = f"must be {join_words(map(json_text, allowed_values), 'or')}; others are not supported"
        shown = f"{json_text(value)}{'' if is_given else ', the default'}"
        raise Unsupported(Problem((FILE, name), rule, shown))


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and bool(np.isfinite(value))


def _is_one_of(*values: Any) -> tuple[Callable[[Any], bool], str]:
    return lambda value: value in values, join_words(values, "or")


_COUNT = (lambda value: type(value) is int and 0 < value <= 100_000, "an integer from 1 to 100000")
_FLAG = (lambda value: type(value) is bool, "true or false")
_BETA = (lambda value: _is_number(value) and 0 < value < 1, "a number between 0 and 1")
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "num_train_timesteps": _COUNT,
    "beta_start": _BETA,
    "beta_end": _BETA,
    "beta_schedule": _is_one_of("linear", "scaled_linear", "squaredcos_cap_v2"),
    "trained_betas": (
        lambda value: value is None or (isinstance(value, list) and all(map(_BETA[0], value))),
        "null, or a list of numbers between 0 and 1",
    ),
    "prediction_type": _is_one_of("epsilon", "v_prediction", "sample"),
    "timestep_spacing": _is_one_of("leading", "linspace", "trailing"),
    "steps_offset": (lambda value: type(value) is int and value >= 0, "an integer of at least 0"),
    "final_sigmas_type": _is_one_of("zero", "sigma_min"),
    "original_inference_steps": _COUNT,
    "timestep_scaling": (lambda value: _is_number(value) and value > 0, "a number above 0"),
    "solver_type": _is_one_of("midpoint", "heun"),
    **{name: _FLAG for name, default in Options._field_defaults.items() if type(default) is bool},
}
# The only supported values of these fields, which would change the numbers
_FIXED: dict[str, tuple[Any, ...]] = {
    "algorithm_type": ("dpmsolver++",),
    "interpolation_type": ("linear",),
    "lambda_min_clipped": (-np.inf,),
    "sigma_max": (None,),
    "sigma_min": (None,),
    "solver_order": (1, 2),
    "thresholding": (False,),
    "timestep_type": ("discrete",),
    "use_beta_sigmas": (False,),
    "use_exponential_sigmas": (False,),
    "use_flow_sigmas": (False,),
    "use_lu_lambdas": (False,),
    "variance_type": (None, "fixed_small", "fixed_large"),
}
_WITHOUT_EFFECT = (  # without clipping, thresholds and flows
    *("clip_sample_range", "dynamic_thresholding_ratio", "sample_max_value"),
    *("flow_shift", "time_shift_type", "use_dynamic_shifting"),
)


# Noise levels


def _signal_variances(options: Options, lowest: float = 0.0) -> Numbers:
    """The part of the signal's variance at each timestep; `lowest` replaces 0 at the last."""
    count, start, end = options.num_train_timesteps, options.beta_start, options.beta_end
    if options.trained_betas is not None:
        betas = np.array(options.trained_betas, np.float64)
        rule = f"must have num_train_timesteps = {count} numbers"
        require((FILE, "trained_betas"), len(betas) == count, rule, len(betas))
    elif options.beta_schedule == "linear":
        betas = np.linspace(start, end, count)
    elif options.beta_schedule == "scaled_linear":
        betas = np.linspace(start**0.5, end**0.5, count) ** 2
    else:
        angles = (np.arange(count + 1) / count + 0.008) / 1.008 * np.pi / 2
        parts = np.cos(angles) ** 2
        betas = np.minimum(1 - parts[1:] / parts[:-1], 0.999)
    cumulative = np.cumprod(1 - betas)
    if options.rescale_betas_zero_snr:
        signal = np.sqrt(cumulative)
        cumulative = ((signal - signal[-1]) * signal[0] / (signal[0] - signal[-1])) ** 2
        cumulative[-1] = lowest
    return cumulative


def _timesteps(options: Options, steps: int) -> Numbers:
    """The timesteps, from the noisiest on."""
    count = options.num_train_timesteps
    if options.timestep_spacing == "linspace":
        return np.linspace(0, count - 1, steps)[::-1]
    if options.timestep_spacing == "leading":
        times = np.arange(steps)[::-1] * float(count // steps) + options.steps_offset
        rule = f"must be fewer, so that no timestep is after the model's last, {count - 1}"
        require("steps", bool(times[0] < count), rule, steps)
        return times
    return np.round(count - np.arange(steps) * (count / steps)) - 1


class _Levels(NamedTuple):
    """The signal and the noise in the latents at each call, and where the call leads."""

    signal: Numbers
    noise: Numbers
    next_signal: Numbers
    next_noise: Numbers


def _levels(signal: Any, noise: Any, end: tuple[float, float]) -> _Levels:
    """Levels that each lead to the next."""
    return _Levels(signal, noise, np.append(signal[1:], end[0]), np.append(noise[1:], end[1]))


def _sigmas(options: Options, steps: int, *, is_solver: bool) -> tuple[Numbers, Numbers, float]:
    """The timesteps, the noise beside a signal of 1 at each, and at the end."""
    cumulative = _signal_variances(options, 2.0**-24)
    known = np.sqrt(1 / cumulative - 1)
    places = np.arange(len(known))
    if is_solver:
        of_end = options.timestep_spacing != "trailing"
        times = np.round(_timesteps(options, steps + of_end)[:steps])
    else:
        times = _timesteps(options, steps)
    sigmas = np.interp(times, places, known)
    if options.use_karras_sigmas:
        first, last = (known[-1], known[0]) if is_solver else (sigmas[0], sigmas[-1])
        sigmas = (first ** (1 / 7) + np.linspace(0, 1, steps) * (last ** (1 / 7) - first ** (1 / 7))) ** 7
        times = np.interp(np.log(sigmas), np.log(known), places)
        times = np.round(times) if is_solver and options.beta_schedule != "squaredcos_cap_v2" else times
    return times, sigmas, float(known[0]) if options.final_sigmas_type == "sigma_min" else 0.0


# Tables


def _estimates(options: Options, levels: _Levels) -> tuple[Numbers, Numbers]:
    """The factors of the latents and of the output in an estimate of the image."""
    signal, noise = levels.signal, levels.noise
    if options.prediction_type == "epsilon":
        return 1 / signal, -noise / signal
    if options.prediction_type == "v_prediction":
        return signal, -noise
    return np.zeros_like(signal), np.ones_like(signal)


def _table(
    times: Numbers, start: float, estimates: tuple[Numbers, Numbers], kept: Any, taken: Any, noise: Any = 0.0
) -> Table:
    """A table whose estimates, from the newest on, are `taken`, a column each."""
    columns = np.zeros((len(times), REACH))
    for i, column in enumerate(taken):
        columns[:, i] = column
    return Table(times, start, *estimates, kept, columns, np.broadcast_to(noise, times.shape).astype(np.float64))


def _direction_factors(levels: _Levels) -> tuple[Numbers, Numbers]:
    """The factors of the latents and of the image that keep the direction of the noise."""
    kept = levels.next_noise / levels.noise
    return kept, levels.next_signal - kept * levels.signal


def _ddim_levels(options: Options, times: Numbers, steps: int) -> _Levels:
    """Levels that each lead back by as many timesteps as a step has on average."""
    cumulative = _signal_variances(options)
    before = times.astype(int) - options.num_train_timesteps // steps
    end = 1.0 if options.set_alpha_to_one else cumulative[0]
    now, then = cumulative[times.astype(int)], np.where(before >= 0, cumulative[before], end)
    return _Levels(np.sqrt(now), np.sqrt(1 - now), np.sqrt(then), np.sqrt(1 - then))


def _ddim(options: Options, steps: int) -> Table:
    """Denoising diffusion implicit models (Song et al., 2020), without noise."""
    times = np.round(_timesteps(options, steps))
    levels = _ddim_levels(options, times, steps)
    kept, taken = _direction_factors(levels)
    return _table(times, 1.0, _estimates(options, levels), kept, [taken])


_ADAMS_BASHFORTH = (  # factors of the newest outputs; later steps leave out the second call's
    (1.0,),
    (0.5, 0.5),
    (3 / 2, 0.0, -1 / 2),
    (23 / 12, -16 / 12, 0.0, 5 / 12),
    (55 / 24, -59 / 24, 37 / 24, 0.0, -9 / 24),
    (55 / 24, -59 / 24, 37 / 24, -9 / 24),
)


def _plms(options: Options, steps: int) -> Table:
    """Pseudo linear multistep (Liu et al., 2022): DDIM with the noise that several outputs extrapolate.

    The second call is at the end of the first step, which it makes again with both outputs.
    """
    spaced = np.round(_timesteps(options, steps))
    times = np.concatenate([spaced[:2], spaced[1:]])
    starts = times.copy()
    if steps > 1:
        starts[1] += options.num_train_timesteps // steps
    levels = _ddim_levels(options, starts, steps)
    kept = levels.next_signal / levels.signal
    of_noise = levels.next_noise - kept * levels.noise
    of_output = of_noise
    if options.prediction_type == "v_prediction":
        kept, of_output = kept + of_noise * levels.noise, of_noise * levels.signal
    taken = np.zeros((len(times), REACH))
    for i, row in enumerate(taken):
        factors = _ADAMS_BASHFORTH[min(i, len(_ADAMS_BASHFORTH) - 1)]
        row[: len(factors)] = np.multiply(factors, of_output[i])
    if steps > 1:  # undo the first step, which is linear, rather than remember the first latents
        undone = kept[1] / kept[0]
        taken[1, 1] -= undone * taken[0, 0]
        kept[1] = undone
    return _table(times, 1.0, (np.zeros_like(kept), np.ones_like(kept)), kept, taken.T)


def _euler(options: Options, steps: int) -> Table:
    """Euler's method on noise levels (Karras et al., 2022)."""
    times, sigmas, end = _sigmas(options, steps, is_solver=False)
    signal = 1 / np.sqrt(1 + sigmas**2)
    levels = _levels(signal, sigmas * signal, (1.0, end))
    kept, taken = _direction_factors(levels)
    return _table(times, _start(options, levels), _estimates(options, levels), kept, [taken])


def _start(options: Options, levels: _Levels) -> float:
    return 1.0 if options.timestep_spacing == "leading" else float(levels.noise[0])


def _euler_ancestral(options: Options, steps: int) -> Table:
    """Euler's method that goes farther and adds noise again (Karras et al., 2022)."""
    times, sigmas, _ = _sigmas(options, steps, is_solver=False)
    later = np.append(sigmas[1:], 0.0)
    added = later * np.sqrt(1 - (later / sigmas) ** 2)
    signal = 1 / np.sqrt(1 + sigmas**2)
    levels = _levels(signal, sigmas * signal, (1.0, 0.0))
    scaled = levels.next_signal
    kept, taken = _direction_factors(levels._replace(next_noise=scaled * later**2 / sigmas))
    start = _start(options, levels)
    return _table(times, start, _estimates(options, levels), kept, [taken], scaled * added)


def _lcm(options: Options, steps: int) -> Table:
    """Latent consistency models (Luo et al., 2023): each call estimates the image, to which noise is added again."""
    count, known = options.num_train_timesteps, options.original_inference_steps
    of_training = (np.arange(1, known + 1) * (count // known) - 1)[::-1]
    times = of_training[np.arange(steps) * known // steps].astype(np.float64)
    cumulative = _signal_variances(options)[times.astype(int)]
    levels = _levels(np.sqrt(cumulative), np.sqrt(1 - cumulative), (1.0, 0.0))
    scaled = times * options.timestep_scaling
    of_latents, of_image = 0.25 / (scaled**2 + 0.25), scaled / np.sqrt(scaled**2 + 0.25)
    kept, taken = levels.next_signal * of_latents, levels.next_signal * of_image
    return _table(times, 1.0, _estimates(options, levels), kept, [taken], levels.next_noise)


def _dpm_solver(options: Options, steps: int) -> Table:
    """DPM-Solver++ with the estimates of one or two calls (Lu et al., 2022)."""
    times, sigmas, end = _sigmas(options, steps, is_solver=True)
    scaled = 1 / np.sqrt(1 + sigmas**2)
    scale_of_end = 1 / np.sqrt(1 + end**2)
    levels = _levels(scaled, sigmas * scaled, (scale_of_end, end * scale_of_end))
    kept, taken = _direction_factors(levels)
    before = np.zeros(steps)
    with np.errstate(divide="ignore"):
        lengths = np.log(sigmas) - np.log(np.append(sigmas[1:], end))
    for i in range(1, steps if options.solver_order == 2 else 0):
        is_last = i == steps - 1
        is_short = options.lower_order_final and steps < 15
        if is_last and (is_short or options.euler_at_final or options.final_sigmas_type == "zero"):
            continue
        half = taken[i] / 2
        if options.solver_type == "heun":
            half = levels.next_signal[i] * (1 - taken[i] / levels.next_signal[i] / lengths[i])
        more = half * lengths[i] / lengths[i - 1]
        taken[i], before[i] = taken[i] + more, -more
    return _table(times, 1.0, _estimates(options, levels), kept, [taken, before])


_UNCLIPPED = {"clip_sample": (False,)}
KINDS = {
    "ddim": SchedulerKind("DDIMScheduler", _ddim, {"clip_sample": True}, _UNCLIPPED),
    "pndm": SchedulerKind(
        "PNDMScheduler",
        _plms,
        {"set_alpha_to_one": False, "skip_prk_steps": False},
        {"prediction_type": ("epsilon", "v_prediction"), "rescale_betas_zero_snr": (False,), "skip_prk_steps": (True,)},
    ),
    "euler": SchedulerKind("EulerDiscreteScheduler", _euler, {"timestep_spacing": "linspace"}),
    "euler_ancestral": SchedulerKind(
        "EulerAncestralDiscreteScheduler",
        _euler_ancestral,
        {"timestep_spacing": "linspace"},
        {"use_karras_sigmas": (False,)},
        is_random=True,
    ),
    "lcm": SchedulerKind(
        "LCMScheduler",
        _lcm,
        {"beta_start": 0.00085, "beta_end": 0.012, "beta_schedule": "scaled_linear"},
        _UNCLIPPED,
        is_random=True,
    ),
    "dpmsolver++": SchedulerKind("DPMSolverMultistepScheduler", _dpm_solver, {"timestep_spacing": "linspace"}),
}
