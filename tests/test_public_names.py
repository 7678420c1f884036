"""What dmljax exports."""

import inspect

import public_names

import dmljax


def test_every_operator_is_exported() -> None:
    assert (public_names.PACKAGE / "__init__.py").read_text() == public_names.text(), "run tests/public_names.py"
    for operator in dmljax.OPERATORS.values():
        assert getattr(dmljax, operator.__name__) is operator
        assert getattr(dmljax, operator.short_name.lower()) is operator.function


def test_what_is_public_is_found_where_users_find_it() -> None:
    public = {name: value for name, value in vars(dmljax).items() if not name.startswith("_")}
    for name, value in public.items():
        if not inspect.ismodule(value) and name != "OPERATORS":
            assert (value.__module__, value.__name__) == ("dmljax", name)
