// Reads a manifest as the API server does and its variables as the kubelet does; prints {"object": ..., "env": {...}}.
package main

import (
	"encoding/json"
	"io"
	"os"

	"sigs.k8s.io/yaml"

	"tpulaunch.dev/tests/manifests/oracle/expansion"
)

type variable struct {
	Name  string  `json:"name"`
	Value *string `json:"value"`
}

type manifest struct {
	Spec struct {
		ReplicatedJobs []struct {
			Template struct {
				Spec struct {
					Template struct {
						Spec struct {
							Containers []struct {
								Env []variable `json:"env"`
							} `json:"containers"`
						} `json:"spec"`
					} `json:"template"`
				} `json:"spec"`
			} `json:"template"`
		} `json:"replicatedJobs"`
	} `json:"spec"`
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	text, err := io.ReadAll(os.Stdin)
	must(err)
	object, err := yaml.YAMLToJSONStrict(text)
	must(err)
	var read manifest
	must(json.Unmarshal(object, &read))
	// As in pkg/kubelet/kubelet_pods.go: each variable may refer to those before it.
	env := map[string]string{}
	mapping := expansion.MappingFuncFor(env)
	for _, v := range read.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec.Containers[0].Env {
		if v.Value != nil {
			env[v.Name] = expansion.Expand(*v.Value, mapping)
		}
	}
	must(json.NewEncoder(os.Stdout).Encode(map[string]any{"object": json.RawMessage(object), "env": env}))
}
