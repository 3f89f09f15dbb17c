"""The commands on the pages of documentation, run as a reader would, on one broker and one worker for all pages."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from testkit.spark_settings import QUICK_START
from tests.unit.docs.pages import PAGES, ROOT
from tools.reference.blocks import Block
from tools.reference.consoles import TUTORIAL, Command, Page, Stage, agrees, stage_with_worker

pytestmark = [pytest.mark.java, pytest.mark.broker, pytest.mark.slow, pytest.mark.timeout(600)]

WITH_COMMANDS = [page for page in PAGES if Page(page).blocks]


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Stage, list[tuple[Block, Command, str]]]]:
    """The tutorial's broker and worker, and what starting them printed."""
    with pytest.MonkeyPatch.context() as patch:
        # No JVM here lives long enough for code that was compiled for long runs.
        patch.setenv("JDK_JAVA_OPTIONS", QUICK_START["spark.driver.extraJavaOptions"])
        with stage_with_worker(Page(ROOT / TUTORIAL), tmp_path_factory.mktemp("pages")) as stage:
            yield stage


@pytest.mark.parametrize("path", WITH_COMMANDS, ids=lambda path: path.name)
def test_the_commands_of_a_page_print_what_it_shows(path: Path, begun) -> None:
    stage, beginning = begun
    page = Page(path)
    first = path == ROOT / TUTORIAL

    outcomes = [*(beginning if first else []), *page.play(stage, slice(page.beginning if first else 0, None))]

    wrong = [
        f"{block}: $ {command.shell}\n{printed}"
        for block, command, printed in outcomes
        if not agrees(command.shown, printed)
    ]
    again = f"python -m tools.reference.consoles {path.relative_to(ROOT)}"
    assert not wrong, "\n".join([*wrong, f"write the page again with: {again}", stage.outputs()])
