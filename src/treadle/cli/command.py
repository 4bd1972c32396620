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
    from collections.abc import Callable, Sequence

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
without -m the model is, in this order: TREADLE_MODEL, that of a provider whose key is set, that of a local server
(Ollama, LM Studio, llama.cpp), or offline:demo, a stand-in of fixed rules. Standard error says which.
"""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        complain(f"{message}; see {self.prog} --help")
        raise SystemExit(Exit.USAGE)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command in `argv` (`sys.argv` by default) and returns its exit code."""
    with Signals() as signals:
        try:
            arguments = _parser().parse_args(argv)
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
    _add_run(commands)
    _add_manifest(commands)
    _add_mcp(commands)
    return parser


def _add_run(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="send a prompt and print the answer",
        description="Send a prompt; the answer goes to standard output, tool activity and a summary to standard error.",
        epilog=f"{MODELS}\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("prompt", metavar="PROMPT", help="what to ask; - reads it from standard input")
    add(
        "-m",
        "--model",
        metavar="PROVIDER:MODEL",
        help="the model, like openai-chat:NAME, local:FILE.gguf, offline:demo",
    )
    add("--system", metavar="TEXT", help="instructions for the model")
    add("--file", metavar="PATH", action="append", default=[], help="a file to send along: text, image, PDF or audio")
    add("--max-steps", metavar="N", type=_positive, default=50, help="most model requests (default: 50)")
    _add_tools(add)
    add("--json", action="store_true", help="print the events as JSON lines instead of the answer")
    add("--base-url", metavar="URL", help="where the provider of -m answers, like http://127.0.0.1:8000/v1")
    add("--chat-template", metavar="FILE", help="for local: models, a Jinja template instead of the model's own")
    parser.set_defaults(command=_run)


def _add_tools(add: Callable[..., object]) -> None:
    add("--tool", metavar="MODULE:NAME", action="append", default=[], help="a tool, a function or a list of them")
    add("--root", metavar="DIR", default=".", help="the directory to work in (default: the working directory)")
    add(
        "--allow-writes",
        action="store_true",
        help="let the model write and edit files in the root (at a terminal it may ask)",
    )
    add(
        "--allow-commands",
        action="store_true",
        help="let the model run any command as you, no sandbox (at a terminal it may ask)",
    )
    add("--yes", action="store_true", help="at a terminal, do not ask about each change and command")
    add("--mcp", metavar="FILE", action="append", default=[], help="a JSON file of MCP servers whose tools to add")
    add("--fetch", action="store_true", help="let the model read pages of the public web (extra: web)")
    add("--search-url", metavar="URL", help="let it search the web by this SearXNG (default: TREADLE_SEARCH_URL)")
    add("--mycelium", action="store_true", help="let the model use this machine's mycelium: flows and memory")
    add("--no-tools", action="store_true", help="without the tools for the root, which only read by default")


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


def _positive(text: str) -> int:
    if not (text.isdecimal() and text.isascii() and int(text[:9]) > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _run(arguments: argparse.Namespace, signals: Signals) -> int:
    from treadle.cli.running import run

    return run(arguments, signals)


def _manifest(arguments: argparse.Namespace, _signals: Signals) -> int:
    from treadle.cli.manifest import write_or_check

    return write_or_check(arguments.agents, check=arguments.check, output=arguments.output)


def _mcp(arguments: argparse.Namespace, signals: Signals) -> int:
    from treadle.cli import mcp

    return {"serve": mcp.serve, "list": mcp.show, "call": mcp.call}[arguments.mcp](arguments, signals)


def _flush() -> None:
    if sys.stdout is not None:
        sys.stdout.flush()


def _closed_pipe() -> int:
    """Points standard output to nowhere, so that the interpreter's last flush does not fail again."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.close(nowhere)
    return Exit.CLOSED_PIPE
