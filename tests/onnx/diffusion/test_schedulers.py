"""The tables of diffusion models' schedulers, beside diffusers' numbers and the papers' formulas."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from helpers import SAMPLED, refuses
from small_diffusion_models import SCHEDULER

from dmljax.onnx.diffusion.schedulers import KINDS, REACH, Table, scheduler_of

LATENTS = np.array([0.3, -1.2, 0.9, 2.0])


def toy(latents: Any, time: float) -> Any:
    """A model."""
    return 0.6 * latents + 0.3 * np.sin(2 * latents + time / 300)


def noise(step: int) -> Any:
    return np.cos(np.arange(4) * 1.7 + step)


def sample(table: Table, model: Callable[[Any, float], Any] = toy) -> Any:
    latents, estimates = table.start * LATENTS, [np.zeros(4)] * REACH
    for i, time in enumerate(table.timesteps):
        estimate = table.of_latents[i] * latents + table.of_output[i] * model(latents, time)
        estimates = [estimate, *estimates[:-1]]
        latents = table.kept[i] * latents + table.noise[i] * noise(i)
        latents += sum(factor * estimate for factor, estimate in zip(table.taken[i], estimates, strict=True))
    return latents


# What the schedulers of diffusers 0.42.1 make of LATENTS * init_noise_sigma in float64, with `toy` of what their
# scale_model_input returns, and with `noise` instead of randn_tensor. They compute their tables in float32.
LEADING = {**SCHEDULER, "timestep_spacing": "leading"}
BETAS = {name: SCHEDULER[name] for name in ("beta_schedule", "beta_start", "beta_end")}
UNCLIPPED = {"clip_sample": False}
VELOCITY = {"prediction_type": "v_prediction", "timestep_spacing": "trailing"}
IMAGE = {"prediction_type": "sample"}
ZERO = {"rescale_betas_zero_snr": True}
LAST = {"final_sigmas_type": "sigma_min"}
OF_DIFFUSERS: list[tuple[str, int, dict[str, Any], list[float]]] = [
    ("ddim", 5, LEADING, [0.18169, -1.50818, 2.00667, 2.39284]),
    ("ddim", 7, {**UNCLIPPED, **VELOCITY, **ZERO}, [-0.08501, -0.2195, 0.06708, 0.4976]),
    (
        "ddim",
        4,
        {**UNCLIPPED, **IMAGE, "timestep_spacing": "linspace", "beta_schedule": "squaredcos_cap_v2"},
        [0.50111, -0.918, 0.69934, 0.94323],
    ),
    ("pndm", 7, LEADING, [0.17702, -1.12011, 1.95288, 2.46767]),
    ("pndm", 1, LEADING, [0.29588, -1.1893, 0.89028, 1.98905]),
    ("pndm", 9, {**SCHEDULER, **VELOCITY, "timestep_spacing": "linspace"}, [0.00127, -0.40656, 0.27971, 0.82874]),
    ("euler", 6, LEADING, [0.26483, -1.5814, 2.03788, 2.41344]),
    ("euler", 6, BETAS, [1.97697, -3.18792, 2.3679, 4.19568]),
    ("euler", 5, {**BETAS, **VELOCITY, **ZERO}, [-0.09378, -0.23306, 0.07367, 0.45331]),
    ("euler", 6, {**BETAS, "use_karras_sigmas": True}, [2.06463, -3.12015, 2.46705, 4.12928]),
    ("euler", 6, {**BETAS, **IMAGE, **LAST}, [0.56521, -1.12251, 0.72342, 1.11293]),
    ("euler_ancestral", 6, LEADING, [0.97543, -1.32096, 0.55033, 1.88794]),
    ("euler_ancestral", 6, {**BETAS, **VELOCITY}, [-0.28417, -0.05368, 0.08402, -0.15409]),
    ("lcm", 4, LEADING, [1.34707, -2.55105, 1.75468, 1.91044]),
    ("lcm", 3, {**VELOCITY, "original_inference_steps": 20}, [-0.09252, -0.14621, -0.20123, -0.00703]),
    ("lcm", 2, IMAGE, [0.4438, 0.02478, -0.3203, 0.4604]),
    ("dpmsolver++", 6, LEADING, [0.19404, -1.26729, 1.93349, 2.34927]),
    (
        "dpmsolver++",
        20,
        {**BETAS, "use_karras_sigmas": True, "solver_type": "heun"},
        [1.48254, -2.19652, 2.22852, 2.85287],
    ),
    (
        "dpmsolver++",
        6,
        {**BETAS, **VELOCITY, **LAST, "lower_order_final": False},
        [0.13314, -0.59858, 0.34187, 1.10104],
    ),
    (
        "dpmsolver++",
        6,
        {**BETAS, **IMAGE, **LAST, "solver_order": 1, "euler_at_final": True},
        [0.58277, -1.10653, 0.74423, 1.04479],
    ),
]


@SAMPLED
@pytest.mark.parametrize(("kind", "steps", "options", "expected"), OF_DIFFUSERS, ids=itertools.count())
def test_results_equal_diffusers(kind: str, steps: int, options: dict[str, Any], expected: list[float]) -> None:
    table = scheduler_of(options, kind).table(steps)
    np.testing.assert_allclose(sample(table), expected, rtol=5e-4, atol=5e-5)
    assert (table.noise > 0).any() == KINDS[kind].is_random


def cumulative(betas: Any) -> Any:
    return np.cumprod(1 - betas)


def test_ddim_follows_its_paper() -> None:
    kept = cumulative(np.linspace(0.00085**0.5, 0.012**0.5, 1000) ** 2)
    latents = LATENTS
    times = [801, 601, 401, 201, 1]
    for time, before in itertools.pairwise([*times, -199]):
        now, then = kept[time], kept[max(before, 0)]
        output = toy(latents, time)
        image = (latents - np.sqrt(1 - now) * output) / np.sqrt(now)
        latents = np.sqrt(then) * image + np.sqrt(1 - then) * output
    table = scheduler_of(SCHEDULER, "ddim").table(5)
    assert table.timesteps.tolist() == times
    np.testing.assert_allclose(sample(table), latents, rtol=1e-12)


@SAMPLED
@pytest.mark.parametrize(
    ("kind", "prediction"),
    [
        ("pndm", "epsilon"),  # it extrapolates outputs, of which only the noise stays the same
        *itertools.product(("ddim", "euler", "dpmsolver++"), ("epsilon", "v_prediction", "sample")),
    ],
)
def test_a_model_that_knows_the_image_leads_to_it(kind: str, prediction: str) -> None:
    image = np.array([0.5, -0.25, 1.0, 0.0])
    kept = cumulative(np.linspace(0.0001, 0.02, 1000))

    def model(latents: Any, time: float) -> Any:
        sigma = np.interp(time, np.arange(1000), np.sqrt(1 / kept - 1))
        signal, spread = 1 / np.sqrt(1 + sigma**2), sigma / np.sqrt(1 + sigma**2)
        output = (latents - signal * image) / spread
        return {"epsilon": output, "v_prediction": signal * output - spread * image, "sample": image}[prediction]

    options = {**UNCLIPPED, "prediction_type": prediction, "set_alpha_to_one": True, "skip_prk_steps": True}
    actual = sample(scheduler_of(options, kind).table(9), model)
    np.testing.assert_allclose(actual, image, atol=1e-9)


def test_betas_may_be_listed() -> None:
    betas = np.linspace(0.0001, 0.02, 1000).tolist()
    default_betas, listed = (
        scheduler_of({**UNCLIPPED, "trained_betas": betas_given}, "ddim").table(4) for betas_given in (None, betas)
    )
    np.testing.assert_allclose(default_betas.kept, listed.kept)
    with refuses("trained_betas must have num_train_timesteps = 1000 numbers; got 2"):
        scheduler_of({**UNCLIPPED, "trained_betas": [0.1, 0.2]}, "ddim").table(4)


def test_a_file_chooses_the_scheduler_unless_a_call_does() -> None:
    assert scheduler_of(SCHEDULER).kind == "pndm"
    other = scheduler_of({**SCHEDULER, "solver_p": None}, "euler")  # a field that only the file's class has
    assert (other.kind, other.options.timestep_spacing, other.options.beta_end) == ("euler", "linspace", 0.012)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"_class_name": "UniPCMultistepScheduler"}, "_class_name must be one of DDIMScheduler, PNDMScheduler, "),
        ({"_class_name": None}, "or DPMSolverMultistepScheduler; got None (scheduler='euler' takes another one)"),
        ({"beta_stat": 0.1}, "beta_stat: unknown field, did you mean beta_start?"),
        ({"beta_start": 2}, "beta_start must be a number between 0 and 1; got 2"),
        (
            {"beta_schedule": "sigmoid"},
            "beta_schedule must be linear, scaled_linear or squaredcos_cap_v2; got 'sigmoid'",
        ),
        ({"trained_betas": 3}, "trained_betas must be null, or a list of numbers between 0 and 1; got 3"),
        ({"num_train_timesteps": True}, "num_train_timesteps must be an integer from 1 to 100000; got True"),
        ({"thresholding": True}, "thresholding must be false; others are not supported; got true"),
        ({"skip_prk_steps": False}, "skip_prk_steps must be true; others are not supported; got false"),
        (
            {"prediction_type": "sample"},
            'prediction_type must be "epsilon" or "v_prediction"; others are not supported',
        ),
        ({"_class_name": "DDIMScheduler", "clip_sample": True}, "clip_sample must be false; others are not supported"),
        (
            {"_class_name": "DPMSolverMultistepScheduler", "solver_order": 3},
            "solver_order must be 1 or 2; others are not supported; got 3",
        ),
        (
            {"_class_name": "DDIMScheduler", "rescale_betas_zero_snr": True},
            "prediction_type must not be epsilon with rescale_betas_zero_snr",
        ),
    ],
)
def test_an_error_names_the_file_and_the_field(changed: dict[str, Any], message: str) -> None:
    with refuses(message) as refused:
        scheduler_of({**SCHEDULER, **changed})
    assert str(refused.value).startswith('["scheduler/scheduler_config.json"].')


def test_wrong_calls_are_refused() -> None:
    with refuses("clip_sample must be false; others are not supported; got true, the default"):
        scheduler_of({}, "ddim")
    with refuses("scheduler must be one of ddim, pndm, euler, euler_ancestral, lcm or dpmsolver++; got 'heun'"):
        scheduler_of(SCHEDULER, "heun")
    with refuses("steps must be in [1, 50]; got 51"):
        scheduler_of(SCHEDULER, "lcm").table(51)
    with refuses("steps must be fewer, so that no timestep is after the model's last, 999; got 1000"):
        scheduler_of(SCHEDULER, "ddim").table(1000)
