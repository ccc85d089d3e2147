"""The files of a folder that can be read, by their suffixes."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from ingest.formats import SUFFIXES, suffix_of

LINK = "it is a link to another folder, which is not followed"


def readable_files(folder: Path, leave_out: Callable[[Path, str], None] = lambda path, reason: None) -> Iterator[Path]:
    """Yield the files below a folder whose suffix is a known format's, in order of their names.

    Hidden files and folders are left out.

    Args:
        folder: the folder.
        leave_out: told each folder that is not looked into, and why; the folder itself if it cannot be listed.
    """

    def fail(error: OSError) -> None:
        leave_out(Path(error.filename), error.strerror or str(error))

    for root, folders, names in os.walk(folder, onerror=fail):
        folders[:] = sorted(each for each in folders if not each.startswith("."))
        for each in folders:
            if os.path.islink(os.path.join(root, each)):
                leave_out(Path(root, each), LINK)
        paths = (Path(root, name) for name in sorted(names) if not name.startswith("."))
        yield from (path for path in paths if suffix_of(path) in SUFFIXES)
