"""Writes ``docs/cli.md`` from the parser that reads the command line: ``PYTHONPATH=tests python -m cli_reference``."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from gshard_ir.cli import EPILOG, INTERRUPTED, PIPE, parser

DOCUMENT = Path(__file__).parents[1] / "docs" / "cli.md"
WIDTH = 100
INTRODUCTION = """\
# Command line

<!-- Generated: PYTHONPATH=tests python -m cli_reference -->

Every command with its arguments, options and examples, written from the parser that reads them: `gshard COMMAND --help`
says the same. [commands.md](commands.md) is the guided tour, with outputs; [errors.md](errors.md#the-command) has what
is said when a command is wrong.

"""


def document() -> str:
    """Return the text of ``docs/cli.md``."""
    whole = parser()
    parts = [INTRODUCTION, f"{synopsis(whole)}\n"]
    names = {action.dest: action.help or "" for action in _group(whole)._choices_actions}
    parts.append("| command | what it does |\n|---|---|\n")
    parts += [f"| [`{name}`](#gshard-{name}) | {plain(help_)} |\n" for name, help_ in names.items()]
    parts.append(f"\n{table('option', whole)}\n## Exit codes\n\n| code | meaning |\n|---|---|\n")
    parts += [f"| {code} | {plain(meaning)} |\n" for code, meaning in exit_codes()]
    parts.append(f"| {INTERRUPTED} | stopped with Ctrl-C |\n| {PIPE} | nobody reads the output any more |\n")
    for name, made in commands(whole).items():
        parts.append(f"\n## gshard {name}\n\n{description(made)}\n{synopsis(made)}\n")
        parts += [f"{table(kind, made)}\n" for kind in ("argument", "option") if _rows(kind, made)]
        if shown := examples(made):
            parts.append("```sh\n" + "".join(f"{line}\n" for line in shown) + "```\n")
    return re.sub(r"\n{3,}", "\n\n", "".join(parts)).rstrip("\n") + "\n"


def _group(whole: argparse.ArgumentParser) -> argparse._SubParsersAction[argparse.ArgumentParser]:
    return next(a for a in whole._actions if isinstance(a, argparse._SubParsersAction))


def commands(whole: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the subcommands' parsers by name."""
    return dict(_group(whole).choices)


def exit_codes() -> Iterator[tuple[str, str]]:
    """Yield the codes and meanings that ``gshard --help`` lists."""
    block = EPILOG.partition("exit codes:\n")[2].partition("\n\n")[0]
    for line in block.split("\n"):
        code, _, meaning = line.strip().partition("  ")
        yield code, meaning


def examples(made: argparse.ArgumentParser) -> list[str]:
    """Return the example lines of a subcommand."""
    return [line.strip() for line in (made.epilog or "").partition("examples:\n")[2].splitlines() if line.strip()]


def synopsis(made: argparse.ArgumentParser) -> str:
    """Return a fenced usage; not argparse's own, which depends on the terminal and on Python's version."""
    kinds = ("option", "argument") if made._subparsers else ("argument", "option")
    words = [made.prog, *(_word(a) for kind in kinds for a in _rows(kind, made))]
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) >= WIDTH:
            lines.append(" " * len(made.prog))
        lines[-1] += f" {word}" if lines[-1] else word
    return "```\n" + "".join(f"{line}\n" for line in lines) + "```\n"


def _word(action: argparse.Action) -> str:
    if isinstance(action, argparse._SubParsersAction):
        return "COMMAND ..."
    if not action.option_strings:
        return f"[{_value(action)}]" if action.nargs == "?" else _value(action)
    text = _flag(action, action.option_strings[0])
    text = text if action.required else f"[{text}]"
    repeated = isinstance(action, argparse._AppendAction)
    return f"{text}..." if repeated else text


def _value(action: argparse.Action) -> str:
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return str(action.metavar or action.dest.upper())


def _flag(action: argparse.Action, name: str) -> str:
    return name if action.nargs == 0 else f"{name} {_value(action)}"


def _rows(kind: str, made: argparse.ArgumentParser) -> list[argparse.Action]:
    return [a for a in made._actions if bool(a.option_strings) == (kind == "option")]


def table(kind: str, made: argparse.ArgumentParser) -> str:
    """Return the table of a parser's arguments or options."""
    lines = [f"| {kind} | meaning |", "|---|---|"]
    for action in _rows(kind, made):
        names = [_flag(action, name) for name in action.option_strings] or [_value(action)]
        shown = ", ".join(f"`{name}`" for name in names).replace("|", "\\|")
        lines.append(f"| {shown} | {plain((action.help or '') % vars(action)).replace('|', chr(92) + '|')} |")
    return "".join(f"{line}\n" for line in lines)


def description(made: argparse.ArgumentParser) -> str:
    """Return a description as Markdown; what is aligned with blanks stays as it is."""
    parts = []
    for part in (made.description or "").strip().split("\n\n"):
        lines = [line.rstrip() for line in part.split("\n")]
        aligned = any(line.startswith("  ") for line in lines)
        parts.append("\n".join(["```", *lines, "```"]) if aligned else plain("\n".join(lines)))
    return "\n\n".join(parts) + "\n"


def plain(text: str) -> str:
    """Return text in which Markdown sees no tags and no emphasis."""
    return text.replace("<", "&lt;").replace("*", "\\*").strip()


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
