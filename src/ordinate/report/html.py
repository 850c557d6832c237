"""Self-contained HTML: template environment, content security policy, and JSON that is safe in a script element."""

import base64
import hashlib
import json
from collections.abc import Mapping
from importlib import resources
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


def package_text(name: str) -> str:
    """Return a style sheet or script of this package."""
    return resources.files("ordinate.report").joinpath(name).read_text(encoding="utf-8")


def vega_bundle() -> str:
    """Return the JavaScript of Vega-Embed with Vega and Vega-Lite."""
    # None, the default, exports vegaEmbed on window; the type annotation of vl_convert does not admit it
    return vl_convert.javascript_bundle(None)  # pyrefly: ignore[bad-argument-type]


def content_policy(*scripts: str) -> str:
    """Return the Content-Security-Policy of a page: no request to any network, and no script but these.

    Styles are not listed by hash: Vega sets the style attributes of what it draws.
    """
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests) or "'none'"
    return (
        f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src {allowed}; "
        "base-uri 'none'; form-action 'none'"
    )


def chart_context(specs: Mapping[str, Any], *scripts: str) -> dict[str, str]:
    """Return the variables of a template that shows charts: specifications, the scripts that draw, and the policy.

    Args:
        specs: Vega-Lite specification by the id of the element that it is drawn into.
        scripts: further scripts of the page.
    """
    bundle, draw = vega_bundle(), package_text("draw.js")
    return {
        "specs": script_safe_json([{"id": name, "spec": spec} for name, spec in specs.items()]),
        "bundle": bundle,
        "draw": draw,
        "policy": content_policy(bundle, draw, *scripts),
    }


def chart_page(title: str, spec: Mapping[str, Any]) -> str:
    """Return a self-contained HTML page of one chart, given as a Vega-Lite specification."""
    return (
        template_environment().get_template("chart.html.jinja").render(title=title, **chart_context({"chart": spec}))
    )


def script_safe_json(value: Any) -> str:
    """Serialise to JSON that cannot close a surrounding script element: <, > and & are escaped."""
    text = json.dumps(value, ensure_ascii=True)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def printable(value: Any) -> Any:
    """Replace unprintable characters, bidirectional controls included, by U+FFFD; return other values unchanged."""
    if type(value) is not str:
        return value
    return "".join(c if c in "\n\t" or c.isprintable() else "\ufffd" for c in value)
