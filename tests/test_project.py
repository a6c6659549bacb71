"""The promises that the project's files make about each other."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
VARIABLE = re.compile(r"\b(MCPHUB_[A-Z_]+|DATABASE_URL|REDIS_URL|CELERY_BROKER_URL)\b")


def test_the_first_screen_of_the_readme_has_the_two_commands():
    first_screen = README.splitlines()[:25]

    assert "pip install -e . && python manage.py up" in first_screen
    assert "pip install -e '.[test]' && pytest" in first_screen


def test_ci_runs_the_test_command_of_the_readme():
    assert "pip install -e '.[test]' && pytest" in (ROOT / ".ci/run").read_text().splitlines()


def test_the_strict_checks_are_one_command_in_the_readme_and_part_of_ci():
    assert ".ci/checks" in README.splitlines()
    assert ".ci/checks" in (ROOT / ".ci/run").read_text().splitlines()


def test_the_readme_explains_every_variable_that_is_read_and_no_other():
    read = re.findall(r'env\.\w+\(\s*"(\w+)"', (ROOT / "mcphub/settings.py").read_text())
    explained = re.findall(r"^\| `(\w+)` \|", README, re.MULTILINE)

    assert len(explained) == len(set(explained))
    assert set(explained) == set(read)


@pytest.mark.parametrize("page", sorted(path.name for path in (ROOT / "docs").glob("*.md")))
def test_a_page_names_only_variables_that_exist(page):
    explained = set(re.findall(r"^\| `(\w+)` \|", README, re.MULTILINE))

    assert set(VARIABLE.findall((ROOT / "docs" / page).read_text())) <= explained


@pytest.mark.parametrize(
    "page", ["README.md", "CONTRIBUTING.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*"))]
)
def test_links_between_pages_lead_somewhere(page):
    path = ROOT / page
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text())

    assert [link for link in links if not (path.parent / link).exists()] == []


def test_the_life_of_a_request_names_files_that_exist():
    section = README.split("## Life of a request")[1].split("\n## ")[0]
    files = re.findall(r"`(tools_app/[\w/]+\.py)`", section)

    assert len(files) >= 10
    assert [file for file in files if not (ROOT / file).is_file()] == []


def test_constraints_pin_exact_versions_and_name_no_registry():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]

    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []


@pytest.mark.parametrize("folder", ["docs", "mcphub", "tests", "tools_app", ".ci"])
def test_no_file_knows_the_machine_it_was_made_on(folder):
    # Written in two parts, so that this file does not contain what it looks for.
    homes = ("/" + "home/", "/" + "root/", "/" + "work/", "/" + "Users/")
    files = subprocess.check_output(["git", "ls-files", folder], cwd=ROOT, text=True).split()
    texts = {file: (ROOT / file).read_text(errors="replace") for file in files if (ROOT / file).is_file()}

    assert [file for file, text in texts.items() if any(home in text for home in homes)] == []
