"""What users install: the wheel by itself, away from the checkout."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest
from tests.unit.docs.pages import ROOT, blocks
from tools.reference.consoles import agrees, commands

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow]

QUICKSTART = "penstock quickstart --once"


def output(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(
        command,
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with the wheel, and with what it needs from the environment of the tests.

    That one holds the checkout, too, as an editable installation; but files that name more places to import from are
    read where they are installed alone, so that nothing here leads to the checkout.
    """
    directory = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    output(*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", directory, ROOT, cwd=directory)
    (wheel,) = directory.glob("penstock-*.whl")
    made = directory / "venv"
    venv.create(made, with_pip=False, symlinks=True)
    python = made / "bin" / "python"
    output(*pip, "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=directory)
    packages = Path(output(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=made).strip())
    (packages / "needed.pth").write_text("\n".join({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}))
    return made / "bin"


def test_the_wheel_is_what_is_imported(installed: Path, tmp_path: Path) -> None:
    found = output(installed / "python", "-c", "import penstock; print(penstock.__file__)", cwd=tmp_path)

    assert Path(found.strip()).is_relative_to(installed.parent)


def test_the_quickstart_of_the_wheel_prints_what_the_readme_shows(installed: Path, tmp_path: Path) -> None:
    shown = [
        command.shown
        for block in blocks(ROOT / "README.md")
        if block.language == "console"
        for command in commands(block.text)
        if command.shell == QUICKSTART
    ]
    assert len(shown) == 1, f"README.md shows {QUICKSTART!r} once"

    printed = output(installed / "penstock", *QUICKSTART.split()[1:], cwd=tmp_path)

    assert agrees(shown[0], printed), printed
