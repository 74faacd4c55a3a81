"""``gshard completion``: shell completion, generated from the parser that reads the command line."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from dataclasses import dataclass

from gshard_ir.cli.arguments import Commands, Parser
from gshard_ir.cli.output import Output

SHELLS = ("bash", "zsh", "fish")
FILES = ("FILE", "OUT", "DIR")
"""Words of metavars that stand for a file."""

SAFE = re.compile(r"[\w.+-]+")
"""Words that a shell may see unquoted: bash expands the word list of compgen once more."""

DETAILS = """Print a completion script.

  bash  source <(gshard completion bash)
  zsh   source <(gshard completion zsh)     after compinit
  fish  gshard completion fish | source"""


@dataclass(frozen=True)
class Option:
    """One option of a subcommand, with its flags, choices and whether it takes a value, and a file."""

    flags: tuple[str, ...]
    help: str
    choices: tuple[str, ...]
    takes: bool
    file: bool


@dataclass(frozen=True)
class Subcommand:
    """A subcommand, its options, and the choices of its first positional argument if there are any."""

    name: str
    help: str
    options: tuple[Option, ...]
    choices: tuple[str, ...]


def add(commands: Commands) -> None:
    """Add the subcommand."""
    made = commands.add_parser(
        "completion",
        help="print a shell completion script",
        description=DETAILS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("shell", choices=SHELLS, help="which shell")
    made.set_defaults(run=run)


def run(options: argparse.Namespace, out: Output) -> int:
    """Print the script."""
    from gshard_ir.cli import parser

    out.text(script(options.shell, tree(parser())))
    return 0


def tree(parser: Parser) -> list[Subcommand]:
    """Read subcommands and options off a parser."""
    return [_subcommand(name, made) for name, made in parser.commands.items() if SAFE.fullmatch(name)]


def _subcommand(name: str, parser: Parser) -> Subcommand:
    options: list[Option] = []
    choices: tuple[str, ...] = ()
    for action in parser.arguments:
        picks = tuple(p for p in map(str, action.choices or ()) if SAFE.fullmatch(p))
        if action.option_strings:
            word = action.metavar if isinstance(action.metavar, str) else ""
            takes = action.nargs != 0
            file = takes and any(f in re.findall(r"\w+", word) for f in FILES)
            flags = tuple(f for f in action.option_strings if SAFE.fullmatch(f))
            if flags:
                options.append(Option(flags, action.help or "", picks, takes, file))
        elif picks and not choices:
            choices = picks
    return Subcommand(name, parser.summary, tuple(options), choices)


def script(shell: str, commands: Sequence[Subcommand]) -> str:
    """Return the script for one of :data:`SHELLS`."""
    return {"bash": _bash, "zsh": _zsh, "fish": _fish}[shell](commands)


def quote(text: str) -> str:
    """Quote for a POSIX shell (and zsh): nothing inside is expanded, line breaks become blanks."""
    return "'" + _plain(text).replace("'", "'\\''") + "'"


def quote_fish(text: str) -> str:
    """Quote for fish, where a backslash escapes even inside single quotes."""
    return "'" + _plain(text).replace("\\", "\\\\").replace("'", "\\'") + "'"


def _plain(text: str) -> str:
    return "".join(ch if ch.isprintable() else " " for ch in text)


def _bash(commands: Sequence[Subcommand]) -> str:
    lines = [
        "# bash completion for gshard",
        "_gshard_files() {",
        "    local found",
        '    while IFS= read -r found; do COMPREPLY+=("$found"); done < <(compgen -f -- "$1")',
        "}",
        "_gshard() {",
        '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""',
        "    COMPREPLY=()",
        "    if (( COMP_CWORD == 1 )); then",
        f"        words={quote(' '.join([*(c.name for c in commands), '--help', '--version']))}",
        '        COMPREPLY=( $(compgen -W "$words" -- "$word") )',
        "        return",
        "    fi",
        '    case "${COMP_WORDS[1]}" in',
    ]
    for c in commands:
        lines += [f"    {quote(c.name)})", '        case "$before" in']
        for o in c.options:
            if o.takes:
                reply = f'COMPREPLY=( $(compgen -W {quote(" ".join(o.choices))} -- "$word") )' if o.choices else ":"
                reply = '_gshard_files "$word"' if o.file else reply
                lines.append(f"        {'|'.join(map(quote, o.flags))}) {reply}; return;;")
        flags = " ".join(f for o in c.options for f in o.flags)
        lines += ["        esac", f"        words={quote(' '.join([flags, *c.choices]))};;"]
    return "\n".join([
        *lines,
        "    esac",
        '    COMPREPLY=( $(compgen -W "$words" -- "$word") )',
        '    [[ "$word" == -* ]] || _gshard_files "$word"',
        "}",
        "complete -o filenames -F _gshard gshard",
        "",
    ])  # fmt: skip


def _zsh(commands: Sequence[Subcommand]) -> str:
    listed = " ".join(quote(f"{_colons(c.name)}:{_colons(c.help)}") for c in commands)
    lines = [
        "#compdef gshard",
        "_gshard() {",
        "    local -a commands",
        f"    commands=({listed})",
        "    if (( CURRENT == 2 )); then",
        "        _describe command commands",
        "        return",
        "    fi",
        '    case "$words[2]" in',
    ]
    for c in commands:
        specs = [quote(_zsh_option(o, flag)) for o in c.options for flag in o.flags]
        rest = f"*: :({' '.join(c.choices)})" if c.choices else "*:file:_files"
        lines += [f"    {quote(c.name)})", f"        _arguments {' '.join([*specs, quote(rest)])};;"]
    return "\n".join([*lines, "    esac", "}", "compdef _gshard gshard", ""])


def _zsh_option(option: Option, flag: str) -> str:
    told = option.help
    for ch in "\\[]:":
        told = told.replace(ch, f"\\{ch}")
    action = f"({' '.join(option.choices)})" if option.choices else "_files" if option.file else " "
    return f"*{flag}[{told}]" + (f":value:{action}" if option.takes else "")


def _colons(text: str) -> str:
    return text.replace("\\", "\\\\").replace(":", "\\:")


def _fish(commands: Sequence[Subcommand]) -> str:
    lines = ["# fish completion for gshard"]
    for c in commands:
        told = f"-a {quote_fish(c.name)} -d {quote_fish(c.help)}"
        lines.append(f"complete -c gshard -n __fish_use_subcommand -f {told}")
        seen = f"-n {quote_fish(f'__fish_seen_subcommand_from {c.name}')}"
        if c.choices:
            lines.append(f"complete -c gshard {seen} -f -a {quote_fish(' '.join(c.choices))}")
        for o in c.options:
            flags = " ".join(
                f"-l {quote_fish(f[2:])}" if f.startswith("--") else f"-s {quote_fish(f[1:])}" for f in o.flags
            )
            value = (
                f" -x -a {quote_fish(' '.join(o.choices))}"
                if o.choices
                else " -r"
                if o.file
                else " -x"
                if o.takes
                else ""
            )
            lines.append(f"complete -c gshard {seen} {flags}{value} -d {quote_fish(o.help)}")
    return "\n".join([*lines, ""])
