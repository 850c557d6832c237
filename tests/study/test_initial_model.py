"""Studies that start from a trained model: its scheme is replaced, its other weights are kept."""

import pytest
import tokenizers
import torch

from ordinate import Decoder, Shape, load, save
from ordinate.core.atomic_files import read_checksummed
from ordinate.core.progress import ignore
from ordinate.data.tokenizer import make_tokenizer
from ordinate.report.build import BuiltReport, build_report
from ordinate.study.data_source import source_of
from ordinate.study.initial_model import adapted_shape, initial_model
from ordinate.study.plan import Plan
from ordinate.study.resolve import resolve
from ordinate.study.study_folder import StudyFolder
from ordinate.study.worker import train_and_evaluate

SMALL = {
    "batch": 4,
    "warmup_steps": 2,
    "eval_samples": 4,
    "shuffle_samples": 4,
    "generated_texts": 1,
    "generated_tokens": 8,
    "eval_length_multiples": (1, 2),
}
SMALL |= {"precision": "fp32"}
YARN = "rope:spectrum=yarn"
STRETCHED = "rope:theta=500.0,spectrum=yarn,spectrum.trained_length=32,spectrum.factor=2.0"


def carried_out(plan, place):
    """Carry out a plan's runs in this process; returns their results."""
    folder = StudyFolder(place)
    source = source_of(plan)(plan, folder.data)
    source.prepare(ignore)
    folder.open(plan, source.identity, "ordinate study")
    for run in plan.runs():
        train_and_evaluate(folder, plan, run)
    return [read_checksummed(folder.result(run)) for run in plan.runs()]


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
    model = Decoder(
        Shape(**sizes, scheme="rope:theta=500.0", feedforward="swiglu", norm_eps=1e-6, tie_embeddings=False)
    )
    save(model, folder, "llama")
    inner.save(str(folder / "tokenizer.json"))
    return folder


def planned(text, folder, **changes):
    return resolve(Plan(**({"text": str(text), "base": str(folder), "steps": 0} | SMALL | changes)))


def test_the_trained_model_determines_what_the_plan_leaves_open(text, llama):
    plan = planned(text, llama, schemes=None)
    assert (plan.schemes, plan.length, plan.learning_rate) == (("rope:theta=500.0",), 32, 1e-4)
    assert resolve(plan) == plan
    plan = planned(text, llama, schemes=(YARN, "none"))
    shapes = [adapted_shape(plan, run) for run in plan.runs()]
    assert [shape.scheme for shape in shapes] == [STRETCHED, "none"]
    assert {shape.max_length for shape in shapes} == {64}


@pytest.mark.extended
def test_weights_are_kept_and_the_scheme_is_replaced(text, llama):
    plan = planned(text, llama, schemes=(YARN,))
    (run,) = plan.runs()
    model = initial_model(plan, run, adapted_shape(plan, run))
    assert model.schemes[0].spectrum.factor == 2.0
    assert all(torch.equal(x, load(llama).state_dict()[name]) for name, x in model.state_dict().items())


@pytest.mark.extended
def test_a_study_measures_and_fine_tunes_a_trained_model(text, llama, tmp_path):
    plan = planned(text, llama, schemes=("rope", YARN), length=16)
    before = carried_out(plan, tmp_path / "zero")
    assert [[row["times"] for row in one["lengths"]] for one in before] == [[1, 2]] * 2
    assert before[0]["training"] == {"steps": [], "loss": []}
    own = Decoder.from_pretrained(StudyFolder(tmp_path / "zero").run(plan.runs()[0]) / "model")
    assert all(torch.equal(x, load(llama).state_dict()[name]) for name, x in own.state_dict().items())
    assert build_report(tmp_path / "zero").path.is_file()
    tuned = planned(text, llama, schemes=("rope",), length=16, steps=12, learning_rate=1e-2)
    (after,) = carried_out(tuned, tmp_path / "twelve")
    assert after["lengths"][0]["nats_per_token"] < before[0]["lengths"][0]["nats_per_token"]
    # a model trained by a study can be the base of another
    made = StudyFolder(tmp_path / "twelve").run(tuned.runs()[0]) / "model"
    (again,) = carried_out(planned(text, made, schemes=("rope",), length=16), tmp_path / "again")
    assert again["lengths"] == after["lengths"]


def test_training_from_a_model_is_one_command(text, llama, tmp_path, monkeypatch, capsys):
    from ordinate.cli import train
    from ordinate.cli.application import app

    found = []
    monkeypatch.setattr(
        train, "run", lambda plan, *others, **named: (found.append(plan) or StudyFolder(tmp_path), [])
    )
    given = [
        "train",
        "--from",
        str(llama),
        "--scheme",
        YARN,
        "--text",
        str(text),
        "--eval-length-multiples",
        "1",
        "2",
    ]
    assert app(given, result_action="return_value") == 0
    assert "model: " in capsys.readouterr().out
    (plan,) = found
    assert (plan.base, plan.schemes, plan.steps) == (str(llama), (YARN,), 500)
    assert adapted_shape(plan, plan.runs()[0]).scheme == STRETCHED
    app(given[:3] + given[5:], result_action="return_value")
    assert found[1].schemes == ("rope:theta=500.0",)


def test_a_preset_does_not_change_the_sizes_of_a_trained_model(text, llama, tmp_path, monkeypatch):
    from ordinate.cli import study
    from ordinate.cli.application import app

    found = []
    monkeypatch.setattr(
        study, "run", lambda plan, *others, **named: (found.append(plan) or StudyFolder(tmp_path), [])
    )
    monkeypatch.setattr(study, "build_report", lambda path: BuiltReport(path, [], None))
    app(["study", "--preset", "standard", "--from", str(llama), "--text", str(text)], result_action="return_value")
    assert (found[0].steps, found[0].learning_rate, found[0].length) == (3000, 1e-4, 32)


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"width": 32}, "sizes and tokenizer are those of the trained model; got --from with --width; leave"),
        ({"tokenizer": "bpe:size=300"}, "got --from with --tokenizer"),
        ({"mixers": ("linear",)}, "got --from with --mixers"),
        ({"task": "recall"}, "a trained decoder must continue on task text; got --from with --task recall"),
        (
            {"model": "encoder"},
            "a study of encoder models needs one; .* holds a model of kind decoder; give",
        ),
        ({"base": "no/such/folder"}, "a checkpoint must be a folder or the name of a model on the hub; got"),
        ({"scheme_location": ("encoder",)}, "no side is named 'encoder'; there are: layers"),
        (
            {"base": None, "steps": 1, "scheme_location": ("encoder",)},
            "--scheme-location needs a trained model; got none; give one",
        ),
        ({"base": None}, "new models need training; got --steps 0; give some, or a trained model: --from"),
        ({"schemes": ("rop",)}, "did you mean 'rope'"),
    ],
)
def test_options_that_do_not_fit_the_trained_model_are_rejected(changes, match, text, llama):
    with pytest.raises(ValueError, match=match):
        planned(text, llama, **changes)


def test_a_tokenizer_that_does_not_belong_to_the_model_is_rejected(text, llama, tmp_path):
    (tmp_path / "config.json").write_bytes((llama / "config.json").read_bytes())
    (tmp_path / "model.safetensors").write_bytes((llama / "model.safetensors").read_bytes())
    with pytest.raises(ValueError, match=r"tokenizer must be in its folder; .* has no tokenizer.json"):
        planned(text, tmp_path)
    inner = tokenizers.Tokenizer(tokenizers.models.WordLevel({f"{word}": word for word in range(400)}))
    inner.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(
        ValueError, match=r"must be in the model's vocabulary; got 400 tokens for a model of \d+; use the"
    ):
        planned(text, tmp_path)


def test_an_encoder_as_base_of_a_decoder_study_is_rejected(text, tmp_path):
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    transformers.BertForMaskedLM(transformers.BertConfig(vocab_size=256, **sizes)).save_pretrained(tmp_path)
    make_tokenizer("bytes", {}).save(tmp_path)
    with pytest.raises(
        ValueError,
        match=r"a study of decoder models needs one; .* holds a model of kind encoder; give --model encoder",
    ):
        planned(text, tmp_path)


def test_a_classifier_as_base_of_a_study_is_rejected(text, tmp_path):
    from ordinate import Decoder, Shape

    sizes = {"vocabulary": 256, "width": 16, "layers": 1, "heads": 2, "feedforward": "swiglu", "norm_eps": 1e-6}
    model = Decoder(Shape(**sizes, tie_embeddings=False, head="classes", labels=("good",)))
    save(model, tmp_path / "published", "llama")
    model.save_pretrained(tmp_path / "own")
    for folder in (tmp_path / "published", tmp_path / "own"):
        make_tokenizer("bytes", {}).save(folder)
        match = r"training of a decoder continues with head='next_token'; .* has head='classes'; give the model that"
        with pytest.raises(ValueError, match=match):
            planned(text, folder)
