"""A thousand random requests; ``python -m differential.rest_fuzz --minutes 10`` is a longer look."""

import os

import pytest
from differential.rest_fuzz import fuzz, main, own_worker


@pytest.mark.slow
def test_no_request_is_an_error_of_the_worker_or_leaves_anything_behind() -> None:
    seed = int(os.environ.get("PENSTOCK_FUZZ_SEED", "11"))
    with own_worker() as (url, forget):
        found = fuzz(url, seed, 60, most=1_000, forget=forget)
    assert found.failures == [], f"seed {seed}"
    assert sum(found.statuses.values()) > 300
    assert {200, 201, 204, 400, 404} <= found.statuses.keys()


def test_one_request_can_be_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--seed", "1", "--only", "1000007"]) == 0
    assert "seed 1: 1 requests" in capsys.readouterr().out
