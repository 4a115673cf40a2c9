"""The report from the command line: `python -m tacit.report`, `tacit lab report`, and what they say when something is missing."""

import os
import subprocess
import sys

import report_campaigns as made


def python(*args, **env):
    return subprocess.run([sys.executable, *args], capture_output=True, text=True, env=os.environ | env, timeout=120)


def test_the_module_on_the_command_line(tmp_path):
    made.write_campaign(tmp_path / "c", made.two_links())
    done = python("-m", "tacit.report", str(tmp_path / "c"), "-o", str(tmp_path / "page.html"))
    assert done.returncode == 0, done.stderr
    assert "</html>" in (tmp_path / "page.html").read_text() and "page.html" in done.stdout
    done = python("-m", "tacit.report", str(tmp_path / "nothing"))
    assert done.returncode == 1 and done.stderr.startswith("error: ") and "Traceback" not in done.stderr


def test_the_package_does_without_matplotlib(tmp_path):
    made.write_campaign(tmp_path)
    code = "import sys; sys.modules['matplotlib'] = None; import tacit, tacit.report as r; r.write_report(sys.argv[1])"
    done = python("-c", code, str(tmp_path))
    assert "TacitError: a report needs matplotlib" in done.stderr and "pip install '.[report]'" in done.stderr


def test_lab_report_through_the_binary(cli, tmp_path, monkeypatch):
    monkeypatch.setenv("TACIT_PYTHON", sys.executable)
    made.write_campaign(tmp_path / "c", made.two_links())
    done = cli("lab", "report", "c", "-o", "page.html", cwd=tmp_path)
    assert "page.html" in done.stdout and "</html>" in (tmp_path / "page.html").read_text()
    assert (tmp_path / "c/plots/sweep-latency.png").exists()


def test_lab_report_says_what_is_missing(cli, tmp_path, monkeypatch):
    done = cli("lab", "report", "nothing", cwd=tmp_path, ok=False)
    assert "no campaign.json" in done.stderr
    made.write_campaign(tmp_path / "c", made.two_links(), version=7)
    monkeypatch.setenv("TACIT_PYTHON", sys.executable)
    assert "version 7" in cli("lab", "report", "c", cwd=tmp_path, ok=False).stderr
    bare = tmp_path / "bare.sh"
    bare.write_text(f"#!/bin/sh\nexec '{sys.executable}' -I -S \"$@\"\n")
    bare.chmod(0o755)
    monkeypatch.setenv("TACIT_PYTHON", str(bare))
    said = cli("lab", "report", "c", cwd=tmp_path, ok=False).stderr
    assert "matplotlib cannot be imported" in said and "make python" in said and "pip install '.[report]'" in said
