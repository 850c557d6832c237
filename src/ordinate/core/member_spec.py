"""Specification of the members of a model's layers, as a text: `rope:theta=5e5`, `my_schemes:Spiral:turns=3`."""

import copy
import inspect
import re
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from torch import nn

from ordinate.core import catalog
from ordinate.core.checks import need
from ordinate.core.class_reference import is_reference

Spec = TypeVar("Spec", bound="MemberSpec")
# `,` separates layers only before a name; before an option, or the digits of a value (1e+5), it does not
LAYERS = re.compile(r",(?=[A-Za-z_][\w.]*(?:[:+/,]|$))")
# stands for the value of an option that cannot be written
UNWRITABLE = "?"


class MemberSpec(str):
    """Specification of the schemes or the mixers of a model: its text, which is what is written to files.

    A text, an instance or a class of the kind, or a list of them with one entry for each layer. An instance is a
    template: each model has a copy of it, with its parameters as they are.

    Entries for several layers are separated by commas.
    """

    kind: ClassVar[type[nn.Module]]
    """Base class of the members."""
    package: ClassVar[str]
    """Package of Ordinate's own members."""
    templates: tuple[nn.Module | type[nn.Module] | None, ...] = ()
    """For each entry, the instance or class that it was given as; None, or no item: it was given as text."""

    @classmethod
    def of(cls: type[Spec], given: Any, sizes: Mapping[str, Any]) -> Spec:
        """Return the specification of a text, an instance, a class, or a list of these with one for each layer.

        Args:
            given: text, instance, class or list.
            sizes: sizes of the model, by name; an instance must have them.

        Raises:
            TypeError: anything else.
            ValueError: an instance for a model of other sizes; a list with several layers in one entry.
        """
        if isinstance(given, cls):
            return given
        entries = given if isinstance(given, list | tuple) else [given]
        texts, templates = [], []
        for entry in entries:
            text = entry if isinstance(entry, str) else cls.text_of(entry, sizes)
            count = len(LAYERS.split(text))
            need(
                count == 1 or len(entries) == 1,
                "a list must have one entry for each layer",
                f"got {text!r} in it",
                "give its layers as entries of the list",
            )
            texts.append(text)
            templates += [None if isinstance(entry, str) else entry] * count
        made = cls(",".join(texts))
        made.templates = tuple(templates)
        return made

    @property
    def entries(self) -> list[str]:
        """The texts of its layers; they are repeated if there are more layers."""
        return LAYERS.split(self)

    def template(self, layer: int) -> nn.Module | type[nn.Module] | None:
        """Return the instance or class that the entry of a layer was given as; None: a text."""
        return self.templates[layer % len(self.templates)] if self.templates else None

    @classmethod
    def class_named(cls, name: str) -> type[Any]:
        """Return the class of a member by name: see `catalog.load`."""
        return catalog.load(cls.package, cls.kind, name)

    def check_writable(self) -> None:
        """Raise unless the text says all: a model with it could not be read again."""
        lacking = [entry for entry in self.entries if UNWRITABLE in entry]
        need(
            not lacking,
            "a model is written with the text of its schemes and mixers",
            f"{', '.join(lacking)} has a class inside a function, or an option that cannot be written",
            "define the class at the top of a module that can be imported, or save the state_dict",
        )

    @classmethod
    def text_of(cls, given: Any, sizes: Mapping[str, Any]) -> str:
        """Return the text of an instance or a class; options that equal the sizes of the model are left out."""
        kind = given if inspect.isclass(given) else type(given)
        if not issubclass(kind, cls.kind):
            came = f"got {given!r}" if inspect.isclass(given) else f"got an instance of {kind.__name__}"
            name = cls.kind.__name__.lower()
            raise TypeError(f"a {name} must be a text, a class or an instance of {cls.kind.__name__}; {came}")
        if given is kind:
            return cls._name_of(kind)
        known, written = catalog.options(kind), {}
        for name, value in getattr(given, "options_given", {}).items():
            if name in sizes and value is not None:
                came = f"got {kind.__name__}({name}={value}) for a model with {name}={sizes[name]}"
                fits = sizes[name] in (None, value)
                need(fits, "an instance must be built for the sizes of the model", came, "give it the same")
            elif value is not None or known[name].default is not None:
                written[name] = writable_value(value)
        own = kind.__init__ is not nn.Module.__init__
        positional = own and len(inspect.signature(kind).parameters) > len(known)
        return f"{cls._name_of(kind)}:{UNWRITABLE}" if positional else write_member(cls._name_of(kind), written)

    @classmethod
    def _name_of(cls, kind: type) -> str:
        package, _, module = kind.__module__.rpartition(".")
        if package == cls.package:
            return module
        name = f"{kind.__module__}:{kind.__qualname__}"
        return name if is_reference(name) else f"{kind.__module__}:{kind.__name__}:{UNWRITABLE}"


def write_member(name: str, options: Mapping[str, Any]) -> str:
    """Return the text of a member with options; those of a member inside it are a mapping with its `name`."""
    parts = []
    for key, value in options.items():
        inner = dict(value) if isinstance(value, Mapping) else {"name": value}
        if "name" in inner:
            parts.append(f"{key}={inner.pop('name')}")
        parts += [f"{key}.{part}={number}" for part, number in inner.items()]
    return f"{name}:{','.join(parts)}" if parts else name


def writable_value(value: Any) -> Any:
    """Return the value of an option as `write_member` takes it."""
    if value is None:
        return "none"
    if isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple) and all(isinstance(x, int | float) for x in value):
        return ";".join(map(str, value))
    write = getattr(value, "as_options", None)
    return UNWRITABLE if write is None else write()


def made_from(template: nn.Module | type[nn.Module], sizes: Mapping[str, Any]) -> Any:
    """Return a copy of an instance for a model, or an instance of a class with these sizes."""
    if isinstance(template, type):
        return template(**catalog.bind(template, {}, sizes))
    return copy.deepcopy(template)
