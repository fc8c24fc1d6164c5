"""The group of all commands; a new command is one line in ``_COMMANDS``."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from steelyard.exceptions import SteelyardError

__all__ = ["SentenceGroup", "main"]

# Command -> where it stands. Modules are imported when asked for, so that `--version` is quick.
_COMMANDS = {
    "combine": "steelyard.cli.combine:combine_command",
    "evaluate": "steelyard.cli.evaluate:evaluate_command",
    "fit": "steelyard.cli.fit:fit_command",
    "forget": "steelyard.cli.forget:forget_command",
    "inspect": "steelyard.cli.inspect:inspect_command",
    "merge": "steelyard.cli.merge:merge_command",
    "models": "steelyard.cli.models:models_command",
    "predict": "steelyard.cli.predict:predict_command",
    "statistics": "steelyard.cli.statistics:statistics_command",
    "stream": "steelyard.cli.stream:stream_command",
    "tune": "steelyard.cli.tune:tune_command",
    "version": "steelyard.cli.version:version_command",
}


class SentenceGroup(click.Group):
    """Turns the library's errors into sentences and exit code 1, and Ctrl-C into 130."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SteelyardError as error:
            raise click.ClickException(str(error)) from error
        except BrokenPipeError:
            raise  # whoever read has read enough
        except OSError as error:  # of standard output, such as a full disk: the library's have sentences
            what = error.filename or "standard output"
            raise click.ClickException(f"{what}: {error.strerror or error}.") from error
        except KeyboardInterrupt:
            click.echo("stopped", err=True)
            raise click.exceptions.Exit(130) from None


class _LazyGroup(SentenceGroup):
    """Imports commands on demand."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Learn classifiers from imbalanced streams, measure them honestly, show what happened.

    Data goes to standard output and talk to standard error. Every command knows --json.

    Exit codes: 0 all went well; 1 the data, a file or a model was at fault, and a sentence says how;
    2 the command was not written as it must be; 130 stopped with Ctrl-C: stream gives a complete report of
    what was seen first, the others save nothing.

    Shell completion, here for bash: eval "$(_STEELYARD_COMPLETE=bash_source steelyard)"; zsh_source and
    fish_source do the same for zsh and fish.
    """
