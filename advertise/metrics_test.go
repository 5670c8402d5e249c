package advertise

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/logtest"
)

// A rate sees nothing of a series that begins with its first event, so that one must
// not be what makes the series.
func TestTheFirstEventOfAKindIsNoNewSeries(t *testing.T) {
	m := newMetrics(nil)
	counts := func() [4]int {
		return [...]int{
			testutil.CollectAndCount(m.received), testutil.CollectAndCount(m.exchanges),
			testutil.CollectAndCount(m.cutOffs), testutil.CollectAndCount(m.bytes),
		}
	}
	before := counts()
	if slices.Contains(before[:], 0) {
		t.Fatalf("series at the start: %v", before)
	}
	for _, reason := range reasonsInTheSource(t) {
		switch {
		case slices.Contains(frameReasons, reason): // of exchanges only
		case reason == "role": // an offer of our own
			continue
		default:
			m.receive(outcomeOf(refuse(reason, "a test")))
		}
		_, offence := classify(refuse(reason, "a test"))
		m.cutOffs.WithLabelValues(offence).Inc()
	}
	m.receive(outcomeOf(errTruncated))
	if after := counts(); after != before {
		t.Errorf("series of records, exchanges, cut-offs and bytes: %v at the start, %v later", before, after)
	}
}

// reasonsInTheSource are all that something is refused for.
func reasonsInTheSource(t *testing.T) (reasons []string) {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	literal := regexp.MustCompile(`\brefuse\("([a-z_]+)"|r\.(?:bytes|string|array)\([^"\n]*, "([a-z_]+)"\)`)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range literal.FindAllSubmatch(source, -1) {
			reasons = append(reasons, string(m[1])+string(m[2]))
		}
	}
	slices.Sort(reasons)
	if reasons = slices.Compact(reasons); len(reasons) < 20 {
		t.Fatalf("found only %v", reasons)
	}
	return reasons
}

func TestTheAgeOfTheLoopIsAtMostFiveSecondsUnlessItHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewRegistry()
		c, err := New(Config{Gossip: newStill("r1"), Registerer: registry})
		if err != nil {
			t.Fatal(err)
		}
		expect := func(when string, least, most float64) {
			t.Helper()
			if age := logtest.Series(t, registry, "ringway_advertise_loop_age_seconds")[""]; age < least || age > most {
				t.Errorf("%s the loop is %v s old, want %v to %v", when, age, least, most)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- c.Run(ctx) }()
		for range 20 {
			time.Sleep(1900 * time.Millisecond)
			expect("without work", 0, 5)
		}
		resume := make(chan struct{})
		c.calls <- func() { <-resume }
		time.Sleep(time.Minute)
		expect("in a call", 60, 65)
		close(resume)
		synctest.Wait()
		expect("after the call", 0, 5)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		expect("after Run", 0, 0)
	})
}
