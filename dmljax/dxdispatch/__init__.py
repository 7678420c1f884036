"""DxDispatch models: Microsoft's JSON format for DirectML operators and graphs, their data, and commands that run them.

`load` reads a model, and reports every error in it with its line and path; an `Execution` runs the model's commands.
We accept what DxDispatch's parser accepts, which is more than its schema allows. dmljax differs from DxDispatch:

- A null field counts as absent. An unknown field is ignored with a warning.
- `initialValuesOffsetInBytes` moves the initial values to that offset; DxDispatch checks the offset, but still puts the
  values at the start of the buffer.
- FLOAT16 values are rounded to nearest; DxDispatch truncates them. In initial values, a number too large for its float
  type becomes infinite, as in DxDispatch, but with a warning; in a desc it is refused.
- A name that occurs twice in an object is refused; DxDispatch uses the first in some places and the last in others.
- `load` refuses a model that cannot run because of missing bindings, bindings for tensors that the desc does not have,
  buffers that are too small, overlapping outputs, or files outside the output folder. DxDispatch leaves these checks to
  DirectML.
- A file that cannot be written ends the run; DxDispatch continues.
- Resources may have the types INT4 and UINT4: two values to a byte, the first in the low half.
- An ONNX model is compiled for the sizes of each dispatch, and does not run in ONNX Runtime. Among the dispatchables,
  the model for the first sizes has the model's name; the names for further sizes include them. A deferred resource
  keeps the size of the first output bound to it.
- If values decide the sizes of an ONNX model's outputs, as after NonZero, they take the first bytes of their buffers
  when the model runs, and the rest stays unchanged; a deferred resource takes their size. Such a model has no program
  to print or to estimate.
- A resource may be bound to an ONNX model's input that has an initializer as its default. DxDispatch ignores such a
  binding.
- `fuse` combines several dispatches.
- An operator may write to a buffer that it reads, because all inputs are read first.
"""

# fmt: off
import typing as _typing

from dmljax.dxdispatch.execution import Dispatched, Execution, Printed, Repetition, Written
from dmljax.dxdispatch.fusion import fuse
from dmljax.dxdispatch.model import (
    Binding, Dispatch, Dispatchable, DispatchModel, Finding, InvalidModel, Print, Resource, UnreadableModel, WriteFile
)
from dmljax.dxdispatch.reading.reader import load

__all__ = [
    "Binding", "Dispatch", "DispatchModel", "Dispatchable", "Dispatched", "Execution", "Finding", "InvalidModel",
    "Print", "Printed", "Repetition", "Resource", "UnreadableModel", "WriteFile", "Written", "fuse", "load"
]
# fmt: on

if not _typing.TYPE_CHECKING:  # a type checker refuses unknown names by itself

    def __getattr__(name):
        from dmljax.text import hint_by_table, no_attribute

        run = "Execution(load(path)).run()"
        elsewhere = {"run": run, "execute": run, "Model": "load", "load_model": "load", "read": "load"}
        raise no_attribute("dmljax.dxdispatch", name, hint_by_table(name, elsewhere, __all__))


def __dir__() -> list[str]:
    return __all__
