"""`ordinate cite`: the BibTeX entry of a scheme."""

import sys

from ordinate.core import catalog


def cite(scheme: str) -> int:
    """Print the BibTeX entry of a scheme's source.

    Parameters
    ----------
    scheme
        Its name (see `ordinate list`).
    """
    from ordinate.schemes._spec import SchemeSpec

    sys.stdout.write(SchemeSpec.class_named(catalog.parse(scheme)[0]).citation + "\n")
    return 0
