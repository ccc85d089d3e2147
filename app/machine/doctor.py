"""Check this machine and installation, as a list of results with advice."""

import importlib.metadata
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from app.errors import phrase
from app.formatting import byte_size, plural
from app.home import PACKED, home_folder, sample_book
from app.machine.model_names import POCKET, default_model, model_source, split_model

LEAST_MEMORY_BYTES = 2e9
LEAST_DISK_BYTES = 2e9
PACKAGES = ("torch", "transformers", "gradio", "pymupdf", "sqlite-utils", "safetensors")


@dataclass(frozen=True)
class Check:
    """The result of one check.

    needed: whether nothing works without it.
    advice: next step if it is not ok.
    """

    name: str
    ok: bool
    needed: bool
    detail: str
    advice: str = ""


def examine(
    home: str | None, model: str | None = None, device: str = "auto", read_data: bool = False, repair: bool = False
) -> list[Check]:
    """Run all checks; never raises.

    Args:
        home: the home folder; None for the default one.
        model: name of the model; None for the default one.
        device: auto, cpu or cuda.
        read_data: also read everything in the home, and compare it with what was written.
        repair: also add whole contexts that the database lacks, and index the search again.
    """
    root = home_folder(home)
    looks: dict[str, Callable[[], Check | Iterator[Check]]] = {
        "python": _python,
        "packages": _packages,
        "memory": _memory,
        "disk": lambda: _disk(root),
        **({"repair": lambda: _repair(root)} if repair else {}),
        "home": lambda: _home(root),
        **({"data": lambda: _data(root)} if read_data else {}),
        "model": lambda: _model(model or default_model(root), device, root),
        "packed weights": lambda: _packed(root),
        "better model": lambda: _better(device),
        "attention": _attention,
        "kernels": _kernels,
        "parser": _parser,
        "ocr": _ocr,
        "old office files": _old_office,
        "sample book": _sample,
    }
    return [check for name, look in looks.items() for check in _looked(name, look)]


def _looked(name: str, look: Callable[[], Check | Iterator[Check]]) -> Iterator[Check]:
    """Run one check; if it raises, yield a failed result."""
    try:
        found = look()
        yield from [found] if isinstance(found, Check) else found
    except Exception as error:
        yield Check(name, False, True, phrase(error))


def _check(name: str, ok: bool, detail: str, advice: str, *, needed: bool = False) -> Check:
    """Return a result; the advice is dropped if all is well."""
    return Check(name, ok, needed, detail, "" if ok else advice)


def _python() -> Check:
    detail = f"{platform.python_version()} on {platform.platform()}."
    return _check("python", sys.version_info >= (3, 11), detail, "Python 3.11 or newer is needed.", needed=True)


def _packages() -> Iterator[Check]:
    for name in PACKAGES:
        try:
            yield Check(name, True, True, f"version {importlib.metadata.version(name)}.")
        except importlib.metadata.PackageNotFoundError:
            yield Check(name, False, True, "not installed.", "Run `make run`, which installs everything.")


def _memory() -> Check:
    import psutil

    memory = psutil.virtual_memory()
    detail = f"{byte_size(memory.available)} of {byte_size(memory.total)} are free."
    advice = "Close other programs, or use a condensing method with a small budget."
    return _check("memory", memory.available >= LEAST_MEMORY_BYTES, detail, advice)


def _disk(root: Path) -> Check:
    from sessions import disk_free

    free = disk_free(root)
    advice = "Free some space, or choose another place with --home."
    return _check("disk", free >= LEAST_DISK_BYTES, f"{byte_size(free)} are free for {root}.", advice)


def _home(root: Path) -> Iterator[Check]:
    from sessions import DATABASE, Store, StoreError, check_whole, nearest

    if not (nearest(root).is_dir() and os.access(nearest(root), os.W_OK)):
        yield Check("home", False, True, f"{root} cannot be written.", "Choose another place with --home.")
        return
    try:
        check_whole(root)
        if not (root / DATABASE).exists():
            yield Check("home", True, True, f"{root}, to be made at first use.")
            return
        with Store(root) as store:
            strays = store.folders.strays()
            counts = {
                "document": len(store.documents.all()),
                "context": len(store.contexts.all()),
                "session": len(store.sessions.all()),
            }
        kept = ", ".join(plural(count, noun) for noun, count in counts.items())
    except StoreError as error:
        yield Check("home", False, True, f"{root}: {phrase(error)}", "Choose another place with --home.")
        return
    yield Check("home", True, True, f"{root} with {kept}.")
    if strays:
        yield Check(
            "database",
            False,
            False,
            f"it does not know {', '.join(map(str, strays))}, as if an older one had been put in its place.",
            "`stockpot doctor --repair` takes whole readings back in. Originals in such folders of documents can be "
            "ingested again; then delete what is left of these folders by hand.",
        )


def _data(root: Path) -> Iterator[Check]:
    """Yield a result for each thing that differs from what was written, or one that says that there is none."""
    from sessions import Store

    if not _is_made(root):
        return
    with Store(root) as store:
        found = False
        for sentence in store.damage():
            found = True
            yield Check("data", False, True, sentence)
        if not found:
            yield Check("data", True, True, "every row, text and saved state is what was written.")


def _repair(root: Path) -> Iterator[Check]:
    from app.machine.repair import take_back
    from sessions import Store

    if not _is_made(root):
        return
    with Store(root) as store:
        store.search.rebuild()
        yield Check("repair", True, False, "what is searched has been indexed anew.")
        for folder in store.folders.strays():
            sentence = take_back(store, folder)
            yield Check("repair", not sentence, False, sentence or f"{folder} has been taken back in.")


def _is_made(root: Path) -> bool:
    from sessions import DATABASE, check_whole

    check_whole(root)
    return (root / DATABASE).exists()


def _model(name: str, device: str, root: Path) -> Iterator[Check]:
    try:
        import engine
    except Exception as error:
        yield Check("model", False, True, phrase(error))
        return
    advice = ""
    try:
        source = model_source(name)
        quantize = engine.weights_form(source, device, split_model(name)[1])
        packed = root / PACKED if root.is_dir() else None  # the first use makes the home
        model = engine.load_model(source, device, quantize=quantize, packed=packed)
    except Exception as error:
        if name == POCKET and isinstance(error, engine.ModelError):
            advice = "Train it with `stockpot train pocket`, or choose another with --model."
        yield Check("model", False, True, phrase(error), advice)
        return
    held = byte_size(engine.Planner.of_loaded(model, engine.Machine.now(model.device)).model.weight_bytes(quantize))
    detail = f"{name}, with a window of {model.spec.window:,} tokens and {held} of weights in memory."
    yield Check("model", True, True, detail)
    how = ", each layer as one graph of ONNX Runtime" if model.network.layer_graphs else ""
    yield Check("device", True, False, f"the model runs on {model.device}{how}.")


def _packed(root: Path) -> Check:
    from engine.models.packed_file import packed_files

    size = sum(each.st_size for each in packed_files(root / PACKED).values())
    detail = f"{byte_size(size)} in {root / PACKED} let models start sooner; `stockpot models clear` removes them."
    return Check("packed weights", True, False, detail if size else "none yet.")


def _better(device: str) -> Check:
    from app.machine.recommended import choices_here

    fitting = choices_here(device)
    if not fitting:
        return Check("better model", True, False, "none of the recommended ones fits; `stockpot models` lists them.")
    best = fitting[0]
    detail = (
        f"{best.title} fits here: `stockpot models get {best.name}` fetches {byte_size(best.download)} over the "
        f"network, and `stockpot --model {best.name} serve` uses it."
    )
    return Check("better model", True, False, detail)


def _attention() -> Check:
    import engine

    function, reason = engine.flash_choice()
    return Check("attention", True, False, f"{'with' if function else 'without'} FlashAttention: {reason}.")


def _kernels() -> Check:
    import engine

    names = {"triton": "Triton's", "torch": "PyTorch's"}
    return Check("kernels", True, False, f"{names[engine.kernels_choice()]}, for tensors on the device.")


def _parser() -> Check:
    from ingest.sandbox import landlock_version

    version = landlock_version()
    detail = (
        f"Files are parsed without access to other files (Landlock {version})."
        if version
        else ("Files are parsed with the rights of your account, as this system has no Landlock.")
    )
    advice = "Linux 5.13 or newer has it, where `landlock` is among the kernel's security modules."
    return _check("parser", version > 0, detail, advice)


def _ocr() -> Check:
    try:
        import ingest

        languages, used = ingest.ocr_languages(), ingest.ocr_languages_used()
    except Exception as error:
        return Check("ocr", False, False, phrase(error))
    if languages:
        detail = f"Tesseract knows {', '.join(languages)}; pages are recognised in {'+'.join(used)}"
        return Check("ocr", True, False, f"{detail}, or in what STOCKPOT_OCR_LANGUAGES names instead.")
    return Check(
        "ocr",
        False,
        False,
        "Tesseract is not installed: pages that are pictures stay unread.",
        "Install it with its language data (Debian: apt install tesseract-ocr).",
    )


def _old_office() -> Check:
    from ingest.office.legacy import office_program

    program = office_program()
    detail = "LibreOffice is not installed: DOC, XLS and PPT, the Office files from before 2007, are refused."
    if program is not None:
        detail = f"LibreOffice opens DOC, XLS and PPT: {program}."
    advice = "Install it (Debian: apt install libreoffice-nogui), or save such files as DOCX, XLSX or PPTX."
    return _check("old office files", program is not None, detail, advice)


def _sample() -> Check:
    book = sample_book()
    if book is None:
        return Check("sample book", False, False, "this installation has none.")
    return Check("sample book", True, False, f"{book.name}.")
