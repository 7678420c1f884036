"""DxDispatch models: Microsoft's JSON format for DirectML operators, their data, and what to do with them.

`load` reads a model and names the place of everything that is wrong with it; an `Execution` carries its commands out.
The format is what DxDispatch's parser accepts, which is more than its schema says. What differs:

- A null is an absent field, and a field that counts for nothing is warned of.
- `initialValuesOffsetInBytes` moves the initial values; DxDispatch checks it, and puts them first all the same.
- FLOAT16 rounds to the nearest, where DxDispatch truncates. What is too large for a float becomes infinite in initial
  values, as there, but with a warning; in a desc it is refused.
- A name that an object gives twice is refused; DxDispatch takes the first here and the last there.
- Refused before anything runs is what cannot be: bindings that are missing, or for tensors that the desc does not have,
  or too small; outputs that overlap; files outside the output folder. DxDispatch leaves that to DirectML.
- A file that cannot be written ends the run, where DxDispatch goes on.
- An operator may always write where it reads, for all inputs are read first.
"""

from dmljax.dxdispatch.execution import (
    Dispatched as Dispatched,
    Execution as Execution,
    Printed as Printed,
    Repetition as Repetition,
    Written as Written,
)
from dmljax.dxdispatch.model import (
    Binding as Binding,
    Dispatch as Dispatch,
    Dispatchable as Dispatchable,
    Finding as Finding,
    InvalidModel as InvalidModel,
    Model as Model,
    Print as Print,
    Resource as Resource,
    UnreadableModel as UnreadableModel,
    WriteFile as WriteFile,
)
from dmljax.dxdispatch.reader import load as load
