//go:build linux

package hostile

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership/identity"
)

const (
	// maxGrowth is how much memory a flood may cost a relay, while it lasts and
	// afterwards. Go's collector lets a heap double before it collects.
	maxGrowth = 96 << 20
	// maxScrape is how long /metrics may take at any time.
	maxScrape = time.Second
	// maxKnown is how many names one worker can leave behind in two minutes, with the
	// settings' defaults: a first record of 128, and 60 a minute.
	maxKnown = 128 + 2*60 + 2
	// maxSeries is how many series a flood may add: counters of refusals.
	maxSeries = 64
)

// size is what a relay costs.
type size struct {
	memory int64 // resident bytes
	series int   // of /metrics
	scrape time.Duration
}

func (f *fleet) size(r *relay) (s size) {
	f.t.Helper()
	// The fastest of a few counts: on a busy machine one may wait for a processor.
	for tries := 0; tries == 0 || tries < 5 && s.scrape > maxScrape; tries++ {
		begun := time.Now()
		status, text := f.get(r.Admin, "/metrics")
		if took := time.Since(begun); tries == 0 || took < s.scrape {
			s.scrape = took
		}
		s.series = strings.Count(text, "\n")
		if status != http.StatusOK {
			f.t.Fatalf("/metrics of %s: %d %.200s", r.ID, status, text)
		}
	}
	s.memory = memory(f.t, r.PID(), "VmRSS:")
	return s
}

// memory returns a line of the status of a process, in bytes.
func memory(t *testing.T, pid int, line string) int64 {
	t.Helper()
	proc, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(proc), line)
	kB, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return kB << 10
}

// within expects that a flood has not cost more than it may: names that no client has
// asked for have no series.
func (f *fleet) within(r *relay, before size) {
	f.t.Helper()
	now := f.size(r)
	if now.memory > before.memory+maxGrowth || now.series > before.series+maxSeries || now.scrape > maxScrape {
		f.t.Fatalf("%s has %d MiB, %d series and takes %v for /metrics; before the flood it had %d MiB and %d series; at most %d MiB, %d series and %v may be added",
			r.ID, now.memory>>20, now.series, now.scrape.Round(time.Millisecond), before.memory>>20, before.series, maxGrowth>>20, maxSeries, maxScrape)
	}
}

// gives expects that nothing of a flood is left once it has ended.
func (f *fleet) gives(r *relay, before size) {
	f.t.Helper()
	procs.Await(f.t, r.ID+" has forgotten the members", func() bool { return slices.Equal(f.IDs(r), f.ids()) })
	procs.Await(f.t, r.ID+" has forgotten the services", func() bool {
		names, _ := f.services(r)
		return slices.Equal(names, []string{echo})
	})
	if _, known := f.services(r); known > maxKnown {
		f.t.Errorf("%s knows %d names of services, at most %d are allowed", r.ID, known, maxKnown)
	}
	f.within(r, before)
	now := f.size(r)
	f.t.Logf("%s: %d MiB, %d series before the flood, %d MiB, %d series after it", r.ID, before.memory>>20, before.series, now.memory>>20, now.series)
}

// TestNamesThatWereMadeUpCostNoMemory has an outsider make up 200 workers with 80
// services each: a megabyte of gossip.
func TestNamesThatWereMadeUpCostNoMemory(t *testing.T) {
	t.Parallel()
	const names, services = 200, 80
	f := startFleet(t, fleetConfig{Relays: 1, Workers: 1})
	o, r := newOutsider(t, f), f.Relays[0]
	var packets [][][]byte
	for n := range names {
		ghost := instance{fmt.Sprintf("ghost-%d", n), uint64(time.Now().UnixMilli())}
		var offers []advertise.Service
		for s := range services {
			offers = append(offers, advertise.Service{Name: fmt.Sprintf("s%d-%d", n, s), Address: o.addr().String()})
		}
		packets = append(packets, [][]byte{o.isAlive(ghost, identity.RoleWorker), o.offers(ghost, 1, offers...)})
	}
	f.serves(2) // the series of the first requests are none of the flood
	before := f.size(r)
	stop := f.arrives(func() {
		for _, messages := range packets {
			o.send(f.gossipOf(false), messages...)
			time.Sleep(time.Millisecond / 10) // as fast as a socket buffer takes them
		}
	}, func(r *relay) bool { names, _ := f.services(r); return len(names) > 100 })
	during(t, watching, func() error { f.within(r, before); return f.served(2) })
	stop()
	f.gives(r, before)
}

// TestNewNamesWithoutEndCostNoMemory has a turncoat, whose records are in order, offer
// as many services as a record may have, under new names again and again.
func TestNewNamesWithoutEndCostNoMemory(t *testing.T) {
	t.Parallel()
	const rounds, services = 15, 120
	f := startFleet(t, fleetConfig{Relays: 1, Workers: 1})
	c, r := startTurncoat(t, f), f.Relays[0]
	f.serves(2) // the series of the first requests are none of the flood
	before := f.size(r)
	for round := range rounds {
		var offers []advertise.Service
		for s := range services {
			offers = append(offers, advertise.Service{Name: fmt.Sprintf("s%d-%d", round, s), Address: c.sidecar, Secured: true})
		}
		was := f.refusals(r.Admin)
		c.offer(t, offers...)
		procs.Await(t, "the names arrive", func() bool {
			return f.offers(r, offers[0].Name) || f.refusals(r.Admin) > was
		})
		f.within(r, before)
		f.serves(2)
	}
	c.stop()
	f.gives(r, before)
}

// flood is how many packets and names a relay is flooded with: a million packets where
// there is time (LONG_TESTS=1, as `make test-long` sets it).
func flood() (packets, names int) {
	if os.Getenv("LONG_TESTS") != "" {
		return 1_000_000, 100_000
	}
	return 200_000, 100_000
}

// TestAFloodOfPacketsCostsNoMemory has an outsider send packets as fast as it can, each
// with other names.
func TestAFloodOfPacketsCostsNoMemory(t *testing.T) {
	packets, names := flood()
	const perPacket = 4
	f := startFleet(t, fleetConfig{Relays: 1, Workers: 1})
	o, r := newOutsider(t, f), f.Relays[0]
	epoch := uint64(time.Now().UnixMilli())
	claims := make([][]byte, names)
	for n := range claims {
		claims[n] = o.isAlive(instance{fmt.Sprintf("n%d", n), epoch}, identity.RoleWorker)
	}
	f.serves(2) // the series of the first requests are none of the flood
	before, refused := f.size(r), f.refusals(r.Admin)
	begun := time.Now()
	for n := range packets / 2 { // each unsigned and signed
		at := n * perPacket % names
		o.send(f.gossipOf(false), claims[at:at+perPacket]...)
		if n%(packets/20) == 0 {
			f.within(r, before)
			f.serves(2)
		}
	}
	t.Logf("%d packets in %v, of which %v were counted as refused", packets, time.Since(begun).Round(time.Millisecond), f.refusals(r.Admin)-refused)
	f.within(r, before)
	f.gives(r, before)
	f.serves(10)
}
