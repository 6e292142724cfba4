"""The package as it is handed out: the sources build it, and no file is left behind."""

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

import tidegate

ROOT = Path(tidegate.__file__).parents[2]
BUILDS_FROM = ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md")
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]


def build(what: str, checkout: Path, out: Path) -> Path:
    """What setuptools makes of a checkout, as `pip` has it made."""
    call = f"from setuptools import build_meta; print(build_meta.{what}({str(out)!r}))"
    done = subprocess.run([sys.executable, "-c", call], cwd=checkout, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    """The sources that are handed out, unpacked; made of a copy, as building leaves files behind."""
    place = tmp_path_factory.mktemp("sources")
    left_out = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", place / "checkout" / "src", ignore=left_out)
    for name in BUILDS_FROM:
        shutil.copy(ROOT / name, place / "checkout" / name)
    with tarfile.open(build("build_sdist", place / "checkout", place)) as archive:
        # Set like this, it is also taken by the Python of Debian 12, which knows no filters.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(place)
    return place / f"tidegate-{VERSION}"


@pytest.fixture(scope="module")
def wheel(sources, tmp_path_factory):
    """The wheel that the sources give."""
    with zipfile.ZipFile(build("build_wheel", sources, tmp_path_factory.mktemp("wheel"))) as archive:
        yield archive


def test_the_sources_have_all_that_belongs_to_them(sources):
    assert [name for name in BUILDS_FROM if not (sources / name).is_file()] == []


def test_the_wheel_has_every_file_of_the_package(wheel):
    package = ROOT / "src" / "tidegate"
    files = [file for file in package.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    wanted = {f"tidegate/{file.relative_to(package).as_posix()}" for file in files}
    found = {name for name in wheel.namelist() if name.startswith("tidegate/")}
    assert found == wanted
    assert {"tidegate/py.typed", "tidegate/pipeline/pipeline.schema.json"} <= found


def test_the_wheel_says_what_it_is(wheel):
    info = f"tidegate-{VERSION}.dist-info"
    about = message_from_bytes(wheel.read(f"{info}/METADATA"))
    assert about["Version"] == VERSION
    assert about.get_payload().startswith("# tidegate")
    assert f"{info}/licenses/LICENSE" in wheel.namelist()
    assert "tidegate = tidegate.cli:main" in wheel.read(f"{info}/entry_points.txt").decode()


def test_the_changelog_tells_of_this_version():
    text = (ROOT / "CHANGELOG.md").read_text("utf-8")
    released = re.findall(r"^## \[(\d[^\]]*)\] - \d{4}-\d\d-\d\d\n\nStored state: ", text, re.MULTILINE)
    assert released[0] == VERSION


def test_pages_name_the_wheel_that_is_built(wheel):
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    named = re.findall(r"[\w.-]+\.whl", "\n".join(page.read_text("utf-8") for page in pages))
    assert set(named) == {Path(wheel.filename).name}
