"""Consistency of the project's files."""

import ast
import builtins
import math
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from itertools import chain
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools_app.doctor.host import MIN_PYTHON_VERSION

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
SETTINGS_PAGE = (ROOT / "docs" / "settings.md").read_text()
EXPLAINED = re.findall(r"^\| `(\w+)` \|", SETTINGS_PAGE, re.MULTILINE)
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
REQUIREMENTS = [Requirement(text) for text in PYPROJECT["project"]["dependencies"]]
EXTRAS = {
    extra: [Requirement(text) for text in texts]
    for extra, texts in PYPROJECT["project"]["optional-dependencies"].items()
}
PAGES = ["README.md", "CONTRIBUTING.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]
VARIABLE = re.compile(r"\b(MCPHUB_[A-Z_]+|DATABASE_URL|REDIS_URL|CELERY_BROKER_URL)\b")


def test_the_first_screen_of_the_readme_has_the_two_commands():
    first_screen = README.splitlines()[:25]

    assert "pip install -e . && python manage.py up" in first_screen
    assert "pip install -e '.[test]' && pytest" in first_screen


def test_ci_runs_the_test_command_of_the_readme():
    assert "pip install -e '.[test]' && pytest" in (ROOT / ".ci/run").read_text().splitlines()


def test_ci_tests_the_oldest_and_the_newest_python_that_the_project_names():
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PYPROJECT["project"]["classifiers"]))
    oldest, newest = named[0], named[-1]
    minor = int(newest.removeprefix("3."))

    assert f"\npythons=({oldest} {newest}) " in (ROOT / ".ci/run").read_text()
    assert PYPROJECT["project"]["requires-python"] == f">={oldest},<3.{minor + 1}"
    assert named == [f"3.{number}" for number in range(MIN_PYTHON_VERSION[1], minor + 1)]
    assert PYPROJECT["tool"]["mypy"]["python_version"] == oldest
    assert PYPROJECT["tool"]["ruff"]["target-version"] == "py" + oldest.replace(".", "")
    assert f"Python {oldest} to {newest}" in README


def test_the_versions_of_django_are_those_that_the_project_names():
    """The oldest Python gets the older one, the newest Python the newer one."""
    named = re.findall(r"Django :: (\d\.\d)", "\n".join(PYPROJECT["project"]["classifiers"]))
    (bounds,) = (requirement.specifier for requirement in REQUIREMENTS if requirement.name == "django")

    assert [version for version in ("5.1.99", "5.2.99", "6.0.99", "6.1.0") if version in bounds] == ["5.2.99", "6.0.99"]
    assert named == ["5.2", "6.0"]
    assert f"Django {' or '.join(named)}" in README


def test_every_dependency_is_bounded_to_versions_that_are_tested():
    """`~=0.91` is any 0.x: where 0.91.0 is meant, nothing says so until a template is gone."""
    requirements = [*REQUIREMENTS, *(one for extra in ("postgres", "redis", "otel", "saml") for one in EXTRAS[extra])]
    loose = {
        requirement.name: str(requirement.specifier)
        for requirement in requirements
        for operator, version in [(bound.operator, bound.version.split(".")) for bound in requirement.specifier]
        if (operator == "~=" and version[0] == "0" and len(version) < 3)
        or not {"~=", "<", "=="} & {bound.operator for bound in requirement.specifier}
    }

    # Certificates are to be the newest; their version is a date.
    assert loose == {"certifi": ">=2026.7.22"}


def test_every_package_that_the_code_imports_is_a_dependency_by_name():
    declared = {canonicalize_name(one.name) for one in chain(REQUIREMENTS, *EXTRAS.values())}
    distributions = packages_distributions()
    missing = {
        (name, str(path.relative_to(ROOT)))
        for folder in ("mcphub", "tools_app")
        for path in (ROOT / folder).rglob("*.py")
        for name in imported_packages(path)
        # pydantic pins the exact version of its core.
        if name not in sys.stdlib_module_names | {"mcphub", "tools_app", "pydantic_core"}
        and not declared & {canonicalize_name(one) for one in distributions.get(name, [name])}
    }

    assert missing == set()


def imported_packages(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield (node.module or "").partition(".")[0]


def test_the_strict_checks_are_one_command_in_the_readme_and_part_of_ci():
    assert ".ci/checks" in README.splitlines()
    assert ".ci/checks" in (ROOT / ".ci/run").read_text().splitlines()


def test_the_page_of_settings_explains_every_variable_that_is_read_and_no_other():
    read = re.findall(r'env\.\w+\(\s*"(\w+)"', (ROOT / "mcphub/settings.py").read_text())

    assert len(EXPLAINED) == len(set(EXPLAINED))
    assert set(EXPLAINED) == set(read)


def test_the_page_of_settings_has_the_default_and_the_unit_of_every_number():
    documented = {
        name: (default, unit)
        for name, default, unit in re.findall(r"^\| `(\w+)` \| `([^`]+)` \| ([^|]+) \|", SETTINGS_PAGE, re.MULTILINE)
    }

    numbers = dict(numeric_settings())
    assert len(numbers) > 10
    assert {name: float(documented[name][0]) for name in numbers} == numbers
    assert [name for name in numbers if name.endswith("_SECONDS") and documented[name][1] != "seconds"] == []
    assert [name for name in numbers if name.endswith("_BYTES") and documented[name][1] != "bytes"] == []


def numeric_settings() -> Iterator[tuple[str, float]]:
    """The numeric settings, with their defaults in the code."""
    for node in ast.walk(ast.parse((ROOT / "mcphub/settings.py").read_text())):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="whole" | "seconds"), args=[ast.Constant(value=str(name)), default, *_]
            ):
                product = [float(factor) for factor in ast.unparse(default).split("*")]
                yield name, math.prod(product)


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_only_variables_that_exist(page):
    assert set(VARIABLE.findall((ROOT / page).read_text())) <= set(EXPLAINED)


def test_the_readme_fits_two_screens():
    assert len(README.splitlines()) <= 100


@pytest.mark.parametrize("page", PAGES)
def test_links_between_pages_lead_somewhere(page):
    path = ROOT / page
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", path.read_text())

    assert [link for link in links if not (path.parent / link).exists()] == []


@pytest.mark.parametrize("page", PAGES)
def test_links_to_sections_lead_to_a_heading(page):
    path = ROOT / page
    links = re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", path.read_text())

    assert [
        (file, anchor) for file, anchor in links if anchor not in anchors(path.parent / file if file else path)
    ] == []


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings on GitHub."""
    prose = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#+ (.+)$", prose, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_life_of_a_request_names_files_that_exist():
    section = (ROOT / "docs" / "architecture.md").read_text().split("## Life of a request")[1].split("\n## ")[0]
    files = re.findall(r"`(tools_app/[\w/]+\.py)`", section)

    assert len(files) >= 10
    assert [file for file in files if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_names_only_files_and_modules_that_exist(page):
    text = (ROOT / page).read_text()
    files = re.findall(r"`((?:tools_app|mcphub|tests|benchmarks|docs|deploy|templates)/[\w./@-]*)`", text)
    modules = re.findall(r"\btools_app(?:\.\w+)+", text)

    assert [file for file in files if not (ROOT / file).exists()] == []
    assert [module for module in modules if not is_module(module) and not is_module(module.rpartition(".")[0])] == []


def is_module(dotted: str) -> bool:
    path = ROOT / dotted.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def test_exceptions_that_the_documentation_of_code_names_exist():
    """After "Raises": a class that was renamed is easily left there."""
    sources = {path: path.read_text() for folder in ("mcphub", "tools_app") for path in (ROOT / folder).rglob("*.py")}
    known = set(dir(builtins))
    for source in sources.values():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                known.add(node.name)
            elif isinstance(node, ast.Import | ast.ImportFrom):
                known |= {(alias.asname or alias.name).rpartition(".")[2] for alias in node.names}
            elif isinstance(node, ast.Attribute):
                known.add(node.attr)
    named = {
        (str(path.relative_to(ROOT)), name)
        for path, source in sources.items()
        for names in re.findall(r"\b[Rr]aises? (\w+(?:(?:,| and|, and| or| nor) [A-Z]\w+)*)", source)
        for name in re.findall(r"\b[A-Z][a-z]+[A-Z]\w+", names)
    }
    assert len(named) > 100
    assert {(path, name) for path, name in named if name not in known} == set()


def test_constraints_pin_exact_versions_and_name_no_registry():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]

    assert [line for line in lines if not re.fullmatch(r"[\w.-]+==[\w.]+", line)] == []


@pytest.mark.parametrize("folder", ["docs", "mcphub", "tests", "tools_app", ".ci"])
def test_no_file_knows_the_machine_it_was_made_on(folder):
    # In two parts, so that this file does not contain the searched text.
    homes = re.compile("/" + "(home|root|work)/|/" + "Users/[a-z]")
    files = subprocess.check_output(["git", "ls-files", folder], cwd=ROOT, text=True).split()
    texts = {file: (ROOT / file).read_text(errors="replace") for file in files if (ROOT / file).is_file()}

    assert [file for file, text in texts.items() if homes.search(text)] == []


def test_every_error_that_a_docstring_names_exists():
    sources = {path: path.read_text() for folder in ("mcphub", "tools_app") for path in (ROOT / folder).rglob("*.py")}
    known = set(dir(builtins)) | {name for text in sources.values() for name in _names_in(text)}
    named = {
        (name, str(path.relative_to(ROOT)))
        for path, text in sources.items()
        # Comments, too. A list of errors may be continued on the next line.
        for errors in re.findall(r"\bRaises? ((?:[`\w.]+(?:, | and | or |$)?)+)", re.sub(r"\n[ #]*", " ", text))
        for name in re.findall(r"\b_?[A-Z][a-z]+[A-Z]?\w*", errors)
    }

    assert len(named) > 300
    assert not {(name, path) for name, path in named if name not in known}


def _names_in(source: str) -> Iterator[str]:
    """Yield the names that a module defines, imports or uses of another module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.alias):
            yield node.asname or node.name
        elif isinstance(node, ast.Attribute):
            yield node.attr
