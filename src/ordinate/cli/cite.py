"""`ordinate cite`: the BibTeX entry of a scheme."""

import sys

from cyclopts import App

from ordinate.core import catalog

app = App(name="cite", help="Print the BibTeX entry of a scheme.")


@app.default
def cite(scheme: str) -> int:
    """Print the BibTeX entry of a scheme's source.

    Parameters
    ----------
    scheme
        Its name (see `ordinate list`).
    """
    from ordinate.schemes._scheme import Scheme

    sys.stdout.write(catalog.load("ordinate.schemes", Scheme, scheme).citation + "\n")
    return 0
