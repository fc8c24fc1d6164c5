"""Command group: list of commands, output streams and exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import version

import click
import pytest

from steelyard.cli import app, main
from steelyard.cli.registry import LEARNERS, make_models, parse_settings
from steelyard.exceptions import ParameterError
from tests.runner import cli_runner


@pytest.fixture
def run():
    return lambda *arguments: cli_runner().invoke(main, [str(argument) for argument in arguments])


def test_help_lists_every_command(run):
    result = run("--help")
    assert result.exit_code == 0
    assert all(command in result.stdout for command in app.COMMANDS)
    assert "combine" not in result.stdout


def leaves(group, *path):
    """Yield the name of every command that is not a group, as a list of words."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaves(command, *path, name)
        elif not command.hidden:
            yield (*path, name)


# Commands without data on standard output.
WITHOUT_DATA = {
    ("hub", "collect"),
    ("hub", "drop"),
    ("hub", "open"),
    ("hub", "serve"),
    ("site", "leave"),
    ("serve", "backup"),
    ("serve", "keys", "revoke"),
    ("serve", "erase"),
    ("serve", "restore"),
}


def test_every_command_has_help_and_json_option(run):
    for command in leaves(main):
        result = run(*command, "--help")
        assert result.exit_code == 0
        if command not in WITHOUT_DATA:
            assert "--json" in result.stdout, command


def test_models_command_lists_available_models(run):
    names = [row["name"] for row in json.loads(run("models", "--json").stdout)]
    assert names == list(LEARNERS)
    assert "proximal" in names


def test_models_command_lists_parameters_of_each_model(run):
    head, *lines = [line.split("\t") for line in run("models").stdout.splitlines()]
    takes = {line[0]: line[head.index("takes")] for line in lines}
    assert "class_weight" in takes["proximal"].split(", ")
    assert "budget" in takes["koil"].split(", ")


def test_models_command_describes_every_parameter_of_every_model(run):
    for name in LEARNERS:
        printed = json.loads(run("models", name, "--json").stdout)
        assert printed["name"] == name
        assert [line["parameter"] for line in printed["parameters"] if not line["meaning"]] == [], name


def test_models_command_with_unknown_name_is_an_error(run):
    result = run("models", "nonsense")
    assert result.exit_code == 1
    assert "there is no model 'nonsense'; the models are auto, proximal" in result.stderr


def test_version_prints_package_version(run):
    assert run("version").stdout.startswith("steelyard ")
    assert json.loads(run("version", "--json").stdout)["steelyard"]


def test_python_m_steelyard_prints_version():
    done = subprocess.run(
        [sys.executable, "-m", "steelyard", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"steelyard {version('steelyard')}\n"


@pytest.mark.parametrize(
    "words", [["--help"], *([name, "--help"] for name in app.COMMANDS)], ids=lambda words: words[0]
)
def test_help_imports_no_learner(words):
    program = (
        "import sys\nfrom steelyard.cli import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit:\n    pass\n"
        "slow = {'numpy', 'scipy', 'sklearn', 'pyarrow', 'pandas', 'jinja2'} & set(sys.modules)\n"
        "print('imported', sorted(slow), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "imported []\n"


def test_model_name_completion_imports_no_learner():
    program = (
        "import sys\nfrom steelyard.cli.options import complete_models\n"
        "print(complete_models(None, None, 'koil'), 'sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "['koil', 'koil-multi'] False\n"


def test_missing_values_option_has_the_choices_of_the_encoder():
    from steelyard.cli.options import MISSING
    from steelyard.tables import encoding

    assert encoding.MISSING == MISSING


def test_broken_pipe_exits_with_141():
    program = (
        "import click\nfrom steelyard.cli.app import ErrorHandlingGroup\n"
        "@click.group(cls=ErrorHandlingGroup)\ndef main(): pass\n"
        "@main.command()\ndef shout():\n    for _ in range(100_000): click.echo('much')\nmain()"
    )
    command = f'{sys.executable} -c "$PROGRAM" shout | head -1; echo ${{PIPESTATUS[0]}}'
    done = subprocess.run(
        ["bash", "-c", command],
        env={**os.environ, "PROGRAM": program},
        capture_output=True,
        text=True,
        check=True,
    )
    assert (done.stdout, done.stderr) == ("much\n141\n", "")


@pytest.mark.parametrize(
    ("target", "message"), [("&-", "standard output is closed"), ("/dev/full", "No space left on device")]
)
def test_unwritable_standard_output_gives_error_message(target, message):
    command = f"{sys.executable} -m steelyard models >{target}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_unknown_command_is_a_usage_error(run):
    assert run("nonsense").exit_code == 2


def test_set_option_applies_to_all_models_with_that_parameter():
    models = make_models(["proximal", "plain=proximal-unweighted"], parse_settings(["C=3", "plain.C=5"]))
    assert models["proximal"].C == 3
    assert models["plain"].C == 5
    assert models["plain"].class_weight is None


def test_set_option_with_unknown_parameter_raises():
    with pytest.raises(ParameterError, match="no model takes the parameter 'depth'"):
        make_models(["proximal"], {"depth": 3})


def test_unknown_model_error_lists_known_models():
    with pytest.raises(ParameterError, match="the models are auto, proximal"):
        make_models(["nonsense"], {})


def test_shell_completes_commands_and_models():
    import click

    from steelyard.cli.options import complete_models

    assert complete_models(None, None, "prox") == ["proximal", "proximal-unweighted"]
    with click.Context(main) as context:
        assert [item.value for item in main.shell_complete(context, "st")] == ["statistics", "stream"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["statistics", "--retire", "x.csv", "--target", "y"], "--retire is deprecated; use --forget"),
        (["cube", "ask", "--borrow=3", "x"], "--borrow is deprecated; use --shrink"),
        (["site", "publish", "x", "--least-rows", "5"], "--least-rows is deprecated; use --min-rows"),
    ],
)
def test_renamed_option_is_accepted_with_deprecation_note(run, words, message):
    result = run(*words)
    assert message in result.stderr
    assert "No such option" not in result.stderr
