"""What of the settings an agent is made with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from treadle import Model
    from treadle.cli.settings import Settings


def left_out(settings: Settings) -> list[str]:
    """Lines about variables that set nothing, and one about a project that needs trust and has none."""
    project = settings.project
    if project.trusted or not (project.files or project.problem):
        return list(settings.notes)
    why = project.problem or ("it has changed since" if project.changes else "")
    because = f" ({why})" if why else ""
    names = ", ".join(one.text for one in settings.ignored)
    such = f", like {names}" if names else ""
    return [
        *settings.notes,
        f"{project.path} is not trusted{because}: what it sets, starts or offers is left out{such}; see treadle trust",
    ]


def window_of(settings: Settings, model: Model, base_url: str | None) -> int | None:
    """How many tokens the context of `model` holds: as the settings say, else as the price list does of its vendor."""
    from treadle.pricing import context_window

    if settings.context_tokens is not None or base_url is not None:
        return settings.context_tokens
    return context_window(model)


def agent_options(settings: Settings, model: Model) -> dict[str, Any]:
    """The options of an `Agent` that settings decide on: limits, length of answers, reasoning, compaction."""
    from treadle import Reasoning

    options: dict[str, Any] = {"limits": settings.limits}
    if settings.max_output_tokens is not None:
        options["max_output_tokens"] = settings.max_output_tokens
    if settings.effort is not None or (settings.show_reasoning and model.capabilities.reasoning):
        options["reasoning"] = Reasoning(effort=settings.effort, show=settings.show_reasoning)
    if settings.context_tokens is not None:
        from treadle.compaction import compact

        options["wrap_model"] = compact(max(1, int(settings.context_tokens * settings.compact_at)))
    return options
