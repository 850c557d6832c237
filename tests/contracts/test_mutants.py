import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from ordinate.testing import check_scheme, outcome, scheme_checks
from ordinate.testing.case import Case

FILES = sorted(Path(__file__).with_name("mutants").glob("*.py"))
bad = SimpleNamespace(**{name: value for file in FILES for name, value in runpy.run_path(str(file)).items()})
CHECKS = {check.name: check for check in scheme_checks()}
# the check, a scheme that it must catch, and how it says so
TABLE = [
    ("padding_on_the_left_changes_nothing", bad.CountsPlaces, "the row of 4 tokens"),
    ("padding_on_the_left_changes_nothing", bad.MixesNeighbours, "finite"),
    ("padding_on_the_right_changes_nothing", bad.CountsFromTheLongestRow, "the row of 4 tokens"),
    ("padding_on_the_right_changes_nothing", bad.PeeksThroughMean, "finite"),
    ("a_row_does_not_depend_on_its_batch", bad.CountsFromTheLongestRow, "gives row 0 something else"),
    ("a_row_does_not_depend_on_its_batch", bad.FirstRowForAll, "gives row 1 something else"),
    ("packed_documents_equal_each_alone", bad.CountsPlaces, "document 1"),
    ("no_gradient_crosses_documents", bad.MixesNeighbours, "the first document feels the second"),
    ("no_gradient_reaches_back_from_the_future", bad.MixesNeighbours, "token 0 feels a later one"),
    ("a_changed_future_leaves_the_past_as_it_was", bad.PeeksThroughMean, "tokens before a future"),
    ("the_compiled_scheme_equals_the_plain_one", bad.ReadsAValue, "data-dependent"),
    (
        "its_docstring_says_what_it_is_where_it_enters_and_where_it_comes_from",
        bad.SaysNothing,
        "its first line is no sentence",
    ),
    ("its_citation_is_one_bibtex_entry", bad.CitesNothing, "no BibTeX entry"),
    ("it_declares_its_properties", bad.DeclaresNothing, "does not declare shift_invariant"),
    ("its_options_are_keywords", bad.TakesByPlace, "takes heads by place"),
    ("its_state_holds_parameters_only", bad.Buffer, "it holds buffers: rates"),
    ("one_seed_gives_one_scheme", bad.DrawsFromElsewhere, "vector differs"),
    ("embed_appends_the_columns_it_claims", bad.ClaimsTooFew, "embed gives"),
    ("embed_appends_the_columns_it_claims", bad.MarksInFront, "the token columns"),
    ("decoding_token_by_token_equals_the_full_pass", bad.CountsFromTheLongestRow, "in chunks of"),
    ("decoding_token_by_token_equals_the_full_pass", bad.CountsPlaces, "in chunks of"),
    ("decoding_in_chunks_equals_the_full_pass", bad.CountsPlaces, "in chunks of"),
    ("decoding_after_padding_equals_each_row_alone", bad.CountsPlaces, "the row of"),
    ("decoding_after_padding_equals_each_row_alone", bad.BiasByPlaces, "the row of"),
    ("every_parameter_gets_a_gradient", bad.ForgottenDetach, "schemes.0.table gets no gradient"),
    ("the_gradients_of_every_hook_are_right", bad.ForgottenDetach, "gradient|require grad"),
    ("the_gradients_of_every_hook_are_right", bad.HalfDetached, "Jacobian|jacobian|gradient"),
    ("positions_beyond_its_length_are_refused_by_name", bad.ClampsSilently, "at takes position 64, max_length 64"),
    ("positions_beyond_its_length_are_refused_by_name", bad.OneNumberOnly, "without naming -1"),
    ("any_length_means_any_length", bad.GrowsWithoutBound, "embed is not finite"),
    ("a_wrong_number_of_axes_is_refused", bad.TakesAnyAxes, "it takes 2 axes"),
    ("fractional_positions_are_served_or_refused_as_declared", bad.WholeOnlyUnsaid, "RuntimeError"),
    ("fractional_positions_are_served_or_refused_as_declared", bad.RoundsFractionsUp, "marked otherwise than 4"),
    ("one_token_and_none_are_served", bad.NeedsTwoTokens, "1 tokens is not finite|degrees of freedom"),
    ("a_block_of_a_bias_is_the_bias_of_the_block", bad.BlockOffByOne, "is not that of the whole"),
    ("a_block_of_a_bias_is_the_bias_of_the_block", bad.BiasByPlaces, "is not that of the whole"),
    ("the_bias_of_cached_tokens_is_the_last_rows_of_the_whole", bad.BiasByPlaces, "the last 1 rows differ"),
    ("the_bias_of_cached_tokens_is_the_last_rows_of_the_whole", bad.BlockOffByOne, "the last 1 rows differ"),
    ("what_some_queries_score_is_part_of_what_all_score", bad.ContentByPlaces, "the content bias of queries"),
    ("what_some_queries_score_is_part_of_what_all_score", bad.ScoresByPlaces, "the score of queries"),
    ("what_some_queries_carry_is_part_of_what_all_carry", bad.CarriesByPlaces, "what queries"),
    ("what_is_made_for_all_layers_marks_as_the_hooks_do", bad.MarksAnewOnly, "the queries of layer 0"),
    ("its_vectors_say_what_content_bias_and_carry_say", bad.VectorsOfTheNext, "the content bias of its vectors"),
    ("its_vectors_say_what_content_bias_and_carry_say", bad.ReachTooShort, "what its vectors carry|content bias"),
    ("every_route_agrees_with_the_reference", bad.AsksTwice, "the output by sdpa"),
    ("marks_follow_positions_not_places", bad.BiasByPlaces, "bias counts places"),
    ("marks_follow_positions_not_places", bad.CountsPlaces, "embed counts places"),
    ("every_axis_is_felt", bad.DropsAnAxis, "axis 1 of 2 changes nothing"),
    ("each_token_is_marked_by_itself", bad.MixesNeighbours, "encode_key marks token 0 otherwise"),
    ("permuting_tokens_with_their_positions_permutes_the_output", bad.CountsPlaces, "permuted tokens"),
    ("permuting_tokens_with_their_positions_permutes_the_output", bad.BiasByPlaces, "permuted tokens"),
    ("examples_stand_where_they_are_said_to_stand", bad.FirstRowForAll, "row 1"),
    ("grouped_heads_equal_repeated_heads", bad.FeelsTheNumberOfHeads, "grouped heads"),
    ("outputs_have_the_type_of_the_inputs", bad.WidensItsInput, "turns torch.bfloat16 into torch.float32"),
    ("low_precision_costs_rounding_only", bad.AngleInTypeOfModel, "encode_query in torch.bfloat16 is off"),
    ("low_precision_costs_rounding_only", bad.WavesInTypeOfModel, "embed in torch.bfloat16 is off"),
    ("low_precision_costs_rounding_only", bad.OffsetsInTypeOfModel, "content_bias in torch.bfloat16 is off"),
    ("inputs_are_left_as_they_were", bad.WritesIntoItsInput, "encode_query writes into its input"),
    ("moving_all_positions_changes_something_exactly_if_declared", bad.AngleInFloat32, "declared shift invariant"),
    ("moving_all_positions_changes_something_exactly_if_declared", bad.DeclaredInvariant, "declared shift invariant"),
    ("moving_all_positions_changes_something_exactly_if_declared", bad.DeclaredSensitive, "declared to feel shifts"),
    (
        "the_bias_of_a_shift_invariant_scheme_is_a_table_of_offsets",
        bad.LooksAtKeysAlone,
        "the bias of the next pair as far apart",
    ),
    ("a_shift_costs_no_precision_in_the_type_of_the_model", bad.AngleInTypeOfModel, "float32: a shift by"),
    (
        "casting_to_lower_precision_and_back_rounds_parameters_only",
        bad.Buffer,
        "encode_query computes something else",
    ),
    ("a_low_precision_scheme_marks_full_precision_tokens_alike", bad.Buffer, "encode_query computes something else"),
    ("birth_on_the_meta_device_loses_nothing", bad.Buffer, "after birth on the meta device"),
    ("birth_on_the_meta_device_loses_nothing", bad.TensorBesideTheState, "meta"),
    ("a_state_dict_and_a_copy_hold_all_of_it", bad.TensorBesideTheState, "after a state dict round trip"),
    ("autocast_does_not_reach_its_tables", bad.AngleByMatrixProduct, "embed changes under autocast"),
    ("use_leaves_no_trace", bad.RemembersItsFirstTable, "embed computes something else after other uses"),
]


@pytest.mark.parametrize(("check", "mutant", "says"), TABLE, ids=lambda part: getattr(part, "__name__", None))
def test_a_check_catches_a_broken_scheme(check, mutant, says):
    came = outcome(CHECKS[check], Case(mutant))
    if came.skipped_reason is not None:
        pytest.skip(came.skipped_reason)
    assert not came.passed
    assert re.search(says, came.message), came.message


def test_every_check_is_shown_to_fail():
    assert {check for check, _, _ in TABLE} == set(CHECKS)


def test_a_broken_scheme_is_told_from_a_check_that_does_not_apply():
    outcomes = {came.name: came for came in check_scheme(bad.ClampsSilently)}
    assert set(outcomes) == set(CHECKS)
    assert "takes position 64" in outcomes["positions_beyond_its_length_are_refused_by_name"].message
    assert "no hook" not in outcomes["a_block_of_a_bias_is_the_bias_of_the_block"].message
    assert outcomes["a_block_of_a_bias_is_the_bias_of_the_block"].skipped_reason == "it overrides embed, not bias"
    assert outcomes["no_gradient_crosses_documents"].passed


def test_an_option_that_the_scheme_lacks_is_refused():
    with pytest.raises(ValueError, match="no option of Learned is named 'teta'"):
        check_scheme(bad.Learned, teta=1.0)
