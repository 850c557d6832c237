"""Where a study lies: a folder, or a URL and the folder here in which it is worked on."""

from pathlib import Path

from ordinate.study.mirror import Mirror, remote


def placed(out: str | None, usual: str) -> tuple[Path, Mirror | None]:
    """The folder to work in, and the copy at a URL if there is to be one.

    Args:
        out: what was asked for: a folder, or a URL such as s3://bucket/study.
        usual: the name of a folder in runs/ where nothing was.
    Raises:
        ValueError: a URL that cannot be read here.
        OSError: the URL cannot be reached.
    """
    if out is None or not remote(out):
        return Path(out) if out else Path("runs") / usual, None
    mirror = Mirror(out)
    mirror.fetch()
    return mirror.folder, mirror
