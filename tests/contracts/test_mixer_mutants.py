import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from ordinate.testing import check_mixer, mixer_checks, outcome
from ordinate.testing.mixer import MixerCase

FILES = sorted(Path(__file__).with_name("mixer_mutants").glob("*.py"))
bad = SimpleNamespace(**{name: value for file in FILES for name, value in runpy.run_path(str(file)).items()})
CHECKS = {check.name: check for check in mixer_checks()}
# the check, a mixer that it must catch, and how it says so
TABLE = [
    ("nothing_reaches_back_from_the_future", bad.Peeks, "token 0 feels a later one"),
    ("a_changed_future_leaves_the_past_as_it_was", bad.Peeks, "tokens before a changed future"),
    ("the_form_from_both_sides_feels_the_future", bad.HearsNoFuture, "the first token feels none"),
    ("a_form_that_it_lacks_is_refused", bad.TakesAnyForm, "it mixes at causal without a word"),
    ("token_by_token_equals_all_at_once", bad.Forgets, "pieces of"),
    ("in_pieces_equals_all_at_once", bad.ForgetsTheCount, "pieces of"),
    ("a_memory_changes_nothing_that_was_returned", bad.WritesIntoItsMemory, "the second reading differs"),
    ("a_memory_changes_nothing_that_was_returned", bad.RemembersBesideTheState, "the second reading differs"),
    ("a_memory_can_be_taken_apart", bad.RemembersRowsElsewhere, "need one batch; got 1 and 3 rows"),
    ("reading_on_after_padding_equals_each_row_alone", bad.CountsPadding, "the row of 5 tokens"),
    ("reading_on_after_padding_equals_each_row_alone", bad.RemembersTheWholeBatch, "the row of"),
    ("padding_on_the_left_changes_nothing", bad.CountsPadding, "the row of 4 tokens"),
    ("padding_on_the_right_changes_nothing", bad.CountsPadding, "the row of 4 tokens"),
    ("a_row_does_not_depend_on_its_batch", bad.MixesRows, "row 0"),
    ("packed_documents_equal_each_alone", bad.SeesAllDocuments, "document 1"),
    ("a_row_of_padding_only_is_zero", bad.AddsToPadding, "padding gets something"),
    ("a_shorter_text_is_the_beginning_of_a_longer_one", bad.StopsAtItsChunk, "1 tokens"),
    ("one_token_and_none_are_served", bad.NeedsTwoTokens, "not finite|degrees of freedom"),
    ("a_text_beyond_its_length_is_refused", bad.TakesAnyLength, "it takes 65 tokens, max_length 64"),
    ("a_text_beyond_its_length_is_refused", bad.RefusesLongTexts, "it declares max_length None, and refuses 65"),
    ("it_tells_order_as_it_declares", bad.TellsOrder, "it says that it is equivariant"),
    ("it_tells_order_as_it_declares", bad.TellsNoOrder, "it says that it tells order"),
    ("narrow_types_stay_near_the_wide_one", bad.WidensItsInput, "torch.float32 gives torch.float64"),
    ("narrow_types_stay_near_the_wide_one", bad.SumsInHalf, "torch.float32: off by"),
    ("autocast_does_not_narrow_what_runs", bad.OverflowsUnderAutocast, "autocast: not all numbers are finite"),
    ("a_state_dict_holds_all_of_it", bad.TensorBesideTheState, "the loaded one differs"),
    ("widening_again_changes_nothing_but_rounding", bad.Buffer, "more than its parameters"),
    ("every_parameter_gets_a_gradient", bad.Forgotten, "unused gets no gradient"),
    ("its_gradients_are_right", bad.HalfDetached, "Jacobian|gradient"),
    ("its_docstring_says_what_it_is_and_where_it_comes_from", bad.SaysNothing, "it has no docstring"),
    ("it_declares_its_properties", bad.HonoursWhatIsNot, "it declares to honour bais"),
    ("it_declares_its_properties", bad.UsuallyWithWhatItIgnores, "it ignores encode_key"),
    ("its_options_are_keywords", bad.TakesByPlace, "takes width by place"),
    ("one_seed_gives_one_mixer", bad.DrawsFromElsewhere, "drawn differs"),
    ("tokens_of_another_width_are_refused", bad.TakesAnyWidth, "made for 32"),
]


@pytest.mark.parametrize(("check", "mutant", "says"), TABLE, ids=lambda part: getattr(part, "__name__", None))
def test_a_check_catches_a_broken_mixer(check, mutant, says):
    came = outcome(CHECKS[check], MixerCase(mutant))
    assert came.skipped_reason is None
    assert not came.passed
    assert re.search(says, came.message), came.message


def test_every_check_is_shown_to_fail():
    assert {check for check, _, _ in TABLE} == set(CHECKS)


def test_a_right_mixer_keeps_every_promise():
    outcomes = check_mixer(bad.Mean)
    assert [came.message for came in outcomes if not came.passed and came.skipped_reason is None] == []
    assert [came.name for came in outcomes if came.skipped_reason] == ["a_form_that_it_lacks_is_refused"]


def test_an_option_that_the_mixer_lacks_is_refused():
    with pytest.raises(ValueError, match="no option of Mean is named 'widht'"):
        check_mixer(bad.Mean, widht=3)
