from pathlib import Path

import pytest

from penstock.stores.config import kept_id


def test_a_worker_keeps_its_id_and_another_one_has_another(tmp_path: Path) -> None:
    first, second = kept_id(str(tmp_path / "a")), kept_id(str(tmp_path / "b"))
    assert first is not None
    assert len(first) == 16
    assert first != second
    assert (tmp_path / "a.id").stat().st_mode & 0o777 == 0o600
    assert kept_id(str(tmp_path / "a")) == first
    (tmp_path / "a").write_bytes(b"offsets")
    (tmp_path / "link").symlink_to(tmp_path / "a")
    assert kept_id(str(tmp_path / "link")) == first


def test_an_id_that_was_cut_off_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "a.id").write_text("12")
    found = kept_id(str(tmp_path / "a"))
    assert found == kept_id(str(tmp_path / "a"))
    assert found is not None
    assert len(found) == 16


def test_where_nothing_can_be_kept_there_is_no_id(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert kept_id("/dev/null") is None
    assert caplog.text == ""
    assert kept_id(str(tmp_path / "missing" / "a")) is None
    assert "The worker's id cannot be kept in" in caplog.text
