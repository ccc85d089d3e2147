"""How large a file may be. `ingest.archive` checks archives before it unpacks anything."""

from dataclasses import dataclass, fields

from ingest.errors import TooLarge


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

    def check(self, name: str, noun: str, value: int, limit: int) -> None:
        """Refuse a file that has more of something than a limit allows.

        Args:
            name: the file's name.
            noun: the thing counted, in the plural, such as "pages".
            value: how many the file has.
            limit: how many it may have.

        Raises:
            TooLarge: `value` is above `limit`.
        """
        if value > limit:
            raise TooLarge(
                f"{name} has {value:,} {noun}, more than the limit of {limit:,}. Split it into smaller files."
            )
