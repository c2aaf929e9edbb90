"""The base of every model of the spec: frozen, strict in types, closed to unknown keys, documented by its fields."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError


class StrictModel(BaseModel):
    """A frozen value: no coercion (``"8"`` is not 8), no unknown key, attribute docstrings become descriptions."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        use_attribute_docstrings=True,
        validate_default=True,
        allow_inf_nan=False,
    )


def refusal(*, found: str, wanted: str, hint: str = "", field: str = "") -> PydanticCustomError:
    """Return the error a validator raises; :mod:`tpuworker.spec.document` turns it into a :class:`Fault`.

    Args:
        found: What stands in the document.
        wanted: What would be right.
        hint: The nearest valid value or the next step.
        field: Name of the sub-field the fault belongs to, when a whole model is judged.
    """
    context: dict[str, Any] = {"found": found, "wanted": wanted, "hint": hint, "field": field}
    return PydanticCustomError("fault", "found {found}; wanted {wanted}", context)


def raise_all(faults: Iterable[PydanticCustomError]) -> None:
    """Raise several refusals as one error, so that a validator reports all that it found; do nothing for none."""
    contexts = [fault.context for fault in faults]
    if contexts:
        raise PydanticCustomError("faults", "several faults", {"faults": contexts})


PositiveInt = Annotated[int, Field(ge=1)]
NonNegativeInt = Annotated[int, Field(ge=0)]
NonEmptyStr = Annotated[str, Field(min_length=1)]
