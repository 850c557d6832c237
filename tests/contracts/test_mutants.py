import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest

from ordinate.testing import check_scheme, run_check, scheme_checks
from ordinate.testing.case import SchemeCase

FILES = sorted(Path(__file__).with_name("mutants").glob("*.py"))
bad = SimpleNamespace(**{name: value for file in FILES for name, value in runpy.run_path(str(file)).items()})
CHECKS = {check.name: check for check in scheme_checks()}
# the check, a scheme that it must catch, and how it says so
TABLE = [
    ("padding_on_the_left_changes_nothing", bad.UsesMemoryIndices, "the row of 4 tokens"),
    ("padding_on_the_left_changes_nothing", bad.MixesNeighbours, "padding of nan: off by"),
    ("padding_on_the_right_changes_nothing", bad.NormalisesByLongestSequence, "the row of 4 tokens"),
    ("padding_on_the_right_changes_nothing", bad.SeesFutureThroughMean, "finite"),
    ("padding_on_the_right_changes_nothing", bad.LearnedGainOfNaN, "the gradient of the parameter gain"),
    ("a_sequence_does_not_depend_on_its_batch", bad.NormalisesByLongestSequence, "of row 0 differs when it is alone"),
    ("a_sequence_does_not_depend_on_its_batch", bad.UsesFirstSequenceForAll, "of row 1 differs when it is alone"),
    ("packed_documents_equal_each_alone", bad.UsesMemoryIndices, "document 1"),
    ("no_gradient_crosses_documents", bad.MixesNeighbours, "the first document depends on the second"),
    ("no_output_has_a_gradient_from_future_tokens", bad.MixesNeighbours, "token 0 depends on a later one"),
    ("changing_future_tokens_leaves_past_outputs_unchanged", bad.SeesFutureThroughMean, "tokens before a future"),
    (
        "docstring_has_a_summary_a_formula_and_a_source",
        bad.NoDocstringSections,
        "its summary line does not end with a period",
    ),
    ("citation_is_one_bibtex_entry", bad.NoBibtex, "not a BibTeX entry"),
    ("properties_are_declared", bad.NoDeclarations, "does not declare shift_invariant"),
    ("options_are_keyword_only", bad.PositionalArgument, "takes heads as positional arguments"),
    ("the_state_dict_has_parameters_only", bad.FloatBuffer, "it has buffers: rates"),
    ("parameters_have_an_axis", bad.LearnedGainOfNaN, "it has parameters without axes: gain"),
    ("initialisation_is_reproducible", bad.InitialisedByPythonRandom, "vector differs"),
    ("embed_appends_the_declared_columns", bad.AppendsTooManyColumns, "embed gives"),
    ("embed_appends_the_declared_columns", bad.PrependsColumns, "the token columns"),
    ("decoding_token_by_token_equals_the_full_pass", bad.NormalisesByLongestSequence, "in chunks of"),
    ("decoding_token_by_token_equals_the_full_pass", bad.UsesMemoryIndices, "in chunks of"),
    ("decoding_in_chunks_equals_the_full_pass", bad.UsesMemoryIndices, "in chunks of"),
    ("decoding_after_padding_equals_each_row_alone", bad.UsesMemoryIndices, "the row of"),
    ("decoding_after_padding_equals_each_row_alone", bad.BiasByMemoryIndices, "the row of"),
    ("every_parameter_gets_a_gradient", bad.DetachedBias, "schemes.0.table gets no gradient"),
    ("every_hook_passes_gradcheck", bad.DetachedBias, "gradient|require grad"),
    ("every_hook_passes_gradcheck", bad.PartlyDetached, "Jacobian|jacobian|gradient"),
    ("every_hook_passes_gradgradcheck", bad.DropsSecondDerivatives, "second derivatives of encode_query are dropped"),
    ("per_sample_gradients_are_those_of_each_sample", bad.BranchesOnContent, "data-dependent control flow"),
    ("positions_beyond_max_length_raise_an_error", bad.ClampsSilently, "at accepts position 64, max_length 64"),
    ("positions_beyond_max_length_raise_an_error", bad.ErrorWithoutPosition, "without naming -1"),
    ("outputs_are_finite_at_any_length", bad.OverflowsAtLargePositions, "embed is not finite"),
    ("a_wrong_number_of_axes_raises_an_error", bad.AcceptsAnyAxes, "it accepts 2 axes"),
    ("fractional_positions_are_accepted_or_rejected_as_declared", bad.UndeclaredIntegerPositions, "RuntimeError"),
    (
        "fractional_positions_are_accepted_or_rejected_as_declared",
        bad.RoundsFractionalPositionsUp,
        "encoded differently from 4",
    ),
    ("inputs_of_one_and_zero_tokens_are_accepted", bad.NeedsTwoTokens, "1 tokens is not finite|degrees of freedom"),
    ("a_block_of_a_bias_is_the_bias_of_the_block", bad.BlockOffByOne, "differs from that of the whole"),
    ("a_block_of_a_bias_is_the_bias_of_the_block", bad.BiasByMemoryIndices, "differs from that of the whole"),
    ("the_bias_of_cached_tokens_is_the_last_rows_of_the_whole", bad.BiasByMemoryIndices, "the last 1 rows differ"),
    ("the_bias_of_cached_tokens_is_the_last_rows_of_the_whole", bad.BlockOffByOne, "the last 1 rows differ"),
    (
        "the_scores_of_some_queries_are_rows_of_the_whole",
        bad.ContentBiasByMemoryIndices,
        "the content bias of queries",
    ),
    ("the_scores_of_some_queries_are_rows_of_the_whole", bad.ScoresByMemoryIndices, "the score of queries"),
    (
        "the_output_term_of_some_queries_is_rows_of_the_whole",
        bad.OutputTermByMemoryIndices,
        "the output term of queries",
    ),
    ("cached_encoders_equal_the_encoding_hooks", bad.EncodersOfAnotherHook, "the queries of layer 0"),
    ("relative_vectors_agree_with_the_pairwise_hooks", bad.VectorsOffByOne, "the content bias from its vectors"),
    (
        "relative_vectors_agree_with_the_pairwise_hooks",
        bad.ReachTooShort,
        "the output term from its vectors|content bias",
    ),
    ("the_declared_form_of_the_bias_agrees_with_it", bad.SlopesOfTheWrongSide, "the bias from its slopes"),
    ("the_declared_form_of_the_bias_agrees_with_it", bad.CurveWithoutItsLastPiece, "the bias from its logarithms"),
    ("the_declared_form_of_the_bias_agrees_with_it", bad.BiasReachTooShort, "changes beyond its reach of 100"),
    ("every_backend_agrees_with_the_reference", bad.ChangesWithEachCall, "the output by sdpa"),
    ("encodings_depend_on_positions_not_memory_order", bad.BiasByMemoryIndices, "bias depends on memory order"),
    ("encodings_depend_on_positions_not_memory_order", bad.UsesMemoryIndices, "embed depends on memory order"),
    ("every_position_axis_has_an_effect", bad.IgnoresAnAxis, "axis 1 of 2 changes nothing"),
    ("each_token_is_encoded_independently", bad.MixesNeighbours, "encode_key encodes token 0 differently"),
    ("permuting_tokens_with_their_positions_permutes_the_output", bad.UsesMemoryIndices, "permuted tokens"),
    ("permuting_tokens_with_their_positions_permutes_the_output", bad.BiasByMemoryIndices, "permuted tokens"),
    ("positions_may_differ_between_sequences", bad.UsesFirstSequenceForAll, "row 1"),
    ("grouped_query_heads_equal_repeated_key_heads", bad.DependsOnNumberOfHeads, "grouped heads"),
    ("each_head_uses_its_own_content_only", bad.ReadsTheQueryOfTheFirstHead, "the encode_query of the other heads"),
    ("each_head_uses_its_own_content_only", bad.ContentBiasOfTheFirstHead, "the content_bias of the other heads"),
    ("outputs_have_the_dtype_of_the_inputs", bad.ReturnsFloat32, "turns torch.bfloat16 into torch.float32"),
    ("low_precision_adds_rounding_errors_only", bad.AngleInModelDtype, "encode_query in torch.bfloat16 is off"),
    ("low_precision_adds_rounding_errors_only", bad.SinusoidsInModelDtype, "embed in torch.bfloat16 is off"),
    ("low_precision_adds_rounding_errors_only", bad.OffsetsInModelDtype, "content_bias in torch.bfloat16 is off"),
    ("inputs_are_not_modified", bad.ModifiesItsInput, "encode_query writes into its input"),
    ("shift_invariance_is_as_declared", bad.AngleInFloat32, "declared shift invariant"),
    ("shift_invariance_is_as_declared", bad.DeclaredInvariant, "declared shift invariant"),
    ("shift_invariance_is_as_declared", bad.DeclaredSensitive, "not declared shift invariant"),
    (
        "a_shift_invariant_bias_depends_on_offsets_only",
        bad.BiasOfKeyPositionOnly,
        "the bias of the next pair with the same offset",
    ),
    ("a_shift_of_positions_loses_no_precision", bad.AngleInModelDtype, "float32: a shift by"),
    (
        "casting_to_lower_precision_and_back_rounds_parameters_only",
        bad.FloatBuffer,
        "encode_query differs after",
    ),
    ("casting_a_scheme_without_parameters_changes_nothing", bad.FloatBuffer, "encode_query differs after"),
    ("construction_on_the_meta_device_loses_nothing", bad.FloatBuffer, "after construction on the meta device"),
    ("construction_on_the_meta_device_loses_nothing", bad.TensorOutsideStateDict, "meta"),
    (
        "a_state_dict_and_a_deep_copy_reproduce_the_scheme",
        bad.TensorOutsideStateDict,
        "after a state dict round trip",
    ),
    (
        "reset_parameters_gives_the_values_of_a_new_scheme",
        bad.ResetsNothing,
        "table is not that of a new instance after reset_parameters",
    ),
    ("autocast_does_not_change_the_encoding", bad.AngleByMatrixProduct, "embed changes under autocast"),
    ("calls_have_no_side_effects", bad.CachesItsFirstTable, "embed differs after other uses"),
]


@pytest.mark.parametrize(("check", "mutant", "says"), TABLE, ids=lambda part: getattr(part, "__name__", None))
def test_a_check_catches_a_broken_scheme(check, mutant, says):
    came = run_check(CHECKS[check], SchemeCase(mutant))
    assert came.skipped_reason is None
    assert not came.passed
    assert re.search(says, came.message), came.message


def test_every_check_is_shown_to_fail():
    # the mutant that cannot be compiled is tried in a process of its own, in test_schemes.py
    assert {check for check, _, _ in TABLE} | {"the_compiled_scheme_equals_the_eager_one"} == set(CHECKS)


@pytest.mark.extended
def test_a_broken_scheme_is_distinguished_from_an_inapplicable_check():
    outcomes = {came.name: came for came in check_scheme(bad.ClampsSilently)}
    assert set(outcomes) == set(CHECKS)
    assert "accepts position 64" in outcomes["positions_beyond_max_length_raise_an_error"].message
    assert "no hook" not in outcomes["a_block_of_a_bias_is_the_bias_of_the_block"].message
    assert outcomes["a_block_of_a_bias_is_the_bias_of_the_block"].skipped_reason == "it overrides embed, not bias"
    assert outcomes["no_gradient_crosses_documents"].passed


def test_an_option_that_the_scheme_lacks_is_refused():
    with pytest.raises(ValueError, match="no option of Learned is named 'teta'"):
        check_scheme(bad.Learned, teta=1.0)
