"""What every section of a config is made from, so that a section may have a file of its own."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidatorFunctionWrapHandler, field_validator


class ConfigError(ValueError):
    """What a person wrote cannot be used; the message names the nearest thing that can."""


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_assignment=True, allow_inf_nan=False)

    @field_validator("*", mode="wrap")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        """`iterations: yes` is a slip, and not 1."""
        found = validate(value)
        if isinstance(value, bool) and not isinstance(found, bool):
            raise ValueError("a number is wanted, not true or false")
        return found
