"""DxDispatch models: Microsoft's JSON format for DirectML operators and graphs, their data, and commands that run them.

`load` reads a model, and reports every error in it with its line and path; an `Execution` runs the model's commands.
The format is what DxDispatch's parser accepts, which is more than its schema says. dmljax differs from DxDispatch thus:

- A field whose value is null counts as absent. An unknown field is ignored with a warning.
- `initialValuesOffsetInBytes` moves the initial values to that offset; DxDispatch checks the offset, but still puts the
  values at the start of the buffer.
- FLOAT16 values are rounded to the nearest; DxDispatch truncates them. A number that is too large for its float type
  becomes infinite in initial values, as in DxDispatch, but with a warning; in a desc such a number is refused.
- A name that occurs twice in one object is refused; DxDispatch takes the first in some places and the last in others.
- `load` refuses a model that cannot run: one with missing bindings, bindings for tensors that the desc does not have,
  buffers that are too small, outputs that overlap, or files outside the output folder. DxDispatch leaves these checks
  to DirectML.
- A file that cannot be written ends the run; DxDispatch goes on.
- INT4 and UINT4 are types of resources, too: two values to a byte, the first one in the low half.
- An ONNX model is a DirectML graph for the sizes of each dispatch, and does not run in ONNX Runtime. Among the
  dispatchables, the graph for the first sizes has the model's name, and those for others have their sizes in theirs.
  A deferred resource keeps the size of the first output that is bound to it.
- A resource may be bound to an input of an ONNX model that has an initializer as its default, in place of the default.
  DxDispatch ignores such a binding.
- `fuse` makes one dispatch of several.
- An operator may always write to the buffer that it reads, because all inputs are read first.
"""

# fmt: off
from dmljax.dxdispatch.execution import Dispatched, Execution, Printed, Repetition, Written
from dmljax.dxdispatch.fusion import fuse
from dmljax.dxdispatch.model import (
    Binding, Dispatch, Dispatchable, DispatchModel, Finding, InvalidModel, Print, Resource, UnreadableModel, WriteFile
)
from dmljax.dxdispatch.reader import load

__all__ = [
    "Binding", "Dispatch", "DispatchModel", "Dispatchable", "Dispatched", "Execution", "Finding", "InvalidModel",
    "Print", "Printed", "Repetition", "Resource", "UnreadableModel", "WriteFile", "Written", "fuse", "load"
]
# fmt: on
