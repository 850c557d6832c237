import pytest

from ordinate.data.corpora.stdlib import Stdlib


@pytest.mark.extended
def test_it_is_megabytes_of_source_without_tests_in_a_fixed_order():
    documents = list(Stdlib().documents())
    names = [document.name for document in documents]
    assert names == sorted(names)
    assert sum(len(document.text) for document in documents) > 5_000_000
    assert "argparse.py" in names
    assert not any(part in ("test", "tests", "site-packages") for name in names for part in name.split("/"))


@pytest.mark.extended
def test_its_fingerprint_stays():
    assert Stdlib().fingerprint() == Stdlib().fingerprint()
