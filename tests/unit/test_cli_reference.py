"""docs/cli.md is what the parser says, and what the parser says can be typed."""

from __future__ import annotations

import shlex

import cli_reference
import pytest

from gshard_ir.cli import EPILOG, parser

COMMANDS = cli_reference.commands(parser())
EXAMPLES = [line for made in COMMANDS.values() for line in cli_reference.examples(made)]


def test_the_page_is_up_to_date(update: bool) -> None:
    made = cli_reference.document()
    if update:
        cli_reference.DOCUMENT.write_text(made, encoding="utf-8")
    assert cli_reference.DOCUMENT.read_text(encoding="utf-8") == made, "run PYTHONPATH=tests python -m cli_reference"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_flag_is_there(name: str) -> None:
    section = cli_reference.document().split(f"\n## gshard {name}\n")[1].split("\n## ")[0]
    for action in COMMANDS[name]._actions:
        assert action.help, action
        for flag in action.option_strings:
            assert section.count(f"`{flag}`") + section.count(f"`{flag} ") == 1, flag


def test_exit_codes_are_read_off_the_help() -> None:
    assert [code for code, _ in cli_reference.exit_codes()] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("line", [*EXAMPLES, *(e.strip() for e in EPILOG.partition("examples:\n")[2].splitlines())])
def test_examples_can_be_typed(line: str) -> None:
    command, *words = shlex.split(line.partition(" > ")[0])
    assert command == "gshard"
    assert parser().parse_args(words).command in COMMANDS


def test_every_command_but_completion_has_examples() -> None:
    assert [name for name, made in COMMANDS.items() if not cli_reference.examples(made)] == ["completion"]
