package capacity

import (
	"fmt"
	"math"
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/ringway/ringway/sims/internal/scenario/scenariotest"
)

func TestEachPromiseCanFail(t *testing.T) {
	scenariotest.EachCanFail(t, New(), map[string]scenariotest.Break{
		relayFiles:  {Set: []string{"descriptors=1024"}},
		workerFiles: {Set: []string{"descriptors=64", "services-per-worker=10"}},
		relayMemory: {Set: []string{"memory=50"}},
		bandwidth:   {Set: []string{"bandwidth=10"}},
		packets:     {Set: []string{"changes=300"}},
		detection:   {Set: []string{"detect=10s"}},
		draining:    {Set: []string{"drain=4s"}},
		busy:        {Set: []string{"requests=2e6"}},
		redundancy:  {Set: []string{"relays-per-service=3"}},
	})
}

func TestItHoldsAndRepeats(t *testing.T) {
	for _, set := range []string{"index=slot", "strategy=rendezvous", "relays=4", "services=5000", "services-per-worker=10"} {
		scenariotest.Holds(t, New(), set, "workers=1000", "requests=5000")
	}
	scenariotest.Repeats(t, New())
}

// Figures measured with real memberlist on a virtual network. The spread at 200 is with
// six packets a round, as members have it; those at 50 and 500 were taken with four.
func TestTheFormulasOfGossipAgreeWithWhatWasMeasured(t *testing.T) {
	for n, want := range map[int]struct{ first, all, spread [2]float64 }{
		50:   {[2]float64{8.5, 9.2}, [2]float64{8.7, 9.5}, [2]float64{0.4, 0.7}},
		200:  {[2]float64{10.9, 11.2}, [2]float64{11.4, 11.7}, [2]float64{0.5, 0.6}},
		500:  {[2]float64{12.5, 13.5}, [2]float64{13.0, 13.9}, [2]float64{0.75, 0.95}},
		2000: {[2]float64{16.4, 16.4}, [2]float64{17.4, 17.4}, [2]float64{}},
	} {
		g := gossipOf(fleet{workers: n, record: 200})
		// The formulas bound what was measured: the first after, the last before.
		if f := g.suspect.Seconds(); f > want.first[1] || f < want.first[0]-2.5 {
			t.Errorf("%d members: a crash is known to the first after %.1f s, measured %v", n, f, want.first)
		}
		if f := g.detect.Seconds(); f < want.all[1]-0.7 || f > want.all[1]+1.5 {
			t.Errorf("%d members: a crash is known to all after %.1f s, measured %v", n, f, want.all)
		}
		if f := g.spread.Seconds(); want.spread[1] > 0 && math.Abs(f-want.spread[1]) > 0.2 {
			t.Errorf("%d members: a change is known to all after %.2f s, measured %v", n, f, want.spread)
		}
	}
}

// The constants of package membership are its own business; here they are as it has them.
func TestTheConstantsAreThoseOfMembership(t *testing.T) {
	source, err := os.ReadFile("../../../../membership/node.go")
	if err != nil {
		t.Fatal(err)
	}
	queue, err := os.ReadFile("../../../../membership/queue.go")
	if err != nil {
		t.Fatal(err)
	}
	source = append(source, queue...)
	duration := func(d time.Duration) string {
		return map[time.Duration]string{time.Second: `time\.Second`, time.Minute: `time\.Minute`, 200 * time.Millisecond: `200 \* time\.Millisecond`}[d]
	}
	for what, pattern := range map[string]string{
		"probe interval":     `probeInterval\s*= ` + duration(probeInterval),
		"suspicion":          fmt.Sprintf(`suspicionMult\s*= %d\b`, suspicionMult),
		"gossip interval":    `gossipInterval\s*= ` + duration(gossipInterval),
		"gossip nodes":       fmt.Sprintf(`gossipNodes\s*= %d\b`, gossipNodes),
		"copies":             fmt.Sprintf(`certainty = %d\b`, certainty),
		"push/pull interval": `PushPullInterval = ` + duration(pushPullInterval),
	} {
		if !regexp.MustCompile(pattern).Match(source) {
			t.Errorf("package membership has another %s than capacity: %s is not in it", what, pattern)
		}
	}
}

func TestMoreServicesOnFewerRelaysTakeMoreConnections(t *testing.T) {
	f := fleet{relays: 20, workers: 400, services: 10, perWorker: 1, perService: 10, m: 3, p: 3}
	few, err := f.connect()
	if err != nil {
		t.Fatal(err)
	}
	f.perWorker = 3
	many, err := f.connect()
	if err != nil {
		t.Fatal(err)
	}
	if few.ofWorker.least != 3 || few.ofWorker.most != 3 || few.ofRelay.sum != 1200 || many.ofRelay.sum != 3600 || few.served.sum != 100 {
		t.Errorf("%+v, %+v", few, many)
	}
}
