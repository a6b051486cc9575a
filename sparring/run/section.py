"""What every section of a config is made from, so that a section may have a file of its own."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidatorFunctionWrapHandler, field_validator


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", validate_assignment=True, allow_inf_nan=False)

    def sources(self) -> list[str]:
        """Every data source that this section and those inside it name: keys `source`, `data`."""
        values = {name: getattr(self, name) for name in type(self).model_fields}
        own = [v for k, v in values.items() if k in ("source", "data") and isinstance(v, str)]
        return own + [s for v in values.values() if isinstance(v, Section) for s in v.sources()]

    @field_validator("*", mode="wrap")
    @classmethod
    def _no_truth_for_a_number(cls, value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
        """`iterations: yes` is a slip, and not 1."""
        parsed = validate(value)
        if isinstance(value, bool) and not isinstance(parsed, bool):
            raise ValueError("a number is wanted, not true or false")
        return parsed
