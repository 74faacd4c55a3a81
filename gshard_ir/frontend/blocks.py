"""Source text to blocks of tokens, one block per top-level construct.

What can be wrong before grammar matters is found here: characters, numbers, brackets, indentation,
size and nesting. A block ends at the next line that starts in column 0, so a fault in one block
never hides a fault in another.
"""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Final

from lark import Token, UnexpectedCharacters
from lark.indenter import DedentError, Indenter
from lark.utils import TextSlice

from gshard_ir.errors import Diagnostic, GShardError, fail
from gshard_ir.frontend import tables
from gshard_ir.frontend.parser import MAX_NESTING
from gshard_ir.source import SourceFile, Span

MAX_BYTES: Final = 256 * 1024
MAX_DIGITS: Final = 4300
MAX_ERRORS: Final = 100

CLOSERS: Final = {"RPAR": ("LPAR",), "RSQB": ("LSQB",), "RBRACE": ("PENDING", "FORBIDDEN")}
OPENERS: Final = {opener: closer for closer, openers in CLOSERS.items() for opener in openers}
BRACKETS: Final = {"RPAR": ")", "RSQB": "]", "RBRACE": "}"}
TOP_LEVEL: Final = frozenset({"FROM", "MESH", "CONST", "STRUCT", "DEF"})
LAYOUT: Final = frozenset({"_NEWLINE", "_INDENT", "_DEDENT", "$END"})

# What cannot be part of a text: control characters, lone surrogates, and the bidirectional
# controls, which make a source read differently from what it says.
_NOT_TEXT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\u202a-\u202e\u2066-\u2069]|\r(?!\n)")
_COLUMN_0 = re.compile(r"^[^\s#)\]}]", re.MULTILINE)
_LOOK_ALIKES = {
    "\u2212": "-", "\u2013": "-", "\u2014": "-", "\u00d7": "*", "\u00b7": "*", "\u00f7": "/", "\u2215": "/",
    "\u2264": "<=", "\u2265": ">=", "\u2260": "!=", "\u2192": "->", "\u201c": '"', "\u201d": '"', "\u2018": "'",
    "\u2019": "'", "\u00a0": "a space", "\u200b": "nothing", "\ufeff": "nothing",
}  # fmt: skip
# Cyrillic and Greek letters that a keyboard layout puts where a Latin one is meant.
_LETTERS = dict(
    zip(
        "\u0410\u0412\u0415\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0423\u0425"
        "\u0430\u0435\u043e\u0440\u0441\u0443\u0445\u0456"
        "\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03bf",
        "ABEKMHOPCTYXaeopcyxiABEZHIKMNOPTYXo",
        strict=True,
    )
)


@dataclass(frozen=True)
class Block:
    """Tokens of one top-level construct, with ``_INDENT`` and ``_DEDENT``; ``fault`` is what is wrong after them."""

    tokens: tuple[Token, ...]
    fault: Diagnostic | None = None

    @property
    def is_statement(self) -> bool:
        """Whether the block starts like a line of a body, not like a definition."""
        return bool(self.tokens) and self.tokens[0].type not in TOP_LEVEL | {"AT"}


class _Indenter(Indenter):
    NL_type = "_NEWLINE"
    OPEN_PAREN_types: ClassVar[list[str]] = list(OPENERS)
    CLOSE_PAREN_types: ClassVar[list[str]] = list(CLOSERS)
    INDENT_type = "_INDENT"
    DEDENT_type = "_DEDENT"
    tab_len = 1  # a block indents with tabs or with spaces, never with both


def token_span(file: SourceFile, token: Token) -> Span:
    """Return the place of ``token``; a line end is one character wide."""
    line, column = token.line or 1, token.column or 1
    if token.type in LAYOUT:
        return Span(file, line, column, line, column + 1)
    return Span(file, line, column, token.end_line or line, token.end_column or column + 1)


def check_text(file: SourceFile) -> None:
    """Refuse a source that is too large or is no text."""
    size = len(file.text) if file.text.isascii() else len(file.text.encode("utf-8", "surrogatepass"))
    if size > MAX_BYTES:
        raise fail(
            f"{file.name}: a source of {size:,} bytes is too large", None, f"at most {MAX_BYTES:,} bytes are read"
        )
    if bad := _NOT_TEXT.search(file.text):
        span = _at(file, bad.start())
        what = "a carriage return alone" if bad[0] == "\r" else _describe(bad[0])
        raise fail(f"{what} cannot be part of a source", span, "a source is UTF-8 text", suggestion="remove it")


def blocks(file: SourceFile) -> Iterator[Block]:
    """Yield the blocks of ``file`` in order; stop after `MAX_ERRORS` unreadable ones."""
    tokens, faults = _lex(file)
    for start, stop in _split(tokens):
        yield _block(file, tokens[start:stop], faults.get(stop))


# -- lexing and splitting ----------------------------------------------------------------------


def _lex(file: SourceFile) -> tuple[list[Token], dict[int, Diagnostic]]:
    """Return all tokens, and per token count the lexical fault that follows; each fault ends its block."""
    text, parser = file.text, tables.load()
    tokens: list[Token] = []
    faults: dict[int, Diagnostic] = {}
    start = 0
    while len(faults) <= MAX_ERRORS:  # one more than is shown, so that the parser can say so
        try:
            for token in parser.lex(TextSlice(text, start, len(text))):
                if token.type == "NAME" and keyword.iskeyword(token):
                    token.type = "RESERVED"
                tokens.append(token)
            break
        except UnexpectedCharacters as error:
            bad = _at(file, error.pos_in_stream or 0)
            tokens.append(Token("_FAULT", "", error.pos_in_stream, bad.line, bad.column))
            faults[len(tokens)] = _stray(file, error.pos_in_stream or 0)
            again = _COLUMN_0.search(text, text.find("\n", error.pos_in_stream) + 1 or len(text))
            if again is None:
                break
            start = again.start()
    return tokens, faults


def _split(tokens: list[Token]) -> Iterator[tuple[int, int]]:
    """Yield the (start, stop) of each block."""
    start, depth, line = 0, 0, 0
    for i, token in enumerate(tokens):
        if token.type in OPENERS:
            depth += 1
        elif token.type in CLOSERS:
            depth -= 1
        elif token.type == "_NEWLINE":
            if start == i:
                start = line = i + 1
                continue
            following = tokens[i + 1].type if i + 1 < len(tokens) else "$END"
            ends = token.endswith("\n") and (depth <= 0 or following in TOP_LEVEL)
            if ends and tokens[line].type != "AT":  # a decorator belongs to the def below it
                yield start, i + 1
                start = line = i + 1
                depth = 0
            elif depth <= 0:
                line = i + 1
        elif token.type == "_FAULT":
            yield start, i + 1
            start, depth, line = i + 1, 0, i + 1
    if start < len(tokens):
        yield start, len(tokens)


def _block(file: SourceFile, tokens: list[Token], fault: Diagnostic | None) -> Block:
    """Check numbers, brackets and indentation; keep the tokens before the first fault."""
    if fault is not None:
        tokens = tokens[:-1]
    elif tokens[-1].type == "_NEWLINE":  # what indents the lines after this block is not its business
        tokens = [*tokens[:-1], Token.new_borrow_pos("_NEWLINE", "\n", tokens[-1])]
    else:
        tokens = [*tokens, _line_end(tokens[-1])]
    first = tokens[0] if tokens else None
    if first is not None and first.column != 1:
        return Block(
            (), Diagnostic("unexpected indentation", token_span(file, first), suggestion="start the line in column 1")
        )
    if (found := _check_numbers(file, tokens)) is not None:
        end, fault = found
        tokens = tokens[:end]
    if (found := _check_brackets(file, tokens, fault is None)) is not None:
        end, fault = found
        tokens = tokens[:end]
    return _indented(file, tokens, fault)


def _line_end(last: Token) -> Token:
    column = last.end_column or 1
    return Token("_NEWLINE", "\n", last.end_pos, last.end_line, column, last.end_line, column, last.end_pos)


def _check_numbers(file: SourceFile, tokens: list[Token]) -> tuple[int, Diagnostic] | None:
    for i, token in enumerate(tokens):
        if token.type not in ("INT", "FLOAT"):
            continue
        following = tokens[i + 1] if i + 1 < len(tokens) else None
        if (
            following is not None
            and following.start_pos == token.end_pos
            and (following[0].isalnum() or following[0] in "._")
        ):
            return i, _malformed_number(file, token, following)
        if len(token) > MAX_DIGITS:
            message = f"a number of {len(token):,} characters is too long"
            return i, Diagnostic(message, token_span(file, token), (f"at most {MAX_DIGITS:,} are read",))
        if token.type == "FLOAT" and float(token) == float("inf"):
            return i, Diagnostic(
                f"{token} is larger than any float", token_span(file, token), ("the largest is about 1.8e308",), "inf"
            )
        if token.type == "INT" and len(token) > 1 and token[0] == "0" and int(token):
            plain = str(int(token))
            return i, Diagnostic("an integer does not start with 0", token_span(file, token), suggestion=plain)
    return None


def _malformed_number(file: SourceFile, token: Token, following: Token) -> Diagnostic:
    start, end = token_span(file, token), token_span(file, following)
    span = Span(file, start.line, start.column, end.end_line, end.end_column)
    written = f"{token}{following}"
    edit = f"_{written}" if written.isalnum() and written.isascii() else None
    if re.fullmatch("[0-9]+x[0-9]+", written):
        edit = f"{token}, {following[1:]}" if token != "0" else str(int(written, 16))
    return Diagnostic(f"'{_clip(written)}' is neither a number nor a name", span, suggestion=edit)


def _check_brackets(file: SourceFile, tokens: list[Token], whole: bool) -> tuple[int, Diagnostic] | None:
    stack: list[int] = []
    for i, token in enumerate(tokens):
        if token.type in OPENERS:
            stack.append(i)
            if len(stack) > MAX_NESTING:
                return i, too_deep(token_span(file, token), "brackets")
        elif token.type in CLOSERS:
            if not stack:
                return i, Diagnostic(f"'{token}' closes nothing", token_span(file, token), suggestion="remove it")
            opener = tokens[stack.pop()]
            if opener.type not in CLOSERS[token.type]:
                also = ((token_span(file, opener), f"'{opener[-1]}' is opened here"),)
                closer = BRACKETS[OPENERS[opener.type]]
                return i, Diagnostic(
                    f"'{token}' does not close '{opener[-1]}'", token_span(file, token), suggestion=closer, also=also
                )
    if stack and whole:
        opener = tokens[stack[-1]]
        closer = BRACKETS[OPENERS[opener.type]]
        return stack[-1], Diagnostic(
            f"'{opener[-1]}' is never closed", token_span(file, opener), suggestion=f"add the missing '{closer}'"
        )
    return None


# -- indentation -------------------------------------------------------------------------------


def _indented(file: SourceFile, tokens: list[Token], fault: Diagnostic | None) -> Block:
    """Insert ``_INDENT`` and ``_DEDENT``; stop at inconsistent indentation."""
    read = 0

    def feed() -> Iterator[Token]:
        nonlocal read
        for token in tokens:
            yield token
            read += 1

    indenter = _Indenter()
    found: list[Token] = []
    kind = ""
    try:
        for token in indenter.process(feed()):  # type: ignore[no-untyped-call]
            if token.type == "_NEWLINE":
                kind = _check_tabs(file, token, kind)
            elif token.type == "_INDENT" and len(indenter.indent_level) > MAX_NESTING:
                raise GShardError(too_deep(token_span(file, tokens[read + 1]), "indented blocks"))
            found.append(token)
    except DedentError:
        message = "this line is indented like no line above it"
        return Block(_settled(found), Diagnostic(message, token_span(file, tokens[min(read + 1, len(tokens) - 1)])))
    except GShardError as error:
        return Block(_settled(found), error.diagnostics[0])
    return Block(_settled(found) if fault else tuple(found), fault)


def _settled(tokens: list[Token]) -> tuple[Token, ...]:
    """Drop trailing layout tokens: before a fault they are made up."""
    end = len(tokens)
    while end and tokens[end - 1].type in LAYOUT:
        end -= 1
    return tuple(tokens[:end])


def _check_tabs(file: SourceFile, newline: Token, kind: str) -> str:
    """Return the indentation character in use; raise when a line of the block differs."""
    indent = newline.rsplit("\n", 1)[1]
    if not indent or indent.startswith("#"):
        return kind
    kind = kind or indent[0]
    if set(indent) != {kind}:
        line = newline.end_line or 1
        here, above = ("spaces", "tabs") if kind == "\t" else ("tabs", "spaces")
        message = f"this line is indented with {here}, the lines above it with {above}"
        raise fail(message, Span(file, line, 1, line, len(indent) + 1), suggestion="indent with spaces alone")
    return kind


# -- words -------------------------------------------------------------------------------------


def too_deep(span: Span, what: str) -> Diagnostic:
    """The diagnostic for nesting past `MAX_NESTING`."""
    return Diagnostic(
        f"{what} are nested more than {MAX_NESTING} deep", span, suggestion="name an inner part on a line of its own"
    )


def _at(file: SourceFile, position: int) -> Span:
    line = file.text.count("\n", 0, position) + 1
    column = position - file.text.rfind("\n", 0, position)
    return Span(file, line, column, line, column + 1)


def _describe(char: str) -> str:
    name = unicodedata.name(char, "")
    return f"U+{ord(char):04X} {name}".rstrip() if name else f"the character U+{ord(char):04X}"


def _clip(text: str, width: int = 40) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _stray(file: SourceFile, position: int) -> Diagnostic:
    """Explain a character that starts no token."""
    char, span = file.text[position], _at(file, position)
    rest = file.text[position:].split("\n", 1)[0].rstrip("\r")
    if char in "\"'":
        span = Span(file, span.line, span.column, span.line, span.column + len(rest))
        if rest.count(char) > 1:
            return Diagnostic("a string has no backslash escapes", span, suggestion="leave the backslash out")
        return Diagnostic("the string is not closed on its line", span, suggestion=f"end it with {char}")
    if char == "!":
        if position and file.text[position - 1] == "]":
            axis = re.match(r"![ ]*(\w+)", rest, re.ASCII)
            span = Span(file, span.line, span.column, span.line, span.column + (axis.end() if axis else 1))
            return Diagnostic("forbidden axes stand in braces", span, suggestion=f"!{{{axis[1] if axis else 'data'}}}")
        return Diagnostic(
            "'!' is not an operator", span, suggestion="'not' for a compile-time value, '~' for each element"
        )
    if not char.isascii():
        plain = _LOOK_ALIKES.get(char) or unicodedata.normalize("NFKC", char)
        note = (
            "names are made of ASCII letters, digits and _"
            if char.isalpha()
            else "outside strings and comments a source is ASCII"
        )
        edit = _LETTERS.get(char) or (plain if plain.isascii() else None)
        return Diagnostic(f"{_describe(char)} is not part of the language", span, (note,), edit)
    edits = {
        ";": "one statement per line",
        "\\": "a line goes on while a bracket is open: wrap the expression in ( )",
        "{": "( ) for a tuple, [ ] for a list; braces only hold the axes after a type",
    }
    return Diagnostic(f"'{char}' has no meaning here", span, suggestion=edits.get(char, "remove it"))
