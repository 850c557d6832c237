import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from ordinate.testing import check_mixer, mixer_checks, run_check
from ordinate.testing.mixer import MixerCase

FILES = sorted(Path(__file__).with_name("mixer_mutants").glob("*.py"))
bad = SimpleNamespace(**{name: value for file in FILES for name, value in runpy.run_path(str(file)).items()})
CHECKS = {check.name: check for check in mixer_checks()}
# the check, a mixer that it must catch, and how it says so
TABLE = [
    ("outputs_do_not_depend_on_later_tokens", bad.Peeks, "token 0 depends on a later one"),
    ("a_changed_future_leaves_the_past_as_it_was", bad.Peeks, "outputs before a changed input"),
    ("a_non_finite_future_leaves_the_past_as_it_was", bad.MultipliesTheFutureByZero, "outputs before a token of nan"),
    ("a_large_future_leaves_gradients_of_the_past_as_they_were", bad.DividesByWhatOverflows, "gradients by .* of 1e"),
    ("the_bidirectional_form_depends_on_later_tokens", bad.HearsNoFuture, "the first token depends on no later"),
    ("unsupported_forms_are_rejected", bad.TakesAnyForm, "it mixes at causal without an error"),
    ("token_by_token_equals_one_pass", bad.Forgets, "chunks of"),
    ("chunks_equal_one_pass", bad.ForgetsTheCount, "chunks of"),
    ("chunks_equal_one_pass", bad.KeepsTheSumsOfNoTokens, "got 0 past tokens in the geometry and a state"),
    ("states_are_not_modified", bad.WritesIntoItsMemory, "the second continuation differs"),
    ("states_are_not_modified", bad.RemembersBesideTheState, "the second continuation differs"),
    ("states_can_be_reordered", bad.RemembersRowsElsewhere, "need the same batch size; got 1 and 3 rows"),
    ("decoding_after_padding_equals_each_row_alone", bad.CountsPadding, "the row of 5 tokens"),
    ("decoding_after_padding_equals_each_row_alone", bad.RemembersTheWholeBatch, "the row of"),
    ("padding_on_the_left_changes_nothing", bad.CountsPadding, "the row of 4 tokens"),
    ("padding_on_the_right_changes_nothing", bad.CountsPadding, "the row of 4 tokens"),
    ("padding_on_the_left_changes_nothing", bad.LearnsFromPadding, "gradient of project.weight, .* nan: not all"),
    ("padding_on_the_right_changes_nothing", bad.LearnsFromPadding, "gradient of project.weight, .* nan: not all"),
    ("a_row_does_not_depend_on_its_batch", bad.MixesRows, "row 0"),
    ("packed_documents_equal_each_alone", bad.SeesAllDocuments, "document 1"),
    ("a_row_of_padding_only_is_zero", bad.AddsToPadding, "the output at padding is not 0"),
    ("outputs_for_a_prefix_are_a_prefix_of_the_outputs", bad.StopsAtItsChunk, "1 tokens"),
    ("one_token_and_none_are_supported", bad.NeedsTwoTokens, "not finite|degrees of freedom"),
    ("tokens_beyond_max_length_are_rejected", bad.TakesAnyLength, "it accepts 65 tokens, max_length 64"),
    ("tokens_beyond_max_length_are_rejected", bad.RefusesLongTexts, "it declares max_length None, but rejects 65"),
    ("equivariance_is_as_declared", bad.TellsOrder, "it declares equivariance"),
    ("equivariance_is_as_declared", bad.TellsNoOrder, "it declares no equivariance"),
    ("float32_and_bfloat16_are_close_to_float64", bad.WidensItsInput, "torch.float32 gives torch.float64"),
    ("float32_and_bfloat16_are_close_to_float64", bad.SumsInHalf, "torch.float32: off by"),
    ("autocast_is_close_to_float64", bad.OverflowsUnderAutocast, "autocast: not all values are finite"),
    ("the_state_dict_is_complete", bad.TensorBesideTheState, "the loaded one differs"),
    ("conversion_to_bfloat16_only_rounds_parameters", bad.Buffer, "more than its parameters"),
    ("every_parameter_gets_a_gradient", bad.Forgotten, "unused gets no gradient"),
    ("its_gradients_are_right", bad.HalfDetached, "Jacobian|gradient"),
    ("its_second_derivatives_are_right", bad.DropsSecondDerivatives, "second derivatives: off by"),
    ("its_second_derivatives_are_right", bad.TakesANormOfPadding, "second derivatives: "),
    ("per_sample_gradients_are_those_of_each_sample", bad.BranchesOnValues, "data-dependent control flow"),
    ("checkpointing_changes_no_gradient", bad.ReadsWhatIsSavedTwice, "Unpack is being triggered"),
    ("meta_tensors_have_the_right_shape", bad.BranchesOnValues, "meta tensor"),
    ("its_docstring_is_complete", bad.SaysNothing, "it has no docstring"),
    ("it_declares_its_properties", bad.HonoursWhatIsNot, "it declares support for unknown hooks: bais"),
    ("it_declares_its_properties", bad.UsuallyWithWhatItIgnores, "does not support hooks 'encode_key'"),
    ("its_options_are_keywords", bad.TakesByPlace, "takes width positionally"),
    ("initialisation_is_deterministic", bad.DrawsFromElsewhere, "drawn differs"),
    (
        "reset_parameters_gives_the_values_of_a_new_mixer",
        bad.DrawsFromElsewhere,
        "drawn is not that of a new instance after reset_parameters",
    ),
    ("tokens_of_another_width_are_rejected", bad.TakesAnyWidth, "built for 32"),
]


@pytest.mark.parametrize(("check", "mutant", "says"), TABLE, ids=lambda part: getattr(part, "__name__", None))
def test_a_check_catches_a_broken_mixer(check, mutant, says):
    came = run_check(CHECKS[check], MixerCase(mutant))
    assert came.skipped_reason is None
    assert not came.passed
    assert re.search(says, came.message), came.message


def test_every_check_is_shown_to_fail():
    assert {check for check, _, _ in TABLE} == set(CHECKS)


def test_a_right_mixer_keeps_every_promise():
    outcomes = check_mixer(bad.Mean)
    assert [came.message for came in outcomes if not came.passed and came.skipped_reason is None] == []
    assert [came.name for came in outcomes if came.skipped_reason] == ["unsupported_forms_are_rejected"]


def test_an_option_that_the_mixer_lacks_is_refused():
    with pytest.raises(ValueError, match="no option of Mean is named 'widht'"):
        check_mixer(bad.Mean, widht=3)
