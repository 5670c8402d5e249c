package render

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const (
	libraryLine = `{{ include "ringway.worker" (list . "shop.object" "shop=127.0.0.1:8080;check=http:/healthz") }}`
	deployment  = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      containers:
        - {name: shop, image: shop}
`
)

// shop is a chart that depends on the library chart and has one object and one line.
func shop(t *testing.T, object, line string) *chart.Chart {
	t.Helper()
	c := &chart.Chart{Metadata: &chart.Metadata{APIVersion: "v2", Name: "shop", Version: "1.0.0"},
		Templates: []*common.File{{Name: "templates/shop.yaml", Data: []byte("{{- define \"shop.object\" }}" + object + "{{- end }}\n" + line + "\n")}}}
	c.AddDependency(load(t, libraryDir))
	return c
}

const (
	shopPod     = "Deployment/shop spec.template.spec."
	shopSidecar = shopPod + "initContainers[ringway-worker]."
	shopCSI     = shopPod + "volumes[ringway-tls].csi.volumeAttributes.csi.cert-manager.io/"
)

// identityOf are the leaves with the names of the fleet.
func identityOf(cluster, environment string) map[string]string {
	return map[string]string{
		shopSidecar + "env[RINGWAY_CLUSTER].value":     `"` + cluster + `"`,
		shopSidecar + "env[RINGWAY_ENVIRONMENT].value": `"` + environment + `"`,
		shopCSI + "uri-sans":                           `"ringway://role/worker,ringway://cluster/` + cluster + `,ringway://env/` + environment + `,ringway://node/${POD_NAME}"`,
	}
}

func without(all map[string]string, name string) map[string]string {
	maps.DeleteFunc(all, func(at, _ string) bool { return strings.Contains(at, name) })
	return all
}

var libraryRows = func() []row {
	rows := []row{
		{"cluster", `"bank"`, without(identityOf("bank", "prod"), "RINGWAY_ENVIRONMENT")},
		{"environment", `"test"`, without(identityOf("shop", "test"), "RINGWAY_CLUSTER")},
		{"clusterDomain", `"k8s.internal"`, one(shopSidecar+"env[RINGWAY_JOIN].value", `"dns+relays.ringway.svc.k8s.internal:7400"`)},
		{"relaysNamespace", `"edge"`, one(shopSidecar+"env[RINGWAY_JOIN].value", `"dns+relays.edge.svc.cluster.local:7400"`)},
		{"image.repository", `"reg/r"`, map[string]string{shopSidecar + "image": `"reg/r-worker:devel"`, shopPod + "initContainers[ringway-keys].image": `"reg/r-relay:devel"`}},
		{"image.tag", `"v2"`, map[string]string{shopSidecar + "image": `"registry.example.com/ringway-worker:v2"`, shopPod + "initContainers[ringway-keys].image": `"registry.example.com/ringway-relay:v2"`}},
		{"secrets.gossip", `"g"`, one(shopPod+"volumes[ringway-gossip].secret.secretName", `"g"`)},
		{"secrets.admin", `"t"`, one(shopPod+"volumes[ringway-admin].secret.secretName", `"t"`)},
		{"issuer.name", `"i"`, one(shopCSI+"issuer-name", `"i"`)},
		{"worker.attach", `true`, join(attachedOnly(shopPod, shopSidecar), gone(shopPod+"initContainers[ringway-keys].securityContext.", "runAsNonRoot", "runAsUser", "runAsGroup", "seccompProfile.type"))},
		{"worker.settings", `{"RINGWAY_READY_RELAYS": "1", "RINGWAY_DATACENTER": ""}`, join(
			one(shopSidecar+"env[RINGWAY_READY_RELAYS].value", `"1"`), one(shopSidecar+"env[RINGWAY_DATACENTER].value", `""`),
			gone(shopSidecar+"env[RINGWAY_DATACENTER].", "valueFrom.fieldRef.fieldPath"))},
		{"worker.resources", `{"limits": {"memory": "1Gi"}}`, one(shopSidecar+"resources.limits.memory", `"1Gi"`)},
	}
	for i := range rows {
		rows[i].path = "ringway-worker." + rows[i].path
	}
	return rows
}()

// The library adds what the tested manifest of the example has.
func TestTheLibraryMakesTheExampleOfItsPlainDeployment(t *testing.T) {
	for _, attach := range []bool{false, true} {
		files, err := release{values: at("example.attach", attach)}.files(load(t, chartDir))
		if err != nil {
			t.Fatal(err)
		}
		example := objects{}
		var plain string
		for _, document := range separator.Split(files["ringway/templates/workers.yaml"], -1) {
			var content map[string]any
			if err := yaml.Unmarshal([]byte(document), &content); err != nil {
				t.Fatal(err)
			}
			if content["kind"] != "Deployment" {
				continue
			}
			if err := example.add(document); err != nil {
				t.Fatal(err)
			}
			template := content["spec"].(map[string]any)["template"].(map[string]any)
			delete(template["metadata"].(map[string]any)["labels"].(map[string]any), "ringway.io/role")
			pod := template["spec"].(map[string]any)
			delete(pod, "initContainers")
			delete(pod, "volumes")
			delete(pod, "terminationGracePeriodSeconds")
			delete(pod["containers"].([]any)[0].(map[string]any), "lifecycle")
			text, err := yaml.Marshal(content)
			if err != nil {
				t.Fatal(err)
			}
			plain = string(text)
		}
		c := shop(t, "\n"+plain, strings.Replace(libraryLine, "shop=127.0.0.1:8080;check=http:/healthz", "echo=127.0.0.1:9000;check=http:/", 1))
		got, _, err := release{values: at("ringway-worker.worker.attach", attach)}.render(c)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{} // in other pods they cannot rely on the pod
		for _, name := range []string{"ringway-worker", "ringway-keys"} {
			if name == "ringway-keys" && attach {
				continue
			}
			at := workerPod + "initContainers[" + name + "].securityContext."
			maps.Copy(want, map[string]string{at + "runAsNonRoot": "true", at + "runAsUser": "65532", at + "runAsGroup": "65532", at + "seccompProfile.type": `"RuntimeDefault"`})
		}
		if got := changes(example, got); !maps.Equal(got, want) {
			t.Errorf("attach %v: the library's differs from the example in\n%s\nwant\n%s", attach, lines(got), lines(want))
		}
	}
}

const full = `---
apiVersion: %s
kind: %s
metadata: {name: shop, labels: {app: shop}}
spec:
  %s
  template:
    metadata:
      labels: {app: shop, app.kubernetes.io/part-of: shop}
      annotations: {a: "1"}
    spec:
      serviceAccountName: shop
      terminationGracePeriodSeconds: 60
      restartPolicy: %s
      securityContext: {fsGroup: 1000, runAsUser: 1000}
      initContainers:
        - {name: migrate, image: migrate}
      containers:
        - name: shop
          image: shop
          ports: [{name: admin, containerPort: 1000000007}]
          lifecycle: {preStop: {sleep: {seconds: 30}}}
        - {name: logs, image: logs, lifecycle: {postStart: {sleep: {seconds: 1}}}}
      volumes:
        - {name: data, emptyDir: {}}
`

// What the library adds is known, and what is there stays, in every kind with pods.
func TestTheLibraryChangesNothingOfThePod(t *testing.T) {
	selector := "selector: {matchLabels: {app: shop}}"
	for _, c := range []struct{ kind, version, spec, restart string }{
		{"Deployment", "apps/v1", selector, "Always"}, {"StatefulSet", "apps/v1", selector, "Always"},
		{"DaemonSet", "apps/v1", selector, "Always"}, {"Job", "batch/v1", "completions: 1", "Never"},
	} {
		object := fmt.Sprintf(full, c.version, c.kind, c.spec, c.restart)
		before := objects{}
		if err := before.add(object); err != nil {
			t.Fatal(err)
		}
		files, err := release{}.files(shop(t, object, libraryLine))
		if err != nil {
			t.Fatalf("%s: %v", c.kind, err)
		}
		text := files["shop/templates/shop.yaml"]
		if known, err := strict(text); !known || err != nil {
			t.Errorf("%s: %v", c.kind, err)
		}
		after := objects{}
		if err := after.add(text); err != nil {
			t.Fatal(err)
		}
		name := c.kind + "/shop "
		got := changes(before, after)
		maps.DeleteFunc(got, func(at, leaf string) bool {
			return leaf != "gone" && (strings.HasPrefix(at, name+"spec.template.spec.initContainers[ringway-") || strings.HasPrefix(at, name+"spec.template.spec.volumes[ringway-"))
		})
		want := map[string]string{
			name + "spec.template.metadata.labels.ringway.io/role":                       `"worker"`,
			name + "spec.template.spec.containers[logs].lifecycle.preStop.sleep.seconds": "10",
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: changes\n%s\nwant\n%s", c.kind, lines(got), lines(want))
		}
		var pod struct {
			Spec struct {
				Template core.PodTemplateSpec `json:"template"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal([]byte(text), &pod); err != nil {
			t.Fatal(err)
		}
		var order []string
		for _, c := range pod.Spec.Template.Spec.InitContainers {
			order = append(order, c.Name)
		}
		last := pod.Spec.Template.Spec.InitContainers[len(order)-1]
		if !slices.Equal(order, []string{"migrate", "ringway-keys", "ringway-worker"}) || last.RestartPolicy == nil || *last.RestartPolicy != core.ContainerRestartPolicyAlways {
			t.Errorf("%s: init containers %v, the last with %v", c.kind, order, last.RestartPolicy)
		}
	}
}

// Kubelet would give every file of the claim to an fsGroup, and let the group write it. Without one, the
// containers of the library, whose user is none of the pod's, must be able to read what they mount.
func TestTheLibraryLeavesTheFilesOfThePodToTheirOwners(t *testing.T) {
	object := strings.Replace(deployment, "kind: Deployment", "kind: StatefulSet", 1) + `
      volumes: [{name: password, secret: {secretName: password, defaultMode: 0400}}]
  volumeClaimTemplates:
    - metadata: {name: data}
      spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`
	files, err := release{}.files(shop(t, object, libraryLine))
	if err != nil {
		t.Fatal(err)
	}
	var set apps.StatefulSet
	if err := yaml.UnmarshalStrict([]byte(files["shop/templates/shop.yaml"]), &set); err != nil {
		t.Fatal(err)
	}
	pod := set.Spec.Template.Spec
	if pod.SecurityContext != nil {
		t.Errorf("the security context of the pod is %+v", pod.SecurityContext)
	}
	modes := map[string]int32{}
	for _, v := range pod.Volumes {
		if v.Secret != nil {
			modes[v.Name] = *v.Secret.DefaultMode
		}
		if v.CSI != nil && v.CSI.VolumeAttributes["csi.cert-manager.io/fs-group"] != "65532" {
			t.Errorf("the certificate is not for the group of the worker: %v", v.CSI.VolumeAttributes)
		}
	}
	if want := map[string]int32{"password": 0o400, "ringway-gossip": 0o444, "ringway-admin": 0o444}; !maps.Equal(modes, want) {
		t.Errorf("modes of the secrets %v, want %v", modes, want)
	}
}

func TestAWrongUseOfTheLibraryIsRefusedWithTheReason(t *testing.T) {
	replace := func(old, new string) string { return strings.Replace(deployment, old, new, 1) }
	line := func(services string) string {
		return `{{ include "ringway.worker" (list . "shop.object" ` + services + `) }}`
	}
	for _, c := range []struct{ object, line, value, want string }{
		{deployment, `{{ include "ringway.worker" . }}`, "", "want (list CONTEXT TEMPLATE SERVICES)"},
		{deployment, `{{ include "ringway.worker" (list . "shop.object") }}`, "", "want (list CONTEXT TEMPLATE SERVICES)"},
		{deployment, line(`"shop"`), "", "shop is no service: want NAME=HOST:PORT"},
		{deployment, line(`8080`), "", "8080 is no service"},
		{deployment, `{{ include "ringway.worker" (list . "shop.objekt" "shop=127.0.0.1:1") }}`, "", "shop.objekt"},
		{deployment + "---\nkind: Service\n", libraryLine, "", "shop.object is more than one object"},
		{replace("kind: Deployment", "kind: [Deployment"), libraryLine, "", "shop.object is no YAML"},
		{replace("template:", "jobTemplate:"), libraryLine, "", "shop.object has no spec.template with containers"},
		{replace("- {name: shop, image: shop}", ""), libraryLine, "", "shop.object has no spec.template with containers"},
		{"\n", libraryLine, "", "shop.object has no spec.template with containers"},
		{replace("name: shop, image", "name: ringway-worker, image"), libraryLine, "", "has a container ringway-worker already"},
		{deployment, libraryLine, `{"cluster": "a,ringway://role/relay"}`, "/cluster"},
		{deployment, libraryLine, `{"worker": {"settings": {"RINGWAY_SERVICE": "a=127.0.0.1:1"}}}`, "'RINGWAY_SERVICE'"},
		{deployment, libraryLine, `{"worker": {"settings": {"RINGWAY_INGRESS_ADDR": ":7410"}}}`, "'RINGWAY_INGRESS_ADDR'"},
		{deployment, libraryLine, `{"worker": {"settings": {"RINGWAY_READY_RELAYS": "two"}}}`, "/worker/settings/RINGWAY_READY_RELAYS"},
		{deployment, libraryLine, `{"relays": {}}`, "'relays'"},
	} {
		values := map[string]any{}
		if err := yaml.Unmarshal([]byte(c.value), &values); err != nil {
			t.Fatal(err)
		}
		_, _, err := release{values: map[string]any{"ringway-worker": values}}.render(shop(t, c.object, c.line))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: got %v, want %q", c.line, c.value, err, c.want)
		}
	}
	alone := shop(t, deployment, libraryLine)
	lone := &chart.Chart{Metadata: alone.Metadata, Templates: append(alone.Templates, load(t, libraryDir).Templates...)}
	if _, _, err := (release{}).render(lone); err == nil || !strings.Contains(err.Error(), "does not depend on ringway-worker") {
		t.Errorf("without the dependency: %v", err)
	}
}

func TestAServiceStaysInItsPlaceInThePod(t *testing.T) {
	for _, text := range hostile {
		service := "shop=127.0.0.1:1;" + text
		got, _, err := release{}.render(shop(t, deployment, fmt.Sprintf(`{{ include "ringway.worker" (list . "shop.object" (fromJson %q).s) }}`, fmt.Sprintf(`{"s": %s}`, quoted(service)))))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		want := one(shopSidecar+"env[RINGWAY_SERVICE].value", quoted(service))
		if got := changes(defaults(t, shop(t, deployment, libraryLine)), got); !maps.Equal(got, want) {
			t.Errorf("%q changes\n%s", text, lines(got))
		}
	}
}
