import subprocess
import sys

CODE = """
import resource
from penstock.cli.worker.worker import raise_file_limit
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (64, hard))
assert raise_file_limit() == hard
assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
assert raise_file_limit() == 64
"""


def test_a_worker_may_open_as_many_files_as_its_user() -> None:
    # In a process of its own: a limit that was lowered cannot be raised again.
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stderr
