"""The group of all commands; a new command is one line in ``COMMANDS``."""

from __future__ import annotations

import contextlib
import os
import sys
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from steelyard._visible import visible
from steelyard.cli.output import folded
from steelyard.exceptions import SteelyardError

__all__ = ["COMMANDS", "SentenceGroup", "main"]

_READER_WENT_AWAY = 141  # as a command that is ended by the signal of a broken pipe


class Entry(NamedTuple):
    """Where a command stands, and what it does in one line."""

    module: str
    summary: str


# Modules are imported when a command is run: neither --help nor the completion of a shell waits for them.
COMMANDS = {
    "compare": Entry("compare", "Compare two runs of stream."),
    "cube": Entry("cube", "Keep the statistics of every slice, and ask for its model."),
    "evaluate": Entry("evaluate", "Test a saved model on labelled rows."),
    "export": Entry("export", "Write a model for programs without Python."),
    "fit": Entry("fit", "Learn a table and save the model."),
    "forget": Entry("forget", "Take rows out of a saved model."),
    "hub": Entry("hub", "Pool what several places published."),
    "inspect": Entry("inspect", "Tell what a saved file is and knows."),
    "merge": Entry("merge", "Make one model of several models or statistics."),
    "models": Entry("models", "List the models and what each takes."),
    "predict": Entry("predict", "Predict the rows of a table."),
    "serve": Entry("serve", "Serve models that learn while they answer."),
    "site": Entry("site", "Publish what may be known of rows that stay."),
    "statistics": Entry("statistics", "Write what one machine knows of its rows, for merge."),
    "stream": Entry("stream", "Learn from a stream, testing every row first."),
    "tune": Entry("tune", "PrequentialEvaluator several settings on one pass over a table."),
    "verify": Entry("verify", "Repeat the proof of a certificate of forgetting."),
    "version": Entry("version", "Print the versions of this package and of what it uses."),
}
_HIDDEN = {"combine": Entry("combine", "")}


class SentenceGroup(click.Group):
    """Turns the library's errors into sentences and exit code 1, and Ctrl-C into 130."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SteelyardError as error:
            hint = "" if error.hint is None else f"\nhint: {visible(error.hint)}"
            raise click.ClickException(visible(error.summary) + hint) from error
        except BrokenPipeError:
            _drop_output()
            raise click.exceptions.Exit(_READER_WENT_AWAY) from None
        except KeyboardInterrupt:
            click.echo("stopped", err=True)
            raise click.exceptions.Exit(130) from None

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **extra)  # type: ignore[call-overload]
        return sys.exit(self._exit_code(*args, **extra))

    def _exit_code(self, *args: Any, **extra: Any) -> int:
        """Run a command to the end, the last byte of its output included."""
        if sys.stdout is None:
            click.echo("Error: standard output is closed, so nothing can be printed.", err=True)
            return 1
        try:
            code: Any = super().main(*args, standalone_mode=False, **extra)  # type: ignore[call-overload]
            sys.stdout.flush()
        except click.ClickException as error:
            _show(error)
            return error.exit_code
        except BrokenPipeError:
            _drop_output()
            return _READER_WENT_AWAY
        except OSError as error:  # of standard output, such as a full disk: the library's have sentences
            what = visible(error.filename or "standard output")
            click.echo(f"Error: {what}: {error.strerror or error}.", err=True)
            _drop_output()
            return 1
        except click.Abort:
            click.echo("stopped", err=True)
            return 130
        return code if isinstance(code, int) else 0


def _show(error: click.ClickException) -> None:
    """The sentence, after how the command is used where it was used otherwise; nothing in it is obeyed."""
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(visible(error.ctx.get_usage(), keep="\n"), err=True)
        click.echo(f"Try '{visible(error.ctx.command_path)} --help' for help.\n", err=True)
    click.echo(folded(f"Error: {visible(error.format_message(), keep=chr(10))}"), err=True)


def _drop_output() -> None:
    """What is still in the buffer goes nowhere, so that Python has nothing to complain about at the end."""
    with contextlib.suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


class _LazyGroup(SentenceGroup):
    """Lists commands without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = COMMANDS.get(cmd_name) or _HIDDEN.get(cmd_name)
        if entry is None:
            return None
        command: click.Command = getattr(
            import_module(f"steelyard.cli.{entry.module}"), f"{cmd_name}_command"
        )
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        found = [CompletionItem(name, help=COMMANDS[name].summary) for name in names]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="steelyard", message="steelyard %(version)s")
def main() -> None:
    """Learn classifiers from imbalanced streams, measure them honestly, show what happened.

    Data goes to standard output and talk to standard error. Every command knows --json.

    Exit codes: 0 all went well; 1 the data, a file or a model was at fault, and a sentence says how;
    2 the command was not written as it must be; 130 stopped with Ctrl-C: stream gives a complete report of
    what was seen first, the others save nothing; 141 whoever read the output went away.

    Shell completion, here for bash: eval "$(_STEELYARD_COMPLETE=bash_source steelyard)"; zsh_source and
    fish_source do the same for zsh and fish.
    """
