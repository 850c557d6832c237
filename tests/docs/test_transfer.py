import runpy
from pathlib import Path

script = runpy.run_path(str(Path(__file__).parents[2] / ".ci" / "transfer.py"))
Which = script["Which"]


def test_the_studies_are_of_one_plan_but_for_corpus_and_size():
    first = script["study"](Which("code", 1)).plan
    for which in script["measured"]():
        plan = script["study"](which).plan
        # the quick studies were trained on a processor that does not multiply bfloat16
        larger = {"width", "layers", "steps", "warmup_steps", "learning_rate", "schemes", "precision"}
        sizes = larger if which.compute > 1 else set()
        text = {"text"} if which.corpus == "English" else set()
        # neither changes a result
        other = {"leader_seeds", "leaders", "threads"}
        # an older plan lacks options that did not exist
        differing = {name for name in first.keys() & plan.keys() if first[name] != plan[name]} - other
        assert differing <= sizes | text
        flops = plan["steps"] * plan["layers"] * plan["width"] ** 2
        assert abs(flops / (first["steps"] * first["layers"] * first["width"] ** 2) / which.compute - 1) < 0.05


def test_pairs_are_of_one_corpus_or_of_one_size():
    pairs = script["pairs"]()
    assert (Which("code", 1), Which("code", 12)) in pairs
    assert all((one.corpus == other.corpus) != (one.compute == other.compute) for one, other in pairs)


def test_a_study_agrees_with_itself():
    found = script["agreement"](Which("code", 1), Which("code", 1), "trained")
    assert found.tau == 1
    assert found.confirmed == found.decided > 0
    assert found.contradicted == 0
