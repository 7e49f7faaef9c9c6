"""``a2lp serve`` and ``a2lp label-studio`` without their packages."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from a2lp.cli.app import app
from a2lp.errors import install_command


@pytest.mark.parametrize("command", [["serve"], ["label-studio", "digits"]])
def test_a_missing_package_is_named_with_its_extra(monkeypatch, command):
    monkeypatch.setattr("a2lp.errors.find_spec", lambda name: None)
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 2 and install_command("serve") in result.output
