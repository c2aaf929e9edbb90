// Modules that carry the schemas the manifests are held against; nothing of them is built.
module tpulaunch.dev/tests/manifests

go 1.24.0

require (
	k8s.io/kubernetes v1.36.3
	sigs.k8s.io/jobset v0.10.1 // the oldest that a manifest may meet: what xpk installs
	sigs.k8s.io/kueue v0.17.0
)
