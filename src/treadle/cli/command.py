"""The command line: its options, its commands, and how every failure becomes one line and an exit code."""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

from treadle import __version__
from treadle.cli.exits import Exit, Signals
from treadle.cli.terminal import complain
from treadle.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

EXIT_CODES = """\
exit codes:
  0    the answer is complete (manifest: written, or the same as FILE; mcp: done)
  1    the run failed (manifest --check: FILE differs or is missing; mcp: a server or a tool failed)
  2    wrong usage or configuration; nothing was sent
  3    stopped short: a limit, the output limit, a refusal, or a full context
  130  interrupted by Ctrl-C
  141  whoever read standard output closed it
  143  terminated by SIGTERM
"""

MODELS = """\
without -m the model is, in this order: that of the settings (TREADLE_MODEL), that of a provider whose
key is set, that of a local server (Ollama, LM Studio, llama.cpp), or offline:demo, a stand-in of fixed rules. Standard
error says which.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        complain(f"{message}; see {self.prog} --help")
        raise SystemExit(Exit.USAGE)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command in `argv` (`sys.argv` by default) and returns its exit code."""
    with Signals() as signals:
        try:
            arguments = _parser().parse_args(_with_command(argv))
            code = int(arguments.command(arguments, signals))
            _flush()
        except SystemExit as leaving:
            return leaving.code if isinstance(leaving.code, int) else Exit.COMPLETE
        except KeyboardInterrupt:
            return signals.code or Exit.INTERRUPTED
        except BrokenPipeError:
            return _closed_pipe()
        except ConfigError as error:
            return complain(str(error), Exit.USAGE)
        except Exception as error:  # noqa: BLE001 - a person reads this, and a traceback does not help them
            return complain(f"{type(error).__name__}: {error}", Exit.FAILED)
        return code


def _with_command(argv: Sequence[str] | None) -> Sequence[str]:
    """The arguments; without a command those of `chat`, which needs no terminal that draws."""
    given = sys.argv[1:] if argv is None else argv
    others = ("-h", "--help", "--version")
    return ["chat", *given] if not given or (given[0].startswith("-") and given[0] not in others) else given


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="treadle",
        description="Run a language model with tools from the command line.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"treadle {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_chat(commands)
    _add_run(commands)
    _add_sessions(commands)
    _add_manifest(commands)
    _add_mcp(commands)
    _add_config(commands)
    _add_permissions(commands)
    _add_trust(commands)
    return parser


def _add_chat(commands: Any) -> None:
    from treadle.cli.settings import add_flags

    parser = commands.add_parser(
        "chat",
        help="talk to a model in the terminal; what `treadle` alone does there",
        description="Talk to a model that reads, edits and runs commands in a directory, and asks before it does.",
        epilog=f"{MODELS}\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("agent", metavar="MODULE:AGENT", nargs="?", help="an agent of your own, with its tools and instructions")
    add("--root", metavar="DIR", default=".", help="the directory to work in (default: the working directory)")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--continue", dest="continue_", action="store_true", help="go on with the last session")
    which.add_argument("--resume", metavar="ID", nargs="?", const="", help="go on with a session, the last by default")
    add("--yolo", action="store_true", help="run everything without asking; rules that deny or ask still hold")
    add_flags(parser)
    parser.set_defaults(command=_chat)


def _add_run(commands: Any) -> None:
    from treadle.cli.settings import add_flags

    parser = commands.add_parser(
        "run",
        help="send a prompt and print the answer",
        description="Send a prompt; the answer goes to standard output, tool activity and a summary to standard error.",
        epilog=f"{MODELS}\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("prompt", metavar="PROMPT", nargs="?", help="what to ask; - reads it from standard input")
    add("--system", metavar="TEXT", help="instructions for the model, instead of all others")
    add("--file", metavar="PATH", action="append", default=[], help="a file to send along: text, image, PDF or audio")
    add("--tool", metavar="MODULE:NAME", action="append", default=[], help="a tool, a function or a list of them")
    add("--root", metavar="DIR", default=".", help="the directory to work in (default: the working directory)")
    add("--no-tools", action="store_true", help="without the tools for the root, which only read by default")
    add("--yes", action="store_true", help="do not ask about any call: what no rule denies runs")
    add(
        "--json", action="store_true", help="print the events as JSON lines; without PROMPT take commands as JSON lines"
    )
    sessions = parser.add_mutually_exclusive_group()
    sessions.add_argument("--session", metavar="ID", help="store the run in this session, and go on with it")
    sessions.add_argument("--continue", dest="go_on", action="store_true", help="go on with the root's last session")
    add("--chat-template", metavar="FILE", help="for local: models, a Jinja template instead of the model's own")
    add_flags(parser, without=("theme", "notify"))
    parser.set_defaults(command=_run)


def _add_sessions(commands: Any) -> None:
    what = "list the stored sessions of a directory, export or remove one"
    parser = commands.add_parser("sessions", help=what, description=f"{what}; alone it lists.", allow_abbrev=False)
    parser.set_defaults(command=_sessions, sessions="list", root=".", json=False)
    inner = parser.add_subparsers(title="commands", metavar="COMMAND")
    shown = _sessions_command(inner, "list", "print the sessions, the newest first")
    shown.add_argument("--json", action="store_true", help="print them as JSON")
    written = _sessions_command(inner, "export", "write a session as Markdown, or as JSON")
    written.add_argument("id", metavar="ID", help="the session, or a beginning of its id that no other has")
    written.add_argument("file", metavar="FILE", nargs="?", help="a new file, JSON if it is called so; else print it")
    written.add_argument("--json", action="store_true", help="write JSON, whatever the file is called")
    removed = _sessions_command(inner, "remove", "take a session away for good")
    removed.add_argument("id", metavar="ID", help="the whole id of the session")


def _sessions_command(commands: Any, name: str, what: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=what, description=what, allow_abbrev=False)
    parser.add_argument("--root", metavar="DIR", default=".", help="the directory whose sessions they are")
    parser.set_defaults(sessions=name)
    return parser


def _add_manifest(commands: Any) -> None:
    parser = commands.add_parser(
        "manifest",
        help="print what agents are: models, tools, schemas, effects",
        description="Print a manifest of agents as JSON, to keep beside the code and to compare in reviews.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("agents", metavar="MODULE:AGENT", nargs="+", help="an agent in an importable module")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--check", metavar="FILE", help="compare with FILE: exit code 1 and a diff if it differs")
    where.add_argument("-o", "--output", metavar="FILE", help="write to FILE instead of standard output")
    parser.set_defaults(command=_manifest)


def _add_mcp(commands: Any) -> None:
    parser = commands.add_parser(
        "mcp",
        help="serve tools and agents over MCP, or look at MCP servers",
        description="Serve tools and agents to MCP clients, or list and call the tools of MCP servers.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    inner = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_mcp_serve(_mcp_command(inner, "serve", "serve an agent or tools, on standard input and output by default"))
    shown = _mcp_command(inner, "list", "list the tools of the servers in a file")
    shown.add_argument("file", metavar="FILE", help='a JSON file with "mcpServers"')
    shown.add_argument("--server", metavar="NAME", action="append", help="only this server of the file")
    shown.add_argument("--json", action="store_true", help="print all that is known, as JSON")
    called = _mcp_command(inner, "call", "call a tool of a server in a file")
    called.add_argument("file", metavar="FILE", help='a JSON file with "mcpServers"')
    called.add_argument("server", metavar="SERVER", help="the server's name in the file")
    called.add_argument("tool", metavar="TOOL", help="the tool's name, as `treadle mcp list` shows it")
    called.add_argument(
        "arguments", metavar="JSON", nargs="?", default="{}", help="its arguments; - reads them from standard input"
    )
    called.add_argument("--json", action="store_true", help="print the whole result as JSON, files too")


def _mcp_command(commands: Any, name: str, what: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=what, description=what, allow_abbrev=False)
    parser.set_defaults(command=_mcp, mcp=name)
    return parser


def _add_mcp_serve(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("thing", metavar="MODULE:NAME", help="an agent, a tool, a function, a toolset, or a list of them")
    add("--http", metavar="HOST:PORT", help="serve over HTTP at this address instead")
    add("--token-variable", metavar="NAME", help="the variable with the bearer token (default: TREADLE_MCP_TOKEN)")
    add("--allow-host", metavar="NAME", action="append", default=[], help="a further host name to answer to")
    add("--name", help="what the server calls itself")


def _add_config(commands: Any) -> None:
    from treadle.cli.settings import add_flags

    what = "print each setting and where it comes from"
    parser = commands.add_parser("config", help=what, description=what, allow_abbrev=False)
    parser.add_argument("--root", metavar="DIR", default=".", help="the directory whose settings to read")
    parser.add_argument("--json", action="store_true", help="print all as JSON")
    add_flags(parser)
    parser.set_defaults(command=_config)


def _add_permissions(commands: Any) -> None:
    what = "list the rules of what runs without asking, explain or revoke them"
    parser = commands.add_parser("permissions", help=what, description=f"{what}; alone it lists.", allow_abbrev=False)
    parser.set_defaults(command=_permissions, permissions="list", root=".", profile=None, json=False)
    inner = parser.add_subparsers(title="commands", metavar="COMMAND")
    shown = _permissions_command(inner, "list", "print the rules and where each comes from")
    shown.add_argument("--json", action="store_true", help="print them as JSON")
    asked = _permissions_command(inner, "explain", "tell why a call runs, is asked about or is denied")
    asked.add_argument("call", metavar="CALL", help="a command line, or a call like 'edit_file(src/app.py)'")
    revoked = _permissions_command(inner, "revoke", "take a saved rule back")
    revoked.add_argument("rule", metavar="RULE", help="the rule as `treadle permissions list` shows it")


def _permissions_command(commands: Any, name: str, what: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=what, description=what, allow_abbrev=False)
    parser.add_argument("--root", metavar="DIR", default=".", help="the directory that the rules are for")
    parser.add_argument("--profile", metavar="NAME", help="the [profile.NAME] of the settings files to use")
    parser.set_defaults(permissions=name)
    return parser


def _add_trust(commands: Any) -> None:
    what = "trust a directory: its settings, MCP servers, skills and commands"
    parser = commands.add_parser("trust", help=what, description=what, allow_abbrev=False)
    parser.add_argument("directory", metavar="DIR", nargs="?", default=".", help="default: the working directory")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--yes", action="store_true", help="trust what is shown without asking")
    which.add_argument("--status", action="store_true", help="only tell; the exit code is 1 where it is not trusted")
    which.add_argument("--forget", action="store_true", help="trust it no more")
    which.add_argument("--list", action="store_true", help="print all directories that are trusted")
    parser.set_defaults(command=_trust)


def _chat(arguments: argparse.Namespace, signals: Signals) -> int:
    from treadle.cli.chat.start import chat

    return chat(arguments, signals)


def _run(arguments: argparse.Namespace, signals: Signals) -> int:
    from treadle.cli.running import run

    return run(arguments, signals)


def _sessions(arguments: argparse.Namespace, _signals: Signals) -> int:
    from treadle.cli.sessions import sessions

    return sessions(arguments)


def _manifest(arguments: argparse.Namespace, _signals: Signals) -> int:
    from treadle.cli.manifest import write_or_check

    return write_or_check(arguments.agents, check=arguments.check, output=arguments.output)


def _mcp(arguments: argparse.Namespace, signals: Signals) -> int:
    from treadle.cli import mcp

    return {"serve": mcp.serve, "list": mcp.show, "call": mcp.call}[arguments.mcp](arguments, signals)


def _config(arguments: argparse.Namespace, _signals: Signals) -> int:
    from treadle.cli.settings._commands import config

    return config(arguments)


def _permissions(arguments: argparse.Namespace, _signals: Signals) -> int:
    from treadle.cli.permissions._commands import permissions

    return permissions(arguments)


def _trust(arguments: argparse.Namespace, _signals: Signals) -> int:
    from treadle.cli.settings._commands import trust

    return trust(arguments)


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _closed_pipe() -> int:
    """Points standard output to nowhere, so that the interpreter's last flush does not fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return Exit.CLOSED_PIPE
