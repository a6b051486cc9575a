"""The key `template:`: a chat template as a file, as Jinja, or `plain`; a run keeps its text."""

from __future__ import annotations

from pathlib import Path

from sparring.core.errors import ConfigError

PLAIN = "plain"


def read_template(template: str | None) -> str | None:
    """The template's text, whatever it was given as."""
    if template is None or template == PLAIN:
        return template
    text = template
    if "{{" not in template and "{%" not in template:
        try:
            text = Path(template).read_text()
        except (OSError, UnicodeError) as error:
            raise ConfigError(
                f"template: {template!r} is no Jinja, and no file that can be read ({error}); it "
                f"is a file with a chat template, the template itself, or `{PLAIN}`"
            ) from error
    return text
