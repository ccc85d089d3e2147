"""Safe reading of ZIP archives: limits checked before anything is unpacked, members found however they are named."""

import posixpath
import unicodedata
import zipfile
from urllib.parse import unquote

from ingest.errors import TooLarge
from ingest.limits import Limits

RATIO_FLOOR_BYTES = 1 << 20  # smaller members may compress as well as they like
_UTF_8 = 0x800  # the flag of a member whose name is declared to be UTF-8


class Members:
    """Finds members in any case, with backslashes for slashes, and with decode_undeclared UTF-8 names."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.names = {_plain(info): info.filename for info in archive.infolist() if not info.is_dir()}
        """Normalised name (slashes, none in front) -> the name that the archive knows."""
        self._folded = {_folded(name): name for name in reversed(self.names)}

    def find(self, name: str) -> str | None:
        """Return the key of `names` that matches a name, or None if the archive has no such member."""
        name = posixpath.normpath(name.replace("\\", "/")).lstrip("/")
        if name in self.names:
            return name
        return self._folded.get(_folded(name)) or self._folded.get(_folded(unquote(name)))


def check_archive(archive: zipfile.ZipFile, name: str, limits: Limits) -> None:
    """Refuse an archive that would unpack to too much, judging by its directory alone.

    `zipfile` never yields more than a member's declared size, so a directory with false sizes does not get past this.

    Raises:
        TooLarge: too many members, too many bytes, or a member that expands like a zip bomb.
    """
    members = archive.infolist()
    limits.check(name, "archive members", len(members), limits.archive_members)
    limits.check(name, "bytes when unpacked", sum(member.file_size for member in members), limits.unpacked_bytes)
    for member in members:
        if member.file_size > RATIO_FLOOR_BYTES:
            ratio = member.file_size // max(1, member.compress_size)
            if ratio > limits.archive_ratio:
                raise TooLarge(
                    f"{name}: its member {member.filename!r} would unpack to {member.file_size:,} bytes from "
                    f"{member.compress_size:,} ({ratio} to 1, limit {limits.archive_ratio}), as a zip bomb does. "
                    "It was not unpacked."
                )


def read_member(archive: zipfile.ZipFile, member: str, limits: Limits) -> bytes:
    """Return the bytes of one member, at most `limits.text_member_bytes` of them.

    Raises:
        KeyError: no such member.
        TooLarge: its declared size is above the limit.
        zipfile.BadZipFile, zlib.error, ...: it cannot be unpacked.
    """
    info = archive.getinfo(member)
    limits.check(f"the archive member {member!r}", "bytes", info.file_size, limits.text_member_bytes)
    return archive.read(info)


def _plain(info: zipfile.ZipInfo) -> str:
    """Return a member's name with slashes, read as UTF-8 if its bytes are."""
    name = info.filename
    if not info.flag_bits & _UTF_8 and not name.isascii():
        try:
            name = name.encode("cp437").decode("utf-8")
        except UnicodeError:  # an older code page
            name = info.filename
    return posixpath.normpath(name.replace("\\", "/")).lstrip("/")


def _folded(name: str) -> str:
    """Return a name in the form that is compared: composed and without case."""
    return unicodedata.normalize("NFC", name).casefold()
