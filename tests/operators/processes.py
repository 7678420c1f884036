"""Runs every operator on arrays that several processes hold, and compares the results with one process.

`outcomes` starts the processes, on loopback with JAX's own CPU collectives; each of them runs this file.
"""

import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
import traceback
from typing import Any

PROCESSES, DEVICES = 2, 4


def outcomes(operators: tuple[str, ...]) -> dict[str, str]:
    """For each operator, "as in one process", or the error of the first process that had one."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        address = f"localhost:{free.getsockname()[1]}"
    # The tests also run from copies of the package, so pass on the first entry of the path.
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)}
    results: dict[str, str] = {}
    with contextlib.ExitStack() as stack:
        started = []
        for index in range(PROCESSES):
            # Files instead of pipes: a process that waits for its full pipe to be read would keep the others waiting.
            printed = stack.enter_context(tempfile.TemporaryFile("w+"))
            command = [sys.executable, __file__, address, str(index), *operators]
            process = subprocess.Popen(command, env=environment, stdout=printed, stderr=subprocess.STDOUT, text=True)
            stack.callback(process.kill)
            started.append((process, printed))
        for process, printed in started:
            failed = process.wait(timeout=300)
            printed.seek(0)
            lines = printed.read().splitlines()
            if failed:
                raise RuntimeError("\n".join(lines))
            outcome_line = next(line for line in lines if line.startswith('{"DML_OPERATOR_'))
            for operator, outcome in json.loads(outcome_line).items():
                results[operator] = outcome if results.get(operator, AS_IN_ONE) == AS_IN_ONE else results[operator]
    return results


AS_IN_ONE = "as in one process"


def run(address: str, index: int, operators: list[str]) -> dict[str, str]:
    """Runs the operators in this process, one of several."""
    import jax

    jax.config.update("jax_num_cpu_devices", DEVICES)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.config.update("jax_enable_x64", os.environ.get("JAX_ENABLE_X64", "1").lower() in ("1", "true"))
    jax.distributed.initialize(address, num_processes=PROCESSES, process_id=index)
    from operator_calls import any_desc

    mesh = jax.make_mesh((PROCESSES * DEVICES,), ("batch",), axis_types=(jax.sharding.AxisType.Explicit,))
    results = {}
    for operator in operators:
        try:
            check_batch(any_desc(operator), mesh)
            results[operator] = AS_IN_ONE
        except Exception:  # the other processes must not wait for this one
            results[operator] = traceback.format_exc()
    exchanged = exchanging()
    for operator in filter(exchanged.__contains__, operators):
        function, arrays = exchanged[operator]
        try:
            check_exchange(function, arrays, mesh, is_exact=True)
        except Exception:
            results[operator] = traceback.format_exc()
    return results


def check_batch(desc: Any, mesh: Any) -> None:
    """Checks that a batch of calls, sharded over all processes, equals the calls in one process."""
    import jax
    import numpy as np
    from families import CASES
    from operator_calls import arguments_of, function_of

    calls = [arguments_of(desc, seed) for seed in range(PROCESSES * DEVICES)]
    arrays = [np.stack(arrays) for arrays in zip(*calls, strict=True)]
    check_exchange(jax.vmap(function_of(desc)), arrays, mesh, is_exact=CASES[type(desc).type].is_exact)


def exchanging() -> dict[str, Any]:
    """Calls on one array that all processes hold a part of, so that they have to exchange data."""
    import numpy as np

    import dmljax

    rng = np.random.default_rng(0)
    numbers = (rng.integers(-2, 3, (16, 40)) % 3).astype(np.float32)
    return {
        "DML_OPERATOR_NONZERO_COORDINATES": (dmljax.nonzero_coordinates, [numbers]),
        "DML_OPERATOR_ACTIVATION_HARDMAX": (dmljax.activation_hardmax, [np.ascontiguousarray(numbers.T)]),
        "DML_OPERATOR_ARGMAX": (functools.partial(dmljax.argmax, axes=(0, 1)), [numbers]),
        "DML_OPERATOR_GATHER_ND": (dmljax.gather_nd, [numbers, rng.integers(-16, 16, (8, 2)).astype(np.int32)]),
    }


def check_exchange(function: Any, arrays: list[Any], mesh: Any, *, is_exact: bool) -> None:
    """Checks that `function` returns the same for arrays sharded by rows over all processes as for whole arrays."""
    import jax
    import numpy as np
    from helpers import assert_nearly_same_trees, assert_same_bits

    assert_alike = assert_same_bits if is_exact else assert_nearly_same_trees
    sharding = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("batch"))
    held = [jax.make_array_from_callback(array.shape, sharding, array.__getitem__) for array in arrays]
    expected = jax.tree.leaves(function(*arrays))
    for output, whole in zip(jax.tree.leaves(jax.jit(function)(*held)), expected, strict=True):
        for shard in output.addressable_shards:
            assert_alike(np.asarray(shard.data), jax.device_get(whole)[shard.index])


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1], int(sys.argv[2]), sys.argv[3:])))
