"""Which of the languages that Tesseract has data for are used."""

from pathlib import Path

import pytest

from app.machine import doctor
from ingest import OcrUnavailable, ingest, ocr_languages_used
from ingest.print.ocr import choose_languages
from tests.ingest import makers

INSTALLED = ("eng", "chi_sim", "chi_tra", "deu", "fra", "spa")


@pytest.mark.parametrize(
    ("wanted", "locale", "chosen"),
    [
        ("fra+deu", "es_ES.UTF-8", "fra deu"),
        (" spa + spa +", "", "spa"),
        ("deu+fra+spa+eng", "", "deu fra spa eng"),
        ("", "fr_FR.UTF-8", "eng fra chi_sim"),
        ("+", "de_AT@euro", "eng deu chi_sim"),
        ("", "zh_TW.UTF-8", "eng chi_tra chi_sim"),
        ("", "zh_CN", "eng chi_sim chi_tra"),
        ("", "en_GB.UTF-8", "eng chi_sim chi_tra"),
        ("", "C.UTF-8", "eng chi_sim chi_tra"),
        ("", "", "eng chi_sim chi_tra"),
        ("", "pl_PL", "eng chi_sim chi_tra"),
    ],
)
def test_languages_are_those_named_or_those_of_the_place(wanted: str, locale: str, chosen: str) -> None:
    """Always those three whose names come first in the alphabet were used."""
    assert choose_languages(INSTALLED, wanted, locale) == tuple(chosen.split())


def test_where_none_is_installed_none_is_chosen() -> None:
    assert choose_languages((), "", "fr_FR") == choose_languages((), "fra", "") == ()
    assert choose_languages(("fil", "fra"), "", "fil_PH") == ("fil", "fra")


def test_a_language_without_data_is_named() -> None:
    with pytest.raises(
        OcrUnavailable, match=r"'fr\+deu', but Tesseract has no data for fr here.*chi_sim, chi_tra, deu, f"
    ):
        choose_languages(INSTALLED, "fr+deu", "")


@pytest.fixture
def tessdata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for language in (*INSTALLED, "osd"):
        (tmp_path / f"{language}.traineddata").write_bytes(b"no language data")
    monkeypatch.setenv("TESSDATA_PREFIX", str(tmp_path))
    for name in ("LC_ALL", "STOCKPOT_OCR_LANGUAGES"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LC_MESSAGES", "es_MX.UTF-8")
    monkeypatch.setenv("LANG", "fr_FR.UTF-8")


@pytest.mark.usefixtures("tessdata")
def test_the_environment_chooses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr("ingest.print.pdf._recognised", lambda page, language: asked.append(language) or [])
    scan = makers.pdf(tmp_path / "a.pdf", [[(50, 300, "Words.")], []], scans=[2])
    ingest(scan)
    monkeypatch.setenv("STOCKPOT_OCR_LANGUAGES", "fra+deu")
    ingest(scan)
    assert asked == ["eng+spa+chi_sim", "fra+deu"]
    assert ocr_languages_used() == ("fra", "deu")
    monkeypatch.setenv("STOCKPOT_OCR_LANGUAGES", "pol")
    with pytest.raises(OcrUnavailable, match="no data for pol here"):
        ingest(scan)
    assert ingest(scan, ocr=False).text.strip() == "Words."


@pytest.mark.usefixtures("tessdata")
def test_the_doctor_says_which_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """It named all that are installed, as if each of them would be tried."""
    monkeypatch.setenv("STOCKPOT_OCR_LANGUAGES", "fra+deu")
    check = doctor._ocr()
    assert check.ok
    assert "knows eng, chi_sim, chi_tra, deu, fra, spa; pages are recognised in fra+deu" in check.detail
    monkeypatch.setenv("STOCKPOT_OCR_LANGUAGES", "pol")
    check = doctor._ocr()
    assert not check.ok
    assert "no data for pol here" in check.detail
