"""The chat template of any causal language model's tokenizer: its own, the config's, or a plain one
where it has none; and one that refuses a system message is made to take it with the user's."""

from __future__ import annotations

import logging
from typing import Any

from jinja2 import TemplateError

from sparring.core.errors import ConfigError
from sparring.run import rank
from sparring.run.template import PLAIN

log = logging.getLogger(__name__)

# Roles as headings, which any tokenizer can spell; a reply ends with the end-of-text token.
_PLAIN_TEMPLATE = (
    "{% for m in messages %}{{ '### ' + (m['role'] | capitalize) + ':\n' + m['content'] }}"
    "{% if m['role'] == 'assistant' %}{{ eos_token }}{% endif %}{{ '\n\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '### Assistant:\n' }}{% endif %}"
)
# Before a template that takes no system message: it becomes the beginning of the user's.
_FOLD = (
    "{% if messages and messages[0]['role'] == 'system' %}"
    "{% set user = messages | length > 1 and messages[1]['role'] == 'user' %}"
    "{% set rest = '\n\n' + messages[1]['content'] if user else '' %}"
    "{% set messages = [{'role': 'user', 'content': messages[0]['content'] + rest}]"
    " + messages[(2 if user else 1):] %}"
    "{% endif %}"
)
_MARK = "⁂system⁂"


def settle_template(tokenizer: Any, template: str | None, name: str) -> None:
    """Give a tokenizer the template that its prompts will be written with; what is not its own is
    given in one line. `template`: None (its own, or the plain one), `plain`, or Jinja."""
    own = getattr(tokenizer, "chat_template", None)
    notes = []
    if template is None and not own:
        notes.append("has no chat template and gets a plain one (### User: … ### Assistant: …)")
    if template == PLAIN or (template is None and not own):
        tokenizer.chat_template = _plain(tokenizer)
    elif template is not None:
        tokenizer.chat_template = template
    elif isinstance(own, dict):  # several by name, of which chats use the default
        tokenizer.chat_template = tokenizer.get_chat_template()
    if not _takes_system(tokenizer):
        tokenizer.chat_template = _FOLD + tokenizer.chat_template
        notes.append("has a chat template without a system role: its text opens the user's message")
    _check(tokenizer, name)
    if notes and rank.rank() == 0:
        log.info("%s %s; `template:` sets another", name, ", and ".join(notes))


def _plain(tokenizer: Any) -> str:
    """The plain template, behind whatever the tokenizer itself puts before a text."""
    begins = tokenizer.bos_token_id is not None and (
        tokenizer.encode("a")[:1] == [tokenizer.bos_token_id]
    )
    return "{{ bos_token }}" + _PLAIN_TEMPLATE if begins else _PLAIN_TEMPLATE


def _takes_system(tokenizer: Any) -> bool:
    messages = [{"role": "system", "content": _MARK}, {"role": "user", "content": "?"}]
    try:
        return _MARK in render(tokenizer, messages)
    except (TemplateError, TypeError, ValueError):
        return False


def _check(tokenizer: Any, name: str) -> None:
    """A template must show the messages of both roles, or no prompt could be made."""
    user, assistant = {"role": "user", "content": "⁂u⁂"}, {"role": "assistant", "content": "⁂a⁂"}
    try:
        text = render(tokenizer, [user, assistant, user])
        missing = [m["content"] for m in (user, assistant) if m["content"] not in text]
        reason = "it leaves out messages" if missing else ""
    except (TemplateError, TypeError, ValueError) as error:
        reason = str(error)
    if reason:
        raise ConfigError(
            f"the chat template of {name} cannot write a conversation: {reason}. Set `template` to "
            f"`{PLAIN}`, to a file with a Jinja template, or to the template itself"
        )


def render(tokenizer: Any, messages: list[dict[str, str]]) -> str:
    return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
