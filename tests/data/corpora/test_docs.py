import sys

import pytest

from ordinate.data.corpora.docs import Docs


@pytest.mark.extended
def test_it_is_prose_from_topics_and_docstrings_and_nothing_is_run():
    loaded = set(sys.modules)
    documents = list(Docs().documents())
    assert sum(len(document.text) for document in documents) > 1_000_000
    assert documents[0].name.startswith("topic/")
    argparse = next(document for document in documents if document.name == "argparse.py")
    assert "Command-line parsing library" in argparse.text
    assert "def __init__" not in argparse.text
    assert not {"antigravity", "this", "pydoc_data.topics"} & (set(sys.modules) - loaded)
