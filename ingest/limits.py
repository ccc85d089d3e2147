"""How large a file may be. Checked as early as can be: archives before anything in them is unpacked."""

import zipfile
from dataclasses import dataclass, fields

from ingest.errors import TooLarge

RATIO_FLOOR_BYTES = 1 << 20  # smaller members may compress as well as they like


@dataclass(frozen=True)
class Limits:
    """Upper bounds, each at least 1.

    A million tokens are four to five million characters of English prose: the defaults leave room for ten times that.
    """

    file_bytes: int = 1 << 30
    pages: int = 20_000
    characters: int = 50_000_000
    archive_members: int = 20_000
    unpacked_bytes: int = 1 << 30  # all members of an archive together, by their declared sizes
    text_member_bytes: int = 128 << 20  # one member or file that is parsed as text or markup; the text of a MOBI book
    archive_ratio: int = 200  # unpacked to packed, for members above one MiB; text reaches 20, a zip bomb 1000

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value < 1:
                raise ValueError(f"Limits.{field.name} is {value}; it must be at least 1")

    def check(self, name: str, what: str, value: int, limit: int) -> None:
        """Raise TooLarge where `value` of `what` (a noun in the plural) is above `limit`."""
        if value > limit:
            raise TooLarge(
                f"{name} has {value:,} {what}, more than the limit of {limit:,}. Split it into smaller files."
            )


def check_archive(archive: zipfile.ZipFile, name: str, limits: Limits) -> None:
    """Refuse an archive that would unpack to too much, from its directory alone.

    `zipfile` never yields more than a member's declared size, so a directory that lies does not get past this.

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
    """The bytes of one member, bounded by `text_member_bytes`.

    Raises:
        KeyError: no such member.
        TooLarge: its declared size is above the limit.
        zipfile.BadZipFile, zlib.error, ...: it cannot be unpacked.
    """
    info = archive.getinfo(member)
    limits.check(f"the archive member {member!r}", "bytes", info.file_size, limits.text_member_bytes)
    return archive.read(info)
