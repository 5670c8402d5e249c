package deploy_test

import (
	"bytes"
	"cmp"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/ringway/ringway/internal/process"
)

// composeFile is the part of the Compose specification in use; any other key is an error.
type composeFile struct {
	Services        map[string]composeService
	Networks        map[string]any
	Volumes         map[string]any
	XMember         any `yaml:"x-member"`
	XSettings       any `yaml:"x-settings"`
	XRelay          any `yaml:"x-relay"`
	XRelaySettings  any `yaml:"x-relay-settings"`
	XWorker         any `yaml:"x-worker"`
	XWorkerSettings any `yaml:"x-worker-settings"`
	XEcho           any `yaml:"x-echo"`
}

type composeService struct {
	Image, User, Hostname string
	Command               []string
	Environment           map[string]string
	Volumes, Ports        []string
	Networks              yaml.Node
	Restart               string
	ReadOnly              bool     `yaml:"read_only"`
	CapDrop               []string `yaml:"cap_drop"`
	SecurityOpt           []string `yaml:"security_opt"`
	StopGracePeriod       string   `yaml:"stop_grace_period"`
	Profiles              []string
	Healthcheck           struct {
		Test              []string
		Interval, Timeout string
		Retries           int
		StartPeriod       string `yaml:"start_period"`
	}
}

// network attaches a service to the network of the fleet.
type network struct {
	Fleet struct {
		Address string `yaml:"ipv4_address"`
		Aliases []string
	}
}

var defaulted = regexp.MustCompile(`\$\{\w+:-([^}]*)\}`)

func read(t *testing.T, path string) []byte {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// strict decodes one document; keys that the type lacks are errors.
func strict(t *testing.T, text []byte, into any) {
	t.Helper()
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(into); err != nil {
		t.Error(err)
	}
}

func readCompose(t *testing.T) (file composeFile) {
	t.Helper()
	strict(t, defaulted.ReplaceAll(read(t, "compose.yaml"), []byte("$1")), &file)
	return file
}

func TestTheComposeFleetIsThreeRelaysAGateAndNineWorkersThatAreSecured(t *testing.T) {
	count := map[string]int{}
	addresses, ids := map[string]string{}, map[string]bool{}
	secrets := string(read(t, "secrets.sh"))
	for name, s := range readCompose(t).Services {
		kind, number, _ := strings.Cut(name, "-")
		count[kind]++
		if kind == "prometheus" {
			if !slices.Equal(s.Profiles, []string{"monitoring"}) {
				t.Errorf("%s starts unasked: %v", name, s.Profiles)
			}
			continue
		}
		if s.User != "65532:65532" || !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") || s.Restart == "" {
			t.Errorf("%s may do more than it needs, or is not restarted: %+v", name, s)
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s publishes %s to other hosts", name, p)
			}
		}
		if kind == "echo" {
			continue
		}
		binary := map[string]string{"relay": "relay", "gate": "relay", "worker": "worker"}[kind]
		if want := "ringway-" + binary + ":devel"; s.Image != want {
			t.Errorf("%s runs %s, want %s", name, s.Image, want)
		}
		var environ []string
		for k, v := range s.Environment {
			environ = append(environ, k+"="+v)
		}
		m := load(t, binary, environ)
		m.secured(t)
		if m.id != name || string(m.role) != kind || ids[m.id] {
			t.Errorf("%s has the id %s and the role %s", name, m.id, m.role)
		}
		ids[m.id] = true
		if !strings.Contains(secrets, kind+"-") {
			t.Errorf("secrets.sh makes nothing for %s", name)
		}
		if !slices.Equal(s.Volumes, []string{"./.secrets/" + name + ":/secrets"}) {
			t.Errorf("%s has the secrets of another member: %v", name, s.Volumes)
		}
		var n network
		if err := s.Networks.Decode(&n); err != nil {
			t.Error(err)
		}
		if other := addresses[n.Fleet.Address]; n.Fleet.Address == "" || other != "" {
			t.Errorf("%s and %s have the address %q", name, other, n.Fleet.Address)
		}
		addresses[n.Fleet.Address] = name
		for _, addr := range []string{m.gossip, m.peer} {
			if addr != "" && !strings.HasPrefix(addr, n.Fleet.Address+":") {
				t.Errorf("%s is at %s and announces %s", name, n.Fleet.Address, addr)
			}
		}
		if seed := "dns+relays:" + process.RelayGossipPort; !slices.Equal(m.join, []string{seed}) {
			t.Errorf("%s joins %v, want %s", name, m.join, seed)
		}
		if (kind == "relay") != slices.Contains(n.Fleet.Aliases, "relays") {
			t.Errorf("%s has the aliases %v; relays are found under the name relays", name, n.Fleet.Aliases)
		}
		for _, p := range s.Ports {
			inside := port(t, p)
			if inside != port(t, cmp.Or(m.ingress, ":0")) && inside != port(t, m.admin) {
				t.Errorf("%s publishes %s and listens at %s and %s", name, p, m.ingress, m.admin)
			}
		}
		if kind == "worker" && !strings.HasPrefix(m.services[0], "echo=echo-"+number+":9000") {
			t.Errorf("%s offers %v", name, m.services)
		}
		test := s.Healthcheck.Test
		if len(test) < 3 || test[0] != "CMD" {
			t.Fatalf("%s has no health check: %v", name, test)
		}
		if _, err := commandLine(test[1:]); err != nil || test[1] != "/"+binary || !slices.Contains(test, "--ready") {
			t.Errorf("health check of %s: %v: %v", name, test, err)
		}
	}
	for kind, want := range map[string]int{"relay": 3, "gate": 1, "worker": 9, "echo": 9, "prometheus": 1} {
		if count[kind] != want {
			t.Errorf("%d of kind %s, want %d", count[kind], kind, want)
		}
	}
}

func TestPrometheusScrapesEveryMemberOfTheComposeFleet(t *testing.T) {
	var config struct {
		Global  any
		Rules   []string `yaml:"rule_files"`
		Scrapes []struct {
			Job           string                       `yaml:"job_name"`
			Static        []struct{ Targets []string } `yaml:"static_configs"`
			Authorization struct {
				File string `yaml:"credentials_file"`
			}
		} `yaml:"scrape_configs"`
	}
	strict(t, read(t, "prometheus/prometheus.yml"), &config)
	scraped := map[string]string{}
	for _, s := range config.Scrapes {
		if s.Authorization.File != "/secrets/admin.token" { // where compose.yaml mounts it
			t.Errorf("%s is scraped without the token", s.Job)
		}
		for _, target := range s.Static[0].Targets {
			scraped[target] = s.Job
		}
	}
	want := map[string]string{}
	for name := range readCompose(t).Services {
		switch kind, _, _ := strings.Cut(name, "-"); kind {
		case "relay", "gate":
			want[name+":"+process.RelayAdminPort] = "ringway-relay"
		case "worker":
			want[name+":"+process.WorkerAdminPort] = "ringway-worker"
		}
	}
	for target, job := range want {
		if scraped[target] != job {
			t.Errorf("%s is scraped as %q, want %s", target, scraped[target], job)
		}
	}
	if len(scraped) != len(want) || !slices.Equal(config.Rules, []string{"alerts.yaml"}) {
		t.Errorf("%d targets, want %d; rules %v", len(scraped), len(want), config.Rules)
	}
}

var stage = regexp.MustCompile(`(?m)^FROM (\S+) AS (\w+)$`)

func TestEachImageIsMadeFromNothingAndRunsOneBinaryWithoutPrivileges(t *testing.T) {
	text := string(read(t, "Dockerfile"))
	makefile := string(read(t, "../Makefile"))
	starts := stage.FindAllStringSubmatchIndex(text, -1)
	if len(starts) != 3 {
		t.Fatalf("%d stages, want 3", len(starts))
	}
	for i, at := range starts {
		base, name := text[at[2]:at[3]], text[at[4]:at[5]]
		end := len(text)
		if i+1 < len(starts) {
			end = starts[i+1][0]
		}
		body := text[at[0]:end]
		has := func(line string) {
			t.Helper()
			if !strings.Contains(body, "\n"+line+"\n") {
				t.Errorf("image %s lacks %q", name, line)
			}
		}
		if base != "scratch" {
			t.Errorf("image %s is made from %s", name, base)
		}
		has("ARG TARGETARCH\nCOPY ${TARGETARCH}/" + name + " /" + name)
		has("USER 65532:65532")
		has(`ENTRYPOINT ["/` + name + `"]`)
		if !strings.Contains(makefile, name) {
			t.Errorf("make image builds no %s", name)
		}
		if name == "echo" {
			continue
		}
		has(`CMD ["run"]`)
		if !strings.Contains(body, `CMD ["/`+name+`", "health"]`) {
			t.Errorf("image %s does not ask its own binary for its health", name)
		}
		if _, err := commandLine([]string{name, "health"}); err != nil {
			t.Errorf("%s health: %v", name, err)
		}
		defaults := map[string]string{
			"relay":  "EXPOSE " + process.RelayGossipPort + "/tcp " + process.RelayGossipPort + "/udp " + process.IngressPort + " " + process.PeerPort + " " + process.RelayAdminPort,
			"worker": "EXPOSE " + process.WorkerGossipPort + "/tcp " + process.WorkerGossipPort + "/udp " + "7421 " + process.WorkerAdminPort,
		}
		has(defaults[name])
	}
}
