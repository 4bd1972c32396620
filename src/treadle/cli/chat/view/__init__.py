"""What a conversation looks like in a terminal: events and time in, lines out. No terminal, no clock, no keys."""

from treadle.cli.chat.view._preview import exact
from treadle.cli.chat.view._theme import Theme, choose_theme
from treadle.cli.chat.view._view import View

__all__ = ["Theme", "View", "choose_theme", "exact"]
