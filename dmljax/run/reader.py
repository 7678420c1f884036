"""Finds the names of libraries that a program uses, without running it.

It follows values through assignments, calls, collections, and the attributes of the program's classes. All values that
a name may have count, in whatever order the program assigns them: a use is told only where each is a library's.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from dmljax.run.programs import (
    OTHERS,
    Known,
    Library,
    Module,
    Object,
    Program,
    Scope,
    Several,
    Use,
    Value,
    Values,
    collect,
)

_PASSES = 10  # each follows values at least through one more call or attribute
_NONE: Values = frozenset()
_IMPORT_ERRORS = {"ImportError", "ModuleNotFoundError"}


def find_uses(program: Program, library: Library) -> list[Use]:
    """Returns the names of libraries that a program uses, by file and line."""
    uses = list[Use]()
    for unresolved in (_NONE, OTHERS):
        program.unresolved, size = unresolved, -1
        for _ in range(_PASSES):
            uses = _read_modules(program, library)
            if size == (size := program.size()):
                break
    return sorted(uses, key=lambda use: (use.path, use.line, use.column, use.name))


def _read_modules(program: Program, library: Library) -> list[Use]:
    uses, done = list[Use](), set[str]()
    while left := program.modules.keys() - done:  # reading one may add others
        for name in sorted(left):
            _Reader(program, program.modules[name], library, uses).read()
        done |= left
    return uses


class _Reader(ast.NodeVisitor):
    """Reads a module: visiting an expression returns its values, and visiting a statement binds names."""

    def __init__(self, program: Program, module: Module, library: Library, uses: list[Use]) -> None:
        self._program, self._module, self._library, self._uses = program, module, library, uses
        self._scope = module.scope
        self._expected: set[str] = set()  # names that may be absent here, and errors that are caught

    def read(self) -> None:
        self.visit(self._module.tree)

    def generic_visit(self, node: ast.AST) -> Values:
        super().generic_visit(node)
        return OTHERS

    def _visit_all(self, nodes: Iterable[ast.AST]) -> list[Values]:
        return [self.visit(node) for node in nodes]

    @contextmanager
    def _inside(self, node: ast.AST, kind: str = "function") -> Iterator[Scope]:
        """Reads in the scope of a class, a function or a comprehension."""
        outer = self._scope
        self._scope = self._program.scopes.setdefault(node, Scope(outer, kind))
        yield self._scope
        self._scope = outer

    # Imports

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            top = alias.name.partition(".")[0]
            values = self._import(node, alias.name)
            self._scope.bind(alias.asname or top, values if alias.asname else self._import(node, top))

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        package = self._module.package
        parents = package[: len(package) + 1 - node.level] if node.level else ()
        name = ".".join((*parents, *([node.module] if node.module else [])))
        owners = self._import(node, name)
        for alias in node.names:
            if alias.name == "*":
                self._bind_all(owners)
            else:
                inner = self._program.find(f"{name}.{alias.name}")
                values = frozenset([inner]) if inner else self._members(node, owners, alias.name, is_imported=True)
                self._scope.bind(alias.asname or alias.name, values)

    def _import(self, node: ast.AST, name: str) -> Values:
        """Returns a module, of a library or of the program."""
        if self._library.owns(name):
            try:
                return self._library.open_module(name)
            except ImportError as error:
                if not _IMPORT_ERRORS & self._expected:
                    self._tell(node, name, error=str(error))
                return OTHERS
        scope, outer = None, None
        parts = name.split(".")
        for i, part in enumerate(parts):
            scope = self._program.find(".".join(parts[: i + 1]))
            if scope is not None and outer is not None:
                outer.bind(part, frozenset([scope]))
            outer = scope
        return OTHERS if scope is None else frozenset([scope])

    def _bind_all(self, owners: Values) -> None:
        for owner in owners:
            if isinstance(owner, Scope):
                for name, values in [*owner.names.items()]:
                    self._scope.bind(name, values)
            elif isinstance(owner, Known):
                for name in getattr(owner.thing, "__all__", dir(owner.thing)):
                    if not name.startswith("_"):
                        self._scope.bind(name, self._library.member(owner, name))

    # Attributes

    def visit_Name(self, node: ast.Name) -> Values:
        return self._scope.lookup(node.id) or self._program.unresolved

    def visit_Attribute(self, node: ast.Attribute) -> Values:
        return self._members(node, self.visit(node.value), node.attr)

    def _members(
        self, node: ast.AST, owners: Values, name: str, assigned: ast.expr | None = None, *, is_imported: bool = False
    ) -> Values:
        """Returns the values of an attribute, and tells its use where all owners are a library's."""
        values, uses = _NONE, list[tuple[Known, str]]()
        for owner in owners:
            if isinstance(owner, Known):
                try:
                    values |= self._library.member(owner, name)
                    uses.append((owner, ""))
                except (AttributeError, ImportError) as error:
                    uses.append((owner, str(error)))
            else:
                values |= self._members_of_scope(owner, name) if isinstance(owner, Scope | Object) else OTHERS
        caught = _IMPORT_ERRORS if is_imported else {"AttributeError"}
        if len(uses) == len(owners) and not self._expected & {name, *caught}:
            told = [use for use in uses if not use[1]] or uses[:1]  # absent only if no owner has it
            for owner, reason in told:
                self._tell(node, name, owner, reason, assigned)
        return values or (OTHERS if uses else self._program.unresolved)

    def _members_of_scope(self, owner: Scope | Object, name: str) -> Values:
        """Returns an attribute of a module or a class of the program, or of an instance."""
        scope, is_instance = (owner.scope, True) if isinstance(owner, Object) else (owner, False)
        ancestors, values = [scope], _NONE
        for ancestor in ancestors:
            if name in ancestor.names:
                values = ancestor.names[name] or self._program.unresolved
                is_property = any(isinstance(value, Scope) and value.kind == "property" for value in values)
                return _union(map(_returned, values)) if is_instance and is_property else values
            for base in ancestor.bases:
                if isinstance(base, Scope) and base not in ancestors:
                    ancestors.append(base)
                elif isinstance(base, Known):
                    with suppress(AttributeError):  # a subclass may have what the program gives it elsewhere
                        values |= self._library.member(Known(base.name, base.thing, is_instance), name)
        return values or self._program.unresolved

    def _tell(
        self, node: ast.AST, name: str, owner: Known | None = None, error: str = "", assigned: ast.expr | None = None
    ) -> None:
        line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        self._uses.append(Use(self._module.path, line, column, name, owner, error, assigned))

    # Bindings

    def _bind(self, target: ast.expr, values: Values, assigned: ast.expr | None = None) -> None:
        if isinstance(target, ast.Name):
            self._scope.bind(target.id, values)
        elif isinstance(target, ast.Tuple | ast.List):
            parts = assigned.elts if isinstance(assigned, ast.Tuple | ast.List) else []
            for i, inner in enumerate(target.elts):
                if len(parts) == len(target.elts):
                    self._bind(inner, self.visit(parts[i]), parts[i])
                else:
                    self._bind(inner, _elements_of(values))
        elif isinstance(target, ast.Starred):
            self._bind(target.value, collect(values))
        elif isinstance(target, ast.Attribute):
            owners = self.visit(target.value)
            for owner in owners:
                if isinstance(owner, Scope | Object):
                    (owner.scope if isinstance(owner, Object) else owner).bind(target.attr, values)
            self._members(target, owners, target.attr, assigned)
        elif isinstance(target, ast.Subscript):
            self.visit(target.slice)
            self._add_element(target.value, values)

    def _add_element(self, collection: ast.expr, values: Values) -> None:
        if any(isinstance(value, Several) for value in self.visit(collection)):
            self._bind(collection, collect(values))

    def visit_Assign(self, node: ast.Assign) -> None:
        values = self.visit(node.value)
        for target in node.targets:
            self._bind(target, values, node.value)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        values = self.visit(node.value) if node.value else _NONE
        annotated = self._annotation(node.annotation)
        if annotated and isinstance(node.target, ast.Name):
            self._scope.annotate(node.target.id, annotated)
        else:
            self._bind(node.target, annotated or values, node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self.visit(node.value)
        self._bind(node.target, OTHERS)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Values:
        values: Values = self.visit(node.value)
        self._bind(node.target, values)
        return values

    def visit_For(self, node: ast.For | ast.AsyncFor) -> None:
        self._bind(node.target, _elements_of(self.visit(node.iter)))
        self._visit_all([*node.body, *node.orelse])

    visit_AsyncFor = visit_For  # noqa: N815  # Python's names

    def visit_withitem(self, node: ast.withitem) -> None:
        values = self.visit(node.context_expr)
        if node.optional_vars:
            self._bind(node.optional_vars, values)

    def visit_Global(self, node: ast.Global) -> None:
        self._scope.globals.update(node.names)

    # Expressions

    def visit_Constant(self, node: ast.Constant) -> Values:
        return _NONE if node.value is None else OTHERS

    def visit_Await(self, node: ast.Await) -> Values:
        values: Values = self.visit(node.value)
        return values

    def visit_BoolOp(self, node: ast.BoolOp) -> Values:
        with self._expecting(_expectations_of(node)):
            return _union(self._visit_all(node.values))

    def visit_IfExp(self, node: ast.IfExp) -> Values:
        self.visit(node.test)
        with self._expecting(_expectations_of(node.test)):
            body: Values = self.visit(node.body)
        return _union([body, self.visit(node.orelse)])

    def visit_List(self, node: ast.List | ast.Tuple | ast.Set) -> Values:
        return collect(_union(self._visit_all(node.elts)))

    visit_Tuple = visit_Set = visit_List  # noqa: N815  # Python's names

    def visit_Dict(self, node: ast.Dict) -> Values:
        self._visit_all(key for key in node.keys if key)
        return collect(_union(self._visit_all(node.values)))

    def visit_Subscript(self, node: ast.Subscript) -> Values:
        self.visit(node.slice)
        return _elements_of(self.visit(node.value))

    def visit_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> Values:
        with self._inside(node):
            for generator in node.generators:
                self._bind(generator.target, _elements_of(self.visit(generator.iter)))
                self._visit_all(generator.ifs)
            elements = self._visit_all([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt])
            return collect(elements[-1])

    visit_SetComp = visit_GeneratorExp = visit_DictComp = visit_ListComp  # noqa: N815  # Python's names

    # Calls

    def visit_Call(self, node: ast.Call) -> Values:
        functions: Values = self.visit(node.func)
        arguments = self._visit_all(node.args)
        keywords = {keyword.arg: self.visit(keyword.value) for keyword in node.keywords}
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called in ("import_module", "__import__") and node.args and isinstance(node.args[0], ast.Constant):
            return self._import(node, str(node.args[0].value))
        if isinstance(node.func, ast.Attribute) and called in ("append", "add") and arguments:
            self._add_element(node.func.value, arguments[0])
        return _union(self._call(function, arguments, keywords) for function in functions)

    def _call(self, function: Value, arguments: Sequence[Values], keywords: Mapping[str | None, Values]) -> Values:
        if isinstance(function, Known):
            return self._library.call(function)
        if isinstance(function, Object):
            return self._call_all(self._members_of_scope(function, "__call__"), arguments, keywords)
        if not isinstance(function, Scope):
            return OTHERS
        if function.kind == "class":
            made = Object(function)
            self._call_all(self._members_of_scope(made, "__init__"), arguments, keywords)
            return frozenset([made])
        for name, values in [*zip(function.parameters, arguments, strict=False), *keywords.items()]:
            if name in function.parameters:
                function.bind(name, values)
        return _returned(function)

    def _call_all(
        self, functions: Values, arguments: Sequence[Values], keywords: Mapping[str | None, Values]
    ) -> Values:
        of_program = [function for function in functions if isinstance(function, Scope) and function.kind != "class"]
        return _union(self._call(function, arguments, keywords) for function in of_program) or self._program.unresolved

    # Classes and functions

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._visit_all([*node.decorator_list, *node.keywords])
        bases = _union(self._visit_all(node.bases))
        with self._inside(node, "class") as scope:
            scope.bases = bases
            self._visit_all(node.body)
        self._scope.bind(node.name, frozenset([scope]))

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        self._visit_all(node.decorator_list)
        decorators = {name for decorator in node.decorator_list for name in _names_in(decorator)}
        owner = self._scope if self._scope.kind == "class" else None
        kind = "property" if owner and decorators & {"property", "cached_property"} else "function"
        returned = self._annotation(node.returns)
        with self._inside(node, kind) as scope:
            is_method = owner is not None and "staticmethod" not in decorators
            first = owner if owner is None or "classmethod" in decorators else Object(owner)
            self._bind_parameters(scope, node.args, first if is_method else None)
            if returned:
                scope.annotate("return", returned)
            self._visit_all(node.body)
        self._scope.bind(node.name, frozenset([scope]))

    visit_AsyncFunctionDef = visit_FunctionDef  # noqa: N815  # Python's names

    def visit_Lambda(self, node: ast.Lambda) -> Values:
        with self._inside(node) as scope:
            self._bind_parameters(scope, node.args, None)
            scope.bind("return", self.visit(node.body))
        return frozenset([scope])

    def _bind_parameters(self, scope: Scope, arguments: ast.arguments, first: Value | None) -> None:
        named = [*arguments.posonlyargs, *arguments.args]
        defaults = [*[None] * (len(named) - len(arguments.defaults)), *arguments.defaults, *arguments.kw_defaults]
        for argument, default in zip([*named, *arguments.kwonlyargs], defaults, strict=True):
            if annotated := self._annotation(argument.annotation):
                scope.annotate(argument.arg, annotated)
            else:
                scope.bind(argument.arg, self.visit(default) if default else _NONE)
        for gathered in (arguments.vararg, arguments.kwarg):
            if gathered:
                scope.bind(gathered.arg, OTHERS)
        if first is not None and named:
            scope.annotate(named[0].arg, frozenset([first]))
            named = named[1:]
        scope.parameters = tuple(argument.arg for argument in [*named, *arguments.kwonlyargs])

    def visit_Return(self, node: ast.Return) -> None:
        if node.value:
            self._scope.bind("return", self.visit(node.value))

    def visit_Yield(self, node: ast.Yield | ast.YieldFrom) -> Values:
        self._scope.bind("return", OTHERS)
        return self.generic_visit(node)

    visit_YieldFrom = visit_Yield  # noqa: N815

    def _annotation(self, node: ast.expr | None) -> Values:
        """Returns the instances that an annotation tells of, as far as they are a library's or the program's."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                return self._annotation(ast.parse(node.value, mode="eval").body)
            except SyntaxError:
                return _NONE
        if isinstance(node, ast.BinOp):
            return self._annotation(node.left) | self._annotation(node.right)
        if isinstance(node, ast.Subscript):
            inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
            values = _union(map(self._annotation, inner))
            if _names_in(node.value) & {"Optional", "Union", "Annotated", "Final", "ClassVar"}:
                return values
            return collect(values) if values else _NONE
        return _instances_of(self.visit(node)) - OTHERS if isinstance(node, ast.Name | ast.Attribute) else _NONE

    # Code that expects names to be absent

    @contextmanager
    def _expecting(self, names: set[str]) -> Iterator[None]:
        before, self._expected = self._expected, self._expected | names
        yield
        self._expected = before

    def visit_If(self, node: ast.If) -> None:
        self.visit(node.test)
        with self._expecting(_expectations_of(node.test)):
            self._visit_all(node.body)
        self._visit_all(node.orelse)

    def visit_Try(self, node: ast.Try) -> None:
        with self._expecting({name for handler in node.handlers if handler.type for name in _names_in(handler.type)}):
            self._visit_all(node.body)
        self._visit_all([*node.handlers, *node.orelse, *node.finalbody])

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        kinds: Values = self.visit(node.type) if node.type else OTHERS
        if node.name:
            self._scope.bind(node.name, _instances_of(_elements_of(kinds) if _is_tuple(node.type) else kinds))
        self._visit_all(node.body)


def _union(each: Iterable[Values]) -> Values:
    return _NONE.union(*each)


def _elements_of(values: Values) -> Values:
    return _union(value.elements if isinstance(value, Several) else OTHERS for value in values)


def _instances_of(values: Values) -> Values:
    """Returns instances of classes."""
    return _union(map(_instance_of, values))


def _instance_of(value: Value) -> Values:
    if isinstance(value, Known) and isinstance(value.thing, type):
        return frozenset([Known(value.name, value.thing, is_instance=True)])
    return frozenset([Object(value)]) if isinstance(value, Scope) and value.kind == "class" else OTHERS


def _returned(value: Value) -> Values:
    """Returns what a function returns, which is None if nothing is known; other values are not followed."""
    return value.names.get("return", _NONE) if isinstance(value, Scope) else OTHERS


def _is_tuple(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Tuple)


def _names_in(node: ast.AST) -> set[str]:
    """Returns the names and attributes in an expression."""
    inner = [*ast.walk(node)]
    return {x.id for x in inner if isinstance(x, ast.Name)} | {x.attr for x in inner if isinstance(x, ast.Attribute)}


def _expectations_of(test: ast.expr) -> set[str]:
    """Returns the names whose presence a condition tests, and errors that cannot occur because nothing runs."""
    calls = [node for node in ast.walk(test) if isinstance(node, ast.Call) and _names_in(node.func) == {"hasattr"}]
    names = {str(getattr(call.args[1], "value", "")) for call in calls if len(call.args) == 2}
    return names | ({"AttributeError", *_IMPORT_ERRORS} if "TYPE_CHECKING" in _names_in(test) else set())
