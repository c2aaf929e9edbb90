"""The one command: ``python -m bench`` for the loaders, or ``launcher``, ``scale``, ``shuffle`` behind it."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

from bench import short
from bench.contenders import CONTENDERS
from bench.loaders import TEXTS, LoaderBenchmark, Settings
from bench.results import Results

_RESULTS = Path(__file__).parent / "results"
_STORE = Path(".tpulaunch") / "bench"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--results", type=Path, default=_RESULTS, help="directory for table, JSON and plot")
    parser.add_argument("--store", type=Path, default=_STORE, help="directory for corpora and what contenders keep")
    parser.add_argument("--short", action="store_true", help="three minutes; exit code 1 if a wide limit is broken")
    parser.add_argument("--megabytes", type=int, help="text of the corpus for speed")
    parser.add_argument("--side-megabytes", type=int, help="text of the corpora for resume and memory")
    parser.add_argument("--window", type=float, dest="window_seconds", help="seconds of a window")
    parser.add_argument("--warm-up", type=float, dest="warm_up_seconds", help="seconds before a window")
    parser.add_argument("--repeats", type=int, help="turns")
    parser.add_argument("--contenders", nargs="+", metavar="NAME", help="those whose name contains one of these")
    parser.add_argument("--texts", nargs="+", choices=tuple(TEXTS))
    parser.add_argument("--measures", nargs="+", choices=Settings(Path()).measures)
    commands = parser.add_subparsers(dest="command", metavar="launcher | scale | shuffle")
    commands.add_parser("launcher", help="start-up, render, submit, list")
    scale = commands.add_parser("scale", help="files, rows, hosts, restarts, memory")
    scale.add_argument("--parts", nargs="+", choices=("files", "order", "memory"), help="default: all")
    commands.add_parser("shuffle", help="how well batches are mixed, against a full permutation")
    return parser


def _settings(options: argparse.Namespace) -> Settings:
    base = Settings(store=options.store.resolve())
    if options.short:
        base = Settings(
            store=base.store,
            megabytes=24,
            side_megabytes=24,
            warm_up_seconds=1.0,
            window_seconds=4.0,
            repeats=2,
            contenders=short.CONTENDERS,
            texts=("Latin-like",),
            measures=("speed",),
        )
    given = {
        name: tuple(value) if isinstance(value, list) else value
        for name in ("megabytes", "side_megabytes", "window_seconds", "warm_up_seconds", "repeats", "texts", "measures")
        if (value := getattr(options, name)) is not None
    }
    if options.contenders:
        given["contenders"] = tuple(
            name for name in CONTENDERS if any(part.lower() in name.lower() for part in options.contenders)
        )
    return Settings(**{**vars(base), **given})


def _loaders(options: argparse.Namespace) -> int:
    from bench import plot
    from bench.report import markdown

    results: Results = LoaderBenchmark(_settings(options)).run()
    name = "short" if options.short else "loaders"
    if not options.short or options.results != _RESULTS:
        results.write(options.results / f"{name}.json")
        (options.results / f"{name}.md").write_text(markdown(results))
        plot.rates(results, options.results / f"{name}.png")
    print(markdown(results))
    broken = short.broken(results) if options.short else []
    for sentence in broken:
        print(sentence, file=sys.stderr)
    return 1 if broken else 0


def main(arguments: list[str]) -> int:
    """Run the command line and return its exit code."""
    options = _parser().parse_args(arguments)
    # Asked to end, it ends the process it measures too, which has a session of its own.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if options.command == "launcher":
        from bench import launcher

        return launcher.main(options.results)
    if options.command == "scale":
        from bench import scale

        return scale.main(options.results, options.parts)
    if options.command == "shuffle":
        from bench import shuffle

        return shuffle.main()
    return _loaders(options)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
