"""The operators of DirectML for JAX: a function of arrays for each.

Comparisons and tests return bool, and positions and counts int32, whether or not `jax_enable_x64` is set; `dtype=` asks
for another type. `dmljax.directml` has their descriptors, which mirror directml.h and have its types.
`dmljax.examples`, `dmljax.dxdispatch`, `dmljax.onnx`, `dmljax.pydirectml` and `dmljax.serialized` are public as well;
nothing else is.
"""

__version__ = "0.1.0"

TYPE_CHECKING = False  # as typing has it, whose import takes longer than the rest of this module
if TYPE_CHECKING:
    from dmljax.functions import *  # noqa: F403
else:  # importing JAX takes seconds, and `dmljax --help` need not wait for it
    del TYPE_CHECKING
    from importlib import import_module as _import_module

    def __dir__():
        own = [name for name in globals() if name.startswith("__") and name not in ("__dir__", "__getattr__")]
        rooms = ["dxdispatch", "examples", "onnx", "pydirectml", "serialized"]
        return [*own, "__all__", *rooms, "directml", *_homes(), *_aliases()]

    def _homes():
        return _import_module("dmljax.functions").HOMES

    def _aliases():
        return _import_module("dmljax.functions").ALIASES

    def __getattr__(name):
        if name.startswith("_") and name != "__all__":  # Python itself looks for such names
            raise AttributeError(f"module 'dmljax' has no attribute {name!r}")
        from importlib.util import find_spec

        if find_spec(f"dmljax.{name}"):
            return _import_module(f"dmljax.{name}")
        if name == "__all__":
            return ["directml", *_homes(), *_aliases()]
        name = _aliases().get(name, name)
        if name in _homes():
            value = globals()[name] = getattr(_import_module(_homes()[name]), name)
            value.__module__ = __name__  # the module that users import it from
            return value
        from dmljax.descriptors.spellings import hint_for_function
        from dmljax.text import no_attribute

        raise no_attribute("dmljax", name, hint_for_function(name, _import_module("dmljax.directml").__all__))
