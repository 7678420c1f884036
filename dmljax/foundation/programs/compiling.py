"""Jitted functions that say when they are traced, lowered and compiled, and that commands keep in a cache."""

import functools
import gc
import os
import pickle
import platform
import sys
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np
from jax.experimental.serialize_executable import deserialize_and_load, serialize
from jaxlib.version import __version__ as jaxlib_version

from dmljax.foundation.platforms import device_of, traced_for
from dmljax.foundation.programs.progress import has_listener, report, report_again
from dmljax.foundation.programs.store import NO_CACHE, ProgramStore, cache_folder, digest_of

R = TypeVar("R")

_store: ProgramStore | None = None  # of this process
_notify: Callable[[str], None] | None = None


def keep_programs_in(store: ProgramStore | None, notify: Callable[[str], None] | None = None) -> None:
    """Keeps the compiled programs of this process in a store, and finds them there; `notify` tells its user a line."""
    global _store, _notify
    _store, _notify = store, notify


def notify(line: str) -> None:
    """Tells the user of a command what makes it slow."""
    if _notify is not None:
        _notify(line)


def open_cache(notify: Callable[[str], None]) -> None:
    """Keeps compiled programs in the user's cache folder, unless the user keeps them by JAX's option, or not at all.

    `notify` gets a line if the folder cannot be written.
    """
    if _store is None and not os.environ.get(NO_CACHE) and not jax.config.values["jax_compilation_cache_dir"]:
        keep_programs_in(ProgramStore(cache_folder(), notify), notify)


class Program:
    """A function of `jax.jit`; whoever listens hears the stages before the first call with new types.

    `number` and `count` are its place among the programs that are compiled for the same work. `options` are those of
    `jax.jit`. A store finds the program by `source`: a digest of all that the function computes from besides its
    arguments. Without it, the program is not kept.

    Some functions decide while they are traced what is left to do elsewhere: `notes` returns these decisions, and
    `use_notes` takes them when the program comes from the store. `failure` is an exception of tracing that is also
    kept. `on_program` is called with the arguments of a call with new types, and whether the store has its program.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        number: int = 1,
        count: int = 1,
        *,
        source: Callable[[], str] | None = None,
        notes: Callable[[], Any] = lambda: None,
        use_notes: Callable[[Any], object] = lambda notes: None,
        failure: type[Exception] | tuple[()] = (),
        on_program: Callable[..., object] = lambda *arguments, is_stored: None,
        **options: Any,
    ) -> None:
        self.jitted = jax.jit(function, **options)
        self._function_name = getattr(function, "__qualname__", "")
        self._name, self._place = name, (number, count, "program") if count > 1 else ()
        self._source, self._notes, self._use_notes, self._failure = source, notes, use_notes, failure
        self._on_program = on_program
        static_places, static_names = options.get("static_argnums", ()), options.get("static_argnames", ())
        self._static_places = {static_places} if isinstance(static_places, int) else {*static_places}
        self._static_names = {static_names} if isinstance(static_names, str) else {*static_names}
        self._compiled: dict[Hashable, Any] = {}

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        if _store is None and not has_listener():
            return self.jitted(*arguments, **options)
        leaves, tree = jax.tree.flatten((arguments, options))
        if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves) or jax.config.jax_disable_jit:  # type: ignore[attr-defined]
            return self.jitted(*arguments, **options)
        types = (_jax_options(), tree, *map(_type_of, leaves))
        if types not in self._compiled:
            with report_again():
                if _store is None:
                    self._compiled[types] = self._compile(arguments, options)
                else:
                    self._compiled[types] = self._find_or_compile(arguments, options, tree, leaves)
        if _store is None:  # JAX keeps what it has traced, lowered and compiled, and finds it faster
            return self.jitted(*arguments, **options)
        dynamic = (argument for place, argument in enumerate(arguments) if place not in self._static_places)
        return self._compiled[types](*dynamic, **{name: options[name] for name in options.keys() - self._static_names})

    def compiled_for(self, *arguments: Any) -> Callable[..., Any] | None:
        """The program that an earlier call with these types has compiled; it takes those that are not static.

        It stays right while `main_options` do. None if JAX runs calls in another way.
        """
        options: Any = jax.config
        if options.jax_disable_jit or options.jax_debug_nans or options.jax_debug_infs:
            return None
        if _store is None:
            compiled: Callable[..., Any] = self.jitted.trace(*arguments).lower().compile()  # which JAX has kept
            return compiled
        leaves, tree = jax.tree.flatten((arguments, {}))
        return self._compiled.get((_jax_options(), tree, *map(_type_of, leaves)))

    def forget(self) -> None:
        """Frees the memory of what was compiled for all types."""
        self._compiled.clear()
        jitted: Any = self.jitted
        jitted.clear_cache()

    def _compile(self, arguments: tuple[Any, ...], options: dict[str, Any]) -> Any:
        report(f"tracing {self._name}")
        traced = self.jitted.trace(*arguments, **options)
        report(f"lowering {self._name}")
        lowered = traced.lower()
        report(f"compiling {self._name}", *self._place)
        return lowered.compile()

    def _find_or_compile(self, arguments: tuple[Any, ...], options: dict[str, Any], tree: Any, leaves: Any) -> Any:
        device = device_of(leaves)
        key = self._key(tree, leaves, device)
        kept = _find(key, device, self._name)
        if isinstance(kept, Exception):
            raise kept
        if kept is not None:
            compiled, notes = kept
            self._use_notes(notes)
            self._on_program(*arguments, is_stored=True)
            return compiled
        self._on_program(*arguments, is_stored=False)
        try:
            with _without_collections(), traced_for(device.platform):
                compiled = self._compile(arguments, options)
        except self._failure as error:
            _keep(key, error)
            raise
        _keep_compiled(key, compiled, self._notes())
        return compiled

    def _key(self, tree: Any, leaves: list[Any], device: jax.Device) -> str | None:
        """The key of the program in the store; None if it is not kept."""
        texts = [text for leaf in leaves if (text := _text_of(leaf)) is not None]
        if _store is None or self._source is None or len(texts) < len(leaves):
            return None
        return _key_of(str(device), self._source(), self._function_name, str(tree), *texts)


def compile_once(traced: jax.stages.Traced, device: jax.Device) -> jax.stages.Compiled:
    """Compiles what was traced for a device, or finds it in the store by its text."""
    with _without_collections():
        lowered = traced.lower()
    key = None if _store is None else _key_of(str(device), lowered.as_text())
    if kept := _find(key, device):
        compiled: jax.stages.Compiled
        compiled, _ = kept
        return compiled
    compiled = lowered.compile()
    _keep_compiled(key, compiled)
    return compiled


def remember(compute: Callable[[], R], source: Callable[[], str]) -> R:
    """Returns what a command computed from the same source before, or computes it now and keeps it."""
    key = None if _store is None else _key_of(source())
    if (entry := _read(key)) is not None:
        kept: R = entry
        return kept
    result = compute()
    _keep(key, result)
    return result


def _jax_options() -> Any:
    """The values of JAX's options, as contexts of this thread have set them."""
    return _READ_OPTIONS(jax.config)


_READ_OPTIONS = attrgetter(*sorted(name for name in jax.config.values if hasattr(jax.config, name)))


# Reads the options that change what JAX computes; reading all takes longer than running a small model.
main_options: Callable[[], Hashable] = functools.partial(
    attrgetter(
        "jax_default_device", "jax_default_matmul_precision", "jax_disable_jit", "jax_debug_nans", "jax_debug_infs"
    ),
    jax.config,
)


def _type_of(leaf: Any) -> Hashable:
    """The part of an argument that a program depends on: the type of an array, or a static value itself."""
    is_array = hasattr(leaf, "dtype")
    weak_type, sharding = getattr(leaf, "weak_type", False), getattr(leaf, "sharding", None)
    return (leaf.shape, leaf.dtype, weak_type, sharding) if is_array else leaf


@contextmanager
def _without_collections() -> Iterator[None]:
    """Stops Python's garbage collector in commands: it would look at all of JAX's objects again and again."""
    if _store is None or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


# The store


def _find(key: str | None, device: jax.Device, name: str = "") -> Any:
    """The entry of a key: a compiled program with its notes, or an exception; None without one that XLA can load."""
    kept = _read(key)
    if kept is None or isinstance(kept, Exception):
        return kept
    if name:
        report(f"loading {name}")
    (program, inputs, outputs), notes = kept
    try:
        return deserialize_and_load(program, inputs, outputs, backend=device.client, execution_devices=[device]), notes
    except jax.errors.JaxRuntimeError:
        return None


def _read(key: str | None) -> Any:
    """The value stored under a key; None without an entry."""
    entry = None if key is None or _store is None else _store.get(key)
    # Written by this user, as the programs are that it would compile.
    return None if entry is None else pickle.loads(entry)  # noqa: S301


def _keep(key: str | None, entry: Any) -> None:
    if key is not None and _store is not None:
        _store.put(key, pickle.dumps(entry))


def _keep_compiled(key: str | None, compiled: jax.stages.Compiled, notes: Any = None) -> None:
    # XLA cannot serialize again what JAX's own cache has read.
    if key is not None and not jax.config.values["jax_compilation_cache_dir"]:
        with suppress(NotImplementedError, ValueError):  # some programs have no serialized form
            _keep(key, (serialize(compiled), notes))


def _key_of(*parts: str) -> str:
    return digest_of(_environment(), repr(_jax_options()), str(jax.sharding.get_abstract_mesh()), *parts)


def _text_of(leaf: Any) -> str | None:
    """The type of an array, or a static value, as the same text in every process; None if there is no such text."""
    if not hasattr(leaf, "dtype"):
        return repr(leaf) if isinstance(leaf, bool | int | float | str | None) else getattr(leaf, "digest", None)
    sharding = getattr(leaf, "sharding", None)
    is_on_one_chip = sharding is None or len(sharding.device_set) == 1
    return f"{leaf.shape} {leaf.dtype} {getattr(leaf, 'weak_type', False)}" if is_on_one_chip else None


@functools.cache
def _environment() -> str:
    """A digest of what compiled programs depend on besides their source and options: versions and the processor."""
    package = Path(__file__).parents[2]
    status = {str(file.relative_to(package)): file.stat() for file in sorted(package.rglob("*.py"))}
    sources = [f"{name} {file.st_size} {file.st_mtime_ns}" for name, file in status.items()]
    versions = [sys.version, jax.__version__, jaxlib_version, np.__version__]
    flags = [os.environ.get(name, "") for name in ("XLA_FLAGS", "LIBTPU_INIT_ARGS")]
    devices = jax.devices()
    device = [devices[0].platform, devices[0].device_kind, devices[0].client.platform_version, str(len(devices))]
    return digest_of(*sources, *versions, *flags, *device, _processor())


def _processor() -> str:
    """The processor and the instructions that it has."""
    try:
        first, *_ = Path("/proc/cpuinfo").read_text().split("\n\n")
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    lines = first.splitlines()
    return "\n".join(line for line in lines if line.startswith(("vendor_id", "model", "flags", "Features", "CPU ")))
