"""EPUB, from the archive's own spine and table of contents: chapters as the publisher divided them.

Page numbers of an e-book change with the screen, so a page here is a chapter or section. MuPDF is not used: it lays the
book out and loses paragraphs.
"""

import posixpath
import re
import zipfile
from collections.abc import Callable, Container, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lxml import etree

from ingest.archive import Members, check_archive, read_member
from ingest.charset import decode
from ingest.clean import one_line
from ingest.conversion import Content, ConvertOptions
from ingest.errors import BrokenFile, EmptyDocument, TooLarge, UnsupportedFormat
from ingest.imprints import LONGEST, TYPES, is_imprint, is_imprint_title
from ingest.limits import Limits
from ingest.markup import html
from ingest.markup.html_damage import damage_warnings
from ingest.markup.svg import svg_lines
from ingest.markup.xml import parse_xml, plain_markup
from ingest.sample import EPUB_CONTAINER
from ingest.sections import LONGEST_LABEL, Block, first_heading, paginate, row_blocks
from ingest.wording import count, listed

_FONT_SCRAMBLING = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_MARKUP = ("application/xhtml+xml", "text/html", "application/x-dtbook+xml", "text/x-oeb1-document")
_DRAWING = "image/svg+xml"

# A chapter is XML: an element without an end shows that the file is cut off.
_OPENED, _CLOSED = re.compile(r"<(?:html|body)\b", re.IGNORECASE), re.compile(r"</(?:html|body)\s*>", re.IGNORECASE)
_END = 4096  # characters

Entries = dict[str, list[tuple[int, str]]]  # fragment of one file -> levels and titles of the entries that point there


def convert(path: Path, options: ConvertOptions) -> Content:
    """Convert an EPUB. `options.on_page` counts the files of the spine.

    Raises:
        BrokenFile: the archive is damaged or incomplete.
        TooLarge: too many chapters, characters or bytes.
        EmptyDocument: no text in any chapter.
        UnsupportedFormat: DRM locks the text.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            check_archive(archive, path.name, options.limits)
            return _Book(path.name, archive, options.limits).convert(options.on_page)
    except (zipfile.BadZipFile, NotImplementedError, OSError, EOFError) as error:
        # NotImplementedError: a version of ZIP that zipfile does not know
        raise BrokenFile(f"{path.name} cannot be opened as EPUB: its archive is damaged. Fetch it again.") from error


class _Book:
    def __init__(self, name: str, archive: zipfile.ZipFile, limits: Limits) -> None:
        self.name, self.archive, self.limits = name, archive, limits
        self.members = Members(archive)
        self.warnings: list[str] = []
        self.missing: list[BrokenFile] = []  # why chapters are missing
        self.imprints: set[str] = set()
        self.drawings: set[str] = set()  # files of the spine that are SVG

    def convert(self, on_page: Callable[[int, int], None]) -> Content:
        package_path = self._package_path()
        package = parse_xml(self._bytes(package_path), f"{self.name}: {package_path}", self.warnings)
        self.folder = posixpath.dirname(package_path)
        self._refuse_drm()
        items = {item.get("id"): item for item in package.iterfind(".//{*}manifest/{*}item")}
        spine = package.find(".//{*}spine")
        references = [] if spine is None else spine.findall("{*}itemref")
        chapters = []
        for reference in references:
            identity = reference.get("idref")
            item = items.get(identity)
            if item is None or not item.get("href"):
                self.warnings.append(f"A chapter is missing: the spine names {identity!r}, but the manifest no file.")
                continue
            page = _as_text(item, items)
            file = self._file(self.folder, page.get("href", ""))[0]
            if page.get("media-type") == _DRAWING:
                self.drawings.add(file)
                chapters.append(file)
            elif _is_text(page):
                chapters.append(file)
            else:
                kind = page.get("media-type")
                self.warnings.append(f"The spine's {file} ({kind}) was not read: it is no page of text.")
        if not chapters:
            raise BrokenFile(f"{self.name} names no chapters in its spine ({package_path}). Fetch it again.")
        self.limits.check(self.name, "chapters", len(chapters), self.limits.pages)
        contents = self._contents(items, spine)
        self._name_unread(items, set(chapters))
        self.imprints = self._imprints(package)
        blocks = self._blocks(chapters, contents, on_page)
        headings = sum(0 < block.level <= 2 for block in blocks)
        placed = sum(len(block.toc) for block in blocks)
        given = placed >= 2 and placed * 4 >= headings
        if not given:
            blocks = [replace(block, toc=(), toc_nearby=()) for block in blocks]
        pages, toc = paginate(blocks, given_toc=given)
        if not pages:
            if self.missing:  # the text may be there
                raise self.missing[0]
            raise EmptyDocument(
                f"{self.name} has no text in any of its {count(len(chapters), 'chapter')}: only pictures."
            )
        title = package.findtext(".//{*}metadata/{*}title") or package.findtext(".//{*}title")
        return Content(pages, toc, [title, first_heading(blocks)], self.warnings)

    def _package_path(self) -> str:
        container, first = parse_xml(self._bytes(EPUB_CONTAINER), f"{self.name}: {EPUB_CONTAINER}"), ""
        for rootfile in container.iterfind(".//{*}rootfile"):
            path = rootfile.get("full-path") or ""
            if found := self.members.find(path):  # the first rendition of a book with several
                return found
            first = first or path
        if first:
            raise BrokenFile(f"{self.name} lacks {first}, so it is no complete EPUB. Fetch it again.")
        raise BrokenFile(f"{self.name}: {EPUB_CONTAINER} names no package file. Fetch it again.")

    def _bytes(self, member: str) -> bytes:
        name = self.members.find(member)
        if name is None:
            raise BrokenFile(f"{self.name} lacks {member}, so it is no complete EPUB. Fetch it again.")
        try:
            return read_member(self.archive, self.members.names[name], self.limits)
        except TooLarge:
            raise
        except Exception as error:  # zlib.error, RuntimeError (encrypted) or BadZipFile
            reason = one_line(str(error))[:120]
            raise BrokenFile(f"{self.name}: {member} cannot be unpacked ({reason}). Fetch it again.") from error

    def _refuse_drm(self) -> None:
        if not self.members.find("META-INF/encryption.xml"):
            return
        root = parse_xml(self._bytes("META-INF/encryption.xml"), f"{self.name}: META-INF/encryption.xml")
        methods = [method.get("Algorithm") or "" for method in root.iterfind(".//{*}EncryptedData/{*}EncryptionMethod")]
        locked = [method for method in methods if method not in _FONT_SCRAMBLING]
        if locked:
            raise UnsupportedFormat(
                f"{self.name} is locked by DRM ({locked[0] or 'unnamed algorithm'}): "
                "only the shop's own reader can open it. Use a copy without DRM."
            )

    def _blocks(
        self,
        chapters: list[str],
        contents: dict[str, Entries],
        on_page: Callable[[int, int], None],
    ) -> list[Block]:
        blocks: list[Block] = []
        wordless, characters = [], 0
        for done, chapter in enumerate(chapters, 1):
            try:
                markup, warnings = decode(self._bytes(chapter))
                markup = plain_markup(markup)
                if chapter in self.drawings:
                    drawing = parse_xml(markup, f"{self.name}: {chapter}", self.warnings)
                    found, anchors = row_blocks(svg_lines(drawing)), dict[str, int]()
                else:
                    found, anchors, _ = html.extract(markup, f"{self.name}: {chapter}")
                warnings += damage_warnings(markup)
                if _OPENED.search(markup) and not _CLOSED.search(markup, max(0, len(markup) - _END)):
                    where = f"{chapter} ends in the middle, behind {_last_words(found)}"
                    self.warnings.append(f"{where}: what followed is missing. Fetch it again.")
            except BrokenFile as error:  # one bad chapter must not lose the book
                self.warnings.append(f"A chapter is missing: {error}")
                self.missing.append(error)
                continue
            self.warnings.extend(f"{chapter}: {warning}" for warning in warnings)
            if found:
                listed_here = contents.get(chapter, {})
                found = _mark(found, anchors, listed_here)
                found = self._as_imprint(found, listed_here, chapter, markup, blocks)
            else:
                wordless.append(posixpath.basename(chapter))
            characters += sum(len(block.text) for block in found)
            self.limits.check(self.name, "characters", characters, self.limits.characters)
            blocks.extend(found)
            on_page(done, len(chapters))
        if wordless:
            names = ", ".join(wordless[:5]) + (", ..." if len(wordless) > 5 else "")
            self.warnings.append(f"No text in {len(wordless)} of {count(len(chapters), 'file')} of the book: {names}.")
        return blocks

    def _imprints(self, package: etree._Element) -> set[str]:
        """Return the files that the guide of an EPUB 2 calls imprints."""
        references = package.iterfind(".//{*}guide/{*}reference")
        return {
            self._file(self.folder, each.get("href") or "")[0]
            for each in references
            if (each.get("type") or "").lower() in TYPES
        }

    def _as_imprint(
        self, found: list[Block], contents: Entries, chapter: str, markup: str, before: list[Block]
    ) -> list[Block]:
        """Return the blocks of a file, marked if it is an imprint; the first behind one begins a section."""
        titles = [title for entries in contents.values() for _, title in entries] or [first_heading(found) or ""]
        short = sum(len(block.text) for block in found) < LONGEST
        if is_imprint(markup) or chapter in self.imprints or (short and is_imprint_title(titles[0])):
            found = [replace(block, imprint=True) for block in found]
        elif not (before and before[-1].imprint):
            return found
        return [replace(found[0], opens_section=True), *found[1:]]

    def _name_unread(self, items: dict[str | None, etree._Element], chapters: Container[str]) -> None:
        """Warn of pages of text outside the spine. They may be notes that only links lead to."""
        pages = (item for item in items.values() if item.get("media-type") in _MARKUP)
        others = (page for page in pages if "nav" not in (page.get("properties") or "").split())
        files = {self._file(self.folder, page.get("href", ""))[0]: None for page in others}
        unread = []
        for file in files:
            if file not in chapters and self.members.find(file) and self._has_words(file):
                unread.append(posixpath.basename(file))
        if unread:
            self.warnings.append(f"Not among the chapters of the book, and not read: {listed(unread, 5)}.")

    def _file(self, folder: str, href: str) -> tuple[str, str]:
        """Return the member and the fragment that a link in a file of a folder leads to."""
        target, fragment = _resolve(folder, href)
        return self.members.find(target) or target, fragment

    def _has_words(self, file: str) -> bool:
        with suppress(BrokenFile, TooLarge):
            return bool(html.extract(decode(self._bytes(file))[0], file)[0])
        return True

    def _contents(self, items: dict[str | None, etree._Element], spine: etree._Element | None) -> dict[str, Entries]:
        """Return the table of contents by file: EPUB 3's navigation document, else EPUB 2's NCX, else {}."""
        nav = next((item for item in items.values() if "nav" in (item.get("properties") or "").split()), None)
        ncx = items.get(spine.get("toc")) if spine is not None else None
        if ncx is None:
            ncx = next((item for item in items.values() if item.get("media-type") == "application/x-dtbncx+xml"), None)
        for item, reader in ((nav, _navigation), (ncx, _ncx)):
            if item is None:
                continue
            file = self._file(self.folder, item.get("href", ""))[0]
            try:
                entries = reader(parse_xml(self._bytes(file), f"{self.name}: {file}", self.warnings))
            except BrokenFile as error:
                self.warnings.append(f"The table of contents cannot be read: {error}")
                continue
            found: dict[str, Entries] = {}
            above: list[tuple[int, str]] = []  # entries without a link: they point where the next entry below them does
            for level, title, link in entries:
                above = [entry for entry in above if entry[0] < level]
                if title and link:
                    target, part = self._file(posixpath.dirname(file), link)
                    found.setdefault(target, {}).setdefault(part, []).extend([*above, (level, title)])
                    above = []
                elif title:
                    above.append((level, title))
            if found:
                return found
        return {}


def _is_text(item: etree._Element) -> bool:
    named = re.search(r"\.x?html?$", _resolve("", item.get("href", ""))[0], re.IGNORECASE)
    return item.get("media-type", _MARKUP[0]) in _MARKUP or bool(named)


def _as_text(item: etree._Element, items: Mapping[str | None, etree._Element]) -> etree._Element:
    """Return an item of the manifest, or the first of its fallbacks that is a page of text."""
    seen, each = [item], item
    while not _is_text(each):
        following = items.get(each.get("fallback"))
        if following is None or following in seen:
            return item
        seen.append(following)
        each = following
    return each


def _last_words(blocks: list[Block]) -> str:
    words = blocks[-1].text[-60:].split() if blocks else []
    return f"“{' '.join(words[-6:])}”" if words else "its beginning"


def _mark(blocks: list[Block], anchors: dict[str, int], contents: Entries) -> list[Block]:
    """Attach entries of the table of contents to the blocks they point to. Unlisted files open a section by a heading.

    An entry whose fragment is missing belongs to the whole file if it is the file's first; otherwise it lies somewhere
    after the entry before it.
    """
    marked = list(blocks)
    index = None
    for fragment, entries in contents.items():
        if index is None or not fragment or fragment in anchors:
            index = anchors.get(fragment, 0)
            marked[index] = replace(marked[index], toc=marked[index].toc + tuple(entries))
        else:
            marked[index] = replace(marked[index], toc_nearby=marked[index].toc_nearby + tuple(entries))
    if not contents and blocks[0].level:
        marked[0] = replace(marked[0], opens_section=True)
    return marked


def _navigation(root: etree._Element) -> list[tuple[int, str, str]]:
    kind = "{http://www.idpf.org/2007/ops}type"
    navs = [nav for nav in root.iterfind(".//{*}nav") if (nav.get(kind) or nav.get("type") or "toc") == "toc"]
    if not navs:
        return []
    entries = []
    for item in navs[0].iterfind(".//{*}li"):
        link = next((child for child in item if _local(child) in ("a", "span")), None)
        if link is not None:
            level = sum(_local(ancestor) == "li" for ancestor in item.iterancestors()) + 1
            entries.append((level, _title(link), link.get("href") or ""))
    return entries


def _ncx(root: etree._Element) -> list[tuple[int, str, str]]:
    entries = []
    for point in root.iterfind(".//{*}navMap//{*}navPoint"):
        content, label = point.find("{*}content"), point.find("{*}navLabel")
        if content is not None and label is not None:
            level = sum(_local(ancestor) == "navPoint" for ancestor in point.iterancestors()) + 1
            entries.append((level, _title(label), content.get("src") or ""))
    return entries


def _local(element: etree._Element) -> str:
    """Return an element's name without its namespace; "" for a comment."""
    return element.tag.rpartition("}")[2] if isinstance(element.tag, str) else ""


def _title(element: etree._Element) -> str:
    return one_line(" ".join(str(text) for text in element.itertext()))[:LONGEST_LABEL]


def _resolve(folder: str, href: str) -> tuple[str, str]:
    """Return the archive member and the fragment that a link in a file of `folder` leads to."""
    try:
        parts = urlsplit(href)
    except ValueError:  # no address
        return "", ""
    return posixpath.normpath(posixpath.join(folder, unquote(parts.path))), unquote(parts.fragment)
