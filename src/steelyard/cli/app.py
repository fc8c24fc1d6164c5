"""Top-level command group. A new command is one entry in ``COMMANDS``."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import sys
from importlib import import_module
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem

from steelyard._visible import visible
from steelyard.cli.output import wrap_lines
from steelyard.exceptions import SteelyardError

_INTERRUPTED = 130  # 128 + SIGINT
_BROKEN_PIPE = 141  # 128 + SIGPIPE


class Entry(NamedTuple):
    """Module and one-line summary of a command."""

    module: str
    summary: str


# Modules are imported only when their command runs, so that --help and shell completion stay fast.
COMMANDS = {
    "compare": Entry("evaluate", "Compare two runs of stream."),
    "cube": Entry("cube", "Build a model for any slice of a table."),
    "drift": Entry("statistics", "Show what changed between two periods, and why."),
    "evaluate": Entry("evaluate", "Test a saved model on labelled rows."),
    "export": Entry("models", "Write a model as a C header."),
    "fit": Entry("fit", "Learn a table and save the model."),
    "forget": Entry("fit", "Remove rows from a saved model."),
    "hub": Entry("sites", "Build the pooled model of several sites."),
    "inspect": Entry("models", "Show the contents of a saved file."),
    "merge": Entry("statistics", "Merge models or statistics into one model."),
    "models": Entry("models", "List the models and their parameters."),
    "predict": Entry("predict", "Predict the rows of a table."),
    "serve": Entry("serve", "Run the HTTP service."),
    "site": Entry("sites", "Publish statistics of rows that stay local."),
    "statistics": Entry("statistics", "Write the statistics of a table, for merge."),
    "stream": Entry("stream", "Test and then learn every row of a stream."),
    "tune": Entry("evaluate", "Compare parameter values in one pass over a table."),
    "verify": Entry("fit", "Check a certificate of forgetting."),
    "version": Entry("models", "Print the versions of steelyard and its dependencies."),
}
_HIDDEN = {"combine": Entry("statistics", "")}

# Matches a Python argument such as drop='id', again=True or time=, except after an option such as --set.
_ARGUMENT = re.compile(
    r"(?<![-\w,=])(?<!--set )(?<!--grid )(?<!--cost )([A-Za-z_]\w*)="
    r"""("[^"]*"|'[^']*'|True|False|None|\d[\d.]*|(?=[\s,;.)]|$))"""
)
_ASIDE = re.compile(r" \(([^()]*) on the command line\)")
_CALLS = {
    "for example threshold=alarms=0.01": "for example --set threshold=alarms=0.01",
    'for example threshold={"miss": 1, "alarm": 5}': "for example --set threshold=miss=1,alarm=5",
    "pass time= to partial_fit() and predict(), or use a share of rows: {'alarms': 0.01}": (
        "name the column of times with --time, or use a share of rows with --set threshold=alarms=0.01"
    ),
    'pass time= to partial_fit(), or time="COLUMN" to TableModel or open_stream()': (
        "name the time column with --time"
    ),
    'set C="auto" before fit() or the first partial_fit()': "use --set C=auto from the first rows on",
    "steelyard.save writes files that can be loaded": "`steelyard fit` and `stream --save` write them",
}


class ErrorHandlingGroup(click.Group):
    """Command group that turns library errors into messages and exit codes."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except SteelyardError as error:
            raise click.ClickException(visible(error.summary) + self._hint(ctx, error)) from error
        except BrokenPipeError:
            _discard_output()
            raise click.exceptions.Exit(_BROKEN_PIPE) from None
        except KeyboardInterrupt:
            _print_stopped()
            raise click.exceptions.Exit(_INTERRUPTED) from None

    def _hint(self, ctx: click.Context, error: SteelyardError) -> str:
        """Return the hint of an error as a line of text that names command-line options."""
        if error.hint is None:
            return ""
        from steelyard.cli.fit import fit_command

        command = self.get_command(ctx, ctx.invoked_subcommand or "") or self
        return f"\nhint: {visible(command_line_hint(error.hint, command, fit_command))}"

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **extra)  # type: ignore[call-overload]
        return sys.exit(self._exit_code(*args, **extra))

    def _exit_code(self, *args: Any, **extra: Any) -> int:
        """Run a command, flush its output and return the exit code."""
        if sys.stdout is None:
            click.echo("Error: standard output is closed.", err=True)
            return 1
        try:
            code: Any = super().main(*args, standalone_mode=False, **extra)  # type: ignore[call-overload]
            sys.stdout.flush()
        except click.ClickException as error:
            _print_error(error)
            return error.exit_code
        except BrokenPipeError:
            _discard_output()
            return _BROKEN_PIPE
        except OSError as error:  # writing to standard output failed, for example because the disk is full
            name = visible(error.filename or "standard output")
            click.echo(f"Error: {name}: {error.strerror or error}.", err=True)
            _discard_output()
            return 1
        except click.Abort:
            _print_stopped()
            return _INTERRUPTED
        return code if isinstance(code, int) else 0


# -- hints of library errors ----------------------------------------------------------------------------


def command_line_hint(hint: str, command: click.Command, fit_command: click.Command) -> str:
    """Return a hint with Python arguments and classes replaced by options of a command.

    Options that only ``steelyard fit`` has are marked as such. A hint may end with an alternative such as
    "(--again on the command line)". If the argument before the alternative was rewritten, the alternative is
    dropped. Otherwise it replaces the word before it.

    >>> fit = click.Command("fit", params=[click.Option(["--drop"])])
    >>> command_line_hint("leave the column out: drop='id' (--drop id on the command line)", fit, fit)
    'leave the column out: --drop id'
    """
    own, of_fit, uses_fit = _options(command), _options(fit_command), False

    def as_option(found: re.Match[str]) -> str:
        nonlocal uses_fit
        name, value = found[1], found[2].strip("\"'")
        for options in (own, of_fit):
            option = options.get(name) or options.get(f"{name}s")
            if option is not None:
                uses_fit = uses_fit or options is not own
                value = "" if option.is_flag or not value else shlex.quote(value)
                return f"{max(option.opts, key=len)} {value}".rstrip()
        return f"--set {name}={value}" if value else found[0]

    for call, text in _CALLS.items():
        hint = hint.replace(call, text)
    rewritten = _ARGUMENT.sub(as_option, hint)
    if rewritten != hint:
        rewritten = _ASIDE.sub("", rewritten)
    rewritten = re.sub(rf"\S+{_ASIDE.pattern}", r"\1", rewritten)
    rewritten = re.sub(r"\bProximalSVC\b", "a model of `steelyard fit --model proximal`", rewritten)
    return f"{rewritten} (option of `steelyard fit`)" if uses_fit else rewritten


def _options(command: click.Command) -> dict[str, click.Option]:
    """Return the options of a command by parameter name. A group has the options of all its commands."""
    options: dict[str, click.Option] = {}
    if isinstance(command, click.Group):
        for each in command.commands.values():
            options |= _options(each)
    return options | {p.name or "": p for p in command.params if isinstance(p, click.Option)}


# -- output ------------------------------------------------------------------------------------------------


def _print_stopped() -> None:
    """Print that the command was stopped, on a line of its own, because a terminal has printed ^C."""
    click.echo("\nstopped" if sys.stderr is not None and sys.stderr.isatty() else "stopped", err=True)


def _print_error(error: click.ClickException) -> None:
    """Print an error message; a usage error also prints the usage line."""
    # Since click 8.2, a group without a command raises this error, whose message is the help text.
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
        click.echo(error.format_message(), err=True)
        return
    if isinstance(error, click.UsageError) and error.ctx is not None:
        click.echo(visible(error.ctx.get_usage(), keep="\n"), err=True)
        click.echo(f"Try '{visible(error.ctx.command_path)} --help' for help.\n", err=True)
    click.echo(wrap_lines(f"Error: {visible(error.format_message(), keep=chr(10))}"), err=True)


def _discard_output() -> None:
    """Redirect standard output to the null device, so that Python's flush at exit does not fail."""
    with contextlib.suppress(OSError, ValueError):
        null_device = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null_device, sys.stdout.fileno())
        os.close(null_device)


class _LazyGroup(ErrorHandlingGroup):
    """Command group that lists its commands without importing them."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            close = get_close_matches(args[0], COMMANDS, n=1)
            question = f" Did you mean {close[0]!r}?" if close else ""
            raise click.UsageError(f"{error.message}{question}", ctx) from None

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002  click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        entry = COMMANDS.get(cmd_name) or _HIDDEN.get(cmd_name)
        if entry is None:
            return None
        module = import_module(f"steelyard.cli.{entry.module}")
        command: click.Command = getattr(module, f"{cmd_name}_command")
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
    """Train classifiers on imbalanced streams, and test them on every row before they learn it.

    Data is written to standard output, messages to standard error. Commands that print data accept --json.

    Exit codes: 0 success; 1 an error in the data, a file or a model, with a message; 2 usage error;
    130 interrupted with Ctrl-C (stream still writes a report, other commands save nothing);
    141 broken pipe.

    Shell completion for bash: eval "$(_STEELYARD_COMPLETE=bash_source steelyard)"; use zsh_source or
    fish_source for zsh or fish.
    """
