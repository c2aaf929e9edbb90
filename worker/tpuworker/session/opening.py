"""From spec and environment to a session: identity, devices, index, tokens, plan, proof; each the same on all hosts."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuworker import backends
from tpuworker.backends.consensus import PeerError, together
from tpuworker.errors import Fault, PreflightError, SpecError
from tpuworker.identity import Identity, identify
from tpuworker.report.lines import Reporter
from tpuworker.report.metrics import Metrics
from tpuworker.session.devices import judge_devices, load_backend
from tpuworker.session.first_failure import FirstFailure
from tpuworker.session.training import Session
from tpuworker.signals import StopRequest
from tpuworker.spec import TPUJob, load_job, wire

if TYPE_CHECKING:
    from tpuworker.data.cursor import Cursor
    from tpuworker.data.index import Index, SourceIndex
    from tpuworker.data.loader import Loader
    from tpuworker.pipeline import Pipeline
    from tpuworker.preflight.verdict import Verdict
    from tpuworker.session.checkpoint import CursorStore
    from tpuworker.tokens.tokenizer import Tokenizer
    from tpuworker.tokens.verdict import Mismatch

#: Records of the user's data that are tried on an engine, if the first unit has as many.
_SAMPLE_ROWS = 2000
#: Bad records that are shown one by one.
_SHOWN = 10


@dataclass(frozen=True)
class Setting:
    """Everything the environment says, read once.

    Attributes:
        job: The spec.
        job_name: Name of the job.
        spec_text: The document.
        identity: Which host this is.
        platform: What backends open.
        state_dir: Where verdict and report go.
        cache_dir: Where findings about tokenizer engines are kept for the next run.
        termination_log: Where last words go.
        metrics_port: Port of the worker's metrics, 0 for none.
        preflight_only: End after the proof.
        accept_changed_data: Resume although the data changed.
        submission: What the restarts of a run that accepts changed data share; empty if each start accepts anew.
    """

    job: TPUJob
    job_name: str
    spec_text: str
    identity: Identity
    platform: backends.Platform
    state_dir: Path
    cache_dir: Path
    termination_log: Path
    metrics_port: int
    preflight_only: bool
    accept_changed_data: bool
    submission: str


def read_setting(environment: Mapping[str, str], spec_path: str | None = None) -> Setting:
    """Return the setting of this process.

    Args:
        environment: Variables of the process.
        spec_path: Path of the spec. Default: what the environment names, else where the pod mounts it.

    Raises:
        SpecError: The spec cannot be read, or is no valid job.
        IdentityError: The environment does not say, or contradicts, which host this is.
    """
    path = spec_path or environment.get(wire.ENV_SPEC) or wire.SPEC_PATH
    try:
        text = Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        hint = f"give a path, or set {wire.ENV_SPEC}"
        raise SpecError([Fault("spec", f"{path}: {error}", "a file with one TPUJob document", hint)]) from None
    job = load_job(text, path)
    identity = identify(job, environment)
    asked = environment.get(wire.ENV_PJRT_DEVICE, "").upper()
    on_tpu = asked == "TPU" or (not asked and "TPU_ACCELERATOR_TYPE" in environment)
    port = environment.get(wire.ENV_METRICS_PORT, "")
    default_state = Path(tempfile.gettempdir()) / "tpulaunch" / (identity.pod_name or f"host-{identity.host_rank}")
    return Setting(
        job=job,
        job_name=job.metadata.name or identity.pod_name.partition(f"-{wire.REPLICATED_JOB}-")[0] or "job",
        spec_text=text,
        identity=identity,
        platform="tpu" if on_tpu else "cpu",
        state_dir=Path(environment.get(wire.ENV_STATE_DIR) or default_state),
        cache_dir=Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tpulaunch" / "engines",
        termination_log=Path(environment.get(wire.ENV_TERMINATION_LOG) or wire.TERMINATION_LOG),
        metrics_port=int(port) if port.isdecimal() else wire.PORT_WORKER_METRICS,
        preflight_only=environment.get(wire.ENV_PREFLIGHT_ONLY) == "1",
        accept_changed_data=environment.get(wire.ENV_ACCEPT_CHANGED_DATA) == "1",
        submission=environment.get(wire.ENV_SUBMISSION, ""),
    )


class Opening:
    """Opens a session step by step; what is known so far serves the last words if a step fails.

    Args:
        setting: What the environment says.
        reporter: The log.
        stop: Whether somebody asked to stop.
        on_failure: Ends this process when another host has failed; called on a thread of its own.
    """

    def __init__(
        self, setting: Setting, reporter: Reporter, stop: StopRequest, on_failure: Callable[[PeerError], None]
    ) -> None:
        self.setting = setting
        self.verdict: Verdict | None = None
        self.session: Session | None = None
        self.first_failure: FirstFailure | None = None
        self._reporter = reporter
        self._stop = stop
        self._on_failure = on_failure

    def open(self, users_code: Callable[[], Any] | None = None) -> Session:
        """Return the session once the proof is given.

        Args:
            users_code: Imports the training code; called once the devices are open, so that it may use them.

        Raises:
            PreflightError: Hosts disagree, or a batch was compiled anew.
            WorkerError: Any other refusal, of this or another host.
        """
        from tpuworker.data.measuring import measured
        from tpuworker.data.plan import make_data_plan
        from tpuworker.preflight import Proof, agreement, preflight
        from tpuworker.preflight.check import first_of_last
        from tpuworker.session.acceptance import accept

        setting, job, identity = self.setting, self.setting.job, self.setting.identity
        backend = load_backend(job.spec.worker.backend)
        backend.start(identity, platform=setting.platform, sharding=job.spec.data.batch_sharded_over)
        self._stop.listen()  # again: jax.distributed puts a handler of its own over ours
        self.first_failure = FirstFailure(backend, identity, self._on_failure)
        together(backend, identity, "devices", lambda: judge_devices(job, backend))
        if users_code is not None:
            together(backend, identity, "training code", users_code)
        self._reporter.say(
            f"{identity.num_hosts} hosts have met, {backend.num_devices} {backend.versions['platform']} devices"
        )
        index, tokenizer, start = self._shared(backend)
        self._judge_store(backend, start)
        self._compare_files(backend, index)
        together(backend, identity, "plan", lambda: make_data_plan(job, index, start))
        pipeline, engine = self._tokens(backend, index, tokenizer)
        listed = index
        index = measured(
            job,
            listed,
            pipeline,
            identity,
            exchange=backend.exchange,
            together=lambda what, action: together(backend, identity, what, action),
        )
        if identity.host_rank == 0:
            for source, before in zip(index.sources, listed.sources, strict=True):
                for note in source.notes[len(before.notes) :]:
                    self._reporter.say(f"{source.name}: {note}", "WARNING")

        def make_loader(cursor: Cursor | None, accept_changed_data: bool = setting.accept_changed_data) -> Loader:
            from tpuworker.data.loader import Loader

            return Loader(job, identity, index, pipeline, cursor, accept_changed_data=accept_changed_data)

        facts = agreement.own_facts(
            setting.spec_text, tuple(sys.modules.values()), [Path(word) for word in job.spec.train.command or ()]
        )
        facts |= {f"version of {name}": version for name, version in backend.versions.items()}
        facts |= {**index.fingerprints, **pipeline.fingerprint, "engine": engine}
        loader = together(backend, identity, "loader", lambda: make_loader(start))
        if start is not None and setting.submission:
            now, store = loader.cursor, self._store() if identity.host_rank == 0 else None
            together(backend, identity, "accepted change", lambda: accept(store, setting.submission, start, now))
        plan = loader.plan
        last_step = first_of_last(loader.cursor.step, plan.num_steps, plan.steps_per_epoch, job.spec.preflight.batches)
        last = None
        if last_step is not None and plan.packing != "stream":
            place = loader.cursor.after(last_step)
            last = together(backend, identity, "last batches", lambda: make_loader(place))
        self.verdict = preflight(Proof(job, setting.job_name, identity, backend, facts, engine), loader, last)
        loader.close()
        if last is not None:
            last.close()
        self._tell_verdict(self.verdict)
        if loader.plan.num_steps <= (start.step if start else 0):
            self._reporter.say(f"all {loader.plan.num_steps} steps were done by an earlier run: nothing is left")
        self.session = Session(
            job=job,
            identity=identity,
            backend=backend,
            tokenizer=tokenizer,
            verdict=self.verdict,
            loader=together(backend, identity, "training loader", lambda: make_loader(start)),
            make_loader=make_loader,
            store=self._store(),
            stop=self._stop,
            reporter=self._reporter,
            metrics=self._metrics(),
        )
        return self.session

    def _shared(self, backend: backends.Backend) -> tuple[Index, Tokenizer, Cursor | None]:
        """Return what host 0 alone reads and the others receive: index, tokenizer, and where to go on."""
        from tpuworker.data.cursor import Cursor
        from tpuworker.data.index import Index
        from tpuworker.data.indexing import build_index
        from tpuworker.tasks.judging import judge_for
        from tpuworker.tokens.resolve import load_tokenizer
        from tpuworker.tokens.tokenizer import Tokenizer

        job, identity = self.setting.job, self.setting.identity
        is_first = identity.host_rank == 0

        def resolve() -> tuple[bytes, bytes, bytes] | None:
            if not is_first:
                return None
            tokenizer = load_tokenizer(job.spec.data)
            self._reporter.say(f"tokenizer: {tokenizer.source}, {tokenizer.vocab_size:,} ids; {tokenizer.pad_reason}")
            index = build_index(job, judge=judge_for(job.spec.data, lambda: tokenizer))
            files = sum(len(source.files) for source in index.sources)
            self._reporter.say(f"data: {index.num_rows:,} rows in {index.num_units:,} units of {files:,} files")
            for source in index.sources:
                self._tell_left_out(source)
            cursor = self._find_cursor()
            return (
                index.to_bytes(),
                tokenizer.to_bytes(),
                b"" if cursor is None else cursor.to_json().encode(),
            )

        parts = together(backend, identity, "index and tokenizer", resolve) or (None, None, None)
        index = Index.from_bytes(backend.broadcast("index", parts[0]))
        tokenizer = Tokenizer.from_bytes(backend.broadcast("tokenizer", parts[1]))
        cursor = backend.broadcast("cursor", parts[2])
        return index, tokenizer, Cursor.from_json(cursor.decode()) if cursor else None

    def _tell_left_out(self, source: SourceIndex) -> None:
        for note in source.notes:
            self._reporter.say(f"{source.name}: {note}")
        if source.filtered_rows:
            self._reporter.say(f"{source.name}: the filter leaves out {source.filtered_rows:,} rows")
        for dropped in source.dropped[:_SHOWN]:
            self._reporter.say(f"left out: {dropped.place}: {dropped.reason}", "WARNING")
        if len(source.dropped) > _SHOWN:
            self._reporter.say(f"{source.name}: {len(source.dropped):,} bad records left out in all", "WARNING")

    def _compare_files(self, backend: backends.Backend, index: Index) -> None:
        from tpuworker.preflight import Verdict, compare_files

        identity = self.setting.identity
        files = [file for source in index.sources for file in source.files]
        compared = compare_files(files, backend, identity)
        if compared.num_compared < compared.num_files and identity.host_rank == 0:
            counts = f"{compared.num_compared:,} of {compared.num_files:,}"
            self._reporter.say(f"data: {counts} local files were compared among hosts in the time there is", "WARNING")
        if compared.faults:
            self.verdict = Verdict(
                verdict="refused",
                job=self.setting.job_name,
                backend=backend.name,
                versions=backend.versions,
                num_slices=identity.num_slices,
                num_hosts=identity.num_hosts,
                num_devices=backend.num_devices,
                num_rows=index.num_rows,
                faults=compared.faults,
            )
            self._tell_verdict(self.verdict)

    def _find_cursor(self) -> Cursor | None:
        store = self._store()
        if store is None:
            return None
        cursor, damaged = store.load()
        for sentence in damaged:
            self._reporter.say(sentence, "WARNING")
        if cursor is not None:
            self._reporter.say(f"going on after step {cursor.step}, from {store.directory}", step=cursor.step)
        return cursor

    def _judge_store(self, backend: backends.Backend, start: Cursor | None) -> None:
        """Prove that cursors can be written, and warn where a restart might not find them."""
        from tpuworker.session.cursor_place import proved, warnings

        store, identity = self._store(), self.setting.identity
        if store is None:
            return
        blind = proved(
            store,
            identity.host_rank,
            backend.exchange,
            lambda what, action: together(backend, identity, what, action),
        )
        for sentence in () if identity.host_rank else warnings(store, blind, identity.restart_attempt, start):
            self._reporter.say(sentence, "WARNING")

    def _tokens(self, backend: backends.Backend, index: Index, tokenizer: Tokenizer) -> tuple[Pipeline, str]:
        """Return the pipeline with the engine that all hosts have proved equal to the reference."""
        from tpuworker.data.probing import judge_learnable, some_records
        from tpuworker.pipeline import make_pipeline, sample_texts
        from tpuworker.tokens.choose import Trials, judge_engines, make_engine
        from tpuworker.tokens.verdict import Verdict, join

        job, identity = self.setting.job, self.setting.identity
        spec = job.spec.data.tokenizer
        trials = Trials(seed=job.spec.data.shuffle.seed, directory=self.setting.cache_dir)
        mine = together(
            backend,
            identity,
            "tokenizer engine",
            lambda: judge_engines(
                spec, tokenizer, sample_texts(job.spec.data, tokenizer, some_records(index, 0, _SAMPLE_ROWS)), trials
            ),
        )
        told = backend.exchange("tokenizer engine", mine.to_json().encode())
        verdict = join([Verdict.from_json(payload.decode()) for payload in told])
        pipeline = together(
            backend,
            identity,
            "pipeline",
            lambda: make_pipeline(
                job.spec.data,
                tokenizer,
                make_engine(verdict, spec, tokenizer, on_mismatch=self._tell_mismatch),
                job.rows_per_host,
            ),
        )
        together(
            backend,
            identity,
            "rows to learn from",
            lambda: None if identity.host_rank else judge_learnable(job.spec.data, index, pipeline),
        )
        return pipeline, verdict.describe()

    def _tell_mismatch(self, mismatch: Mismatch) -> None:
        self._reporter.say(f"the tokenizer's reference takes over: {mismatch.describe()}", "WARNING")

    def _store(self) -> CursorStore | None:
        from tpuworker.session.checkpoint import CursorStore

        checkpoint = self.setting.job.spec.checkpoint
        return None if checkpoint is None else CursorStore(checkpoint.dir, checkpoint.keep)

    def _tell_verdict(self, verdict: Verdict) -> None:
        verdict.write(self.setting.state_dir / "verdict.json")
        self._reporter.say(
            f"{verdict.sentence()}\n{verdict.table()}" if self._reporter.is_for_people else verdict.sentence(),
            "INFO" if verdict.passed else "ERROR",
            event=wire.EVENT_PREFLIGHT,
            verdict=verdict.verdict,
            preflight=verdict.as_dict(),
        )
        if not verdict.passed:
            raise PreflightError(verdict.faults)

    def _metrics(self) -> Metrics:
        identity = self.setting.identity
        where = {"slice": str(identity.slice_index), "host": str(identity.host_of_slice)}
        labels = {"job": self.setting.job_name, **where}
        try:
            return Metrics(self.setting.metrics_port, labels)
        except OSError as error:
            self._reporter.say(f"no metrics: port {self.setting.metrics_port}: {error}", "WARNING")
            return Metrics(0, labels)
