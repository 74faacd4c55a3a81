"""The first token that the grammar does not allow, explained: known mistakes first, then what was expected.

The known ones are the tables `mistakes_blocks` and `mistakes_lines`: message, condition, suggested
edit, and programs that must lead there. The first entry that applies is the one that is told.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from lark import Lark, Token, Tree, UnexpectedToken

from gshard_ir.errors import Diagnostic, GShardError
from gshard_ir.frontend.blocks import CLOSERS, LAYOUT, OPENERS, Block, token_span
from gshard_ir.source import SourceFile, Span

NO_BODY: Final = "expected an indented body after ':'"

BINARY: Final = frozenset(
    {
        "PLUS", "MINUS", "STAR", "SLASH", "FLOOR_DIV", "PERCENT", "AT", "POWER", "PIPE", "CARET", "AMPERSAND", "AND",
        "OR", "EQ", "NE", "LT", "LE", "GT", "GE",
    }
)  # fmt: skip
COMPARISONS: Final = frozenset({"EQ", "NE", "LT", "LE", "GT", "GE"})
LITERALS: Final = frozenset({"INT", "FLOAT", "STRING", "TRUE", "FALSE", "NONE"})
_VALUE_STARTS: Final = LITERALS | {"NAME", "LPAR", "LSQB", "MINUS", "PLUS", "TILDE", "NOT", "QUESTION"}
_AFTER_VALUE: Final = BINARY | {"DOT", "LPAR", "LSQB", "SUBAXIS", "IF", "QUESTION", "ROUND", "AUGMENTED"}

# The rest of a line, without its comment.
_CODE: Final = re.compile(r"""(?:[^#"'\n]|"[^"\n]*"?|'[^'\n]*'?)*""")

_WORDS: Final = {
    "_NEWLINE": "the end of the line",
    "_INDENT": "an indented line",
    "_DEDENT": "the end of the indented block",
    "$END": "the end of the file",
    "NAME": "a name",
    "INT": "an integer",
    "ROUND": "a round such as !1",
    "SUBAXIS": "a piece such as :(2)2",
    "PENDING": "'+{'",
    "FORBIDDEN": "'!{'",
    "ARROW": "'->'",
    "COLON": "':'",
    "COMMA": "','",
    "DOT": "'.'",
    "EQUAL": "'='",
    "AT": "'@'",
    "QUESTION": "'?'",
    "LPAR": "'('",
    "RPAR": "')'",
    "LSQB": "'['",
    "RSQB": "']'",
    "RBRACE": "'}'",
    "ELLIPSIS": "'...'",
    "PLUS": "'+'",
    "MINUS": "'-'",
    "STAR": "'*'",
}


_PYTHON: Final = {
    "lambda": "give it a name: def f(x): ...",
    "pass": "a body has at least one statement",
    "is": "== compares",
    "with": "split, replicate and shard place a tensor",
    "break": "while cond: ends a loop",
    "continue": "where(mask, new, old) chooses per element",
    "yield": "return every result: return a, b",
    "del": "leave it out: an unused value costs nothing",
    "assert": "check inputs before they are passed in",
    "raise": "errors are found before the program runs",
    "try": "errors are found before the program runs",
    "global": "pass the value as an argument",
    "nonlocal": "pass the value as an argument",
    "async": "overlap is the compiler's business",
    "await": "overlap is the compiler's business",
}


@dataclass(frozen=True)
class Found:
    """The token at ``at`` that does not fit, what stands around it, and the token types that would fit."""

    file: SourceFile
    tokens: tuple[Token, ...]
    at: int
    expected: frozenset[str]

    @property
    def token(self) -> Token:
        return self.tokens[self.at]

    @property
    def type(self) -> str:
        return self.token.type

    @cached_property
    def before(self) -> tuple[str, ...]:
        """Types of the tokens before this one on its line, a line being what a newline outside brackets ends."""
        return tuple(token.type for token in self.tokens[self.line : self.at])

    @cached_property
    def line(self) -> int:
        """Index of the first token on the line."""
        at = self.at
        while at and self.tokens[at - 1].type not in LAYOUT:
            at -= 1
        return at

    @property
    def previous(self) -> str:
        """Type of the token before, ``""`` at the start of a line."""
        return self.before[-1] if self.before else ""

    @property
    def following(self) -> str:
        """Type of the token after."""
        return self.tokens[self.at + 1].type if self.at + 1 < len(self.tokens) else "$END"

    @property
    def starter(self) -> str:
        """Type of the first token on the line."""
        return self.tokens[self.line].type

    @property
    def top(self) -> bool:
        """Whether the line is the first of its block."""
        return self.line == 0

    @cached_property
    def brackets(self) -> tuple[str, ...]:
        """Types of the brackets that are open here, outermost first."""
        stack: list[str] = []
        for token in self.tokens[: self.at]:
            if token.type in OPENERS:
                stack.append(token.type)
            elif token.type in CLOSERS:
                stack.pop()
        return tuple(stack)

    @cached_property
    def in_dims(self) -> bool:
        """Whether this is inside the ``[ ]`` of a type."""
        return self.brackets[-1:] == ("LSQB",) and not self.expected & {"STRING", "DOT"}

    @property
    def after_value(self) -> bool:
        """Whether a complete value or size stands before this token."""
        return "STAR" in self.expected

    @property
    def wants_value(self) -> bool:
        return "INT" in self.expected and not self.after_value

    def text(self, offset: int = 0) -> str:
        """Text of the token ``offset`` places away, shortened."""
        at = self.at + offset
        text = str(self.tokens[at]) if 0 <= at < len(self.tokens) else ""
        return text if len(text) <= 30 else text[:27] + "..."

    def so_far(self) -> str:
        """The line up to this token."""
        start, end = self.tokens[self.line].start_pos, self.tokens[self.at - 1].end_pos
        text = " ".join(self.file.text[start:end].split())
        return text if len(text) <= 60 else "..." + text[-57:]

    def edited(self, new: str, first: int = 0, last: int = 0) -> str:
        """The line with the tokens from ``first`` to ``last`` places away replaced by ``new``."""
        start = self.tokens[max(self.at + first, 0)].start_pos
        end = self.tokens[min(self.at + last, len(self.tokens) - 1)].end_pos
        return self._line_with(new, start or 0, max(start or 0, end or 0))

    def after(self, new: str) -> str:
        """The line with ``new`` right behind the token before this one."""
        end = self.tokens[self.at - 1].end_pos or 0
        return self._line_with(new, end, end)

    def joined(self, new: str) -> str:
        """The line with this token, and the blanks before it, replaced by ``new``."""
        return self._line_with(new, self.tokens[self.at - 1].end_pos or 0, self.token.end_pos or 0)

    def _line_with(self, new: str, start: int, end: int) -> str:
        text = self.file.text
        stop = text.find("\n", end)
        tail = _CODE.match(text, end, len(text) if stop < 0 else stop)
        line = f"{text[text.rfind(chr(10), 0, start) + 1 : start]}{new}{tail[0] if tail else ''}".strip()
        return line if len(line) <= 160 else new.strip() or "remove it"

    def span(self) -> Span:
        """Where to point: for the end of a line, right after its last character."""
        if self.type == "_INDENT" and self.at + 1 < len(self.tokens):
            return token_span(self.file, self.tokens[self.at + 1])
        if self.type not in LAYOUT:
            return token_span(self.file, self.token)
        last = next((t for t in reversed(self.tokens[: self.at]) if t.type not in LAYOUT), self.token)
        line, column = last.end_line or 1, last.end_column or 1
        return Span(self.file, line, column, line, column + 1)


@dataclass(frozen=True)
class Mistake:
    """What is said (``message``, ``edit``) when a condition holds, and ``examples`` that must lead here.

    ``edit`` is a text with holes, or gives the line as it should be.
    """

    message: str
    applies: Callable[[Found], bool]
    edit: str | Callable[[Found], str]
    examples: tuple[str, ...]

    def diagnostic(self, found: Found) -> Diagnostic:
        """Fill in the words of the program at hand."""
        words = {
            "found": found.text(),
            "previous": found.text(-1),
            "next": found.text(1),
            "line": found.so_far() if found.before else "",
            "definition": _definition(found.text()),
            "python": _PYTHON.get(found.text(), "use another word"),
        }
        edit = self.edit.format(**words) if isinstance(self.edit, str) else self.edit(found)
        return Diagnostic(self.message.format(**words), found.span(), suggestion=edit)


def _definition(word: str) -> str:
    """The keyword that was probably meant, else all of them."""
    import difflib

    known = ["def", "struct", "const", "mesh", "from"]
    return next(iter(difflib.get_close_matches(word.lower(), known, 1)), "def, struct, const, mesh or from")


def parse_block(lark: Lark, file: SourceFile, block: Block) -> Tree[Token]:
    """Return the parse tree of one block; raise `GShardError` with its first fault."""
    parser = lark.parse_interactive()
    last = block.tokens[-1] if block.tokens else Token("_NEWLINE", "\n")
    end = () if block.fault else (Token.new_borrow_pos("$END", "", last),)
    tree = None
    for at, token in enumerate((*block.tokens, *end)):
        try:
            tree = parser.feed_token(token)
        except UnexpectedToken:
            found = Found(file, (*block.tokens, *end), at, _expected(lark, block.tokens[:at]))
            raise GShardError(explain(found)) from None
    if block.fault is not None:
        raise GShardError(block.fault)
    assert isinstance(tree, Tree)
    return tree


def _expected(lark: Lark, tokens: tuple[Token, ...]) -> frozenset[str]:
    """Token types that may follow ``tokens``, exactly: lark's own list is too long after a reduction."""
    parser = lark.parse_interactive()
    for token in tokens:
        parser.feed_token(token)
    return frozenset(parser.accepts())  # type: ignore[no-untyped-call]


def explain(found: Found) -> Diagnostic:
    """Say what is wrong: the first known mistake that applies, else what was expected."""
    from gshard_ir.frontend import mistakes_blocks, mistakes_lines  # only a broken program needs the tables

    for mistake in (*mistakes_blocks.MISTAKES, *mistakes_lines.MISTAKES):
        if mistake.applies(found):
            return mistake.diagnostic(found)
    return Diagnostic(f"expected {_list(found.expected)}, found {describe(found)}", found.span())


def describe(found: Found) -> str:
    """Name the token that was found."""
    return _WORDS[found.type] if found.type in LAYOUT else f"'{found.text()}'"


def _list(expected: frozenset[str]) -> str:
    """Name token types, the whole of a value or operator as one."""
    rest, words = expected, []
    if {"INT", "LPAR"} <= expected:
        rest, words = rest - _VALUE_STARTS, ["a size" if "STRING" not in expected else "a value"]
    elif "STAR" in expected:
        rest, words = rest - _AFTER_VALUE, ["an operator"]
    if "_NEWLINE" in rest and len(rest) > 1:
        rest = rest - {"_DEDENT", "$END"}
    words += sorted(_WORDS.get(type_, f"'{type_.lower()}'") for type_ in rest)
    if len(words) > 5:
        words = [*words[:4], "..."]
    return " or ".join(filter(None, [", ".join(words[:-1]), words[-1]])) if words else "nothing more"
