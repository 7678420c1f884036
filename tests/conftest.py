"""What every test runs under: strict promotion, no broadcasting of ranks, and 64 bits as JAX_ENABLE_X64 says."""

import os
from collections.abc import Callable
from typing import Any

import jax
import pytest

jax.config.update("jax_enable_x64", os.environ.get("JAX_ENABLE_X64", "1").lower() in ("1", "true"))
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(params=["eager", "jitted"])
def call(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """Calls a function of positional arrays and static keywords, once as it is and once inside a user's own jit."""

    def eager(function: Callable[..., Any], *arrays: Any, **statics: Any) -> Any:
        return function(*arrays, **statics)

    def jitted(function: Callable[..., Any], *arrays: Any, **statics: Any) -> Any:
        # NumPy's 64-bit integers are made JAX's before they become traced, as a user of jit has to.
        return jax.jit(lambda *traced: function(*traced, **statics))(*arrays)

    return eager if request.param == "eager" else jitted
