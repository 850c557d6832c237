import json

import pytest

from ordinate.core import catalog
from ordinate.core.atomic_files import write_checksummed
from ordinate.core.finding import Finding
from ordinate.core.folder_lock import FolderLockedError
from ordinate.core.progress import ignore
from ordinate.probing._adapter import NotApplicable
from ordinate.probing.runner.probe_data import check_input
from ordinate.probing.runner.probe_folder import OtherInputsError, ProbeFolder
from ordinate.probing.runner.probe_runner import ProbeSpec, parse_probes, run_probe, run_probes
from ordinate.testing.analytic_model import AnalyticModel, random_sequences

ORDER = ProbeSpec("order_sensitivity", {"windows": "2;8"})


class Heard:
    def __init__(self):
        self.said = []

    def on_progress(self, progress):
        assert progress.item in catalog.names("ordinate.probing.probes")
        if progress.stage:
            self.said.append((progress.stage, progress.message))
        else:
            assert 0 <= progress.done <= progress.total == 1


@pytest.fixture
def folder(tmp_path):
    folder = ProbeFolder(tmp_path / "out")
    folder.open({"model": "plain", "seed": 0}, {"facts": {}})
    return folder


def run(folder, asked=(ORDER,), subject=None, material=None):
    heard = Heard()
    failed = run_probes(
        asked, subject or AnalyticModel(), material or random_sequences(4, 12), folder, 0, heard.on_progress
    )
    return failed, [how for how, _ in heard.said], heard


def test_a_probe_with_a_finding_is_skipped(folder):
    assert run(folder)[1] == ["measuring", "measured"]
    assert run(folder)[1] == ["already done"]
    other = ProbeSpec("order_sensitivity", {"windows": "2"})
    assert run(folder, (other,))[1] == ["measuring", "measured"]


def test_a_finding_of_an_earlier_format_is_measured_again(folder):
    run(folder)
    path = folder.finding("order_sensitivity")
    written = json.loads(path.read_text())
    write_checksummed(path, {**{name: written[name] for name in written if name != "checksum"}, "format": 1})
    assert run(folder)[1] == ["measuring", "measured"]


def test_a_damaged_finding_is_measured_again(folder):
    run(folder)
    folder.finding("order_sensitivity").write_text("{")
    _, how, heard = run(folder)
    assert how == ["measuring", "measured"]
    assert "order_sensitivity.json does not, so it may be damaged; it is measured again" in heard.said[0][1]
    other = folder.path / "other.json"
    folder.finding("order_sensitivity").rename(other)
    assert run(folder)[2].said[0] == ("measuring", "")


def test_a_probe_that_does_not_apply_is_skipped_with_its_reason(folder):
    failed, how, _ = run(folder, material=NotApplicable("it has no tokenizer"))
    assert (failed, how) == ([], ["measuring", "skipped"])
    found = folder.load("order_sensitivity", ORDER.options)
    assert (found.status, found.answer) == ("skipped", "it has no tokenizer")


class Broken(AnalyticModel):
    def forward(self, inputs, watch=None):
        raise RuntimeError("it broke")


def test_a_probe_that_fails_does_not_stop_the_others_and_is_tried_again(folder):
    second = ProbeSpec("order_sensitivity", {"windows": "4"})
    failed, how, heard = run(folder, (ORDER, second), subject=Broken())
    assert failed == ["order_sensitivity", "order_sensitivity"]
    assert how == ["measuring", "failed"] * 2
    assert heard.said[1][1] == "RuntimeError: it broke"
    assert "it broke" in json.loads(folder.failure("order_sensitivity").read_text())["message"]
    assert run(folder)[1] == ["measuring", "measured"]
    assert not folder.failure("order_sensitivity").exists()


def test_other_inputs_are_refused_and_named(folder):
    with pytest.raises(OtherInputsError, match=r"seed: 0 -> 1\n.*another --out"):
        folder.open({"model": "plain", "seed": 1}, {})
    folder.open({"model": "plain", "seed": 0}, {})
    folder.subject.write_text("{")
    with pytest.raises(OtherInputsError, match="cannot be read"):
        folder.open({"model": "plain", "seed": 0}, {})


def test_two_do_not_write_at_once_and_other_folders_are_left_alone(folder, tmp_path):
    with folder.lock(), pytest.raises(FolderLockedError, match="is writing to"), folder.lock():
        pass
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("mine")
    with pytest.raises(OtherInputsError, match="has other files"), ProbeFolder(tmp_path / "other").lock():
        pass


def test_names_and_options_are_checked_before_anything_runs():
    assert [question.name for question in parse_probes(["order_sensitivity:windows=2;4"])] == ["order_sensitivity"]
    assert "order_sensitivity" in [question.name for question in parse_probes()]
    with pytest.raises(ValueError, match="did you mean 'order_sensitivity'"):
        parse_probes(["order_sensitivty"])
    with pytest.raises(ValueError, match="did you mean 'windows'"):
        parse_probes(["order_sensitivity:window=2"])
    with pytest.raises(ValueError, match="may be given once"):
        parse_probes(["order_sensitivity", "order_sensitivity"])


def test_texts_are_cut_to_the_trained_length_unless_a_probe_reads_beyond_it():
    subject = AnalyticModel("rope")
    subject.trained_length = 16
    material = random_sequences(12, 32)
    order = run_probe(ProbeSpec("order_sensitivity", {"windows": "2"}), subject, material, 0, ignore)
    assert "12 of 16 tokens" in order.method
    assert "Texts of 32 tokens were cut to 16, the trained length of the model." in order.caveats
    beyond = run_probe(ProbeSpec("extrapolation", {"shifts": "1"}), subject, material, 0, ignore)
    assert beyond.effect.name == "increase with 32 tokens of context in place of 16"
    assert not any("were cut" in caveat for caveat in beyond.caveats)


def test_tokens_outside_the_vocabulary_are_refused():
    beyond = random_sequences(4, 12, vocabulary=90)
    with pytest.raises(ValueError, match=r"token ids must be in the vocabulary of plain, 0 to 49; got 0 to 89"):
        check_input(AnalyticModel(), beyond)
    assert check_input(AnalyticModel(), random_sequences()) is not None


def test_a_finding_comes_back_as_it_was(folder):
    finding = Finding(question="order_sensitivity", title="t", answer="a", caveats=("c",))
    folder.save("order_sensitivity", {}, finding)
    assert folder.load("order_sensitivity", {}) == finding
