"""Case C9: the logs of all hosts as one stream, through everything that goes wrong with streams."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable

import pytest

from tests.cluster_ops.api_server import World, serving
from tests.cluster_ops.builders import condition, make_jobset, make_pod
from tpulaunch.cluster.api import Api
from tpulaunch.cluster.conditions import Phase
from tpulaunch.cluster.log_follow import follow_logs
from tpulaunch.cluster.logs import JobRef, LogLine, Notice, Selection, label_width, print_logs
from tpulaunch.cluster.objects import Object
from tpulaunch.cluster.pod_log import Choice
from tpulaunch.errors import InputError, NotFoundError

RUNNING = {"name": "worker", "restartCount": 0, "state": {"running": {}}}
ENDED = {"name": "worker", "restartCount": 0, "state": {"terminated": {"exitCode": 0}}}
PATIENCE_SECONDS = 60
EVERY_HOST, ALL_LINES = Selection(), Choice()


class Follow:
    """A follow in a thread of its own, and what it has handed on."""

    def __init__(self, api: Api, selection: Selection = EVERY_HOST, choice: Choice = ALL_LINES) -> None:
        self.lines: dict[str, list[str]] = defaultdict(list)
        self.order: list[str] = []
        self.notices: list[str] = []
        self.end: Phase | None = None
        self.error: Exception | None = None
        self.changed = threading.Condition()
        self.thread = threading.Thread(target=self._run, args=(api, selection, choice), daemon=True)
        self.thread.start()

    def _run(self, api: Api, selection: Selection, choice: Choice) -> None:
        try:
            self.end = follow_logs(JobRef(api, "ml", "tiny"), selection, choice, self._take)
        except Exception as error:
            self.error = error
        with self.changed:
            self.changed.notify_all()

    def _take(self, item: LogLine | Notice) -> None:
        with self.changed:
            if isinstance(item, Notice):
                self.notices.append(item.text)
                self.order.append(item.text)
            else:
                self.lines[item.source.label] += item.line.parts
                self.order += item.line.parts
            self.changed.notify_all()

    def wait(self, until: Callable[[Follow], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: until(self) or self.error is not None, timeout=PATIENCE_SECONDS), (
                self.order
            )
        if self.error is not None:
            raise self.error

    def result(self) -> Phase | None:
        self.thread.join(PATIENCE_SECONDS)
        assert not self.thread.is_alive()
        if self.error is not None:
            raise self.error
        return self.end


def name_of(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def pod_at(
    slice_index: int = 0,
    host: int = 0,
    *,
    attempt: int = 0,
    state: dict[str, object] | None = RUNNING,
    phase: str = "Running",
) -> Object:
    pod = make_pod(slice_index, host, attempt=attempt, phase=phase, containers=(state,) if state else ())
    pod["spec"]["restartPolicy"] = "Never"
    return pod


def end_job(world: World, *pods: Object, result: str = "Completed") -> None:
    for pod in pods:
        world.write(name_of(pod), close=True)
        ended = {**pod, "status": {**pod["status"], "phase": "Succeeded", "containerStatuses": [ENDED]}}
        world.put("pods", ended)
    world.put("jobsets", make_jobset(conditions=(condition(result),)))


def start(world: World, *pods: Object, **jobset: int) -> None:
    world.put("jobsets", make_jobset(**jobset))
    for pod in pods:
        world.put("pods", pod)


def test_thirty_two_hosts_that_start_late_lose_no_line_and_keep_their_order() -> None:
    world = World()
    pods = [pod_at(s, h) for s in range(4) for h in range(8)]
    start(world, *[pod_at(s, h, state=None, phase="Pending") for s in range(4) for h in range(8)], slices=4, hosts=8)
    with serving(world) as api:
        follow = Follow(api)
        follow.wait(lambda f: any("waiting for" in notice for notice in f.notices))
        for pod in pods:
            world.write(name_of(pod), *(f"{name_of(pod)} line {n}\n".encode() for n in range(50)))
            world.put("pods", pod)
        end_job(world, *pods)
        assert follow.result() is Phase.COMPLETED
    expected = {
        f"{s}/{h}": [f"{name_of(pod_at(s, h))} line {n}" for n in range(50)] for s in range(4) for h in range(8)
    }
    assert follow.lines == expected


@pytest.mark.parametrize("kind", ["break_after", "end_after"])
def test_a_stream_that_ends_while_its_container_runs_is_taken_up_without_loss_or_repetition(kind: str) -> None:
    world, pod = World(), pod_at()
    start(world, pod, slices=1, hosts=1)
    setattr(world.log(name_of(pod)), kind, [70, 45, 333, 1])
    lines = [f"line {n}" for n in range(20)]
    with serving(world) as api:
        follow = Follow(api)
        world.write(name_of(pod), *(f"{line}\n".encode() for line in lines), at_ns=5)  # all of one stamp
        follow.wait(lambda f: len(f.lines["0/0"]) >= 20)
        world.write(name_of(pod), b"last\n")
        end_job(world, pod)
        assert follow.result() is Phase.COMPLETED
    assert follow.lines["0/0"] == [*lines, "last"]
    assert world.log(name_of(pod)).num_requests >= 5


@pytest.mark.parametrize("size", [1, 2, 3, 7, 10_000])
def test_chunks_may_be_cut_anywhere_even_inside_a_character(size: int) -> None:
    world, pod = World(), pod_at()
    start(world, pod, slices=1, hosts=1)
    world.log(name_of(pod)).chunk_bytes = size
    world.write(name_of(pod), "größe 漢字 🎉\n".encode(), b"two\n", b"\r 10%\r 20%\rdone\n", b"no line feed")
    with serving(world) as api:
        follow = Follow(api)
        end_job(world, pod)
        follow.result()
    assert follow.lines["0/0"] == ["größe 漢字 🎉", "two", " 10%", " 20%", "done", "no line feed"]


def test_a_container_restarted_in_place_shows_the_end_of_the_one_before() -> None:
    world, pod = World(), pod_at()
    pod["spec"]["restartPolicy"] = "OnFailure"
    start(world, pod, slices=1, hosts=1)
    world.write(name_of(pod), b"first life\n", close=True)
    with serving(world) as api:
        follow = Follow(api)
        follow.wait(lambda f: f.lines["0/0"] == ["first life"])
        world.write(name_of(pod), b"first life\n", at_ns=1000, previous=True)
        world.write(name_of(pod), b"Traceback: it broke\n", at_ns=2000, previous=True)
        current = world.log(name_of(pod))
        with world.changed:
            current.entries, current.is_closed = [(3000, b"second life\n")], False
        restarted = {**pod, "status": {**pod["status"], "containerStatuses": [{**RUNNING, "restartCount": 1}]}}
        world.put("pods", restarted)
        follow.wait(lambda f: "second life" in f.lines["0/0"])
        end_job(world, pod)
        follow.result()
    assert follow.lines["0/0"] == ["first life", "Traceback: it broke", "second life"]


def test_a_restart_of_the_job_is_announced_between_the_two_attempts() -> None:
    world = World()
    first = [pod_at(0, h) for h in range(2)]
    second = [pod_at(0, h, attempt=1) for h in range(2)]
    start(world, *first, slices=1)
    with serving(world) as api:
        follow = Follow(api)
        for pod in first:
            world.write(name_of(pod), b"attempt 0\n")
        follow.wait(lambda f: len(f.order) >= 2)
        for pod in first:
            world.write(name_of(pod), b"dying", close=True)
            world.remove("pods", name_of(pod))
        follow.wait(lambda f: f.order.count("dying") == 2)
        for pod in second:
            world.write(name_of(pod), b"attempt 1\n")
            world.put("pods", pod)
        follow.wait(lambda f: f.order.count("attempt 1") == 2)
        end_job(world, *second, result="Failed")
        assert follow.result() is Phase.FAILED
    heard = follow.order.index("attempt 1 starts: the job was restarted, all hosts begin anew")
    assert sorted(follow.order[:heard]) == ["attempt 0", "attempt 0", "dying", "dying"]
    assert follow.order[heard + 1 :] == ["attempt 1", "attempt 1"]


def test_a_job_that_ends_before_its_pods_were_seen_still_shows_its_lines() -> None:
    world, pod = World(), pod_at()
    world.put("jobsets", make_jobset(slices=1, hosts=1))
    with serving(world) as api:
        world.write(name_of(pod), b"boom\n", close=True)
        ended = {**pod, "status": {**pod["status"], "phase": "Failed", "containerStatuses": [ENDED]}}
        world.put("jobsets", make_jobset(slices=1, hosts=1, conditions=(condition("Failed"),)))
        world.put("pods", ended)
        follow = Follow(api)
        assert follow.result() is Phase.FAILED
    assert follow.lines["0/0"] == ["boom"]


def test_a_container_that_is_about_to_start_and_a_kubelet_that_cannot_be_reached_are_waited_for() -> None:
    world, pod = World(), pod_at()
    start(world, pod, slices=1, hosts=1)
    world.log(name_of(pod)).refusals = [(400, "container is waiting to start"), (500, "dial tcp: no route to host")]
    world.write(name_of(pod), b"here\n")
    with serving(world) as api:
        follow = Follow(api)
        follow.wait(lambda f: f.lines["0/0"] == ["here"])
        end_job(world, pod)
        follow.result()
    assert [notice for notice in follow.notices if "cannot be read" in notice] == [
        "host 0/0: its log cannot be read just now: dial tcp: no route to host"
    ]


def test_a_deleted_job_ends_the_stream_as_not_found() -> None:
    world, pod = World(), pod_at()
    start(world, pod, slices=1, hosts=1)
    world.write(name_of(pod), b"here\n")
    with serving(world) as api:
        follow = Follow(api)
        follow.wait(lambda f: f.lines["0/0"] == ["here"])
        world.write(name_of(pod), close=True)
        world.remove("pods", name_of(pod))
        world.remove("jobsets", "tiny")
        with pytest.raises(NotFoundError, match="was deleted"):
            follow.result()


def test_chosen_hosts_are_the_only_ones_and_a_tail_is_taken_of_each() -> None:
    world = World()
    pods = [pod_at(s, h) for s in range(2) for h in range(2)]
    start(world, *pods)
    for pod in pods:
        world.write(name_of(pod), *(f"{n}\n".encode() for n in range(9)))
    with serving(world) as api:
        follow = Follow(api, Selection(((0, 1), (1, None))), Choice(tail=2))
        follow.wait(lambda f: sum(map(len, f.lines.values())) >= 6)
        end_job(world, *pods)
        follow.result()
    assert follow.lines == {label: ["7", "8"] for label in ("0/1", "1/0", "1/1")}


def test_without_follow_the_hosts_are_merged_by_time_and_each_keeps_its_own_order() -> None:
    world = World()
    pods = [pod_at(0, h) for h in range(2)]
    start(world, *pods, pod_at(1, 0, state=None, phase="Pending"), slices=2)
    world.write(name_of(pods[0]), b"a\n", at_ns=1)
    world.write(name_of(pods[0]), b"c\n", at_ns=3)
    world.write(name_of(pods[0]), b"clock went back\n", at_ns=2)
    world.write(name_of(pods[1]), b"b\n", at_ns=2)
    world.write(name_of(pods[1]), b"d", at_ns=4)
    with serving(world) as api:
        heard = heard_of(api)
        with pytest.raises(NotFoundError, match="other does not exist in namespace ml"):
            print_logs(JobRef(api, "ml", "other"), EVERY_HOST, ALL_LINES, print)
    assert heard == [
        "no pod: 1/1 (the job is starting); tpulaunch status tiny says why",
        "not started yet: 1/0; tpulaunch status tiny says why",
        "0/0 a",
        "0/1 b",
        "0/0 c",
        "0/0 clock went back",
        "0/1 d",
    ]


def heard_of(api: Api, selection: Selection = EVERY_HOST) -> list[str]:
    heard: list[str] = []

    def take(item: LogLine | Notice) -> None:
        heard.append(item.text if isinstance(item, Notice) else f"{item.source.label} {item.line.text}")

    print_logs(JobRef(api, "ml", "tiny"), selection, ALL_LINES, take)
    return heard


def test_a_host_of_a_failed_job_whose_pod_kubernetes_removed_is_named_and_never_silent() -> None:
    world, pod = World(), pod_at(1, 1)
    start(world, pod, slices=2, hosts=2)
    world.write(name_of(pod), b"it broke here\n")
    end_job(world, pod, result="Failed")
    with serving(world) as api:
        notice, line = heard_of(api)
        assert notice.startswith("no pod left: 0/0, 0/1, 1/0 (the job is failed). Kubernetes removes the pods that")
        assert 'resource.labels.pod_name:"tiny-"' in notice
        assert line == "1/1 it broke here"
        with pytest.raises(NotFoundError, match=r"no pod left: 0/1 \(the job is failed\)"):
            heard_of(api, Selection(((0, 1),)))


def test_a_host_that_the_job_does_not_have_is_refused_with_those_it_has() -> None:
    world = World()
    start(world, pod_at(), slices=2, hosts=4)
    with serving(world) as api, pytest.raises(InputError, match=r"found 2/0, 0/4; wanted .* 0/0 to 1/3"):
        heard_of(api, Selection(((2, 0), (0, 4), (1, None))))


def test_hosts_without_a_pod_yet_are_told_of_while_the_job_lives() -> None:
    world = World()
    start(world, slices=2, hosts=2)
    with serving(world) as api:
        assert heard_of(api) == ["no pod: every host (the job is starting); tpulaunch status tiny says why"]


def test_the_prefix_is_as_wide_as_the_widest_host_from_the_first_line_on() -> None:
    assert label_width(make_jobset(slices=1, hosts=1)) == len("0/0")
    assert label_width(make_jobset(slices=16, hosts=64)) == len("15/63")


def test_leaving_a_follow_does_not_wait_for_a_host_that_is_silent() -> None:
    world, pod = World(), pod_at()
    start(world, pod, slices=1, hosts=1)
    world.write(name_of(pod), b"here\n")

    class LeftError(Exception):
        pass

    def leave(item: LogLine | Notice) -> None:
        if isinstance(item, LogLine):
            raise LeftError

    with serving(world) as api:
        left = threading.Event()

        def follow() -> None:
            with pytest.raises(LeftError):
                follow_logs(JobRef(api, "ml", "tiny"), EVERY_HOST, ALL_LINES, leave)
            left.set()

        threading.Thread(target=follow, daemon=True).start()
        assert left.wait(PATIENCE_SECONDS)
