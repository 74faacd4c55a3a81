"""The public face of the parser: a `SourceFile` in, a `Program` out, or every syntax error at once."""

from __future__ import annotations

from typing import Final

from gshard_ir.errors import Diagnostic, GShardError, fail
from gshard_ir.frontend import ast
from gshard_ir.source import SourceFile, Span

MAX_NESTING: Final = 200  # of brackets, of indented blocks, and of the nodes on any path through a tree


def decode(name: str, data: bytes) -> SourceFile:
    """Make a source of the bytes of a file; raise `GShardError` when they are no UTF-8 text."""
    try:
        return SourceFile(name, data.decode("utf-8"))
    except UnicodeDecodeError as error:
        note = f"byte {data[error.start]:#04x} at offset {error.start:,}: {error.reason}"
        raise fail(f"{name} is not UTF-8 text", None, note, suggestion="save it as UTF-8") from None


def parse(source: SourceFile) -> ast.Program:
    """Parse a whole file.

    Each top-level block is parsed on its own: a `BrokenProgramError` holds one diagnostic per broken
    block, at most 100, and the program of the others. Spans belong to ``source`` (without its byte
    order mark, if it has one).
    """
    # lark is heavy, and few commands need it
    from gshard_ir.frontend import blocks, build, recover, syntax_errors, tables

    if source.text.startswith("\ufeff"):
        source = SourceFile(source.name, source.text[1:])
    blocks.check_text(source)
    lark = tables.load()
    items: list[ast.Item] = []
    errors: list[Diagnostic] = []
    missing = recover.Missing()
    bodiless = False
    for block in blocks.blocks(source):
        if bodiless and block.is_statement:
            continue  # the body that was missing, in column 1
        if len(errors) == blocks.MAX_ERRORS:
            errors.append(Diagnostic(f"{source.name}: the rest of the file is not read after {len(errors)} errors"))
            break
        bodiless = False
        try:
            tree = syntax_errors.parse_block(lark, source, block)
            items += build.build(source, tree)
        except GShardError as error:
            errors += error.diagnostics
            bodiless = error.diagnostics[0].message == syntax_errors.NO_BODY
            at = error.diagnostics[0].span
            line = block.tokens[0].line if block.tokens else at and at.line
            missing.add(source, line or 1)
            if (block.is_statement or not block.tokens) and recover.goes_on(items):
                missing.names.add(getattr(items.pop(), "name", ""))
    lines = source.text.split("\n")
    program = ast.Program(tuple(items), span=Span(source, 1, 1, len(lines), len(lines[-1]) + 1))
    if errors:
        raise recover.BrokenProgramError(errors, program, missing)
    return program
