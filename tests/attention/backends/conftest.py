import pytest

from ordinate.ops.native import build


@pytest.fixture(scope="session")
def attention_kernel():
    """Skip what needs the C++ kernel of attention where it cannot be built."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv(build.ENV_VARIABLE)
        reason = build.unavailable_reason("attention")
    if reason is not None:
        pytest.skip(reason)
