"""Self-contained HTML: the template environment, script hashes, JSON that is safe in a script element."""

import base64
import hashlib
import json
from typing import Any

import vl_convert
from jinja2 import Environment, PackageLoader, StrictUndefined


def template_environment() -> Environment:
    """Return the Jinja environment; every text from the data is escaped."""
    return Environment(
        loader=PackageLoader("ordinate.report", "."),
        autoescape=True,
        finalize=printable,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def vega_bundle() -> str:
    """Return the JavaScript of Vega-Embed with Vega and Vega-Lite."""
    # None, the default, exports vegaEmbed on window; the type annotation of vl_convert does not admit it
    return vl_convert.javascript_bundle(None)  # pyrefly: ignore[bad-argument-type]


def script_hashes(*scripts: str) -> str:
    """Return the hash sources of a Content-Security-Policy that allows these inline scripts only."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    return " ".join(f"'sha256-{digest}'" for digest in digests)


def script_safe_json(value: Any) -> str:
    """Serialise to JSON that cannot close a surrounding script element: <, > and & are escaped."""
    text = json.dumps(value, ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def printable(value: Any) -> Any:
    """Replace unprintable characters, bidirectional controls included, by U+FFFD; return other values unchanged."""
    if type(value) is not str:
        return value
    return "".join(c if c in "\n\t" or c.isprintable() else "\ufffd" for c in value)
