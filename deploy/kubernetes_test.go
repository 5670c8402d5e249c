package deploy_test

import (
	"bytes"
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.yaml.in/yaml/v3"

	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

const namespace = "ringway"

// optional are the files that the kustomization leaves out, because a cluster may lack what they need.
var optional = []string{"autoscaling.yaml", "podmonitors.yaml", "servicemonitors.yaml"}

// manifests are all objects, by kind and name.
func manifests(t *testing.T) map[string]object {
	t.Helper()
	var kustomization struct {
		APIVersion string `yaml:"apiVersion"`
		Kind       string
		Namespace  string
		Resources  []string
		Images     []struct{ Name, NewName, NewTag string }
	}
	text := read(t, "kubernetes/kustomization.yaml")
	if err := yaml.Unmarshal(text, &kustomization); err != nil || kustomization.Namespace != namespace {
		t.Fatalf("%v, namespace %q", err, kustomization.Namespace)
	}
	there, err := filepath.Glob("kubernetes/*.yaml")
	if err != nil || len(there) != len(kustomization.Resources)+len(optional)+1 {
		t.Errorf("%d files, %d resources of the kustomization: %v", len(there), len(kustomization.Resources), err)
	}
	all := map[string]object{}
	for _, name := range kustomization.Resources {
		d := yaml.NewDecoder(bytes.NewReader(read(t, filepath.Join("kubernetes", name))))
		d.KnownFields(true)
		for {
			var o object
			if err := d.Decode(&o); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			key := o.Kind + "/" + o.Metadata.Name
			if _, twice := all[key]; twice || o.APIVersion == "" {
				t.Errorf("%s is there twice, or of no version", key)
			}
			all[key] = o
		}
	}
	return all
}

// selects reports whether the selector matches a pod with these labels.
func selects(selector, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return len(selector) > 0
}

// matchLabels is the label selector of any object.
func matchLabels(selector any) map[string]string {
	m, _ := selector.(map[string]any)
	if inner, ok := m["matchLabels"].(map[string]any); ok {
		m = inner
	}
	out := map[string]string{}
	for k, v := range m {
		out[k] = fmt.Sprint(v)
	}
	return out
}

// workload is a pod template that runs a relay or a worker.
type workload struct {
	object
	pod    podSpec
	labels map[string]string
	main   container
	binary string
	member member
}

// nodeLabels are those that Kubernetes copies from the node to its pods.
var nodeLabels = map[string]string{"metadata.labels['topology.kubernetes.io/zone']": "eu-1a", "metadata.labels['topology.kubernetes.io/region']": "eu-1"}

// running are the containers that run as long as the pod: sidecars and the others.
func (p podSpec) running() []container {
	sidecars := slices.DeleteFunc(slices.Clone(p.InitContainers), func(c container) bool { return c.RestartPolicy != "Always" })
	return append(sidecars, p.Containers...)
}

// workloads are the workloads of relays and of workers.
func workloads(t *testing.T) []workload { t.Helper(); return workloadsAt(t, "10.1.2.3") }

// workloadsAt are the workloads whose pods have this address.
func workloadsAt(t *testing.T, podIP string) (all []workload) {
	t.Helper()
	for _, o := range manifests(t) {
		if o.Kind != "StatefulSet" && o.Kind != "Deployment" {
			continue
		}
		w := workload{object: o, pod: o.Spec.Template.Spec, labels: o.Spec.Template.Metadata.Labels}
		for _, c := range w.pod.running() {
			if c.Image == "ringway-relay" || c.Image == "ringway-worker" {
				w.main, w.binary = c, strings.TrimPrefix(c.Image, "ringway-")
			}
		}
		if w.binary == "" {
			t.Errorf("%s %s runs no member", o.Kind, o.Metadata.Name)
			continue
		}
		fields := map[string]string{"status.podIP": podIP, "metadata.name": "pod-0"}
		var environ []string
		for _, e := range w.main.Env {
			value := strings.ReplaceAll(e.Value, "$(POD_IP)", fields["status.podIP"])
			if path := e.ValueFrom.FieldRef.FieldPath; path != "" {
				if value = cmp.Or(fields[path], nodeLabels[path]); value == "" {
					t.Errorf("%s comes from %s, which is not known here", e.Name, path)
				}
			}
			environ = append(environ, e.Name+"="+value)
		}
		w.member = load(t, w.binary, environ)
		all = append(all, w)
	}
	if len(all) != 2 {
		t.Fatalf("%d workloads, want relays and a worker", len(all))
	}
	return all
}

func TestPodsRunMembersWithValidSettingsThatAreSecured(t *testing.T) {
	for _, w := range append(workloads(t), workloadsAt(t, "fd00::5")...) {
		w.member.secured(t)
		if w.member.id != "pod-0" || !onlyFor(w.member.gossip) || !slices.Equal(w.main.Args, []string{"run"}) {
			t.Errorf("%s: id %q, gossip at %q, args %v", w.binary, w.member.id, w.member.gossip, w.main.Args)
		}
		if w.member.zone != "eu-1a" || w.member.region != "eu-1" {
			t.Errorf("%s: zone %q in %q, want those of the node", w.binary, w.member.zone, w.member.region)
		}
		if w.main.Env[0].Name != "POD_IP" { // it must precede the variables that use it
			t.Errorf("%s: POD_IP is not the first variable", w.binary)
		}
	}
}

// A worker must start before its service and end after it, and a rollout must wait for its relays.
func TestAWorkerIsASidecarThatWaitsForTheRelaysOfThePlan(t *testing.T) {
	for _, w := range workloads(t) {
		if w.binary != "worker" {
			continue
		}
		last := w.pod.InitContainers[len(w.pod.InitContainers)-1]
		if last.Name != w.main.Name || w.main.RestartPolicy != "Always" || len(w.pod.Containers) != 1 || w.pod.InitContainers[0].RestartPolicy != "" {
			t.Errorf("init containers %+v, want the keys, then the worker as a sidecar", w.pod.InitContainers)
		}
		if most := relay.DefaultSettings().Plans.Minimums.PeersPerWorker; w.member.readyRelays < 1 || w.member.readyRelays >= most {
			t.Errorf("it waits for %d relays; want at least one, and fewer than %d, so that one that fails holds up nothing", w.member.readyRelays, most)
		}
	}
}

func TestPodsHaveThePortsOfTheirMembersAndProbesThatTheAdminAPIAnswers(t *testing.T) {
	api := process.NewMux(process.Config{Snapshot: func() *membership.Snapshot { return nil }, Reasons: func() []process.Reason { return nil },
		Gatherer: prometheus.NewRegistry(), Catalogue: func() uint64 { return 0 }})
	for _, w := range workloads(t) {
		var ports []string
		names := map[string]string{}
		for _, p := range w.main.Ports {
			ports = append(ports, fmt.Sprintf("%d/%s", p.ContainerPort, p.Protocol))
			names[p.Name] = fmt.Sprint(p.ContainerPort)
		}
		slices.Sort(ports)
		if want := w.member.ports(t); !slices.Equal(ports, want) {
			t.Errorf("%s: ports %v, want %v", w.binary, ports, want)
		}
		for path, p := range map[string]probe{"/healthz": w.main.LivenessProbe, "/readyz": w.main.ReadinessProbe} {
			if p.HTTPGet.Path != path || names[p.HTTPGet.Port] != port(t, w.member.admin) || p.PeriodSeconds == 0 || p.TimeoutSeconds == 0 || p.FailureThreshold == 0 {
				t.Errorf("%s: %+v is not a probe of %s at the admin port", w.binary, p, path)
			}
			answer := httptest.NewRecorder()
			api.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, p.HTTPGet.Path, nil))
			if answer.Code != http.StatusOK {
				t.Errorf("%s: the admin API answers %d to %s", w.binary, answer.Code, p.HTTPGet.Path)
			}
		}
		if w.main.LivenessProbe.PeriodSeconds*w.main.LivenessProbe.FailureThreshold < 30 {
			t.Errorf("%s: one slow minute of a node would restart it", w.binary)
		}
	}
}

func TestPodsMayDoNothingThatTheyDoNotNeed(t *testing.T) {
	for _, w := range workloads(t) {
		s := w.pod.SecurityContext
		if !s.RunAsNonRoot || s.RunAsUser == 0 || s.RunAsGroup == 0 || s.SeccompProfile.Type != "RuntimeDefault" ||
			w.pod.AutomountServiceAccountToken == nil || *w.pod.AutomountServiceAccountToken || w.pod.EnableServiceLinks == nil || *w.pod.EnableServiceLinks {
			t.Errorf("%s: %+v", w.Metadata.Name, s)
		}
		if account, ok := manifests(t)["ServiceAccount/"+w.pod.ServiceAccountName]; !ok || *account.AutomountServiceAccountToken {
			t.Errorf("%s: the account %q is missing or has a token", w.Metadata.Name, w.pod.ServiceAccountName)
		}
		for _, c := range slices.Concat(w.pod.InitContainers, w.pod.Containers) {
			if e := c.SecurityContext.AllowPrivilegeEscalation; e == nil || *e || !c.SecurityContext.ReadOnlyRootFilesystem ||
				!slices.Equal(c.SecurityContext.Capabilities.Drop, []string{"ALL"}) || c.Resources.Requests.CPU == "" || c.Resources.Limits.Memory == "" {
				t.Errorf("%s/%s: %+v %+v", w.Metadata.Name, c.Name, c.SecurityContext, c.Resources)
			}
		}
	}
	if manifests(t)["Namespace/"+namespace].Metadata.Labels["pod-security.kubernetes.io/enforce"] != "restricted" {
		t.Error("the namespace lets pods do more")
	}
}

func TestPodsHaveACertificateWithTheirIdentityAndKeysThatTheyCanRotate(t *testing.T) {
	for _, w := range workloads(t) {
		mounted := map[string]string{}
		for _, m := range w.main.VolumeMounts {
			mounted[m.MountPath] = m.Name
		}
		tls, keys := mounted[filepath.Dir(w.member.cert)], mounted[filepath.Dir(w.member.keyed)]
		// The file names of the driver.
		if dir := filepath.Dir(w.member.cert); w.member.cert != dir+"/tls.crt" || w.member.key != dir+"/tls.key" || w.member.authorities != dir+"/ca.crt" {
			t.Errorf("%s: %s %s %s", w.binary, w.member.cert, w.member.key, w.member.authorities)
		}
		issuers := manifests(t)
		found := 0
		for _, v := range w.pod.Volumes {
			switch v.Name {
			case tls:
				found++
				a := v.CSI.VolumeAttributes
				var uris []*url.URL
				for text := range strings.SplitSeq(a["csi.cert-manager.io/uri-sans"], ",") {
					u, err := url.Parse(strings.ReplaceAll(text, "${POD_NAME}", w.member.id))
					if err != nil {
						t.Fatal(err)
					}
					uris = append(uris, u)
				}
				claims, err := identity.FromCertificate(&x509.Certificate{URIs: uris})
				want := identity.Claims{Role: identity.Role(w.member.role), Cluster: w.member.cluster, Environment: w.member.environment, Node: w.member.id}
				if err != nil || claims != want {
					t.Errorf("%s: its certificate has %v, want %v: %v", w.binary, claims, want, err)
				}
				if _, ok := issuers["Issuer/"+a["csi.cert-manager.io/issuer-name"]]; !ok || !strings.Contains(a["csi.cert-manager.io/key-usages"], "server auth,client auth") {
					t.Errorf("%s: %v", w.binary, a)
				}
				// The driver's default is RSA, which members refuse.
				life, err := time.ParseDuration(a["csi.cert-manager.io/duration"])
				early, err2 := time.ParseDuration(a["csi.cert-manager.io/renew-before"])
				if a["csi.cert-manager.io/key-algorithm"] != "Ed25519" || err != nil || err2 != nil || life > 30*24*time.Hour || early < life/4 {
					t.Errorf("%s: %v", w.binary, a)
				}
			case keys:
				found++
				if v.EmptyDir.SizeLimit == "" {
					t.Errorf("%s: keys are not in a directory that can be written", w.binary)
				}
			}
		}
		if found != 2 {
			t.Errorf("%s: no volumes for %s and %s", w.binary, w.member.cert, w.member.keyed)
		}
		init := w.pod.InitContainers[0]
		if _, err := commandLine(append([]string{strings.TrimPrefix(init.Image, "ringway-")}, init.Args...)); err != nil || init.Args[len(init.Args)-1] != w.member.keyed {
			t.Errorf("%s: the init container runs %v: %v", w.binary, init.Args, err)
		}
	}
}

func TestMembersFindEachOtherBeforeTheyAreReady(t *testing.T) {
	all := manifests(t)
	for _, w := range workloads(t) {
		name, ok := strings.CutPrefix(w.member.join[0], "dns+")
		service, rest, _ := strings.Cut(name, ".")
		s, there := all["Service/"+service]
		if !ok || !there || rest != namespace+".svc.cluster.local:"+fmt.Sprint(s.Spec.Ports[0].Port) {
			t.Errorf("%s joins %v, which is no service here", w.binary, w.member.join)
		}
		if s.Spec.ClusterIP != "None" || !s.Spec.PublishNotReadyAddresses {
			t.Errorf("%s does not name every pod: %+v", service, s.Spec)
		}
	}
	for name, o := range all {
		if o.Kind != "Service" {
			continue
		}
		selected := 0
		for _, w := range workloads(t) {
			if !selects(matchLabels(o.Spec.Selector), w.labels) {
				continue
			}
			selected++
			for _, p := range o.Spec.Ports {
				if !slices.ContainsFunc(w.main.Ports, func(c containerPort) bool {
					return c.Name == p.TargetPort && c.Protocol == p.Protocol
				}) {
					t.Errorf("%s: no pod has the port %s/%s", name, p.TargetPort, p.Protocol)
				}
			}
		}
		if selected != 1 {
			t.Errorf("%s selects %d workloads, want 1", name, selected)
		}
	}
	if s := all["StatefulSet/relay"]; all["Service/"+s.Spec.ServiceName].Spec.ClusterIP != "None" || s.Spec.PodManagementPolicy != "Parallel" {
		t.Error("relays have no stable names, or start one after the other")
	}
}

func TestNothingIsLostWhenPodsEndAndNeverTooManyDo(t *testing.T) {
	for _, w := range workloads(t) {
		drain := process.DefaultSessionDrain
		grace := time.Duration(w.pod.TerminationGracePeriodSeconds) * time.Second
		longest := time.Duration(0)
		for _, c := range w.pod.running() {
			stop := c.Lifecycle.PreStop
			longest = max(longest, time.Duration(stop.Sleep.Seconds)*time.Second)
			if words := stop.Exec.Command; len(words) > 0 {
				if _, err := commandLine(words); err != nil {
					t.Errorf("%s: preStop %v: %v", w.binary, words, err)
				}
			}
			if stop.Sleep.Seconds == 0 && len(stop.Exec.Command) == 0 {
				t.Errorf("%s/%s stops immediately", w.Metadata.Name, c.Name)
			}
		}
		if grace < longest+drain+5*time.Second {
			t.Errorf("%s is killed after %v, while preStop takes %v and draining %v", w.binary, grace, longest, drain)
		}
		budgets := 0
		for _, o := range manifests(t) {
			if o.Kind == "PodDisruptionBudget" && selects(matchLabels(o.Spec.Selector), w.labels) {
				budgets++
				if o.Spec.MaxUnavailable < 1 || o.Spec.MaxUnavailable >= w.Spec.Replicas || o.Spec.UnhealthyPodEvictionPolicy != "AlwaysAllow" {
					t.Errorf("%s: %+v", w.binary, o.Spec)
				}
			}
		}
		if budgets != 1 || !maps.Equal(matchLabels(w.Spec.Selector), selectedBy(w)) {
			t.Errorf("%s: %d budgets; selector %v, labels %v", w.Metadata.Name, budgets, w.Spec.Selector, w.labels)
		}
	}
	if m := manifests(t)["StatefulSet/relay"]; m.Spec.Replicas < relay.DefaultSettings().Plans.Minimums.PeersPerWorker {
		t.Errorf("%d relays are fewer than a worker needs", m.Spec.Replicas)
	}
}

// selectedBy is the part of the selector that matches the labels of the pods.
func selectedBy(w workload) map[string]string {
	out := map[string]string{}
	for k, v := range matchLabels(w.Spec.Selector) {
		if w.labels[k] == v {
			out[k] = v
		}
	}
	return out
}

func TestTheNetworkPolicyOpensEveryPortToThoseWhoNeedItOnly(t *testing.T) {
	const members = "namespace , pod ringway/, namespace , pod /worker" // relays, and workers in pods of any application
	for _, w := range workloads(t) {
		opened := map[string]string{}
		policies := 0
		for _, o := range manifests(t) {
			if o.Kind != "NetworkPolicy" || !selects(o.Spec.PodSelector.MatchLabels, w.labels) {
				continue
			}
			policies++
			for _, rule := range o.Spec.Ingress {
				if len(rule.From) == 0 || len(rule.Ports) == 0 {
					t.Fatalf("%s: a rule opens every port, or to all sources: %+v", w.binary, rule)
				}
				var who []string
				for _, from := range rule.From {
					if n := from.NamespaceSelector; n != nil {
						who = append(who, "namespace "+n.MatchLabels["kubernetes.io/metadata.name"])
					}
					if p := from.PodSelector; p != nil {
						who = append(who, "pod "+p.MatchLabels["app.kubernetes.io/part-of"]+"/"+p.MatchLabels["app.kubernetes.io/name"]+p.MatchLabels["ringway.io/role"])
					}
				}
				for _, p := range rule.Ports {
					opened[fmt.Sprintf("%d/%s", p.Port, p.Protocol)] = strings.Join(who, ", ")
				}
			}
		}
		ports := slices.Sorted(maps.Keys(opened))
		if want := w.member.ports(t); policies != 1 || !slices.Equal(ports, want) {
			t.Errorf("%s: %d policies open %v, want %v", w.binary, policies, ports, want)
		}
		admin := "namespace monitoring"
		if w.binary == "relay" { // commands with --all ask the other relays
			admin = "pod ringway/relay, " + admin
		}
		for addr, who := range map[string]string{
			w.member.gossip: members, w.member.admin: admin, w.member.ingress: "namespace ",
			w.member.peer: members, w.member.sidecar: "namespace ringway, pod ringway/relay",
		} {
			if addr != "" && opened[port(t, addr)+"/TCP"] != who {
				t.Errorf("%s: %s is open to %q, want %q", w.binary, addr, opened[port(t, addr)+"/TCP"], who)
			}
		}
		if w.labels["app.kubernetes.io/part-of"] != "ringway" || w.binary == "worker" && w.labels["ringway.io/role"] != "worker" {
			t.Errorf("%s may not gossip with the others: %v", w.binary, w.labels)
		}
	}
}

// TestRelaysConnectToMembersAndDNSOnly compares what the policy of the relays lets out with the ports
// of the members that relays connect to.
func TestRelaysConnectToMembersAndDNSOnly(t *testing.T) {
	for _, w := range workloads(t) {
		for _, o := range manifests(t) {
			if o.Kind != "NetworkPolicy" || !selects(o.Spec.PodSelector.MatchLabels, w.labels) {
				continue
			}
			restricted := slices.Contains(o.Spec.PolicyTypes, "Egress")
			if w.binary != "relay" {
				if restricted { // the pod is that of a service, too
					t.Errorf("the policy of %s restricts what its services connect to", w.Metadata.Name)
				}
				continue
			}
			if !restricted {
				t.Errorf("%s may connect to everything", w.Metadata.Name)
			}
			got := map[string]bool{}
			for _, rule := range o.Spec.Egress {
				for _, p := range rule.Ports {
					got[fmt.Sprintf("%d/%s", p.Port, p.Protocol)] = true
					if len(rule.To) == 0 && p.Port != 53 {
						t.Errorf("port %d is open to every destination", p.Port)
					}
				}
				if len(rule.Ports) == 0 {
					t.Errorf("a rule opens every port: %+v", rule)
				}
				for _, to := range rule.To {
					if to.PodSelector == nil || len(to.PodSelector.MatchLabels) == 0 {
						t.Errorf("a rule opens %v to all pods", rule.Ports)
					}
				}
			}
			want := map[string]bool{"53/TCP": true, "53/UDP": true}
			for _, to := range workloads(t) {
				for _, addr := range []string{to.member.gossip, to.member.peer, to.member.sidecar} {
					if addr != "" {
						want[port(t, addr)+"/TCP"] = true
					}
				}
				if to.binary == "relay" {
					want[port(t, to.member.admin)+"/TCP"] = true
				}
				want[port(t, to.member.gossip)+"/UDP"] = true
			}
			if !maps.Equal(got, want) {
				t.Errorf("relays may connect to %v, want %v", got, want)
			}
		}
	}
}

func TestEveryFileOfThisDirectoryIsChecked(t *testing.T) {
	known := []string{".gitignore", "Dockerfile", "bake.json", "binaries_test.go", "compose.yaml", "compose_test.go", "containers", "doc.go", "documents_test.go", "echo", "grafana",
		"helm", "images_test.go", "kubernetes", "kubernetes_test.go", "kubernetes_types_test.go", "monitoring_test.go", "packages", "prometheus", "release", "secrets.sh", "systemd", "systemd_test.go", "tools_test.go"}
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.Name() != ".secrets" && !slices.Contains(known, e.Name()) {
			t.Errorf("%s is new: test what it promises, then name it here", e.Name())
		}
	}
}
