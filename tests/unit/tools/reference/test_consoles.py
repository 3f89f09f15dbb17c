"""What the blocks of a page mean, and when a page agrees with what was printed; with a shell, without Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from tools.reference.consoles import Page, Stage, agrees, commands

PAGE = """\
<!-- file: a.txt -->
```text
at 9092
```

<!-- not run: it would end the world -->
```console
$ exit 1
```

<!-- background: up -->
```console
$ bash -c 'echo it is up; exec sleep 60'
it is up
```

```console
$ export NAME=Ada
$ echo "$NAME" \\
    "and Grace"; cat a.txt
wrong
$ cat *.txt
at ...
```

<!-- more of: a.txt -->
```text
more
```

```console
$ cat a.txt
...
more
```
"""


@pytest.fixture
def page(tmp_path: Path) -> Page:
    path = tmp_path / "page.md"
    path.write_text(PAGE)
    return Page(path)


def stage(folder: Path) -> Stage:
    made = folder / "stage"
    made.mkdir()
    return Stage(made, {"9092": "31000"})


def test_a_page_is_done_in_order_and_written_again_where_it_differs(page: Page, tmp_path: Path) -> None:
    with stage(tmp_path) as here:
        begun = list(page.play(here, slice(page.beginning)))
        assert (here.folder / "a.txt").read_text() == "at 31000\n"
        rest = list(page.play(here, slice(page.beginning, None), patience_s=0))

    assert [(command.shell, printed) for _, command, printed in begun] == [
        ("bash -c 'echo it is up; exec sleep 60'", "it is up\n")
    ]
    assert [printed for _, _, printed in rest] == ["", "Ada and Grace\nat 9092\n", "at 9092\n", "at 9092\nmore\n"]
    assert page.replaced([*begun, *rest]) == PAGE.replace("wrong\n", "Ada and Grace\nat 9092\n")


def test_what_was_started_is_ended(tmp_path: Path) -> None:
    with stage(tmp_path) as here:
        here.start("bash -c 'echo $$; trap \"echo ended; exit\" TERM; while :; do sleep 0.05; done'", "")

    assert (here.folder / ".output-0").read_text().endswith("ended\n")


def test_a_line_that_does_not_come_is_told_with_what_came(tmp_path: Path) -> None:
    with stage(tmp_path) as here, pytest.raises(AssertionError, match="no line with 'up' in\nno such thing"):
        here.start("echo no such thing", "up")


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("", ""),
        ("a  b   \n", "a b\n"),
        ("a ... d\n", "a b c d\n"),
        ("...\n", ""),
        ("...\nlast\n", "first\nsecond\nlast\n"),
        ("The worker serves; Kafka cluster id np7u3-hu\n", "The worker serves; Kafka cluster id 4ZN_VBKz\n"),
        ("Kafka runs (pid 12)\n", "Kafka runs (pid 34567)\n"),
        ("[  4.6 s] Up after 3.0 s\n", "[ 14.0 s] Up after 12.9 s\n"),
        ('"since": "2026-01-31T12:00:00.123Z"\n', '"since": "2027-01-31T12:00:01Z"\n'),
    ],
)
def test_a_page_agrees(shown: str, printed: str) -> None:
    assert agrees(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("", "a\n"),
        ("a\n", ""),
        ("a\n", "a\nb\n"),
        ("a...\n", "a\nb\n"),
        ("a.c\n", "abc\n"),
        ("offset 5\n", "offset 6\n"),
    ],
)
def test_a_page_does_not_agree(shown: str, printed: str) -> None:
    assert not agrees(shown, printed)


def test_a_block_begins_with_a_command() -> None:
    with pytest.raises(ValueError, match="'penstock' stands before the first command"):
        commands("penstock\n")
