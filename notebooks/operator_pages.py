"""Sphinx directives that generate the reference from the code: each operator's facts, and tables of all operators."""

import contextlib
import functools
import html
import inspect
import io
import json
import re
from importlib import resources
from typing import Any

import jax.typing
from docutils import nodes
from drawing import picture_of
from numpy.typing import NDArray
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective
from sphinx.util.inspect import signature as signature_of, stringify_signature
from sphinx.util.typing import stringify_annotation

import dmljax
from dmljax import directml
from dmljax.calls.arguments import ShownText
from dmljax.calls.documentation import spell_default
from dmljax.command_line.cli import main
from dmljax.command_line.describe import (
    OPERATORS_HEAD,
    coverage,
    desc_example,
    explanation,
    find_operator,
    function_name,
    markdown_table,
    member_rows,
    operator_rows,
    operators_by_family,
    with_imports,
)
from dmljax.descriptors.search import PURPOSES
from dmljax.directml import FeatureLevel, Operator


class OperatorFunctionDirective(SphinxDirective):
    """A picture of the call that the content ends with, and the function of the operator that the argument names."""

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        name = function_name(find_operator(self.arguments[0]))
        self.env.metadata[self.env.docname]["orphan"] = True  # the sidebar lists it
        names = words_by_function().get(name, ())
        words = "\n".join(f"   single: {word}" for word in names)
        text = FUNCTION.format(name=name, words=words, alt=picture_of(name).description)
        purposes = [word for word in names if word in PURPOSES]
        found = f"\nUsed for: {', '.join(purposes)}.\n" if purposes else ""
        return self.parse_text_to_nodes(text + found)


# The index's entries are found by the search: those that are the whole query come first.
FUNCTION = """\
```{{eval-rst}}
.. plot::
   :alt: {alt}

   from drawing import draw_example
   draw_example("{name}")

.. index::
   single: {name}
{words}

.. autofunction:: dmljax.{name}
```
"""


@functools.cache
def words_by_function() -> dict[str, list[str]]:
    """The names in other libraries and the uses of each function, by which the search and the filter find it."""
    elsewhere = json.loads(
        (resources.files("dmljax.descriptors") / "foreign_names.json").read_text()
    )
    words: dict[str, list[str]] = {}
    for word, functions in (*elsewhere["functions"].items(), *PURPOSES.items()):
        for function in functions.split():
            words.setdefault(function, []).append(word)
    return words


class OperatorFilterDirective(SphinxDirective):
    """A box that hides operators whose rows do not contain the typed text; filter.js does it."""

    def run(self) -> list[nodes.Node]:
        words = html.escape(
            json.dumps(
                {name: " ".join(words) for name, words in words_by_function().items()}
            )
        )
        return [nodes.raw("", FILTER.format(words=words), format="html")]


FILTER = """\
<p id="operator-filter" hidden data-words="{words}"><label>Filter:
<input type="search" placeholder="softmax, mask, torch.gather, nonzero"></label> <span aria-live="polite"></span></p>
"""


class OperatorDescriptorDirective(SphinxDirective):
    """Members, rules and support tables of the operator that the argument names."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        operator = find_operator(self.arguments[0])
        known, link = explanation(operator), official_page(operator)
        members = [
            (f"`{name}`", f"`{field}`", kind)
            for name, field, kind in member_rows(operator)
        ]
        support = [
            (
                level.removeprefix("DML_FEATURE_LEVEL_"),
                tensor,
                "{} to {}".format(*cell["dimension_counts"]),
                " ".join(cell["data_types"]),
            )
            for level, cells in known["support"].items()
            for tensor, cell in cells.items()
        ]
        lines = [
            f"`{known['desc']}` has these members, in the order of `directml.h` and of [the official page]({link}):",
            "",
            *markdown_table(members, ("member", "field", "")),
            "",
            "Its rules, besides the tables:",
            "",
            *(f"- {rule}" for rule in known["rules"]),
            "",
            *markdown_table(
                support, ("from level", "tensor", "dimension counts", "data types")
            ),
            "",
            "```pycon",
            *desc_example(operator),
            "```",
        ]
        return self.parse_text_to_nodes("\n".join(lines))


def official_page(operator: type[Operator]) -> str:
    """The URL of the official page; newer operators are in another part of Microsoft's documentation."""
    part = (
        "win32/api/directml"
        if min(operator.support) < FeatureLevel.FL_5_0
        else "ai/directml/api"
    )
    name = operator.type.replace("DML_OPERATOR_", "dml_").lower()
    return (
        f"https://learn.microsoft.com/windows/{part}/ns-directml-{name}_operator_desc"
    )


class OperatorsDirective(SphinxDirective):
    """The levels, ranks and data types of all operators, each with a link to its page."""

    def run(self) -> list[nodes.Node]:
        rows = [
            (f"[{row[0]}](operators/{row[0].lower()}.md)" if row[0] else "", *row[1:])
            for row in operator_rows()
        ]
        return self.parse_text_to_nodes(
            "\n".join([f"{coverage()}.", "", *markdown_table(rows, OPERATORS_HEAD)])
        )


class PublicNamesDirective(SphinxDirective):
    """Every public name except the operators', with its documentation."""

    def run(self) -> list[nodes.Node]:
        lines = ["```{eval-rst}"]
        for name in self.content:
            module = directml if hasattr(directml, name) else dmljax
            value = getattr(module, name)
            kind = (
                "exception"
                if isinstance(value, type) and issubclass(value, Exception)
                else "class"
            )
            lines += [
                f".. auto{kind if isinstance(value, type) else 'function'}:: {module.__name__}.{name}"
            ]
            has_members = (
                isinstance(value, type)
                and kind == "class"
                and not issubclass(value, tuple)
            )
            lines += ["   :members:"] if has_members else []
            lines.append("")
        return self.parse_text_to_nodes("\n".join([*lines, "```"]))

    has_content = True


class CommandHelpDirective(SphinxDirective):
    """The help of each command."""

    def run(self) -> list[nodes.Node]:
        lines = []
        for command in ([], ["run"], ["check"], ["ops"], ["explain"]):
            with (
                contextlib.redirect_stdout(io.StringIO()) as help_text,
                contextlib.suppress(SystemExit),
            ):
                main([*command, "--help"])
            lines += [
                f"## {' '.join(['dmljax', *command])}",
                "",
                "```text",
                *help_text.getvalue().splitlines(),
                "```",
                "",
            ]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


def name_types(
    app: Sphinx,
    what: str,
    name: str,
    value: Any,
    options: Any,
    signature: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """Writes types in a signature by their names in the code, such as `ArrayLike`, instead of their definitions.

    The defaults of an operator's function are written as in its documentation, not by private names in the code.
    """
    if name.removeprefix("dmljax.") in FUNCTIONS:
        declared, own = signature_of(value), signature_of(inspect.unwrap(value))
        parameters = [
            p.replace(default=ShownText(spell_default(own.parameters[p.name].default)))
            if p.default is not p.empty
            else p
            for p in declared.parameters.values()
        ]
        signature = stringify_signature(
            declared.replace(parameters=parameters),
            show_return_annotation=False,
            unqualified_typehints=True,
        )
    for alias, type_ in TYPES.items():
        long = stringify_annotation(type_, "smart")
        signature, returns = (
            signature and signature.replace(long, alias),
            returns and returns.replace(long, alias),
        )
    return signature, returns


TYPES = {
    "ArrayLike": jax.typing.ArrayLike,
    "DTypeLike": jax.typing.DTypeLike,
    "NDArray": NDArray[Any],
}


def show_sections(
    app: Sphinx, what: str, name: str, value: Any, options: Any, lines: list[str]
) -> None:
    """Shows the sections of an operator's documentation as lists, and what its examples import."""
    if name.removeprefix("dmljax.") in FUNCTIONS:
        text = re.sub(r"(Args|Returns):\n((?: +.*\n)+)", as_field, "\n".join(lines))
        lines[:] = with_imports(text).splitlines()


def as_field(section: re.Match[str]) -> str:
    """A section as a field in reStructuredText: a definition for each argument, with its type as a classifier."""
    field = [f":{section[1].replace('Args', 'Parameters')}:"]
    for entry in re.split(r"\n(?=    \S)", section[2]):
        head, of_type, line = re.fullmatch(
            r"(?:(\w+) \((.*?)\): )?(.*)",
            re.sub(r'("\w+")', r"`\1`", " ".join(entry.split())),
        ).groups()
        field += (
            [f"    **{head}** : {of_type}", f"        {line}"]
            if head
            else [f"    {line}"]
        )
    return "\n".join([*field, ""])


def link_operators(app: Sphinx, doctree: nodes.document) -> None:
    """Links the names of operators' functions on the pages of others; names in tables are of other libraries."""
    page = app.env.docname
    for literal in list(doctree.findall(nodes.literal)):
        name, around = literal.astext(), literal.parent
        while around and not isinstance(
            around, nodes.table | nodes.reference | pending_xref
        ):
            around = around.parent
        if (
            page.startswith("operators/")
            and not around
            and name in FUNCTIONS - {page.removeprefix("operators/")}
        ):
            target = {"reftarget": f"dmljax.{name}", "refdoc": page}
            link = pending_xref(
                "", refdomain="py", reftype="func", refexplicit=True, **target
            )
            literal.replace_self(link)
            link += literal


FUNCTIONS = {function_name(operator) for operator in directml.OPERATORS.values()}


def arrange_sidebar(
    app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any
) -> None:
    """Lists the operators by family in the sidebar, and links each to the next.

    They are in no table of contents, because Sphinx would copy all 177 entries for each page.
    """
    pathto, here = context["pathto"], page.removeprefix("operators/")
    families = [
        listed(title, names, here, pathto) for title, names in names_by_family().items()
    ]
    is_open = " open" if page.startswith("operators") else ""
    tree = f"<details{is_open}><summary>By family</summary><ul>{''.join(families)}</ul></details>"
    context["furo_navigation_tree"] = re.sub(
        r"(>The operators</a>)",
        lambda title: title[0] + tree,
        context["furo_navigation_tree"],
    )
    names = [name for names in names_by_family().values() for name in names]
    if page.startswith("operators/") and here in names:
        place = names.index(here)
        for key, others in (
            ("prev", names[:place][-1:]),
            ("next", names[place + 1 :][:1]),
        ):
            links = [
                {"title": name, "link": pathto(f"operators/{name}")} for name in others
            ]
            context[key] = next(iter(links), None)


def names_by_family() -> dict[str, list[str]]:
    """The functions of each family, by its title."""
    return {
        title: list(map(function_name, several))
        for title, several in operators_by_family().items()
    }


def listed(title: str, names: list[str], here: str, pathto: Any) -> str:
    """A family in the sidebar, open on the pages of its operators; names may break at underscores."""
    items = "".join(
        f'<li class="toctree-l2{" current-page" if name == here else ""}">'
        f'<a class="reference internal" href="{pathto(f"operators/{name}")}">{name.replace("_", "_<wbr>")}</a></li>'
        for name in names
    )
    is_open = " open" if here in names else ""
    return f"<li><details{is_open}><summary>{title}</summary><ul>{items}</ul></details></li>"


def setup(app: Sphinx) -> dict[str, Any]:
    """Adds the directives."""
    app.connect("autodoc-process-signature", name_types)
    app.connect("autodoc-process-docstring", show_sections)
    app.connect("doctree-read", link_operators)
    app.connect("html-page-context", arrange_sidebar, priority=900)  # after Furo's own
    app.add_directive("operator-function", OperatorFunctionDirective)
    app.add_directive("operator-descriptor", OperatorDescriptorDirective)
    app.add_directive("operator-filter", OperatorFilterDirective)
    app.add_directive("operators", OperatorsDirective)
    app.add_directive("public-names", PublicNamesDirective)
    app.add_directive("command-help", CommandHelpDirective)
    return {"parallel_read_safe": True}
