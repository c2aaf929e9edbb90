"""The ``spec.data`` section: which rows, in which order, in which shape."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from tpuworker.strict import NonEmptyStr, NonNegativeInt, PositiveInt, StrictModel, refusal

Auto = Literal["auto"]
Weight = Annotated[float, Field(gt=0)]


class _Source(StrictModel):
    weight: Weight = 1.0
    """Share of this source in a mixture, relative to the other weights. One source alone needs none."""


class FilesSource(_Source):
    """Plain files that are read as they are: parquet, jsonl (.gz, .zst), Arrow IPC, text."""

    files: NonEmptyStr | Annotated[tuple[NonEmptyStr, ...], Field(min_length=1)]
    """One pattern or several: local paths, gs://, s3://, hf://, http(s)://; ``*``, ``?``, ``[...]`` and ``**``."""
    format: Literal["auto", "parquet", "jsonl", "arrow", "text"] = "auto"
    """``auto`` goes by the name's ending; the bytes are checked against it all the same."""

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns, also when only one was written."""
        return (self.files,) if isinstance(self.files, str) else self.files


class HubSource(_Source):
    """A dataset that the ``datasets`` library resolves and opens."""

    hub: NonEmptyStr
    """Dataset name on the hub, or a local directory that ``datasets`` understands."""
    name: NonEmptyStr | None = None
    """Configuration of the dataset."""
    split: NonEmptyStr = "train"
    """Split."""
    revision: NonEmptyStr | None = None
    """Commit, tag or branch. Pin a commit: a branch may move between a run and its resume."""
    data_files: NonEmptyStr | None = None
    """Pattern inside the dataset, handed to ``datasets``."""


class TfdsSource(_Source):
    """A TensorFlow dataset, prepared beforehand; array_record needs no TensorFlow."""

    tfds: NonEmptyStr
    """Dataset name, with ``:version`` if wanted."""
    split: NonEmptyStr = "train"
    """Split, TFDS slices included."""
    data_dir: NonEmptyStr | None = None
    """Where it was prepared."""


_SOURCE_KEYS = ("files", "hub", "tfds")


def _source_kind(value: Any) -> str:
    keys = value if isinstance(value, dict) else getattr(type(value), "model_fields", {})
    return next((key for key in _SOURCE_KEYS if key in keys), "files")


Source = Annotated[
    Annotated[FilesSource, Tag("files")] | Annotated[HubSource, Tag("hub")] | Annotated[TfdsSource, Tag("tfds")],
    Discriminator(_source_kind),
]


class TokenizerSpec(StrictModel):
    """Which tokenizer, and which engine may do its work."""

    path: NonEmptyStr
    """Hub name, directory, or a tokenizer.json."""
    revision: NonEmptyStr | None = None
    """Commit on the hub. Pin one."""
    engine: Literal["auto", "reference", "fastokens", "gigatoken"] = "auto"
    """``auto`` takes the fastest engine that proves equal at start, else the reference; a named one must prove it."""
    pad_token: NonEmptyStr | None = None
    """Token that fills short rows. Default: the tokenizer's own pad token, else its end token: pads are masked by
    position, so a real end token is learnt all the same."""
    eos_token: NonEmptyStr | None = None
    """Token that ends a document. Default: the tokenizer's own."""
    chat_template: NonEmptyStr | None = None
    """File with a chat template (jinja). Default: the tokenizer's own."""


class ShuffleSpec(StrictModel):
    """The order of rows: a pure function of these numbers, the epoch and the files; never of the number of hosts."""

    order: Literal["shuffled", "sequential"] = "shuffled"
    """``sequential`` keeps the order of files and rows."""
    seed: NonNegativeInt = 0
    """Key of the order, together with the epoch."""
    buffer_size: PositiveInt | Auto = "auto"
    """Rows open at once over the whole job. ``auto``: 10,000 below 1M rows, 100,000 to 100M, 1,000,000 above; at
    least 0.1 % of the rows; never more than the host's RAM plan allows."""
    lanes: PositiveInt | Auto = "auto"
    """Parts the epoch is cut into; a host owns whole lanes. ``auto``: the smallest divisor of the global batch that
    is at least 64 and a multiple of the hosts. Another number of hosts can resume if it divides the lanes."""


class SkipLimit(StrictModel):
    """How many bad records may be left out before the job is refused."""

    limit: PositiveInt
    """Most records skipped over all sources."""


class SkipPolicy(StrictModel):
    """Leave bad records out of the index, before steps are counted."""

    skip: SkipLimit


def _bad_record_kind(value: Any) -> str:
    return "word" if isinstance(value, str) else "skip"


BadRecordPolicy = Annotated[
    Annotated[Literal["fail", "mask"], Tag("word")] | Annotated[SkipPolicy, Tag("skip")],
    Discriminator(_bad_record_kind),
]


class PackingSpec(StrictModel):
    """How documents share a row under ``layout: pack``."""

    form: Literal["auto", "exact", "stream"] = "auto"
    """``exact`` measures every document first: known steps, best fill. ``stream`` packs as it reads: no first pass.
    ``auto`` is ``stream`` for pretrain and ``exact`` for the others."""
    overflow: Literal["split", "truncate"] = "split"
    """A document longer than a row is split over rows, or cut to one row."""


class ConversationSpec(StrictModel):
    """How conversations become rows and what is learnt from them."""

    loss_on: Literal["assistant", "all"] = "assistant"
    """Tokens that carry loss: the assistant's turns, or every token."""
    system_role: Literal["keep", "merge", "refuse"] = "keep"
    """``merge`` puts the system text before the first user turn, for templates that know no system role."""
    nothing_to_learn: Literal["mask", "fail"] = "mask"
    """A row without a trainable token keeps its place with no loss, and is counted; or it is a bad record."""
    most_unlearnable_fraction: Annotated[float, Field(ge=0, le=1)] = 0.05
    """Refuse the job when a larger share of the probed rows has nothing to learn."""


class DataSpec(StrictModel):
    """From sources to fixed-shape batches."""

    task: Literal["text", "pretrain", "conversation"] = "pretrain"
    """``text``: ids as the tokenizer makes them. ``pretrain``: every document ends with the end token.
    ``conversation``: chat template and loss on the assistant."""
    sources: Annotated[tuple[Source, ...], Field(min_length=1)]
    """One source, or a mixture by weight."""
    text_column: NonEmptyStr = "auto"
    """Column with the text. ``auto``: "text", else "data"."""
    conversation_column: NonEmptyStr = "auto"
    """Column with the turns. ``auto``: "messages", else "conversations"."""
    tokenizer: TokenizerSpec
    max_length: PositiveInt
    """Tokens of a row: every batch is [rows, max_length]. No default: a tokenizer's own idea may be 10^30."""
    layout: Literal["pad", "pack"] = "pad"
    """``pad``: one document a row. ``pack``: several, told apart by segment_ids."""
    packing: PackingSpec = PackingSpec()
    truncation_side: Literal["right", "left"] = "right"
    """Which end of a long document is cut off."""
    pad_labels: Literal["mask", "keep"] = "mask"
    """``mask`` gives pads the label -100, by position, never by id: a real end token that equals the pad is learnt."""
    conversation: ConversationSpec = ConversationSpec()
    global_batch_size: PositiveInt
    """Rows of one step over the whole job."""
    batch_sharded_over: Literal["devices", "hosts"] = "devices"
    """``devices``: every device has its own rows. ``hosts``: the devices of a host share its rows (model parallel)."""
    shuffle: ShuffleSpec = ShuffleSpec()
    epochs: PositiveInt = 1
    """Passes over the data."""
    remainder: Literal["drop", "mask"] = "drop"
    """The rows that do not fill a last global batch: left out of this epoch, or filled up with rows without loss."""
    mixture_stop: Literal["first_exhausted", "all_exhausted"] = "first_exhausted"
    """When an epoch of a mixture ends: with its first source, or once every source was seen whole (others repeat)."""
    filter: NonEmptyStr | None = None
    """Dotted path of a function ``(pyarrow.Table) -> boolean array``: rows to keep; runs while the index is made."""
    on_bad_record: BadRecordPolicy = "fail"
    """``fail``; ``mask``: the row stays, without loss; ``skip``: left out while the index is made, up to a limit."""
    cache: NonEmptyStr | None = None
    """Directory for token ids of the first epoch, read by later ones: local, or gs:// and the like. Hosts share it."""
    cache_limit_gib: Annotated[float, Field(gt=0)] = 256.0
    """Most that ``cache`` may hold; once it is full, further text is tokenised each time."""

    @field_validator("max_length")
    @classmethod
    def _has_room_for_a_label(cls, length: int) -> int:
        if length < 2:
            raise refusal(found=str(length), wanted="at least 2", hint="a row of one token has nothing to predict")
        return length

    @model_validator(mode="after")
    def _columns_belong_to_the_task(self) -> Self:
        other = "text_column" if self.task == "conversation" else "conversation_column"
        if getattr(self, other) != "auto":
            mine = "conversation_column" if self.task == "conversation" else "text_column"
            raise refusal(
                field=other,
                found=repr(getattr(self, other)),
                wanted=f"no {other}, since task is {self.task}",
                hint=f"write {mine} instead",
            )
        return self

    @property
    def column_candidates(self) -> tuple[str, ...]:
        """Columns to look for, the first that exists is taken."""
        if self.task == "conversation":
            return ("messages", "conversations") if self.conversation_column == "auto" else (self.conversation_column,)
        return ("text", "data") if self.text_column == "auto" else (self.text_column,)

    def num_lanes(self, num_hosts: int) -> int:
        """Return the lanes of an epoch that so many hosts share; ``auto`` resolved as :class:`ShuffleSpec` says."""
        lanes = self.shuffle.lanes
        return resolve_lanes(self.global_batch_size, num_hosts) if lanes == "auto" else lanes

    def steps_per_epoch(self, num_rows: int) -> int:
        """Return the steps of one epoch over ``num_rows`` rows (packed rows, under ``layout: pack``)."""
        batch = self.global_batch_size
        return num_rows // batch if self.remainder == "drop" else -(-num_rows // batch)

    @property
    def packing_form(self) -> Literal["exact", "stream"]:
        """The form of packing with ``auto`` resolved."""
        if self.packing.form == "auto":
            return "stream" if self.task == "pretrain" else "exact"
        return self.packing.form


#: Lanes that are enough for a shuffle as good as a full permutation (loaders study: V=64, k=3 gives 1.05).
ENOUGH_LANES = 64


def resolve_lanes(global_batch_size: int, num_hosts: int) -> int:
    """Return the smallest divisor of the batch that has at least 64 lanes (or all rows) and whole lanes per host.

    It is the same for every number of hosts that divides it, so a job resumes on fewer or more hosts.

    Args:
        global_batch_size: Rows of a step; a multiple of ``num_hosts``.
        num_hosts: Hosts of the job.
    """
    enough = min(ENOUGH_LANES, global_batch_size)
    fitting = (
        lanes
        for lanes in range(enough, global_batch_size + 1)
        if global_batch_size % lanes == 0 and lanes % num_hosts == 0
    )
    return next(fitting)
