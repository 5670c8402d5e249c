package render

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	"sigs.k8s.io/yaml"
)

const (
	chartDir     = "../ringway"
	libraryDir   = "../ringway-worker"
	manifestsDir = "../../kubernetes"
)

// objects are the leaves of all objects, by kind and name, and by path. Lists of things with
// names have these in the path, so that an addition changes nothing else.
type objects map[string]map[string]string

// separator is that by which Helm separates objects.
var separator = regexp.MustCompile(`(?:^|\s*\n)---\s*`)

// add adds the objects of a YAML text.
func (o objects) add(text string) error {
	for _, document := range separator.Split(text, -1) {
		var content map[string]any
		if err := yaml.UnmarshalStrict([]byte(document), &content); err != nil {
			return fmt.Errorf("%w in\n%s", err, document)
		}
		if len(content) == 0 {
			continue
		}
		metadata, _ := content["metadata"].(map[string]any)
		name := fmt.Sprintf("%v/%v", content["kind"], metadata["name"])
		if o[name] != nil {
			return fmt.Errorf("%s is there twice", name)
		}
		o[name] = map[string]string{}
		flatten("", content, o[name])
		if err := flattenFiles(o[name]); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}

// flattenFiles replaces leaves that are files of YAML by those of their contents.
func flattenFiles(leaves map[string]string) error {
	for at, leaf := range leaves {
		if !strings.HasSuffix(at, ".yaml") {
			continue
		}
		var text string
		var content map[string]any
		if err := json.Unmarshal([]byte(leaf), &text); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		if err := yaml.UnmarshalStrict([]byte(text), &content); err != nil {
			return fmt.Errorf("%s: %w", at, err)
		}
		delete(leaves, at)
		flatten(at, content, leaves)
	}
	return nil
}

func flatten(at string, content any, leaves map[string]string) {
	switch c := content.(type) {
	case map[string]any:
		for key, inner := range c {
			flatten(strings.TrimPrefix(at+"."+key, "."), inner, leaves)
		}
		if len(c) > 0 {
			return
		}
	case []any:
		for i, inner := range c {
			name := any(i)
			if m, ok := inner.(map[string]any); ok && m["name"] != nil {
				name = m["name"]
			}
			flatten(fmt.Sprintf("%s[%v]", at, name), inner, leaves)
		}
		if len(c) > 0 {
			return
		}
	}
	leaf, err := json.Marshal(content)
	if err != nil {
		panic(err) // it comes from JSON
	}
	leaves[at] = string(leaf)
}

// changes are the leaves that differ, by object and path, with the new value. An object that
// is added or gone is one change.
func changes(before, after objects) map[string]string {
	out := map[string]string{}
	for name := range after {
		if before[name] == nil {
			out[name] = "added"
		}
	}
	for name, leaves := range before {
		if after[name] == nil {
			out[name] = "gone"
			continue
		}
		for at, leaf := range after[name] {
			if leaves[at] != leaf {
				out[name+" "+at] = leaf
			}
		}
		for at := range leaves {
			if _, there := after[name][at]; !there {
				out[name+" "+at] = "gone"
			}
		}
	}
	return out
}

// release is what an installation gives the engine.
type release struct {
	values     map[string]any
	namespace  string // empty: ringway
	skipSchema bool   // as helm install --skip-schema-validation
}

func load(t *testing.T, path string) *chart.Chart {
	t.Helper()
	c, err := loader.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// files gives the rendered templates.
func (r release) files(c *chart.Chart) (map[string]string, error) {
	if r.namespace == "" {
		r.namespace = "ringway"
	}
	values, err := util.ToRenderValuesWithSchemaValidation(c, r.values,
		common.ReleaseOptions{Name: "fleet", Namespace: r.namespace, Revision: 1, IsInstall: true}, common.DefaultCapabilities, r.skipSchema)
	if err != nil {
		return nil, err
	}
	return engine.Render(c, values)
}

// render gives the objects of the chart, and the text after the installation.
func (r release) render(c *chart.Chart) (objects, string, error) {
	files, err := r.files(c)
	if err != nil {
		return nil, "", err
	}
	all, notes := objects{}, ""
	for file, text := range files {
		if path.Base(file) == "NOTES.txt" {
			notes = text
		} else if err := all.add(text); err != nil {
			return nil, "", fmt.Errorf("%s: %w", file, err)
		}
	}
	return all, notes, nil
}

func defaults(t *testing.T, c *chart.Chart) objects {
	t.Helper()
	all, _, err := release{}.render(c)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// manifests are the objects of deploy/kubernetes with the images of its kustomization, without
// the namespace, which Helm creates.
func manifests(t *testing.T, optional ...string) objects {
	t.Helper()
	var kustomization struct {
		Resources []string
		Images    []struct{ Name, NewName, NewTag string }
	}
	text, err := os.ReadFile(filepath.Join(manifestsDir, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &kustomization); err != nil {
		t.Fatal(err)
	}
	all := objects{}
	for _, name := range append(kustomization.Resources, optional...) {
		text, err := os.ReadFile(filepath.Join(manifestsDir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := all.add(string(text)); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	delete(all, "Namespace/ringway")
	for _, leaves := range all {
		for at, leaf := range leaves {
			for _, image := range kustomization.Images {
				if strings.HasSuffix(at, ".image") && leaf == `"`+image.Name+`"` {
					leaves[at] = fmt.Sprintf("%q", image.NewName+":"+image.NewTag)
				}
			}
		}
	}
	return all
}

func TestTheDefaultValuesGiveTheTestedManifests(t *testing.T) {
	want := manifests(t)
	if len(want) < 10 {
		t.Fatalf("only %d manifests", len(want))
	}
	for change, leaf := range changes(want, defaults(t, load(t, chartDir))) {
		t.Errorf("%s: the chart has %s", change, leaf)
	}
	for _, kind := range []string{"podMonitors", "serviceMonitors"} {
		want := manifests(t, "autoscaling.yaml", strings.ToLower(kind)+".yaml")
		delete(want["Deployment/echo"], "spec.replicas") // the autoscaler's
		for change, leaf := range changes(want, judged{Chart: load(t, chartDir), base: optional(kind)}.before(t)) {
			t.Errorf("%s: the chart has %s", change, leaf)
		}
	}
}

// judged is a chart with a row for each of its values. The values of base hold in addition.
type judged struct {
	*chart.Chart
	values, base map[string]any
	rows         []row
}

// with is a release with a value at a path.
func (c judged) with(path string, value any) release {
	return release{values: loader.MergeMaps(c.base, at(path, value))}
}

// before are the objects without any row.
func (c judged) before(t *testing.T) objects {
	t.Helper()
	all, _, err := release{values: c.base}.render(c.Chart)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// charts of the relays, with and without what the chart leaves out by default, and one that adds
// workers to its pods by the library chart.
func charts(t *testing.T) []judged {
	t.Helper()
	relays, library := load(t, chartDir), load(t, libraryDir)
	return []judged{
		{relays, relays.Values, nil, rows},
		{relays, nil, optional("podMonitors"), optionalRows("PodMonitor", "podMetricsEndpoints")},
		{relays, nil, optional("serviceMonitors"), optionalRows("ServiceMonitor", "endpoints")},
		{shop(t, deployment, libraryLine), map[string]any{"ringway-worker": library.Values}, nil, libraryRows},
	}
}

func TestEveryValueHasARow(t *testing.T) {
	var all []row
	for _, c := range charts(t) {
		all = append(all, c.rows...)
	}
	values := 0
	for _, c := range charts(t) {
		leaves := map[string]string{}
		if c.values != nil {
			flatten("", c.values, leaves)
		}
		for leaf := range leaves {
			if !slices.ContainsFunc(all, func(r row) bool {
				return leaf == r.path || strings.HasPrefix(leaf, r.path+".") || strings.HasPrefix(leaf, r.path+"[")
			}) {
				t.Errorf("no row for the value %s: what does it change?", leaf)
			}
		}
		values += len(leaves)
	}
	if values < 45 {
		t.Errorf("only %d values", values)
	}
}

func TestEveryValueChangesWhatItIsForAndNothingElse(t *testing.T) {
	for _, c := range charts(t) {
		before := c.before(t)
		for _, r := range c.rows {
			var value any
			if err := json.Unmarshal([]byte(r.value), &value); err != nil {
				t.Fatalf("%s: %v", r.path, err)
			}
			after, _, err := c.with(r.path, value).render(c.Chart)
			if err != nil {
				t.Errorf("%s: %v", r.path, err)
				continue
			}
			if got := changes(before, after); !maps.Equal(got, r.changes) {
				t.Errorf("%s=%s changes\n%s\nwant\n%s", r.path, r.value, lines(got), lines(r.changes))
			}
		}
	}
}

func TestTheConfigurationFileOfRelaysIsTheValue(t *testing.T) {
	var config any
	if err := yaml.Unmarshal([]byte("max-in-flight: 1000000\nroutes:\n- path_prefix: \"/x: {{ y }}\"\n  service: echo\n"), &config); err != nil {
		t.Fatal(err)
	}
	r := release{values: at("relays.config", config)}
	files, err := r.files(load(t, chartDir))
	if err != nil {
		t.Fatal(err)
	}
	all, _, err := r.render(load(t, chartDir))
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"data.relay.yaml.max-in-flight": "1000000", "data.relay.yaml.routes[0].path_prefix": `"/x: {{ y }}"`, "data.relay.yaml.routes[0].service": `"echo"`}
	for at, leaf := range want {
		if got := all["ConfigMap/relay"][at]; got != leaf {
			t.Errorf("%s is %s, want %s", at, got, leaf)
		}
	}
	number := regexp.MustCompile(`max-in-flight[^,]*: 1000000,`) // 1e+06 would be refused
	if text := strings.Join(slices.Collect(maps.Values(files)), ""); !number.MatchString(text) {
		t.Error("the number is written in another way")
	}
}

func TestTheNamespaceIsThatOfTheRelease(t *testing.T) {
	c := load(t, chartDir)
	after, notes, err := release{namespace: "edge"}.render(c)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{
		relayEnv + "[RINGWAY_JOIN].value":  `"dns+relays.edge.svc.cluster.local:7400"`,
		workerEnv + "[RINGWAY_JOIN].value": `"dns+relays.edge.svc.cluster.local:7400"`,
		"NetworkPolicy/worker spec.ingress[1].from[0].namespaceSelector.matchLabels.kubernetes.io/metadata.name": `"edge"`,
	}
	if got := changes(defaults(t, c), after); !maps.Equal(got, want) {
		t.Errorf("the namespace changes\n%s\nwant\n%s", lines(got), lines(want))
	}
	if strings.Contains(notes, "ringway ") || !strings.Contains(notes, "kubectl -n edge exec relay-0 -- /relay members") {
		t.Errorf("the notes are\n%s", notes)
	}
}

// at is the values with one at a path.
func at(path string, value any) map[string]any {
	names := strings.Split(path, ".")
	for _, name := range slices.Backward(names) {
		value = map[string]any{name: value}
	}
	return value.(map[string]any)
}

func lines(changes map[string]string) string {
	var b strings.Builder
	for _, change := range slices.Sorted(maps.Keys(changes)) {
		fmt.Fprintf(&b, "  %s: %s\n", change, changes[change])
	}
	return b.String()
}
