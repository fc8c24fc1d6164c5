"""The command group: what is listed, where output goes, which exit code comes back."""

from __future__ import annotations

import json

import click
import pytest

from steelyard.cli import app, main
from steelyard.cli.registry import LEARNERS, available, make_models, parse_settings
from steelyard.exceptions import ParameterError
from tests.runner import cli_runner


@pytest.fixture
def run():
    return lambda *arguments: cli_runner().invoke(main, [str(argument) for argument in arguments])


def test_help_lists_every_command(run):
    result = run("--help")
    assert result.exit_code == 0
    assert all(command in result.stdout for command in app._COMMANDS if command != "combine")
    assert "combine" not in result.stdout


def leaves(group, *path):
    """The words of every command that is not itself a group."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaves(command, *path, name)
        elif not command.hidden:
            yield (*path, name)


def test_every_command_explains_itself_and_knows_json(run):
    for command in leaves(main):
        result = run(*command, "--help")
        assert result.exit_code == 0
        assert "--json" in result.stdout, command


def test_models_lists_what_this_installation_has(run):
    names = [row["name"] for row in json.loads(run("models", "--json").stdout)]
    assert names == list(available())
    assert "proximal" in names


def test_version_names_this_package(run):
    assert run("version").stdout.startswith("steelyard ")
    assert json.loads(run("version", "--json").stdout)["steelyard"]


def test_an_unknown_command_is_a_usage_error(run):
    assert run("nonsense").exit_code == 2


def test_a_setting_goes_to_the_models_that_take_it():
    models = make_models(["proximal", "plain=proximal-unweighted"], parse_settings(["C=3", "plain.C=5"]))
    assert models["proximal"].C == 3
    assert models["plain"].C == 5
    assert models["plain"].class_weight is None


def test_a_setting_that_no_model_takes_is_refused():
    with pytest.raises(ParameterError, match="no model takes 'depth'"):
        make_models(["proximal"], {"depth": 3})


def test_an_unknown_model_is_refused_with_the_known_names():
    with pytest.raises(ParameterError, match="there are proximal"):
        make_models(["nonsense"], {})


def test_a_class_that_is_not_there_is_not_offered(monkeypatch):
    monkeypatch.setitem(LEARNERS, "ghost", LEARNERS["proximal"].__class__("Ghost", "not there"))
    assert "ghost" not in available()


def test_the_shell_completes_commands_and_models():
    import click

    from steelyard.cli.options import complete_models

    assert complete_models(None, None, "prox") == ["proximal", "proximal-unweighted"]
    with click.Context(main) as context:
        assert [item.value for item in main.shell_complete(context, "st")] == ["statistics", "stream"]
