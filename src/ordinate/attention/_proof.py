"""Trust in kernels that only a GPU can run."""

from ordinate.attention._backend import AttentionCall


def unproved_reason(backend: str, call: AttentionCall) -> str | None:
    """Return why a backend has not proved itself for calls of this form; None if it has.

    Args:
        backend: name of the backend.
        call: the call.
    """
    return None
