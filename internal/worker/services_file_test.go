package worker

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/worker/health"
)

// documented is the example of the reference.
func documented(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/reference/services-file.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(text), "```yaml\n")
	block, _, closed := strings.Cut(block, "```")
	if !ok || !closed {
		t.Fatal("the reference has no example")
	}
	return block
}

func TestTheDocumentedExampleIsReadAsItIsDescribed(t *testing.T) {
	got, err := ParseServices("services.yaml", []byte(documented(t)))
	if err != nil {
		t.Fatal(err)
	}
	want := []Service{
		{Source: FromFile, Service: advertise.Service{Name: "chat", Address: "127.0.0.1:9000", Protocol: advertise.H2C, Weight: 20, Slots: 100,
			Version: "v2.1.0", Tags: []string{"gpu", "blue"}, Relays: 5, Selection: "stable", Policy: "request-timeout=5s;retry=connect", State: advertise.Ready},
			Check: health.Check{Kind: health.GRPC, Address: "127.0.0.1:9000", Service: "chat.Chat",
				Interval: time.Second, Timeout: 500 * time.Millisecond, Rise: 2, Fall: 3, StartGrace: 10 * time.Second}},
		{Source: FromFile, Service: advertise.Service{Name: "files", Address: "127.0.0.1:9001", Protocol: advertise.HTTP1, Weight: 10, State: advertise.Ready},
			Check: health.Check{Kind: health.HTTP, Address: "127.0.0.1:9001", Host: "127.0.0.1:9001", Path: "/healthz", Method: "GET", Expect: "200-399",
				Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3, StartGrace: 10 * time.Second}},
		{Source: FromFile, Service: advertise.Service{Name: "cache", Address: "127.0.0.1:9002", Protocol: advertise.TCP, Weight: 10, State: advertise.Ready, ProxyProtocol: true},
			Check: health.Check{Kind: health.TCP, Address: "127.0.0.1:9002",
				Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3, StartGrace: 10 * time.Second}},
		{Source: FromFile, ServerName: "billing.example.org", Service: advertise.Service{Name: "billing", Address: "127.0.0.1:8443", Protocol: advertise.H2, Weight: 10, State: advertise.Ready},
			Check: health.Check{Kind: health.GRPC, Address: "127.0.0.1:8443", TLS: true, ServerName: "billing.example.org",
				Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3, StartGrace: 10 * time.Second}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestTheFileAndTheFlagMeanTheSame(t *testing.T) {
	flag, err := ParseService("a=h:1;protocol=h2c;weight=3;slots=4;version=v;tag=x;relays=5;selection=random;check=http:/up?x=1;host=example.org;interval=3s;timeout=2s;rise=4;fall=5;grace=0s")
	if err != nil {
		t.Fatal(err)
	}
	file, err := ParseServices("f", []byte(`services: [{name: a, address: "h:1", protocol: h2c, weight: 3, slots: 4, version: v, tags: [x], relays: 5, selection: random,
 check: {kind: http, path: "/up?x=1", host: example.org, interval: 3s, timeout: 2s, rise: 4, fall: 5, grace: 0s}}]`))
	if err != nil {
		t.Fatal(err)
	}
	flag.Source = FromFile
	if diff := cmp.Diff([]Service{flag}, file); diff != "" {
		t.Errorf("-flag +file:\n%s", diff)
	}
}

func TestEverythingThatIsWrongWithAFileIsReportedInOneErrorWithItsPlace(t *testing.T) {
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"unknown keys": {"services:\n  - name: a\n    adress: h:1\n  - name: b\n    check:\n      intervall: 1s\n",
			[]string{"f.yaml:3", "no such field: adress; did you mean address?", "f.yaml:6", "no such field: intervall; did you mean interval?"}},
		"unknown top": {"service:\n  - {name: a, address: 'h:1'}\n", []string{"f.yaml:1", `key "service"`, "did you mean the key services?"}},
		"bad values": {"services:\n  - {name: a, address: 'h:0', check: {kind: gopher}}\n  - {name: b b, address: 'h:1'}\n  - {name: c, address: 'h:1', check: {}}\n",
			[]string{"item 1", "port from 1", `kind "gopher"`, "item 2", `service name "b b"`, "item 3", "kind is missing"}},
		"twice":          {"services:\n  - {name: a, address: 'h:1'}\n  - {name: a, address: 'h:2'}\n", []string{`"a" is given twice, by file and by file`}},
		"a number":       {"services:\n  - {name: a, address: 'h:1', weight: many}\n", []string{"f.yaml:2", `want a whole number, found "many"`}},
		"a fraction":     {"services:\n  - name: a\n    address: h:1\n    check: {kind: tcp, rise: 2.5}\n", []string{"f.yaml:4", "not a whole number: 2.5"}},
		"weight 0":       {"services:\n  - {name: a, address: 'h:1', weight: 0}\n", []string{"f.yaml:1", "weight 0: want 1 to 100"}},
		"a strategy":     {"services:\n  - {name: a, address: 'h:1', selection: bogus}\n", []string{"f.yaml:1", `invalid strategy: "bogus"`}},
		"no unit":        {"services:\n  - {name: a, address: 'h:1', check: {kind: tcp, interval: 2}}\n", []string{"f.yaml:2", `want a duration such as 500ms or 2s, found "2"`}},
		"empty":          {"", []string{"f.yaml", `"services"`, "required"}},
		"null":           {"services:\n", []string{"f.yaml", `"services"`, "required"}},
		"a list":         {"- {name: a, address: 'h:1'}\n", []string{"f.yaml:1", "found a list"}},
		"half a file":    {"services:\n  - {name: a, addr", []string{"not valid YAML"}},
		"too many":       {"services:\n" + strings.Repeat("  - {name: a, address: 'h:1'}\n", 2), []string{"given twice"}},
		"more than fits": {many(advertise.MaxServices + 1), []string{"1025 services cannot be offered together", "at most 1024"}},
		"too large":      {long(), []string{"cannot be offered together", "bytes, more than"}},
	} {
		services, err := ParseServices("f.yaml", []byte(c.text))
		if err == nil || services != nil {
			t.Errorf("%s: %v, %v", name, services, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: lacks %q: %v", name, want, err)
			}
		}
	}
}

func many(n int) string {
	var b strings.Builder
	b.WriteString("services:\n")
	for i := range n {
		fmt.Fprintf(&b, "  - {name: s%d, address: '127.0.0.1:%d'}\n", i, i+1)
	}
	return b.String()
}

// long is few enough services, with tags that take more than a record holds.
func long() string {
	tag := strings.Repeat("x", 64)
	tags := strings.TrimSuffix(strings.Repeat(tag+", ", 8), ", ")
	var b strings.Builder
	b.WriteString("services:\n")
	for i := range 600 {
		fmt.Fprintf(&b, "  - {name: s%d, address: '127.0.0.1:%d', tags: [%s]}\n", i, i+1, tags)
	}
	return b.String()
}

func TestNoServicesYetIsWrittenAsAnEmptyList(t *testing.T) {
	services, err := ParseServices("f.yaml", []byte("services: []\n"))
	if err != nil || services == nil || len(services) > 0 {
		t.Errorf("%v, %v", services, err)
	}
}

func TestAFileHasChangedWhenItsContentsHave(t *testing.T) {
	path := filepath.Join(t.TempDir(), "services.yaml")
	f := servicesFile{path: path}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := f.read(); err == nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "--services-file") {
		t.Errorf("a file that is not there: %v", err)
	}
	if f.changed() {
		t.Error("it is still not there")
	}
	write("services: []\n")
	if !f.changed() {
		t.Error("it has appeared")
	}
	if services, err := f.read(); err != nil || f.changed() {
		t.Errorf("%v, %v", services, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	write("services: {}\n") // as long, and as old
	if err := os.Chtimes(path, info.ModTime(), info.ModTime()); err != nil {
		t.Fatal(err)
	}
	if !f.changed() {
		t.Error("its contents have changed")
	}
	if _, err := f.read(); err == nil || f.changed() {
		t.Errorf("what is wrong was seen, too: %v", err)
	}
	if none := new(servicesFile); none.changed() {
		t.Error("no file has changed")
	}
}

func FuzzParseServices(f *testing.F) {
	f.Add(documented(f))
	f.Add("services: []")
	f.Add("services: [{name: a, address: 'h:1', check: {kind: tcp}}, *x]")
	f.Fuzz(func(t *testing.T, text string) {
		services, err := ParseServices("f", []byte(text))
		if err != nil {
			if services != nil {
				t.Fatalf("%v next to %v", services, err)
			}
			return
		}
		if err := checkTogether(services); err != nil {
			t.Fatalf("%q gave services that are refused: %v", text, err)
		}
		again, err := normalized(services)
		if err != nil || !cmp.Equal(again, services) {
			t.Fatalf("%q gave services that are not normal: %v", text, err)
		}
	})
}
