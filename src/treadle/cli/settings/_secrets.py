"""Credentials in a settings file: known by the name of a key, or by what a value looks like. They are never shown."""

from __future__ import annotations

import re

# Names of settings that speak of tokens are known, and are not asked about here.
_NAME = re.compile(
    r"(?:.*[_.-])?(?:api_?key|key|access_?key|private_?key|secret|client_?secret|secret_?key|token|\w+_token|password|"
    r"passwd|passphrase|credentials?|authorization|auth|bearer|cookie)",
    re.IGNORECASE,
)
# Forms that vendors document (2026): prefixes with a tail too long to be a word. What is looked for behind a tail has
# a bound, since somebody else may have written the text to have it searched for ever.
_NAME_LENGTH = 120
_VALUE = re.compile(
    r"(?<![A-Za-z0-9])(?:"
    r"(?:sk|pk|rk|xai|gsk|hf|npm|pypi|tvly|glpat|dop|r8|nvapi|pplx|fw|csk)[-_](?=[A-Za-z0-9_-]{0,99}\d)[A-Za-z0-9_-]{16,}"
    r"|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|xox[abeoprs]-[A-Za-z0-9-]{10,}"
    r"|(?-i:AIza[A-Za-z0-9_-]{30,}|(?:AKIA|ASIA)[A-Z0-9]{16})|ya29\.[A-Za-z0-9_-]{20,}"
    r"|eyJ[A-Za-z0-9_-]{8,499}\.[A-Za-z0-9_-]{8,})"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY|(?:bearer|basic)\s+[A-Za-z0-9._~+/=-]{16,}"
    r"|://[^/?#\s\"'<>\\@:]{0,99}:[^/?#\s\"'<>\\@]{1,299}@"
    r"|[?&](?:api[-_]?key|key|(?:access|auth)?[-_]?token|secret|password|sig|signature)=[^&#\s]{8,}",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """Whether a key of this name would hold a credential."""
    end = name[-_NAME_LENGTH:]  # a name is what it ends with
    return _NAME.fullmatch(re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", end)) is not None


def looks_secret(text: str) -> bool:
    """Whether a credential stands in `text`."""
    return _VALUE.search(text) is not None
