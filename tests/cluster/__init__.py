"""A real Kubernetes cluster with TPU nodes for tests: brought up here from Go modules, or yours by KUBECONFIG.

What a test sees (fixtures live in `tests.cluster.fixtures`, which tests/conftest.py loads as a plugin; such tests are
marked `@pytest.mark.cluster`)::

    def test_a_job_completes(cluster, namespace):
        cluster.apply({"apiVersion": "jobset.x-k8s.io/v1alpha2", "kind": "JobSet", ...}, namespace)
        cluster.wait_for("JobSet", "tiny", namespace, condition="Completed")

Fixtures
    cluster     session   the `Cluster`; started on first use, ended with the session, also after Ctrl-C or a failure.
    namespace   function  name of a fresh namespace; written out as files when the test fails, then deleted.
    queue       function  name of a Kueue LocalQueue in `namespace` that admits every TPU generation ("tpu").

Every `Cluster`
    kubeconfig, context      what `--kubeconfig` and `--context` take; the rights are an administrator's
    is_own                   False for a cluster that was given
    busybox                  image with a shell that every real node has
    require(*features)       skips the test, with the reason, when the cluster lacks one of "jobset", "kueue",
                             "tpu-injection", "tpu-policies", "tpu-nodes", "node-control", "load-image", "fake-nodes"
    get, find, list, apply, create, patch, delete (kind, ...)   plain dicts; kind is "JobSet", "Pod", "Workload", ...
    wait_for(kind, name, namespace, condition=... | until=predicate | gone=True)   by watch
    logs, events, dump       a container's output; a namespace's events; all of a namespace as files
    evict(pod, namespace)    through the eviction API
    make_queue(namespace, name, chips)    a LocalQueue with a quota of its own

`OwnCluster`, with require("node-control")
    nodes                    `NodeState` by name; `machine` is None while a node is powered off
    add_nodes(pools)         `Pool` values of `tests.cluster.pools`, real or fake; returns the names
    set_chips(node, chips)   changes `google.com/tpu`
    kill_node(node)          power off: silent first, then dead; found out after 20 s, its pods deleted 10 s later
    restart_node(node)       a killed machine boots again, with its images and chips
    signal(pod, namespace, name)          `TERM` to a container's first process, behind the API server's back
    delete_node_object(node) only the Node object goes, as when a VM is gone and GKE notices
    remove_node(node)        both
    load_image(archive, nodes=None)       into these real nodes, by default all and those added later
    build_image(backend, nodes=None)      the project's Dockerfile, kept in the cache by content; returns the name
    kubeconfig_as(user, group)            another identity, with no rights until RBAC grants some

Default nodes, labelled and tainted as GKE does it, pool name in `cloud.google.com/gke-nodepool`::

    v6e-a-0, v6e-a-1   v6e 2x4, 4 chips each   } two pools of two hosts each:
    v6e-b-0, v6e-b-1   v6e 2x4, 4 chips each   } a job of two slices with two hosts runs for real
    v5e-0              v5e 2x2, 4 chips          single-host slice

The machine is small: a policy (`policies/small_machines.yaml`) cuts what TPU pods *request* in memory and CPU, so that
a pod written for a 720 GiB host is scheduled; limits stay as they are.

People: `python -m tests.cluster up | status | down | build | image`, see README.md beside this file.
"""
