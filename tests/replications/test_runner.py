from dataclasses import replace

import pytest

from ordinate.core.atomic_files import write_checksummed
from ordinate.probing.runner.probe_data import sample_text
from ordinate.replications import replicate, runner
from ordinate.replications.random_models import random_decoder
from ordinate.replications.replication import Subject
from ordinate.replications.runner import load, read, run, save, selected, with_model


def test_members_are_in_a_fixed_order_and_claims_have_names_of_their_own():
    members = selected(["all"])
    orders = [member.order for member in members.values()]
    assert orders == sorted(set(orders))
    for member in members.values():
        names = [claim.name for claim in member.claims]
        assert len(set(names)) == len(names)
        assert all((claim.side == "equal") == (claim.expected is not None) for claim in member.claims)


def test_with_a_model_all_means_those_that_measure_one():
    assert set(selected(["all"], model=True)) < set(selected(["all"]))
    assert "saponati" in selected(["all"], model=True)


def test_an_unknown_name_suggests_the_closest():
    with pytest.raises(ValueError, match=r"no replication is named 'saponatti'.*did you mean 'saponati'"):
        replicate("saponatti")


def test_a_model_that_no_claim_is_about_is_refused():
    with pytest.raises(
        ValueError, match=r"a model is measured by replications with a claim about models; velickovic"
    ):
        run(load("velickovic"), "velickovic", Subject(model=random_decoder(0)))


def test_a_result_is_read_as_it_was_saved_and_damage_is_refused(tmp_path):
    result, path = replicate("velickovic"), tmp_path / "velickovic.json"
    save(path, result)
    assert read(path) == result
    path.write_text(path.read_text().replace("agrees", "does not"))
    with pytest.raises(ValueError, match=r"must match its checksum.*replicate it again"):
        read(path)


def test_a_result_of_another_format_is_refused(tmp_path):
    path = tmp_path / "a.json"
    write_checksummed(path, {"format": 99, "result": {}})
    with pytest.raises(ValueError, match=r"must have format 1; .* has 99; replicate it again"):
        read(path)


def test_claims_about_models_are_said_not_to_be_measured():
    result = replicate("kobayashi")
    assert result.headline == "agrees: 1"
    assert result.not_measured == {"weights overstate": "it needs a model"}


def test_a_text_without_a_model_is_refused():
    with pytest.raises(ValueError, match=r"a text is read by a model; got 'docs' and no model; give the folder"):
        replicate("velickovic", text="docs")


def test_a_model_reads_the_text_that_probes_read_by_default(monkeypatch):
    def read_text(subject, text, *, sequences, length):
        return replace(
            sample_text(subject, "stdlib", sequences=sequences, length=length), source=f"texts from {text}"
        )

    monkeypatch.setattr(runner, "sample_text", read_text)
    subject = random_decoder(0)
    assert with_model(subject).texts.source == "texts from stdlib"
    result = replicate("kobayashi", subject, text="docs")
    assert result.texts == "texts from docs"
    monkeypatch.setattr("ordinate.probing.runner.default_text.ORDINATE_MODELS", ())
    assert with_model(subject).texts.source == "texts from docs"
