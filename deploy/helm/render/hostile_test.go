package render

import (
	"encoding/json"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/v2/loader"
)

func TestWrongValuesAreRefusedWithTheirPath(t *testing.T) {
	c := load(t, chartDir)
	for _, r := range []struct{ path, value, want string }{
		{"cluster", `""`, "/cluster"},
		{"cluster", `"shop,ringway://role/relay"`, "/cluster"}, // a second name in the certificate
		{"environment", `"a/b"`, "/environment"},
		{"clusterDomain", `"cluster.local:7400,evil"`, "/clusterDomain"},
		{"image.repository", `"registry.example.com/ringway "`, "/image/repository"},
		{"image.tag", `"v1@sha256:0"`, "/image/tag"},
		{"image.pullSecrets", `["registry"]`, "/image/pullSecrets/0"},
		{"secrets.gossip", `"Ringway_Gossip"`, "/secrets/gossip"},
		{"relays.replicas", `0`, "/relays/replicas"},
		{"relays.replicas", `2.5`, "/relays/replicas"},
		{"relays.replicas", `"3"`, "/relays/replicas"},
		{"relays.replica", `3`, "'replica'"},
		{"relays.settings", `{"RINGWAY_LOG_LEVELS": "debug"}`, "'RINGWAY_LOG_LEVELS'"},      // members only warn
		{"relays.settings", `{"RINGWAY_CLUSTER": "other"}`, "'RINGWAY_CLUSTER'"},            // the manifest sets it
		{"relays.settings", `{"RINGWAY_SERVICE": "a=127.0.0.1:1"}`, "'RINGWAY_SERVICE'"},    // of workers
		{"example.settings", `{"RINGWAY_INGRESS_ADDR": ":7410"}`, "'RINGWAY_INGRESS_ADDR'"}, // of relays
		{"relays.settings", `{"RINGWAY_LOG_LEVEL": "loud"}`, "/relays/settings/RINGWAY_LOG_LEVEL"},
		{"relays.settings", `{"RINGWAY_MAX_MEMBERS": "many"}`, "/relays/settings/RINGWAY_MAX_MEMBERS"},
		{"relays.settings", `{"RINGWAY_REQUEST_TIMEOUT": "30"}`, "/relays/settings/RINGWAY_REQUEST_TIMEOUT"},
		{"relays.settings", `{"RINGWAY_READY_RELAYS": "2"}`, "'RINGWAY_READY_RELAYS'"}, // of workers
		{"example.settings", `{"RINGWAY_READY_RELAYS": "two"}`, "/example/settings/RINGWAY_READY_RELAYS"},
		{"example.settings", `{"RINGWAY_PPROF": "maybe"}`, "/example/settings/RINGWAY_PPROF"},
		{"relays.settings", `{"RINGWAY_MAX_MEMBERS": 1000000}`, "/relays/settings/RINGWAY_MAX_MEMBERS"},
		{"relays.settings", `{"RINGWAY_MAX_MEMBERS": "-5"}`, "/relays/settings/RINGWAY_MAX_MEMBERS"},
		{"example.settings", `{"RINGWAY_READY_RELAYS": "-5"}`, "/example/settings/RINGWAY_READY_RELAYS"},
		{"relays.settings", `{"RINGWAY_IDENTITY_TEMPLATE": "spiffe://a/{role}/{node}"}`, "'RINGWAY_IDENTITY_TEMPLATE'"}, // the certificates are the chart's
		// What contradicts the certificates, the probes and the values of the chart.
		{"relays.settings", `{"RINGWAY_ROLE": "gate"}`, "'RINGWAY_ROLE'"},
		{"relays.settings", `{"RINGWAY_ADMIN_TLS": "true"}`, "'RINGWAY_ADMIN_TLS'"},
		{"example.settings", `{"RINGWAY_ADMIN_TLS": "true"}`, "'RINGWAY_ADMIN_TLS'"},
		{"example.settings", `{"RINGWAY_ATTACH": "relays:7420"}`, "'RINGWAY_ATTACH'"},
		{"relays.config", `{"role": "gate"}`, "'role'"},
		{"relays.config", `{"admin-tls": true}`, "'admin-tls'"},
		{"relays.config", `{"blocks": [{"caller": "a", "service": "b", "until": "2026-08-01"}]}`, "/relays/config/blocks/0/until"}, // YAML reads a quoted date as text
		{"relays.config", `{"blocks": [{"caller": "a", "service": "b", "until": "2026-08-01T10:00:00"}]}`, "/relays/config/blocks/0/until"},
		{"relays.config", `{"blocks": [{"caller": "a", "service": "b", "until": "2026-08-01t10:00:00Z"}]}`, "/relays/config/blocks/0/until"},
		{"relays.settings", `{"RINGWAY_CONFIG": "/a"}`, "'RINGWAY_CONFIG'"},
		{"relays.config", `{"cluster": "other"}`, "'cluster'"}, // the manifest sets it
		{"relays.config", `{"datacenter": "a"}`, "'datacenter'"},
		{"relays.config", `{"route": []}`, "'route'"},
		{"relays.config", `{"routes": [{"hosts": "a", "service": "b"}]}`, "'hosts'"},
		{"relays.config", `{"max-in-flight": 0}`, "/relays/config/max-in-flight"},
		{"relays.extraVolumes", `[{"secret": {}}]`, "'name'"},
		{"relays.extraVolumes", `[{"name": "tls"}]`, "/relays/extraVolumes/0/name"}, // there twice
		{"relays.extraVolumeMounts", `[{"name": "a", "mountPath": "a"}]`, "/relays/extraVolumeMounts/0/mountPath"},
		{"relays.resources", `{"limits": {"memory": "1 GB"}}`, "/relays/resources/limits/memory"},
		{"relays.resources", `{"limit": {}}`, "'limit'"},
		{"relays.nodeSelector", `{"ssd": true}`, "/relays/nodeSelector/ssd"},
		{"relays.podDisruptionBudget.maxUnavailable", `0`, "/relays/podDisruptionBudget/maxUnavailable"}, // no node could be drained
		{"ingress.type", `"ExternalName"`, "/ingress/type"},
		{"ingress.port", `70000`, "/ingress/port"},
		{"networkPolicy.clients", `[]`, "/networkPolicy/clients"},     // Kubernetes admits all
		{"networkPolicy.clients", `[{}]`, "/networkPolicy/clients/0"}, // Kubernetes refuses it
		// A rule without what it lacks admits all sources to all ports.
		{"networkPolicy.workers", `[{}]`, "/networkPolicy/workers/0"},
		{"networkPolicy.workers", `[{"port": 8080}]`, "/networkPolicy/workers/0"},
		{"networkPolicy.workers", `[{"from": [], "ports": [{"port": 8080}]}]`, "/networkPolicy/workers/0/from"},
		{"networkPolicy.workers", `[{"ports": []}]`, "/networkPolicy/workers/0/ports"},
		{"networkPolicy.egress", `[{"port": 4318}]`, "/networkPolicy/egress/0"},
		{"example.service", `"echo=10.0.0.1:80;x"`, "/example/service"},
		{"example.autoscaling", `{"enabled": true, "inFlight": 0}`, "/example/autoscaling/inFlight"},
		{"example.autoscaling.maxReplicas", `"30"`, "/example/autoscaling/maxReplicas"},
		{"monitoring", `{"podMonitors": true, "serviceMonitors": true}`, "/monitoring"}, // each metric twice
		{"cluste", `"shop"`, "'cluste'"},
	} {
		var value any
		if err := json.Unmarshal([]byte(r.value), &value); err != nil {
			t.Fatalf("%s: %v", r.path, err)
		}
		_, _, err := release{values: at(r.path, value)}.render(c)
		if err == nil || !strings.Contains(err.Error(), r.want) {
			t.Errorf("%s=%s: got %v, want an error with %s", r.path, r.value, err, r.want)
		}
	}
	for _, c := range charts(t) {
		before := c.before(t)
		for _, r := range c.rows {
			place := "/" + strings.ReplaceAll(strings.TrimPrefix(r.path, "ringway-worker."), ".", "/")
			_, _, err := c.with(r.path, []any{[]any{1}}).render(c.Chart)
			if err == nil || !strings.Contains(err.Error(), place) {
				t.Errorf("%s of a wrong type: got %v, want an error with %s", r.path, err, place)
			}
			// null removes a value: the objects must not have one that is empty.
			after, _, err := c.with(r.path, nil).render(c.Chart)
			name := r.path[strings.LastIndex(r.path, ".")+1:]
			if err != nil && !strings.Contains(err.Error(), "missing property '"+name+"'") {
				t.Errorf("%s=null: got %v, want that %s is missing", r.path, err, name)
			}
			if err == nil && len(changes(before, after)) > 0 {
				t.Errorf("%s=null is no error and changes\n%s", r.path, lines(changes(before, after)))
			}
		}
	}
}

// hostile are texts that would change the objects if a template inserted them without toJson.
var hostile = []string{
	"x\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: evil}\n",
	"x\n  evil: true", "x: y", "x # y", "\"", "'", `\`, `"}, {name: evil, value: "`, "}}", "]", "- x", "*labels", "&container", "!!binary x",
	"{{ .Release.Name }}", "{{- end }}", "null", "true", "1e3", "0440", "~", " ", "%", "%s%d%!", "<>&", "\t", "\r\n", "\u2028---\u2029", "日本",
}

// controls may also be refused: they are not characters of YAML.
var controls = []string{"\x00", "\x1b[2J", "\x7f", "\u0085---\u0085kind: Secret", "\ufeff"}

func TestTextsStayInTheirPlacesEvenWithoutTheSchema(t *testing.T) {
	for _, c := range charts(t) {
		c.textsStay(t)
	}
}

func (c judged) textsStay(t *testing.T) {
	// with gives the values of the rows a text, in the form of each value.
	with := func(text string, rows ...row) release {
		all := release{skipSchema: true, values: c.base}
		for _, r := range rows {
			value := any(text)
			switch r.value[0] {
			case '{':
				value = map[string]any{text: text}
			case '[':
				value = []any{map[string]any{"name": text, text: text}}
			}
			all.values = loader.MergeMaps(all.values, at(r.path, value))
		}
		return all
	}
	check := func(text string, rows ...row) error {
		const marker = "the-text-of-the-value"
		marked, _, err := with(marker, rows...).render(c.Chart)
		if err != nil {
			t.Fatal(err)
		}
		got, _, err := with(text, rows...).render(c.Chart)
		if err != nil {
			return err
		}
		if c := changes(marked.replaced(marker, text), got); len(c) > 0 {
			t.Errorf("%q leaves its place:\n%s", text, lines(c))
		}
		return nil
	}
	for _, text := range hostile {
		if err := check(text, c.rows...); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, text := range controls {
		for _, r := range c.rows { // one by one: an error would hide the others
			if err := check(text, r); err != nil && !strings.Contains(err.Error(), "yaml") {
				t.Errorf("%s=%q: %v", r.path, text, err)
			}
		}
	}
}

// replaced is the objects with the text in place of the marker, in names, paths and leaves.
func (o objects) replaced(marker, text string) objects {
	quoted, err := json.Marshal(text)
	if err != nil {
		panic(err) // a string has no errors
	}
	out := objects{}
	for name, leaves := range o {
		name = strings.ReplaceAll(name, marker, text)
		out[name] = map[string]string{}
		for at, leaf := range leaves {
			out[name][strings.ReplaceAll(at, marker, text)] = strings.ReplaceAll(leaf, marker, string(quoted[1:len(quoted)-1]))
		}
	}
	return out
}
