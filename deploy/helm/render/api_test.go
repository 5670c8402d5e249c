package render

import (
	"fmt"
	"path"
	"testing"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	apps "k8s.io/api/apps/v1"
	autoscaling "k8s.io/api/autoscaling/v2"
	batch "k8s.io/api/batch/v1"
	core "k8s.io/api/core/v1"
	networking "k8s.io/api/networking/v1"
	policy "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

// kinds are the types of the Kubernetes API, and of the operator of Prometheus. The Issuer is one of cert-manager.
var kinds = map[string]func() any{
	"v1 Service":                              func() any { return &core.Service{} },
	"v1 ServiceAccount":                       func() any { return &core.ServiceAccount{} },
	"v1 ConfigMap":                            func() any { return &core.ConfigMap{} },
	"apps/v1 StatefulSet":                     func() any { return &apps.StatefulSet{} },
	"apps/v1 Deployment":                      func() any { return &apps.Deployment{} },
	"apps/v1 DaemonSet":                       func() any { return &apps.DaemonSet{} },
	"batch/v1 Job":                            func() any { return &batch.Job{} },
	"policy/v1 PodDisruptionBudget":           func() any { return &policy.PodDisruptionBudget{} },
	"networking.k8s.io/v1 NetworkPolicy":      func() any { return &networking.NetworkPolicy{} },
	"autoscaling/v2 HorizontalPodAutoscaler":  func() any { return &autoscaling.HorizontalPodAutoscaler{} },
	"monitoring.coreos.com/v1 PodMonitor":     func() any { return &monitoring.PodMonitor{} },
	"monitoring.coreos.com/v1 ServiceMonitor": func() any { return &monitoring.ServiceMonitor{} },
	"cert-manager.io/v1 Issuer":               func() any { return &map[string]any{} },
}

func TestEveryObjectHasTheFieldsOfTheKubernetesAPI(t *testing.T) {
	for _, c := range charts(t) {
		judged := 0
		for _, r := range c.rows {
			var value any
			if err := yaml.Unmarshal([]byte(r.value), &value); err != nil {
				t.Fatal(err)
			}
			files, err := c.with(r.path, value).files(c.Chart)
			if err != nil {
				t.Fatal(err)
			}
			for file, text := range files {
				if path.Base(file) == "NOTES.txt" {
					continue
				}
				for _, document := range separator.Split(text, -1) {
					known, err := strict(document)
					if err != nil {
						t.Errorf("%s=%s: %s: %v", r.path, r.value, file, err)
					}
					if known {
						judged++
					}
				}
			}
		}
		if judged < len(c.rows) {
			t.Errorf("only %d objects of %s", judged, c.Name())
		}
	}
}

// strict decodes an object as the Kubernetes API does; it is not known if it is empty.
func strict(document string) (known bool, err error) {
	var head struct{ APIVersion, Kind string }
	if err := yaml.Unmarshal([]byte(document), &head); err != nil || head.Kind == "" {
		return false, err
	}
	kind := kinds[head.APIVersion+" "+head.Kind]
	if kind == nil {
		return false, fmt.Errorf("%s %s is not known here", head.APIVersion, head.Kind)
	}
	return true, yaml.UnmarshalStrict([]byte(document), kind())
}
