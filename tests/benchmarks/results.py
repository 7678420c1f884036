"""Measures networks and every operator on this machine, and writes RESULTS.md, networks.json and every.json.

`python tests/benchmarks/results.py` needs the extra `benchmarks` and half an hour of a quiet machine; with `--page`, it
only writes the page from the other two files.
"""

import datetime
import json
import statistics
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import jax

from dmljax.command_line.describe import function_name, markdown_table, operators_by_family

HERE = Path(__file__).parent
PAGE, NETWORKS, OPERATORS = HERE / "RESULTS.md", HERE / "figures" / "networks.json", HERE / "figures" / "every.json"
H100 = HERE / "figures" / "h100.md"  # written on the day that one was at hand
RIVALS = {"jax.numpy": "jax.numpy's idiom", "torch": "PyTorch", "onnxruntime": "ONNX Runtime"}
OF_NETWORKS = ("plain JAX", "PyTorch", "ONNX Runtime")

TEXT = """\
# How fast dmljax is

`python tests/benchmarks/results.py` measures all of this on two cores of a shared machine: {measured}.

[At a glance](../../notebooks/at-a-glance.md) has every operator, and [compilers](../../notebooks/compilers.md) what
compilers estimate for an H100 and a TPU v5e. Nobody has run dmljax on a TPU.

On a CPU, every ratio is the rival's time divided by dmljax's: **above 1, dmljax is faster**. Repeated runs on a shared
machine differ: a single ratio by up to a factor of two, a mean by about a tenth. Every rival does the same work on the
same data, its result is compared before it is timed, and blocks of calls alternate.

## Networks

The forward pass of one input through the ONNX model that PyTorch exports, with random weights. PyTorch and ONNX Runtime
use two threads.

{networks}

## Operators

One workload of about 2^20 elements for each operator. Geometric means of each family, and the worst ratio.

{operators}

## On an H100

{h100}
## What limits it

On a CPU, in the order of how much it costs:

- **Convolutions and matrix products.** XLA's libraries reach 50 to 150 GFLOP/s on two cores, PyTorch's 130 to 180. ONNX
  Runtime orders weights beforehand, and computes convolution, bias and activation as one kernel.
- **Fresh memory, from about 2^22 elements.** XLA allocates each result anew: 8,193 page faults and 11 ms for 32 MiB.
  PyTorch and ONNX Runtime reuse theirs. `GLIBC_TUNABLES=glibc.malloc.hugetlb=1` makes it three times as fast.
- **Threads, from about 2^14 to 2^18 elements.** XLA wakes a second thread, which takes 50 to 100 us, for jax.numpy and
  dmljax alike; the others stay in one.
- **Dispatch, below that.** An empty jitted call takes 7 to 12 us; PyTorch's `nonzero` of 1,024 elements is done in 4.
- **Gathers and scatters.** XLA computes each element by itself, in one thread for scatters; ONNX Runtime copies rows.
- **Subnormal numbers.** XLA flushes them to zero on a CPU. Where the pages tell them apart, dmljax compares bits.

## What a CPU's lowerings choose by

Milliseconds at some commit, on this machine or one like it; lowerings point here.

- **Convolutions:** depthwise filters are sums of shifted images (96 channels of 112 x 112: 0.9 instead of XLA's 194).
  Windows of one element, at most 300 windows and other groups are products of matrices (3 x 3, 512 x 7 x 7 to 512: 2.4
  instead of 4.6). XLA convolves all else. Gaps in image and filter that make XLA call Eigen helped single layers up to
  1.9 times, and cost the U-Net a fifth of its processor time; they are gone.
- **Channels last** in whole networks: MobileNetV2 takes 8.6, and 17 with each layer in its own fastest layout.
- **Regions:** 1,000 of 7 x 7 with 2 x 2 samples in 256 x 50 x 50 take 51; unrolled taps 67, products of matrices 152.
- **Resampling:** slices for simple ratios (doubling 32 x 64 x 64 by linear weights: 0.4 instead of 5.3); otherwise
  gathers and, for gradients, products with matrices.
- **Recurrent networks:** a GRU's loop that carries its summands takes 5 us a step of 16 x 64, and 16 if it carries its
  state.
"""


def text() -> str:
    """The text of the page."""
    networks = json.loads(NETWORKS.read_text())
    return TEXT.format(
        measured=networks["measured"],
        networks="\n".join(_of_networks(networks["milliseconds"])),
        h100=H100.read_text(),
        operators="\n".join(_of_operators(json.loads(OPERATORS.read_text()))),
    )


def _of_networks(milliseconds: Mapping[str, Mapping[str, float]]) -> Iterable[str]:
    ratios = [[times[rival] / times["dmljax"] for rival in OF_NETWORKS] for times in milliseconds.values()]
    rows = [
        (name, f"{times['dmljax']:.2f}", *(f"{ratio:.2f}" for ratio in own))
        for (name, times), own in zip(milliseconds.items(), ratios, strict=True)
    ]
    means = (f"{statistics.geometric_mean(column):.2f}" for column in zip(*ratios, strict=True))
    return markdown_table([*rows, ("geometric mean", "", *means)], ("network", "ms", *OF_NETWORKS))


def _of_operators(ratios: Mapping[str, Mapping[str, float]]) -> Iterable[str]:
    families = {
        title: {function_name(one): ratios.get(one.short_name, {}) for one in operators}
        for title, operators in operators_by_family().items()
    }
    everything = {name: own for family in families.values() for name, own in family.items()}
    rows = [
        (title, str(len(family)), *(_summary(family, rival) for rival in RIVALS))
        for title, family in [*families.items(), ("all", everything)]
    ]
    return markdown_table(rows, ("family", "operators", *RIVALS.values()))


def _summary(family: Mapping[str, Mapping[str, float]], rival: str) -> str:
    """The geometric mean of the operators that have this rival, and the worst of them."""
    known = {name: own[rival] for name, own in family.items() if rival in own}
    if not known:
        return ""
    worst = min(known, key=known.__getitem__)
    return f"**{statistics.geometric_mean(known.values()):.2f}**, {known[worst]:.2g} (`{worst}`)"


def main(options: list[str]) -> None:
    """Runs the command line."""
    if "--page" not in options:
        import every  # these two need PyTorch
        import plain_networks

        milliseconds = plain_networks.main()
        every.main([])
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True)
        measured = f"{datetime.date.today():%d %B %Y}, commit {commit.stdout.strip()}, JAX {jax.__version__}"
        NETWORKS.write_text(json.dumps({"measured": measured, "milliseconds": milliseconds}, indent=1) + "\n")
    PAGE.write_text(text())


if __name__ == "__main__":
    main(sys.argv[1:])
