"""`treadle permissions`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from treadle.cli.exits import Exit
from treadle.cli.permissions import Permissions, load_permissions
from treadle.cli.settings._commands import print_line, settings_of, tell_ignored
from treadle.cli.terminal import complain

if TYPE_CHECKING:
    import argparse

    from treadle.cli.settings import Settings


def permissions(arguments: argparse.Namespace) -> int:
    """Lists the rules, explains what they decide, or takes a saved one back."""
    settings = settings_of(arguments)
    known = load_permissions(settings, root=Path(arguments.root), environ=os.environ)
    action = {"list": _list, "explain": _explain, "revoke": _revoke}[arguments.permissions]
    return action(arguments, known, settings)


def _list(arguments: argparse.Namespace, known: Permissions, settings: Settings) -> int:
    rules = sorted(known.rules, key=lambda rule: ("deny", "ask", "allow").index(rule.decision))
    if arguments.json:
        shown = [{"decision": rule.decision, "rule": rule.text, "origin": rule.origin} for rule in rules]
        print(json.dumps({"mode": known.mode, "rules": shown}, indent=2))
        return Exit.COMPLETE
    print_line(f"mode {known.mode}, from {settings.origin('mode')}")
    for rule in rules:
        print_line(f"{rule.decision:<5}  {rule.text}  from {rule.origin}")
    if not rules:
        print_line("there are no rules")
    tell_ignored(settings)
    return Exit.COMPLETE


def _explain(arguments: argparse.Namespace, known: Permissions, settings: Settings) -> int:
    for line in known.explain(arguments.call):
        print_line(line)
    tell_ignored(settings)
    return Exit.COMPLETE


def _revoke(arguments: argparse.Namespace, known: Permissions, _settings: Settings) -> int:
    if known.revoke(arguments.rule):
        print_line(f"{arguments.rule} is revoked")
        for rule in known.rules:
            if rule.text == arguments.rule.strip():
                print_line(f"it still stands in {rule.origin}")
        return Exit.COMPLETE
    return complain(f"no rule {arguments.rule!r} is saved for this directory; treadle permissions list shows all")
