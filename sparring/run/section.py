"""What every section of a config is made from, so that a section may have a file of its own."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class ConfigError(ValueError):
    """What a person wrote cannot be used; the message names the nearest thing that can."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_assignment=True)
