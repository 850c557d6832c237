from ordinate.core.progress import Progress, chain, for_item, fraction, subrange


def test_callbacks_are_called_in_order():
    told = []
    chain(lambda progress: told.append(("first", progress)), lambda progress: told.append(("second", progress)))(
        fraction(0.5)
    )
    assert told == [("first", Progress(done=0.5, total=1.0)), ("second", Progress(done=0.5, total=1.0))]


def test_the_name_and_total_of_an_item_are_added():
    told = []
    for_item(told.append, "rope-s0", 10)(Progress(stage="training", done=5, loss=2.0))
    for_item(told.append, "extrapolation")(fraction(0.5))
    assert told == [Progress("rope-s0", "training", 5, 10, 2.0), Progress("extrapolation", done=0.5, total=1.0)]


def test_a_part_of_an_operation_reports_its_share():
    told = []
    report = subrange(told.append, 0.5, 1.0)
    for event in (fraction(0.0), fraction(0.5), Progress(done=5, total=10), Progress(message="half")):
        report(event)
    assert told == [fraction(0.5), fraction(0.75), fraction(0.75), Progress(message="half")]
