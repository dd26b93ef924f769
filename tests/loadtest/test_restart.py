"""The measurement of restarts on a small cluster: real processes, and a table at the end."""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_a_new_ledger_and_a_restart_both_come_to_a_decision_that_is_committed(tmp_path):
    page, figures = tmp_path / "page.md", tmp_path / "figures.json"
    command = [sys.executable, "-m", "loadtest", "restart", "--nodes", "16", "--pods", "96", "--restarts", "1"]
    command += ["--write", str(page), "--json", str(figures)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(figures.read_text())
    assert {kind: len(starts) for kind, starts in found.items()} == {"new LEDGER": 1, "restart": 1}
    for starts in found.values():
        assert starts[0]["seconds"] > 0
        assert starts[0]["peak_mebibytes"] > 50
    assert "| restart | 1 |" in page.read_text()
