"""The commands of the client: what `/` begins."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Coroutine  # noqa: TC003 - of the fields of a tuple
from typing import TYPE_CHECKING, Any, NamedTuple

from treadle.cli.chat import session_commands as sessions
from treadle.cli.terminal import one_line
from treadle.errors import ConfigError

if TYPE_CHECKING:
    from treadle.cli.chat.client import Client
    from treadle.cli.context import Context

KEYS = (
    ("enter", "send; while a run goes on, the line waits its turn"),
    ("alt-enter, ctrl-j", "a new line; so does enter behind a \\"),
    ("alt-s", "steer: say it before the run's next step"),
    ("ctrl-c, esc", "end what goes on; ctrl-c also clears the prompt, and twice at an empty one leaves"),
    ("ctrl-d", "leave, at an empty prompt"),
    ("shift-tab", "the next mode: ask, auto-edit, plan"),
    ("up", "what waits, to edit it; then earlier lines"),
    ("ctrl-r", "search earlier lines"),
    ("ctrl-x ctrl-e", "edit the prompt in $EDITOR"),
    ("ctrl-z", "to the background"),
    ("@path", "name a file; images and PDF go along"),
    ("!command", "run a command yourself; the model reads its output with the next message"),
)
_UNKNOWN_CONTEXT = "context: how full it is, the next answer tells"


class Command(NamedTuple):
    """A command. `alone`: nothing else may go on. `hint` says what may follow it."""

    name: str
    hint: str
    what: str
    run: Callable[[Client, str], Coroutine[Any, Any, Any]]
    alone: bool = False


def find(client: Client, word: str) -> Command | str:
    """The command of that name, or what to say where there is none."""
    commands = {command.name: command for command in all_commands(client)}
    if word in commands:
        return commands[word]
    close = difflib.get_close_matches(word, commands, n=1)
    return f"there is no /{word:.40}{f'; did you mean /{close[0]}?' if close else ''}; /help lists the commands"


def all_commands(client: Client) -> list[Command]:
    """The client's own commands, the user's and the project's, and the skills."""
    known = {command.name for command in COMMANDS}
    context = client.parts.context
    custom = [
        Command(own.name, own.argument_hint, own.description, _custom(own))
        for own in context.commands
        if own.name not in known
    ]
    skills = [
        Command(f"skill:{skill.name}", "[TEXT]", skill.description, _skill(skill.name)) for skill in context.skills
    ]
    return [*COMMANDS, *custom, *skills]


def shadowed(context: Context) -> list[str]:
    """What to say of commands that cannot be had, since the client's own have their names."""
    known = {command.name for command in COMMANDS}
    return [f"{own.path}: left out, /{own.name} is a command of the client" for own in context.commands
            if own.name in known]  # fmt: skip


def _skill(name: str) -> Callable[[Client, str], Coroutine[Any, Any, None]]:
    async def run(client: Client, argument: str) -> None:
        text = client.parts.context.skill_text(name)
        client.conversation.send(f"{client.pastes.fold(text, f'skill {name}')}\n\n{argument}".strip())

    return run


def _custom(command: Any) -> Callable[[Client, str], Coroutine[Any, Any, None]]:
    async def run(client: Client, argument: str) -> None:
        from treadle.cli.context import expand

        text = expand(command, client.pastes.whole(argument))
        client.conversation.send(client.pastes.fold(text, f"/{command.name} {client.pastes.shown(argument)}".strip()))

    return run


async def _help(client: Client, _argument: str) -> None:
    commands = [(f"/{command.name} {command.hint}".strip(), command.what) for command in all_commands(client)]
    blocks = []
    for title, pairs in (("commands", commands), ("keys", KEYS)):
        width = min(24, max(len(name) for name, _ in pairs))
        blocks += [f"{title}:", *(f"  {name:{width}}  {what}" for name, what in pairs)]
    client.face.output("\n".join(blocks))


async def _model(client: Client, argument: str) -> None:
    agents = client.parts.agents
    if not argument:
        now = agents.model or "not chosen yet"
        client.face.note(f"the model is {now}; /model PROVIDER:MODEL changes it")
        return
    await agents.use(model=argument)
    client.face.note(f"the model is {agents.model} from the next message on")
    client.face.changed()


async def _effort(client: Client, argument: str) -> None:
    agents = client.parts.agents
    if not argument:
        now = agents.effort or "left to the model"
        client.face.note(f"the effort is {now}; /effort low, medium, high changes it, /effort default leaves it")
        return
    await agents.use(effort="" if argument == "default" else argument)
    client.face.note(f"the effort is {agents.effort or 'left to the model'} from the next message on")


async def _mode(client: Client, argument: str) -> None:
    from treadle.cli.chat.client import MODES

    if argument and argument not in MODES:
        raise ConfigError(f"a mode is {', '.join(MODES)}, and not {argument!r:.40}")
    if argument:
        client.set_mode(argument)
    more = "" if argument else f"; /mode {', '.join(MODES)} changes it, and so does shift-tab"
    client.face.note(f"the mode is {client.parts.rules.mode}{more}")


async def _tools(client: Client, _argument: str) -> None:
    agent = await client.parts.agents.agent()
    tools = list(agent.tools)
    for toolset in agent.toolsets:
        tools += await toolset.tools()
    lines = [f"  {tool.name} ({tool.effect.value})  {tool.description.partition(chr(10))[0]}" for tool in tools]
    client.face.output("\n".join(["tools:", *lines] if lines else ["no tools"]))


async def _mcp(client: Client, _argument: str) -> None:
    agents = client.parts.agents
    await agents.agent()
    lines = [f"  {server.name}: {len(await server.tools())} tools" for server in agents.servers]
    lines += [f"  left out: {one_line(fault)}" for fault in agents.faults]
    none = "no MCP servers: files that the setting mcp names, and the .mcp.json of a trusted directory, have them"
    client.face.output("\n".join(["MCP servers:", *lines] if lines else [none]))


async def _cost(client: Client, _argument: str) -> None:
    client.face.note(client.face.cost())


async def _context(client: Client, _argument: str) -> None:
    parts = client.parts
    window, used = parts.agents.window, client.context_tokens
    share = f" of {window:,} ({used * 100 // window} %)" if window else ""
    lines = [f"context: {used:,} tokens{share} after the last answer" if used else _UNKNOWN_CONTEXT]
    lines += [f"  {file.path}" for file in parts.context.files]
    lines += [f"  skill {skill.name}: {skill.description}" for skill in parts.context.skills]
    client.face.output("\n".join(lines))


async def _permissions(client: Client, argument: str) -> None:
    rules = client.parts.rules
    lines = [f"{rule.decision} {rule.text}, from {rule.origin}" for rule in rules.rules] or ["there are no rules"]
    if argument:
        lines = rules.explain(argument)
    client.face.output("\n".join([f"the mode is {rules.mode}", *(f"  {line}" for line in lines)]))


async def _quit(client: Client, _argument: str) -> None:
    client.leaving.set()


COMMANDS: tuple[Command, ...] = (
    Command("help", "", "the commands and the keys", _help),
    Command("clear", "", "begin a new conversation", sessions.clear, alone=True),
    Command("model", "[PROVIDER:MODEL]", "show or change the model", _model),
    Command("effort", "[WORD]", "show or change how hard the model thinks", _effort),
    Command("mode", "[MODE]", "show or change what is asked about: ask, auto-edit, plan", _mode),
    Command("permissions", "[COMMAND]", "the rules, or what they say of a command", _permissions),
    Command("tools", "", "the model's tools", _tools),
    Command("mcp", "", "the MCP servers", _mcp),
    Command("cost", "", "what was spent since the start", _cost),
    Command("context", "", "how full the context is, and what is in it", _context),
    Command("compact", "[FOCUS]", "have the model sum up the conversation", sessions.compact, alone=True),
    Command("sessions", "", "the stored conversations of this directory", sessions.show),
    Command("resume", "[ID]", "go on with a stored conversation", sessions.resume, alone=True),
    Command("fork", "[NUMBER]", "go on in a copy, from before a message", sessions.fork, alone=True),
    Command("undo", "", "take the last message and its answer back", sessions.undo, alone=True),
    Command("export", "[FILE]", "write the conversation as Markdown or, by its name, JSON", sessions.export),
    Command("quit", "", "leave", _quit),
)
