package deploy_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// reference is docs/reference/metrics.md: the labels of every metric.
func reference(t *testing.T) map[string][]string {
	t.Helper()
	metrics := map[string][]string{}
	for line := range strings.Lines(string(read(t, "../docs/reference/metrics.md"))) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.HasPrefix(cells[1], " `ringway_") {
			continue
		}
		var labels []string
		for _, quoted := range quotedLabel.FindAllStringSubmatch(cells[2], -1) {
			labels = append(labels, quoted[1])
		}
		metrics[strings.Trim(cells[1], " `")] = labels
	}
	if len(metrics) < 50 {
		t.Fatalf("%d metrics in the reference", len(metrics))
	}
	return metrics
}

var (
	quotedLabel = regexp.MustCompile("`([a-z_]+)`")
	series      = regexp.MustCompile(`\b(ringway_[a-z][a-z0-9_]*)(?:\{([^}]*)\})?`)
	matcher     = regexp.MustCompile(`([a-zA-Z_]+)\s*(?:=~|!~|!=|=)\s*"`)
	targets     = []string{"job", "instance"} // labels that Prometheus adds
)

// unknown returns the metrics and labels in a query that no process has.
func unknown(metrics map[string][]string, query string) (mistakes []string) {
	for _, s := range series.FindAllStringSubmatch(query, -1) {
		name, of := s[1], targets
		labels, ok := metrics[name]
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base, cut := strings.CutSuffix(name, suffix); !ok && cut {
				if labels, ok = metrics[base]; ok {
					of = append(slices.Clone(of), "le")
				}
			}
		}
		if !ok {
			mistakes = append(mistakes, name)
			continue
		}
		for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
			if !slices.Contains(labels, m[1]) && !slices.Contains(of, m[1]) {
				mistakes = append(mistakes, name+"{"+m[1]+"}")
			}
		}
	}
	return mistakes
}

func TestAQueryOfWhatIsNotMeasuredIsFound(t *testing.T) {
	metrics := map[string][]string{"ringway_a_total": {"service"}, "ringway_b_seconds": nil}
	for query, want := range map[string]int{
		`rate(ringway_a_total{service="x",instance=~"r.*"}[5m])`: 0, `ringway_b_seconds_bucket{le="1"}`: 0,
		`ringway_c`: 1, `ringway_a_total{servise="x"}`: 1, `ringway_a_total_bucket{le="1"}`: 0 + 1 - 1, `ringway_b_seconds{le="1"}`: 1,
	} {
		if got := unknown(metrics, query); len(got) != want {
			t.Errorf("%s: %v", query, got)
		}
	}
}

type ruleFile struct {
	Groups []struct {
		Name  string
		Rules []rule
	}
}

type rule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func alerts(t *testing.T) (all []rule) {
	t.Helper()
	var file ruleFile
	strict(t, read(t, "prometheus/alerts.yaml"), &file)
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// runbooks are the pages of docs/operations, by name.
func runbooks(t *testing.T) map[string]string {
	t.Helper()
	there, err := os.ReadDir("../docs/operations")
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for _, e := range there {
		pages[e.Name()] = string(read(t, "../docs/operations/"+e.Name()))
	}
	return pages
}

// place is where the runbooks have the heading of an alert, as a link names it. A page about
// several alerts has a heading of the second level for each.
func place(pages map[string]string, alert string) (link, page string) {
	for name, text := range pages {
		if strings.HasPrefix(text, "# "+alert+"\n") {
			return name, name
		}
		if strings.Contains(text, "\n## "+alert+"\n") {
			return name + "#" + strings.ToLower(alert), name
		}
	}
	return "", ""
}

func TestAlertsAskForWhatIsMeasuredAndHaveARunbookAndATest(t *testing.T) {
	metrics := reference(t)
	tests := string(read(t, "prometheus/alerts_test.yaml"))
	pages := runbooks(t)
	index := pages["README.md"]
	seen, used := map[string]bool{}, map[string]bool{"README.md": true, "start-here.md": true}
	for _, a := range alerts(t) {
		if !strings.HasPrefix(a.Alert, "Ringway") || seen[a.Alert] {
			t.Errorf("%s: the name is there twice, or not ours", a.Alert)
		}
		seen[a.Alert] = true
		for _, m := range unknown(metrics, a.Expr) {
			t.Errorf("%s asks for %s", a.Alert, m)
		}
		if !slices.Contains([]string{"critical", "warning", "info"}, a.Labels["severity"]) || a.Annotations["summary"] == "" || a.Annotations["description"] == "" {
			t.Errorf("%s: %v %v", a.Alert, a.Labels, a.Annotations)
		}
		if !strings.Contains(tests, "alertname: "+a.Alert+"\n        exp_alerts:\n          - exp_labels:") || !strings.Contains(tests, "alertname: "+a.Alert+"}") {
			t.Errorf("alerts_test.yaml does not show when %s fires, and when it does not", a.Alert)
		}
		link, name := place(pages, a.Alert)
		if name == "" {
			t.Errorf("no page of docs/operations has the heading %s", a.Alert)
			continue
		}
		used[name] = true
		if want := "https://github.com/ringway/ringway/blob/main/docs/operations/" + link; a.Annotations["runbook_url"] != want {
			t.Errorf("%s: runbook_url %s, want %s", a.Alert, a.Annotations["runbook_url"], want)
		}
		if !strings.Contains(index, "["+a.Alert+"]("+link+") | "+a.Labels["severity"]+" |") {
			t.Errorf("docs/operations/README.md does not list %s (%s) with its severity", a.Alert, link)
		}
		_, text, _ := strings.Cut("\n"+pages[name], "# "+a.Alert+"\n\n")
		if !strings.HasPrefix(text, "Severity: "+a.Labels["severity"]+".\n") {
			t.Errorf("%s: the severity of %s is not %s", name, a.Alert, a.Labels["severity"])
		}
		if own, _, _ := strings.Cut(text, "\n## "); !strings.Contains(oneLine(own), oneLine(a.Expr)) {
			t.Errorf("%s shows another query than %s has", name, a.Alert)
		}
	}
	for name, text := range pages {
		if !used[name] && !strings.HasPrefix(text, "# relay check: ") {
			t.Errorf("docs/operations/%s belongs to no alert and no check", name)
		}
	}
}

// A reader at night finds the same parts in the same order on each page, and begins with a command.
func TestEveryRunbookSaysWhatToTypeFirstAndWhenItIsOver(t *testing.T) {
	parts := []string{"\n## Symptom\n", "\n## First command\n", "\n## What you see\n", "\n## What to do\n", "\n## Over when\n"}
	for name, text := range runbooks(t) {
		if name == "README.md" || name == "start-here.md" {
			continue
		}
		at := 0
		for _, part := range parts {
			i := strings.Index(text[at:], part)
			if i < 0 || strings.Count(text, part) != 1 {
				t.Errorf("%s lacks %q, or has it twice or in another order", name, strings.TrimSpace(part))
				break
			}
			at += i
		}
		_, first, _ := strings.Cut(text, parts[1])
		first, _, _ = strings.Cut(first, parts[2])
		if blocks := shell.FindAllStringSubmatch(first, -1); len(blocks) != 1 || strings.Count(blocks[0][1], "\n") != 1 {
			t.Errorf("%s has not one command under First command", name)
		}
	}
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// dashboard is the part of Grafana's format that the tests check.
type dashboard struct {
	UID, Title string
	Templating struct{ List []struct{ Name string } }
	Panels     []panel
}

type panel struct {
	ID                 int
	Type               string
	Title, Description string
	Datasource         struct{ UID string }
	GridPos            struct{ H, W, X, Y int }
	FieldConfig        struct{ Defaults struct{ Unit string } }
	Targets            []struct{ RefID, Expr, LegendFormat string }
}

var placeholder = regexp.MustCompile(`\$\{?([a-zA-Z_]+)`)

func TestTheDashboardShowsWhatIsMeasuredWithUnitsAndWithoutOverlap(t *testing.T) {
	var d dashboard
	if err := json.Unmarshal(read(t, "grafana/ringway.json"), &d); err != nil {
		t.Fatal(err)
	}
	metrics := reference(t)
	variables := map[string]bool{"__rate_interval": true, "__all": true}
	for _, v := range d.Templating.List {
		variables[v.Name] = true
	}
	ids, cells, rows := map[int]bool{}, map[[2]int]string{}, []string{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("two panels have the id %d", p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := cells[[2]int{x, y}]; other != "" || x >= 24 {
					t.Errorf("%q overlaps %q or leaves the page", p.Title, other)
				}
				cells[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		if p.Title == "" || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 || p.Datasource.UID != "${datasource}" {
			t.Errorf("panel %q lacks a description, a unit or a query", p.Title)
		}
		for _, target := range p.Targets {
			for _, m := range unknown(metrics, strings.ReplaceAll(target.Expr, "$__rate_interval", "5m")) {
				t.Errorf("%q asks for %s", p.Title, m)
			}
			for _, v := range placeholder.FindAllStringSubmatch(target.Expr, -1) {
				if !variables[v[1]] {
					t.Errorf("%q uses the variable %s, which is not defined", p.Title, v[1])
				}
			}
		}
	}
	if want := []string{"Overview", "Service: $service", "Membership", "Advertising", "Peering", "Selection"}; !slices.Equal(rows, want) {
		t.Errorf("rows %v, want %v", rows, want)
	}
	if d.UID == "" || d.Title == "" {
		t.Error("the dashboard has no name")
	}
}

func TestTheDashboardCountsDownToTheEndOfEveryCertificateThatAnAlertWatches(t *testing.T) {
	var d dashboard
	if err := json.Unmarshal(read(t, "grafana/ringway.json"), &d); err != nil {
		t.Fatal(err)
	}
	shown := d.Panels[slices.IndexFunc(d.Panels, func(p panel) bool { return p.Title == "Next certificate expiry" })].Targets[0].Expr
	for _, a := range alerts(t) {
		if !strings.HasPrefix(a.Alert, "RingwayCertificateExpires") {
			continue
		}
		watched := series.FindAllString(a.Expr, -1)
		if len(watched) != 3 {
			t.Errorf("%s watches %q, want the certificates of members, their authorities and the ingress", a.Alert, watched)
		}
		for _, name := range watched {
			if !strings.Contains(shown, name) {
				t.Errorf("%s watches %s, the dashboard does not: %s", a.Alert, name, shown)
			}
		}
	}
}

// queries are the dashboard's queries, whose syntax promtool checks.
func (d dashboard) rules() string {
	var text strings.Builder
	text.WriteString("groups:\n- name: dashboard\n  rules:\n")
	for _, p := range d.Panels {
		for i, target := range p.Targets {
			expr := strings.NewReplacer("$__rate_interval", "5m", "$service", ".*", "$instance", ".*").Replace(target.Expr)
			fmt.Fprintf(&text, "  - record: panel_%d_%d\n    expr: %q\n", p.ID, i, expr)
		}
	}
	return text.String()
}

// An operator of Prometheus reads the first two files, the autoscaler the third.
func TestMonitorsScrapeTheAdminPortsAndTheScalerAMetricThatThereIs(t *testing.T) {
	type endpoint struct {
		Port          string
		PortNumber    int `yaml:"portNumber"`
		Authorization struct{ Credentials struct{ Name, Key string } }
		Relabelings   []struct {
			TargetLabel string `yaml:"targetLabel"`
			Replacement string
		}
	}
	type optionalObject struct {
		Kind     string
		Metadata struct {
			Name   string
			Labels map[string]string
		}
		Spec struct {
			Selector            any
			Ports               []struct{ Port int }
			PodMetricsEndpoints []endpoint `yaml:"podMetricsEndpoints"`
			Endpoints           []endpoint
			ScaleTargetRef      struct{ Kind, Name string } `yaml:"scaleTargetRef"`
			Metrics             []struct {
				Pods struct {
					Metric struct {
						Name     string
						Selector struct {
							MatchLabels map[string]string `yaml:"matchLabels"`
						}
					}
				}
			}
		}
	}
	var all []optionalObject
	for _, file := range optional {
		d := yaml.NewDecoder(bytes.NewReader(read(t, "kubernetes/"+file)))
		for {
			var o optionalObject
			if err := d.Decode(&o); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			all = append(all, o)
		}
	}
	scraped := map[string]int{}
	for _, w := range workloads(t) {
		admin := port(t, w.member.admin)
		services := map[string]optionalObject{} // by the label that a ServiceMonitor selects
		for _, o := range all {
			if o.Kind == "Service" && selects(matchLabels(o.Spec.Selector), w.labels) {
				services[o.Metadata.Labels["ringway.io/metrics"]] = o
			}
		}
		for _, o := range all {
			selector := matchLabels(o.Spec.Selector)
			at := o.Kind + "/" + o.Metadata.Name
			endpoints := o.Spec.PodMetricsEndpoints
			switch o.Kind {
			case "PodMonitor":
				if !selects(selector, w.labels) {
					continue
				}
				if e := endpoints[0]; e.Port != "admin" && fmt.Sprint(e.PortNumber) != admin {
					t.Errorf("%s scrapes port %q, %d, want %s", at, e.Port, e.PortNumber, admin)
				}
			case "ServiceMonitor":
				service, ok := services[selector["ringway.io/metrics"]]
				if !ok {
					continue
				}
				if endpoints = o.Spec.Endpoints; fmt.Sprint(service.Spec.Ports[0].Port) != admin {
					t.Errorf("%s scrapes port %d, want %s", at, service.Spec.Ports[0].Port, admin)
				}
			default:
				continue
			}
			scraped[w.binary]++
			e := endpoints[0]
			job := e.Relabelings[0]
			if len(endpoints) != 1 || e.Authorization.Credentials.Name != "ringway-admin" || e.Authorization.Credentials.Key != "admin.token" || job.TargetLabel != "job" || job.Replacement != "ringway-"+w.binary {
				t.Errorf("%s: %+v", at, endpoints)
			}
		}
	}
	if scraped["relay"] != 2 || scraped["worker"] != 2 {
		t.Errorf("scraped by %v monitors, want one of each kind", scraped)
	}
	for _, o := range all {
		if o.Kind != "HorizontalPodAutoscaler" {
			continue
		}
		metric, ref := o.Spec.Metrics[0].Pods.Metric, o.Spec.ScaleTargetRef
		labels, ok := reference(t)[metric.Name]
		if _, there := manifests(t)[ref.Kind+"/"+ref.Name]; !there || !ok {
			t.Errorf("it scales %v by %s", ref, metric.Name)
		}
		for label := range metric.Selector.MatchLabels {
			if !slices.Contains(labels, label) {
				t.Errorf("%s has no label %s", metric.Name, label)
			}
		}
	}
}
