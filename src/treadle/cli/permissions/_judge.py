"""Whether a call runs, is asked about, or is denied, and why."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol

from treadle.approval import Allow, Deny
from treadle.cli.permissions._calls import Call, Place, allows, covers, speaks_of
from treadle.cli.permissions._rules import COMMAND, EDITS, FETCH, FILES, PermissionRule, parse_rule
from treadle.cli.permissions._shell import NotPlainError
from treadle.cli.permissions._suggesting import Suggestion, edits_for_now, suggestion
from treadle.errors import ConfigError, ToolInputError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from treadle.cli.permissions._shell import Words
    from treadle.wraps import ToolRequest

Mode = Literal["ask", "auto-edit", "plan", "yolo"]
MODES: tuple[Mode, ...] = ("ask", "auto-edit", "plan", "yolo")
_PLAN = (
    "Plan mode: only tools that read run now. Look at what you need, then tell the plan; "
    "the user leaves plan mode to have it carried out."
)
_SESSION = "this session"
_FILES = ("user ", "project ", "profile ")  # how the origins of rules begin that stand in settings files


class Saving(Protocol):
    """Where rules are kept for good."""

    def add(self, rules: Sequence[PermissionRule]) -> list[PermissionRule]:
        """Saves rules and gives them with their origin."""
        ...

    def remove(self, text: str) -> bool:
        """Takes a rule out; whether it was there."""
        ...


class _Verdict(NamedTuple):
    """`why` follows the words "It runs", "It is asked about" or "It is denied"."""

    decision: Literal["allow", "ask", "deny"]
    why: str
    for_model: str = ""
    parts: tuple[str, ...] = ()


class Permissions:
    """Decides on calls by the mode and by rules: what denies wins, then what asks, then what allows.

    `save` keeps rules for good; without it they hold for this session. `root` is the directory that the file tools work
    in; `own` directories in it, such as that of the saved rules, are as sensitive as a `.env` is. The mode may be
    changed, but never to `yolo`: that is chosen when this is made.
    """

    def __init__(
        self,
        mode: Mode,
        rules: Iterable[PermissionRule] = (),
        save: Saving | None = None,
        *,
        root: Path | None = None,
        own: Iterable[Path] = (),
    ) -> None:
        if mode not in MODES:
            raise ConfigError(f"a mode is one of {', '.join(MODES)}, not {mode!r}")
        self._mode: Mode = mode
        self._may_yolo = mode == "yolo"
        self._rules = list(rules)
        self._saving = save
        self._place = Place(root, own)

    @property
    def mode(self) -> Mode:
        """What is asked about."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        if mode not in MODES or (mode == "yolo" and not self._may_yolo):
            words = ", ".join(MODES if self._may_yolo else MODES[:-1])
            raise ConfigError(f"the mode can be {words} here, not {mode!r}; yolo is by the flag --mode yolo only")
        self._mode = mode

    @property
    def rules(self) -> tuple[PermissionRule, ...]:
        """All rules, those of this session too, each with its origin."""
        return tuple(self._rules)

    def judge(self, request: ToolRequest) -> Allow | Deny | None:
        """The decision; None where a person has to be asked."""
        try:
            call = _call_of(request)
        except ToolInputError:
            return None  # it cannot be told what it would do
        verdict = self._verdict(call)
        if verdict.decision == "deny":
            return Deny(verdict.for_model)
        return Allow() if verdict.decision == "allow" else None

    def asks(self, request: ToolRequest) -> bool:
        """Whether a rule has such calls asked about, whatever else would let them run."""
        try:
            return self._first(_call_of(request), "ask") is not None
        except ToolInputError:
            return True

    def suggest(self, request: ToolRequest) -> Suggestion | None:
        """What "always" would save, to be shown first; None where no rule could let the call run."""
        try:
            call = _call_of(request)
        except ToolInputError:
            return None
        if self._mode == "plan" or self._first(call, "deny") or self._first(call, "ask"):
            return None
        return suggestion(call, self._place, lambda words: self._covering(words) is not None)

    def suggest_for_session(self, request: ToolRequest) -> Suggestion | None:
        """What "for this session" would allow: of edits all that are not of sensitive names, else as `suggest`."""
        found = self.suggest(request)
        if found is not None and self._place.is_safe_edit(_call_of(request)):
            return edits_for_now()
        return found

    def allow_for_session(self, request: ToolRequest) -> Suggestion | None:
        """Lets such calls run until the program ends. Gives what runs now; None where no rule could cover the call."""
        found = self.suggest_for_session(request)
        if found is not None:
            self._rules += [parse_rule(rule.text, "allow", _SESSION) for rule in found.rules]
        return found

    def allow_always(self, rule: Suggestion | PermissionRule) -> None:
        """Saves the rules, which then count. Raises `ConfigError` where they cannot be written; then they do not."""
        rules = rule.rules if isinstance(rule, Suggestion) else (rule,)
        if self._saving is None:
            self._rules += [parse_rule(one.text, "allow", _SESSION) for one in rules]
        else:
            self._rules += self._saving.add(rules)

    def revoke(self, text: str) -> bool:
        """Takes a saved rule, or one of this session, back; whether there was one.

        Raises `ConfigError` for a rule of a settings file, which the user takes out there.
        """
        wanted = text.strip()
        saved = self._saving is not None and self._saving.remove(wanted)
        found = [rule for rule in self._rules if rule.text == wanted]
        gone = [rule for rule in found if not _is_of_a_file(rule)]
        self._rules = [rule for rule in self._rules if rule not in gone]
        if found and not gone and not saved:
            raise ConfigError(f"{wanted} stands in {found[0].origin}: take it out there")
        return bool(gone) or saved

    def explain(self, what: ToolRequest | str) -> list[str]:
        """Why a call runs, is asked about, or is denied: a line for each part of a command, and one for the whole.

        A text is a command line, or a call like `edit_file(src/app.py)` or `web_fetch(https://docs.python.org/3/)`.
        """
        try:
            call = _call_in(what) if isinstance(what, str) else _call_of(what)
        except ToolInputError as error:
            return [f"It is asked about: its arguments do not fit the tool ({error})."]
        verdict = self._verdict(call)
        words = {"allow": "It runs", "ask": "It is asked about", "deny": "It is denied"}
        return [*verdict.parts, f"{words[verdict.decision]}: {verdict.why}."]

    def _verdict(self, call: Call) -> _Verdict:
        if rule := self._first(call, "deny"):
            return _Verdict("deny", _told(rule), _for_model(rule))
        if self._mode == "plan" and call.effect != "read":
            return _Verdict("deny", "in plan mode only tools that read run", _PLAN)
        if rule := self._first(call, "ask"):
            return _Verdict("ask", _told(rule))
        if self._mode == "yolo":
            return _Verdict("allow", "in mode yolo everything runs that no rule denies or asks about")
        return self._command(call) if call.name == COMMAND else self._other(call)

    def _command(self, call: Call) -> _Verdict:
        try:
            found = [(words, self._covering(words)) for words in self._place.plain_commands(call.line or "")]
        except NotPlainError as error:
            return _Verdict("ask", f"{error}, so no rule covers it")
        parts = tuple(f"{shlex.join(words)}: {_told(rule) if rule else 'no rule covers it'}" for words, rule in found)
        if all(rule for _, rule in found):
            return _Verdict("allow", "each command of it is allowed", parts=parts)
        return _Verdict("ask", "not every command of it is allowed", parts=parts)

    def _other(self, call: Call) -> _Verdict:
        if rule := next((rule for rule in self._of("allow") if allows(rule, call, self._place)), None):
            return _Verdict("allow", _told(rule))
        if call.effect == "read" and call.name != FETCH:
            return _Verdict("allow", "the tool only reads")
        if self._mode == "auto-edit" and self._place.is_safe_edit(call):
            return _Verdict("allow", "in mode auto-edit files of the root are edited without asking")
        if self._mode == "auto-edit" and call.name in EDITS:
            return _Verdict("ask", "the name is that of settings, secrets, CI or instructions, or not in the root")
        return _Verdict("ask", "no rule covers it")

    def _of(self, decision: str) -> list[PermissionRule]:
        return [rule for rule in self._rules if rule.decision == decision]

    def _first(self, call: Call, decision: str) -> PermissionRule | None:
        return next((rule for rule in self._of(decision) if speaks_of(rule, call, self._place)), None)

    def _covering(self, words: Words) -> PermissionRule | None:
        return next((rule for rule in self._of("allow") if covers(rule, words)), None)


def _call_of(request: ToolRequest) -> Call:
    """Raises `ToolInputError`."""
    return Call(request.name, request.effect.value, request.arguments)


def _call_in(text: str) -> Call:
    """The call that a person wrote down, or a command line."""
    found = re.fullmatch(r"\s*(\w+)\((.*)\)\s*", text, re.DOTALL)
    tool, inside = (found[1], found[2]) if found else (COMMAND, text)
    if tool not in (COMMAND, FETCH, *FILES):
        tool, inside = COMMAND, text
    arguments: dict[str, Any] = {"command" if tool == COMMAND else "url" if tool == FETCH else "path": inside}
    return Call(tool, "external" if tool == COMMAND else "write" if tool in EDITS else "read", arguments)


def _for_model(rule: PermissionRule) -> str:
    """A repository's own words are no part of it: a model would read them as the user's."""
    return "A rule of the project denies this." if "project " in rule.origin else f"A rule denies this: {rule.text}."


def _told(rule: PermissionRule) -> str:
    return f"{rule.decision} {rule.text}, from {rule.origin}"


def _is_of_a_file(rule: PermissionRule) -> bool:
    return rule.origin.startswith(_FILES)
