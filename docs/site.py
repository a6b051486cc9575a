"""What the documentation site is built with beside the pages: a reference of every command, config
key, recipe and public name, read from the code."""

from __future__ import annotations

import inspect
import re
from contextlib import suppress
from typing import Any, Literal, get_args, get_origin

from mkdocs.structure.files import File, Files
from pydantic import BaseModel
from typer.main import get_command

import sparring

OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./[^)]*\)")
KEYS = "| key | default | accepts | |\n| --- | --- | --- | --- |"
MANY_COLUMNS = re.compile(r"^\|( -+ \|){9,}$", re.MULTILINE)
COMMENT = re.compile(r"^    (\w+): [^#\n]*(?:#\s*(.*))?$", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    pages = {"commands": commands(), "config": keys(), "api": api(), "recipes": recipes()}
    for name, text in pages.items():
        files.append(File.generated(config, f"reference/{name}.md", content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to the source, which is not part of the site, become the path's own name. Where a table
    has many columns it gets the room of the table of contents as well."""
    if MANY_COLUMNS.search(markdown):
        page.meta.setdefault("hide", ["toc"])
    return OUTSIDE.sub(r"\1", markdown)


def commands() -> str:
    from sparring.cli.app import app

    lines = ["# Commands", ""]

    def describe(command: Any, path: str) -> None:
        children = getattr(command, "commands", None)
        if children:
            for name in sorted(children):
                describe(children[name], f"{path} {name}")
            return
        text = inspect.cleandoc(command.help or "")
        lines.extend([f"## `{path}`", "", text, ""])
        if command.params:
            lines.extend(["| option | default | |", "| --- | --- | --- |"])
        for option in command.params:
            name = ", ".join(option.opts) if option.opts[0].startswith("-") else option.name.upper()
            default = "" if option.default in (None, False) or option.required else option.default
            lines.append(f"| `{name}` | {code(default)} | {cell(getattr(option, 'help', ''))} |")
        lines.append("")

    describe(get_command(app), "sparring")
    return "\n".join(lines)


def keys() -> str:
    from sparring.run.config import config_class

    lines = [
        "# Config keys",
        "",
        "Every key of a recipe; any of them can be overridden as `key=value`.",
        "",
    ]

    def describe(kind: type[BaseModel], prefix: str) -> None:
        comments: dict[str, str] = {}
        for base in reversed(kind.__mro__):
            if issubclass(base, BaseModel) and base.__module__.startswith("sparring"):
                with suppress(OSError, TypeError):  # made by code: its bases have the text
                    pairs = COMMENT.findall(inspect.getsource(base))
                    comments.update({key: comment for key, comment in pairs if comment})
        plain, inner = [], []
        for name, field in kind.model_fields.items():
            annotation = field.annotation
            if inspect.isclass(annotation) and issubclass(annotation, BaseModel):
                inner.append((name, annotation))
            else:
                default = field.get_default(call_default_factory=True)
                row = (f"`{prefix}{name}`", code(default), accepts(field), comments.get(name, ""))
                plain.append(f"| {' | '.join(map(cell, row))} |")
        if plain:
            heading = prefix.rstrip(".") or "The run"
            doc = inspect.cleandoc(kind.__doc__ or "") if prefix else ""
            lines.extend(
                [
                    f"## {heading}",
                    "",
                    doc,
                    "",
                    "| key | default | accepts | |",
                    "| --- | --- | --- | --- |",
                    *plain,
                    "",
                ]
            )
        for name, annotation in inner:
            describe(annotation, f"{prefix}{name}.")

    describe(config_class(), "")
    return "\n".join(lines)


def recipes() -> str:
    from sparring.run.config import load_recipe
    from sparring.run.recipes import recipe_files

    lines = ["# Recipes", ""]
    for name, file in recipe_files().items():
        config = load_recipe(name)
        comment = [
            line[1:].strip() for line in file.read_text().splitlines() if line.startswith("#")
        ]
        size = f"{config.iterations} iterations" if config.pipeline == "loop" else config.pipeline
        played = ", ".join(f"`{game}`" for game in config.games)
        lines.extend(
            [
                f"## {name}",
                "",
                " ".join(comment),
                "",
                f"{played}; policy `{config.policy}`; {size}",
                "",
            ]
        )
    return "\n".join(lines)


def api() -> str:
    return (
        "# Python API\n\n" + "\n\n".join(f"::: sparring.{name}" for name in sparring.__all__) + "\n"
    )


def accepts(field: Any) -> str:
    """The values a key takes: the words of a choice, or a type with its range."""
    kind = field.annotation
    if get_origin(kind) is Literal:
        return ", ".join(f"`{word}`" for word in get_args(kind))
    name = kind.__name__ if inspect.isclass(kind) else str(kind).replace("typing.", "")
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    limits = [
        f"{sign} {getattr(item, key):g}"
        for item in field.metadata
        for key, sign in signs.items()
        if hasattr(item, key)
    ]
    return " ".join([re.sub(r"sparring[\w.]*\.", "", name), ", ".join(limits)]).strip()


def code(value: Any) -> str:
    return f"`{value}`" if value not in ("", [], {}) else ""


def cell(text: str | None) -> str:
    return (text or "").replace("|", "\\|").replace("\n", " ")
