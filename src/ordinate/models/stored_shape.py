"""Read the hyperparameters of a model from the fields in a config.json."""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, is_dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from ordinate.core.checks import need, need_known, shown
from ordinate.core.class_reference import need_allowed
from ordinate.core.option_values import describe_kind, read_value
from ordinate.models.shape import Shape

ShapeType = TypeVar("ShapeType", bound=Shape)


def read_shape(kind: type[ShapeType], fields: Mapping[str, Any], *, allow: Sequence[str] = ()) -> ShapeType:
    """Build a shape from the fields in a config.json, whose types are checked.

    Args:
        kind: the class of the shape.
        fields: its fields; lists take the place of tuples.
        allow: classes outside of Ordinate that the fields may name, as `module:Class`: see `need_allowed`.

    Raises:
        ValueError: an unknown field, a value of another type, a class that is not allowed, or sizes that do not fit.
    """
    types, values = get_type_hints(kind), dict[str, Any]()
    for name, value in fields.items():
        need_known("field of a shape", name, types)
        # JSON has no tuples
        values[name] = tuple(value) if isinstance(value, list) else value
        kinds = types[name], *get_args(types[name])
        if name not in kind.SPECS and isinstance(value, Mapping) and any(map(is_dataclass, kinds)):
            values[name] = read_value(types[name], value)
        if Literal in map(get_origin, kinds):
            # the shape itself lists the choices, and suggests the nearest
            continue
        try:
            read_value(types[name], values[name], strict=True)
        except ValueError:
            wanted = describe_kind(types[name])
            raise ValueError(
                f"{name} of a shape must be {wanted}; got {shown(value)}; correct it, or write the model again"
            ) from None
    required = [name for name, field in kind.__dataclass_fields__.items() if field.default is MISSING]
    lacking = [name for name in required if name not in values]
    need_allowed("the shape of the model", [str(values.get(name)) for name in kind.SPECS], allow)
    came = f"{', '.join(lacking)} missing"
    need(not lacking, f"a shape must have {', '.join(required)}", came, "write the model again")
    return kind(**values)
