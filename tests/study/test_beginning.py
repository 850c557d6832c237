"""Studies that begin with a trained model: its scheme is exchanged, and what it knows is kept."""

import pytest
import tokenizers
import torch

from ordinate import Decoder, Shape, load, save
from ordinate.files import read_sealed
from ordinate.report.build import build
from ordinate.study.beginning import begin, new_shape
from ordinate.study.folder import Folder
from ordinate.study.plan import Plan
from ordinate.study.settle import settle
from ordinate.study.source import source_of
from ordinate.study.worker import carry_out
from ordinate.tokenizer import make_tokenizer

SMALL = {"batch": 4, "warmup": 2, "windows": 4, "shuffled": 4, "samples": 1, "sample_tokens": 8, "multiples": (1, 2)}
SMALL |= {"precision": "fp32"}
YARN = "rope:spectrum=yarn"
STRETCHED = "rope:theta=500.0,spectrum=yarn,spectrum.trained_length=32,spectrum.factor=2.0"


def carried_out(plan, place):
    """The results of a plan's runs, in this process."""
    folder = Folder(place)
    source = source_of(plan)(plan, folder.data)
    source.prepare(lambda line: None)
    folder.open(plan, source.identity, "ordinate study")
    for run in plan.runs():
        carry_out(folder, plan, run)
    return [read_sealed(folder.result(run)) for run in plan.runs()]


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for number in range(12):
        lines = (f"the {word} of line {number * word} is {word * 7 % 13}\n" for word in range(40))
        (folder / f"{number}.txt").write_text("".join(lines))
    return folder


@pytest.fixture(scope="module")
def llama(text, tmp_path_factory):
    """A published folder: a Llama and its tokenizer.json."""
    folder = tmp_path_factory.mktemp("llama")
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel()
    inner.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=290, initial_alphabet=alphabet, show_progress=False)
    inner.train_from_iterator([path.read_text() for path in sorted(text.iterdir())], trainer)
    torch.manual_seed(0)
    sizes = {"vocabulary": inner.get_vocab_size() + 3, "width": 16, "layers": 2, "heads": 2, "max_length": 32}
    model = Decoder(Shape(**sizes, scheme="rope:theta=500.0", feedforward="swiglu", epsilon=1e-6, tied=False))
    save(model, folder, "llama")
    inner.save(str(folder / "tokenizer.json"))
    return folder


def planned(text, folder, **changes):
    return settle(Plan(**({"text": str(text), "base": str(folder), "steps": 0} | SMALL | changes)))


def test_the_model_decides_what_the_plan_leaves_open(text, llama):
    plan = planned(text, llama, schemes=None)
    assert (plan.schemes, plan.length, plan.learning_rate) == (("rope:theta=500.0",), 32, 1e-4)
    assert settle(plan) == plan
    plan = planned(text, llama, schemes=(YARN, "none"))
    shapes = [new_shape(plan, run) for run in plan.runs()]
    assert [shape.scheme for shape in shapes] == [STRETCHED, "none"]
    assert {shape.max_length for shape in shapes} == {64}


def test_weights_are_kept_and_the_scheme_is_exchanged(text, llama):
    plan = planned(text, llama, schemes=(YARN,))
    (run,) = plan.runs()
    model = begin(plan, run, new_shape(plan, run))
    assert model.schemes[0].spectrum.factor == 2.0
    assert all(torch.equal(x, load(llama).state_dict()[name]) for name, x in model.state_dict().items())


def test_a_study_measures_and_fine_tunes_a_trained_model(text, llama, tmp_path):
    plan = planned(text, llama, schemes=("rope", YARN), length=16)
    before = carried_out(plan, tmp_path / "zero")
    assert [[row["times"] for row in one["lengths"]] for one in before] == [[1, 2]] * 2
    assert before[0]["training"] == {"steps": [], "loss": []}
    own = Decoder.from_pretrained(Folder(tmp_path / "zero").run(plan.runs()[0]) / "model")
    assert all(torch.equal(x, load(llama).state_dict()[name]) for name, x in own.state_dict().items())
    assert build(tmp_path / "zero").path.is_file()
    tuned = planned(text, llama, schemes=("rope",), length=16, steps=12, learning_rate=1e-2)
    (after,) = carried_out(tuned, tmp_path / "twelve")
    assert after["lengths"][0]["nats_per_token"] < before[0]["lengths"][0]["nats_per_token"]
    # and a model of a study is one to begin with
    made = Folder(tmp_path / "twelve").run(tuned.runs()[0]) / "model"
    (again,) = carried_out(planned(text, made, schemes=("rope",), length=16), tmp_path / "again")
    assert again["lengths"] == after["lengths"]


def test_training_from_a_model_is_one_command(text, llama, tmp_path, monkeypatch, capsys):
    from ordinate.cli import train
    from ordinate.cli.main import app

    found = []
    monkeypatch.setattr(train, "run", lambda plan, *others, **named: (found.append(plan) or Folder(tmp_path), []))
    given = ["train", "--from", str(llama), "--scheme", YARN, "--text", str(text), "--multiples", "1", "2"]
    assert app(given, result_action="return_value") == 0
    assert "model: " in capsys.readouterr().out
    (plan,) = found
    assert (plan.base, plan.schemes, plan.steps) == (str(llama), (YARN,), 500)
    assert new_shape(plan, plan.runs()[0]).scheme == STRETCHED
    app(given[:3] + given[5:], result_action="return_value")
    assert found[1].schemes == ("rope:theta=500.0",)


def test_a_preset_leaves_the_sizes_of_a_trained_model_alone(text, llama, tmp_path, monkeypatch):
    from ordinate.cli import study
    from ordinate.cli.main import app

    found = []
    monkeypatch.setattr(study, "run", lambda plan, *others, **named: (found.append(plan) or Folder(tmp_path), []))
    monkeypatch.setattr(study, "build", lambda path: (path, []))
    app(["study", "--preset", "standard", "--from", str(llama), "--text", str(text)], result_action="return_value")
    assert (found[0].steps, found[0].learning_rate, found[0].length) == (3000, 1e-4, 32)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"width": 32}, "has its sizes and its tokenizer already; got --from with --width; leave"),
        ({"tokenizer": "bpe:size=300"}, "got --from with --tokenizer"),
        ({"mixers": ("linear",)}, "got --from with --mixers"),
        ({"task": "recall"}, "a trained decoder goes on with text; got --from with --task recall"),
        (
            {"model": "encoder"},
            "a study of the kind encoder goes on with one; .* holds one of the kind decoder; give",
        ),
        ({"base": "no/such/folder"}, "a checkpoint is a folder, or the name of a model on the hub; got"),
        ({"sides": ("encoder",)}, "no side is named 'encoder'; there are: layers"),
        (
            {"base": None, "steps": 1, "sides": ("encoder",)},
            "where a trained model is changed; got no model; give one",
        ),
        ({"base": None}, "new models are trained; got --steps 0; give some, or a trained model: --from"),
        ({"schemes": ("rop",)}, "did you mean 'rope'"),
    ],
)
def test_what_does_not_fit_is_refused(changes, match, text, llama):
    with pytest.raises(ValueError, match=match):
        planned(text, llama, **changes)


def test_a_tokenizer_that_does_not_belong_to_the_model_is_refused(text, llama, tmp_path):
    (tmp_path / "config.json").write_bytes((llama / "config.json").read_bytes())
    (tmp_path / "model.safetensors").write_bytes((llama / "model.safetensors").read_bytes())
    with pytest.raises(ValueError, match=r"cut as the model is used to; .* has no tokenizer.json"):
        planned(text, tmp_path)
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"{word}": word for word in range(400)}))
    inner.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match=r"every token of its tokenizer; got 400 tokens for a model of \d+; put the"):
        planned(text, tmp_path)


def test_a_model_that_does_not_write_is_refused(text, tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=256, **sizes)).save_pretrained(tmp_path)
    make_tokenizer("bytes", {}).save(tmp_path)
    with pytest.raises(ValueError, match=r"goes on with one; .* holds one of the kind encoder; give --model encoder"):
        planned(text, tmp_path)
