package render

import (
	"path"
	"testing"

	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// kinds are the types of the Kubernetes API. The Issuer is one of cert-manager.
var kinds = map[string]func() any{
	"v1 Service":                         func() any { return &core.Service{} },
	"v1 ServiceAccount":                  func() any { return &core.ServiceAccount{} },
	"apps/v1 StatefulSet":                func() any { return &apps.StatefulSet{} },
	"apps/v1 Deployment":                 func() any { return &apps.Deployment{} },
	"policy/v1 PodDisruptionBudget":      func() any { return &policy.PodDisruptionBudget{} },
	"networking.k8s.io/v1 NetworkPolicy": func() any { return &networking.NetworkPolicy{} },
	"cert-manager.io/v1 Issuer":          func() any { return &map[string]any{} },
}

func TestEveryObjectHasTheFieldsOfTheKubernetesAPI(t *testing.T) {
	c := load(t, chartDir)
	judged := 0
	for _, r := range rows {
		var value any
		if err := yaml.Unmarshal([]byte(r.value), &value); err != nil {
			t.Fatal(err)
		}
		files, err := release{values: at(r.path, value)}.files(c)
		if err != nil {
			t.Fatal(err)
		}
		for file, text := range files {
			if path.Base(file) == "NOTES.txt" {
				continue
			}
			for _, document := range separator.Split(text, -1) {
				var head struct{ APIVersion, Kind string }
				if err := yaml.Unmarshal([]byte(document), &head); err != nil || head.Kind == "" {
					continue // the tests of values report errors
				}
				kind := kinds[head.APIVersion+" "+head.Kind]
				if kind == nil {
					t.Fatalf("%s: %s %s is not known here", file, head.APIVersion, head.Kind)
				}
				judged++
				if err := yaml.UnmarshalStrict([]byte(document), kind()); err != nil {
					t.Errorf("%s=%s: %s: %v", r.path, r.value, head.Kind, err)
				}
			}
		}
	}
	if judged < 10*len(rows) {
		t.Errorf("only %d objects", judged)
	}
}
