"""Every fenced block of every page, and the commands of those that are for a shell."""

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]

FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^(?P=indent)```$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"(?:^|  )#\s[^\n]*$", re.MULTILINE)
SUBSTITUTION = re.compile(r"\$\([^)]*\)")
# In a usage line: [--server daphne|uvicorn]
ALTERNATIVE = re.compile(r"\|\w+\]")
ASSIGNMENT = re.compile(r"[A-Za-z_]+=.*", re.DOTALL)
SEPARATORS = {"\n", "&&", "|", "||", ";", "&"}


@dataclass(frozen=True)
class Block:
    """A fenced code block of a page."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def at(self, url: str, key: str) -> str:
        """The text with the hub's `url` and a client's `key` filled in."""
        moved = self.text.replace("http://127.0.0.1:8000", url).replace("ws://127.0.0.1:8000", f"ws{url[4:]}")
        return moved.replace("YOUR_API_KEY", key)

    def commands(self) -> Iterator[list[str]]:
        """The words of each command of a shell block, without assignments and redirections."""
        text = COMMENT.sub("", self.text).replace("\\\n", " ")
        text = SUBSTITUTION.sub("today", ALTERNATIVE.sub("]", text))
        lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;<>\n")
        lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
        words: list[str] = []
        for token in [*lexer, "\n"]:
            if token in SEPARATORS or not token.strip("\n"):
                yield from _command(words)
                words = []
            else:
                words.append(token)


def blocks(language: str = "", page: str = "") -> list[Block]:
    """All blocks, or those in a language and on a page."""
    found = [block for path in PAGES for block in _blocks(path)]
    return [block for block in found if language in ("", block.language) and page in ("", block.page)]


def block(page: str, start: str) -> Block:
    """The only block of a page that begins with `start`."""
    (found,) = (one for one in blocks(page=page) if one.text.startswith(start))
    return found


def _blocks(path: Path) -> Iterator[Block]:
    page = path.read_text(encoding="utf-8")
    for fence in FENCE.finditer(page):
        line = page.count("\n", 0, fence.start()) + 1
        yield Block(path.relative_to(ROOT).as_posix(), line, fence["language"], textwrap.dedent(fence["text"]))


def _command(words: list[str]) -> Iterator[list[str]]:
    if redirected := [number for number, word in enumerate(words) if set(word) <= {"<", ">"}]:
        words = words[: redirected[0]]
    while words and ASSIGNMENT.fullmatch(words[0]):
        words = words[1:]
    if words:
        yield words
