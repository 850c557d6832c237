"""Every page that is written forbids the network, and every script but its own."""

import base64
import hashlib
import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import pytest

from ordinate.cli.save_plot import save_plot
from ordinate.core.atomic_files import read_checksummed
from ordinate.report.build import build_findings, build_report
from ordinate.report.translation import translation_page
from ordinate.schemes._plot_data import scheme_plots
from ordinate.schemes._plots import build_scheme

ROOT = Path(__file__).parents[2]
POLICY = re.compile(
    r"default-src 'none'; style-src 'unsafe-inline'; img-src data:; "
    r"script-src (?P<scripts>'none'|('sha256-[\w+/=]+' ?)+); base-uri 'none'; form-action 'none'"
)
# attributes that make a browser request something, or run a script
REQUESTS = ("src", "srcset", "href", "action", "data", "poster", "background", "ping", "formaction", "xlink:href")


class Page(HTMLParser):
    """What of a page a browser would request or run."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.policy, self.requests, self.handlers, self.scripts, self.before = [], [], [], [], []
        self.open = None
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        given = dict(attributes)
        if tag == "meta" and given.get("http-equiv") == "Content-Security-Policy":
            self.policy.append(given["content"])
        elif not self.policy:
            self.before.append(tag)
        self.requests += [
            value for name, value in attributes if name in REQUESTS and not re.match(r"#|data:image/png;", value)
        ]
        self.handlers += [name for name, _ in attributes if name.startswith("on")]
        self.open = given if tag == "script" else None

    def handle_data(self, data):
        if self.open is not None and self.open.get("type") != "application/json":
            self.scripts.append(data)
            self.open = None


def rendered(name, write, result, place):
    if name == "study":
        return build_report(write([result(label, 0) for label in ("rope", "alibi")])).path.read_text(encoding="utf-8")
    if name == "translation":
        return translation_page(read_checksummed(ROOT / "studies" / "translation" / "result.json"))
    if name == "plot":
        save_plot(place / "plot.html", "alibi", scheme_plots(build_scheme("alibi")))
        return (place / "plot.html").read_text(encoding="utf-8")
    folder = place / "findings"
    folder.mkdir()
    for file in ("subject.json", "findings/order_sensitivity.json", "findings/qk_roles.json"):
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_bytes((ROOT / "studies" / "probes" / "minilm" / file).read_bytes())
    return build_findings(folder).read_text(encoding="utf-8")


@pytest.mark.covering(0)
@pytest.mark.parametrize("name", ["study", "findings", "translation", "plot"])
def test_a_page_requests_nothing_and_runs_no_script_but_its_own(name, write, result, tmp_path):
    page = Page(rendered(name, write, result, tmp_path))
    (policy,) = page.policy
    listed = POLICY.fullmatch(policy)
    # the policy covers only what follows it
    assert set(page.before) <= {"html", "head", "meta"}
    assert page.requests == page.handlers == []
    found = [f"'sha256-{base64.b64encode(hashlib.sha256(one.encode()).digest()).decode()}'" for one in page.scripts]
    assert listed["scripts"].split() == found
    assert len(found) in (2, 3)


def test_every_template_of_a_page_has_the_policy_first():
    folder = files("ordinate.report")
    whole = [one.read_text(encoding="utf-8") for one in folder.iterdir() if one.name.endswith(".jinja")]
    pages = [text for text in whole if "<html" in text]
    assert len(pages) > 4
    for text in pages:
        head = text[text.index("<head>") :].partition(
            '<meta http-equiv="Content-Security-Policy" content="{{ policy | safe }}">'
        )
        assert head[1]
        assert re.findall(r"<(\w+)", head[0]) == ["head", "meta", "meta"]


@pytest.mark.parametrize(
    "harm",
    [
        '<img src="https://example.org/x.png">',
        '<link rel="stylesheet" href="//example.org/x.css">',
        '<p onclick="1">',
        "<script>fetch(1)</script>",
    ],
)
def test_the_check_finds_what_a_browser_would_request_or_run(harm, write, result, tmp_path):
    text = rendered("study", write, result, tmp_path)
    page = Page(text.replace("</main>", harm + "</main>"))
    assert page.requests or page.handlers or len(page.scripts) > 2
