"""The members of an archive by their names, however a program wrote these."""

import posixpath
import unicodedata
import zipfile
from urllib.parse import unquote

_UTF_8 = 0x800  # the flag of a name that says so


class Members:
    """Finds members in any case, with backslashes for slashes, and with names in UTF-8 that do not say so."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.names = {_plain(info): info.filename for info in archive.infolist() if not info.is_dir()}
        """Those of the members, with slashes and without one in front, and under which the archive has them."""
        self._folded = {_folded(name): name for name in reversed(self.names)}

    def find(self, name: str) -> str | None:
        """The key of `names` that is meant; None where there is no such member."""
        name = posixpath.normpath(name.replace("\\", "/")).lstrip("/")
        if name in self.names:
            return name
        return self._folded.get(_folded(name)) or self._folded.get(_folded(unquote(name)))


def _plain(info: zipfile.ZipInfo) -> str:
    name = info.filename
    if not info.flag_bits & _UTF_8 and not name.isascii():
        try:
            name = name.encode("cp437").decode("utf-8")
        except UnicodeError:  # a name of another age
            name = info.filename
    return posixpath.normpath(name.replace("\\", "/")).lstrip("/")


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()
