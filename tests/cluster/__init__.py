"""A real Kubernetes cluster with TPU nodes for tests: brought up here from Go modules, or yours by KUBECONFIG.

What a test sees (fixtures live in `tests.cluster.fixtures`; load them with `pytest_plugins = ["tests.cluster.fixtures"]`
in tests/conftest.py; mark such tests `@pytest.mark.cluster`)::

    def test_a_job_completes(cluster, namespace):
        cluster.apply({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", ...}, namespace=namespace)
        cluster.wait_for("JobSet", "tiny", namespace, condition="Completed", timeout_seconds=120)

Fixtures
    cluster     session   the `Cluster`; started on first use, ended with the session, also after Ctrl-C or a failure.
    namespace   function  name of a fresh namespace; written out as files when the test fails, then deleted.
    queue       function  name of a Kueue LocalQueue in `namespace` that admits every TPU generation ("tpu").

`Cluster` (everything is typed; docstrings in `tests.cluster.cluster` say more)
    kubeconfig: Path, context: str      what `--kubeconfig` and `--context` take; the rights are an administrator's
    is_own: bool                        False when TPULAUNCH_TEST_KUBECONFIG or KUBECONFIG chose a cluster
    busybox: str                        image every real node has (sh, wget, nslookup, nc, ...)
    require(*features)                  skips the test, with the reason, when the cluster lacks one of "jobset", "kueue",
                                        "tpu-injection", "node-control", "load-image", "tpu-nodes", "fake-nodes"
    api                                 a configured kubernetes.client.ApiClient
    get / list / apply / patch / delete (kind, ...)    plain dicts in and out; kind is "JobSet", "Pod", "Workload", ...
    wait_for(kind, name, namespace, condition=... | until=predicate, timeout_seconds=...)    by watch; a time-out names
                                        the last state and the events
    logs(pod, namespace, container=None, previous=False) -> str
    events(namespace) -> list[dict]
    dump(namespace, directory)          objects, events and pod logs as files
    kubeconfig_as(user, groups=()) -> Path     another identity, with no rights until RBAC grants some; own cluster only

    nodes: dict[str, Node]              by name
    set_chips(node, chips)              changes `google.com/tpu` capacity and allocatable
    add_nodes(pools) -> list[str]       `pools` are `Pool` values (`tests.cluster.pools`); real or fake
    remove_node(node)                   ends the node's machine and deletes its Node object
    kill_node(node)                     power off: the network goes silent first, then every process; the Node stays
                                        until it is found dead (~20 s), pods are deleted ~10 s later
    delete_node_object(node)            only the Node object goes, as when a VM is gone and GKE notices
    restart_node(node)                  a killed machine boots again, with its images and chips
    evict(pod, namespace)               through the eviction API
    load_image(archive: Path) -> None   an OCI or docker archive, into every real node, nodes added later included
    build_image(backend="jax") -> str   the project's Dockerfile built (cached by content) and loaded; returns its name

Default nodes, all labelled and tainted as GKE does, pool name in `cloud.google.com/gke-nodepool`::

    v6e-a-0, v6e-a-1   v6e 2x4, 4 chips each   } two pools of two hosts each:
    v6e-b-0, v6e-b-1   v6e 2x4, 4 chips each   } a job of two slices with two hosts runs for real
    v5e-0              v5e 2x2, 4 chips          single-host slice

The machine is small: a policy (`small_machines.yaml`) cuts what TPU pods *request* in memory and CPU, so that a pod written
for a 720 GiB host is scheduled; limits stay as they are.

People: `python -m tests.cluster up | status | down | build`, see README.md beside this file.
"""
