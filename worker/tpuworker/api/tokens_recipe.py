"""The recipe of rows that were tokenised before."""

from __future__ import annotations

from typing import Any, Literal

from tpuworker.api.meeting import Meeting
from tpuworker.api.origins import Named, open_tokens
from tpuworker.api.recipe import Recipe, make_data_spec, shuffle_section
from tpuworker.api.tokenised import TokenisedPipeline


def tokens_recipe(
    dataset: Any,
    named: Named,
    arrays: tuple[str, ...],
    shuffle: tuple[int, int | Literal["auto"]] | None = None,
    *,
    meeting: Meeting | None = None,
) -> Recipe:
    """Return the recipe of tokenised rows.

    Args:
        dataset: A name, or an object of ``datasets``.
        named: Split and the like of a name.
        arrays: Arrays to deliver; without ``labels`` among them, those too where the dataset has that column.
        shuffle: Seed and buffer of rows that are permuted; None keeps their order.
        meeting: Where ranks can talk, one of them lists named data for all.

    Raises:
        InputError: No such data, no ``input_ids``, or no rows.
        SpecError: An object that holds no rows of one split; no such seed or buffer.
    """
    origin, names, max_length = open_tokens(dataset, named, meeting)
    section = {} if shuffle is None else {"shuffle": shuffle_section(*shuffle)}
    data = make_data_spec({"max_length": max_length, **section})
    further = (name for name in names if name not in arrays and name == "labels")
    return Recipe(origin, lambda num_rows: TokenisedPipeline(names, max_length, num_rows), data, (*arrays, *further))
