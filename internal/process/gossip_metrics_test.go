package process

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-metrics"
	"github.com/hashicorp/memberlist"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/procs"
)

// A newer memberlist may measure under other names.
func TestEveryNameInMemberlistsSourceIsKnown(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/hashicorp/memberlist").Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(string(out))
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	literal := regexp.MustCompile(`\[\]string\{("memberlist"[^}]*)\}`)
	s, found := NewGossipSink(prometheus.NewRegistry()), 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range literal.FindAllSubmatch(text, -1) {
			key := strings.NewReplacer(`"`, "", ", ", ".").Replace(string(m[1]))
			found++
			if s.counters[key] == nil && s.gauges[key] == nil && s.samples[key] == nil && key != instancesKey && ignored[key] == "" {
				t.Errorf("%s is measured and neither shown nor ignored", key)
			}
		}
	}
	if found < 15 {
		t.Errorf("found only %d measurements in %s", found, dir)
	}
}

// Two members in one process measure into the same sink; that is enough to see that
// every kind of value arrives, in the right unit.
func TestWhatMembersMeasureArrives(t *testing.T) {
	s := NewGossipSink(prometheus.NewRegistry())
	if err := s.Install(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = metrics.NewGlobal(&metrics.Config{FilterDefault: true}, &metrics.BlackholeSink{}) }()
	var members []*memberlist.Memberlist
	for i := range 2 {
		cfg := memberlist.DefaultLocalConfig()
		cfg.Name, cfg.BindAddr, cfg.BindPort, cfg.AdvertisePort = fmt.Sprint("m", i), "127.0.0.1", 0, 0
		cfg.LogOutput = discard{}
		cfg.ProbeInterval = 20 * time.Millisecond
		m, err := memberlist.Create(cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = m.Shutdown() }()
		members = append(members, m)
	}
	if _, err := members[1].Join([]string{members[0].LocalNode().Address()}); err != nil {
		t.Fatal(err)
	}
	value := func(key string) float64 { return testutil.ToFloat64(s.counters[key]) }
	probes := s.samples["memberlist.probeNode"].(prometheus.Histogram)
	procs.Await(t, "a packet and a probe are measured", func() bool { return value("memberlist.udp.sent") > 0 && count(t, probes) > 0 })
	if value("memberlist.msg.alive") < 2 || value("memberlist.tcp.connect") < 1 || value("memberlist.tcp.accept") < 1 {
		t.Errorf("alive %v, connect %v, accept %v", value("memberlist.msg.alive"), value("memberlist.tcp.connect"), value("memberlist.tcp.accept"))
	}
	if got := testutil.ToFloat64(s.instances["alive"]); got < 1 {
		t.Errorf("%v instances alive", got)
	}
}

func TestTimesAreInSeconds(t *testing.T) {
	s := NewGossipSink(prometheus.NewRegistry())
	m, err := metrics.New(&metrics.Config{TimerGranularity: time.Second, FilterDefault: true}, s)
	if err != nil {
		t.Fatal(err)
	}
	m.MeasureSinceWithLabels([]string{"memberlist", "probeNode"}, time.Now().Add(-time.Minute), nil)
	if got := sum(t, s.samples["memberlist.probeNode"].(prometheus.Histogram)); got < 60 || got > 120 {
		t.Errorf("a minute is measured as %v", got)
	}
}

func TestWhatIsNotKnownIsDropped(t *testing.T) {
	reg := prometheus.NewRegistry()
	s := NewGossipSink(reg)
	before, _ := testutil.GatherAndCount(reg)
	s.IncrCounter([]string{"memberlist", "new"}, 1)
	s.SetGauge([]string{"memberlist", "new"}, 1)
	s.AddSample([]string{"memberlist", "new"}, 1)
	s.EmitKey([]string{"memberlist", "new"}, 1)
	s.SetGaugeWithLabels([]string{"memberlist", "node", "instances"}, 1, []metrics.Label{{Name: stateLabel, Value: "of a stranger"}, {Name: "dead", Value: "dead"}})
	s.IncrCounter([]string{"memberlist", "msg", "dead"}, -1) // would panic
	if after, _ := testutil.GatherAndCount(reg); after != before || before == 0 {
		t.Errorf("%d series, then %d", before, after)
	}
	if got := testutil.ToFloat64(s.instances["dead"]); got != 0 {
		t.Errorf("a label that is not the state was taken for it: %v", got)
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }
