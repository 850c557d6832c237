"""What pages are made of that ask nobody for anything: templates, scripts they carry, data that stays data."""

import base64
import hashlib
import json
from typing import Any

import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined


def environment() -> Environment:
    """Templates in which every text from the data is escaped."""
    return Environment(
        loader=PackageLoader("ordinate.report", "."),
        autoescape=True,
        finalize=readable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def bundle() -> str:
    """The library that draws charts."""
    # None, the default, puts vegaEmbed where the page finds it; the library's annotations leave it out
    return vl_convert.javascript_bundle(None)  # pyrefly: ignore[bad-argument-type]


def hashes(*scripts: str) -> str:
    """What a page's policy names so that these scripts may run, and no other."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    return " ".join(f"'sha256-{digest}'" for digest in digests)


def inert(value: Any) -> str:
    """JSON that can stand inside a script element: nothing in it can end the element."""
    text = json.dumps(value, ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def readable(value: Any) -> Any:
    """A text whose characters all have a picture and leave the reading direction alone; anything else as it is."""
    if type(value) is not str:
        return value
    return "".join(c if c in "\n\t" or c.isprintable() else "\ufffd" for c in value)
