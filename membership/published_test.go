//go:build !race

package membership

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/internal/memnet"
	"github.com/ringway/ringway/membership/identity"
)

// field is a fleet of one kind of member on a network in memory, with a virtual clock.
type field struct {
	network   *memnet.Network
	authority *identity.Authority
	machines  []*machine
	members   []contender
	formed    time.Duration
	lasting   time.Duration // of the faults
	seen      float64       // see result
}

const fieldSeeds = 3

func fieldIP(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, byte(i / 200), byte(1 + i%200)})
}
func fieldName(i int) string { return fmt.Sprintf("n%d", i) }
func (f *field) seeds() (s []string) {
	for i := range fieldSeeds {
		s = append(s, fieldIP(i).String()+":7400")
	}
	return s
}

// at is the machine with an address.
func (f *field) at(ip netip.Addr) *machine {
	b := ip.As4()
	if i := int(b[2])*200 + int(b[3]) - 1; i < len(f.machines) {
		return f.machines[i]
	}
	return nil
}

// starting is the time within which the members of a fleet join, each at its moment. If all joined at
// the same one, each would have exchanged states once before any exchanges them for the third time, and
// none would depend on gossip.
const starting = time.Second

// play forms a fleet and returns what was measured.
func play(t *testing.T, size int, lasting time.Duration, kind func(*testing.T, *field, string, *machine) contender, script func(*field) result) (r result) {
	synctest.Test(t, func(t *testing.T) {
		f := &field{network: memnet.New(memnet.Config{Seed: 1, Latency: time.Millisecond / 2, Jitter: time.Millisecond / 2}), lasting: lasting}
		var err error
		if f.authority, err = identity.NewAuthority(identity.AuthorityConfig{Validity: 1000 * time.Hour, Now: time.Now}); err != nil {
			t.Fatal(err)
		}
		for i := range size {
			m := &machine{Host: f.network.Host(fieldIP(i).String()), field: f, random: rand.New(rand.NewPCG(1, uint64(i)))}
			m.cond = sync.NewCond(&m.mu)
			f.machines = append(f.machines, m)
		}
		for i, m := range f.machines {
			f.members = append(f.members, kind(t, f, fieldName(i), m))
		}
		defer func() {
			for _, m := range f.machines {
				m.stall(false)
			}
			for _, m := range f.members {
				m.close()
			}
			_ = f.network.Close()
			time.Sleep(10 * time.Minute) // until memberlist's goroutines are gone, too
		}()
		began := time.Now()
		var joins sync.WaitGroup
		for i, m := range f.members {
			late := time.Duration(f.machines[i].random.Int64N(int64(starting)))
			joins.Go(func() {
				time.Sleep(late)
				if err := m.join(f.seeds()); err != nil {
					t.Error(err)
				}
			})
		}
		joins.Wait()
		if !f.await(size, 10*time.Minute) {
			t.Errorf("%d members do not form a fleet", size)
			return
		}
		f.formed = time.Since(began)
		time.Sleep(10 * time.Second)
		r = script(f)
		r.formed = f.formed
	})
	return r
}

// await waits until each member sees as many members.
func (f *field) await(members int, limit time.Duration) bool {
	for began := time.Now(); time.Since(began) < limit; time.Sleep(100 * time.Millisecond) {
		agree := true
		for _, m := range f.members {
			agree = agree && m.size() == members
		}
		if agree {
			return true
		}
	}
	return false
}

// result is what one test measured. Removals are counted by each member that removed another one.
type result struct {
	formed  time.Duration
	wrong   int           // removals of members without a fault, by members without a fault
	faulty  int           // removals of members with a fault that lives, by members without a fault
	seen    float64       // share of the time of a fault for which members without one see those with one
	settled time.Duration // until all members that live see exactly those; 0: not within 10 minutes
}

// during lets the members [0,bad) have a fault, and measures how long the others see them.
func (f *field) during(bad int, fault func()) {
	ended := make(chan struct{})
	var observer sync.WaitGroup
	observer.Go(func() {
		seen, all := 0, 0
		for over := false; !over; {
			select {
			case <-ended:
				over = true
			case <-time.After(250 * time.Millisecond):
				for _, m := range f.members[bad:] {
					for i := range bad {
						if all++; m.sees(fieldName(i)) {
							seen++
						}
					}
				}
			}
		}
		f.seen = float64(seen) / float64(all)
	})
	fault()
	close(ended)
	observer.Wait()
}

// settle ends a test: the members [0,bad) have had a fault.
func (f *field) settle(bad, alive int) (r result) {
	r.seen = f.seen
	began := time.Now()
	if f.await(alive, 10*time.Minute) {
		r.settled = max(time.Since(began), 100*time.Millisecond)
	}
	return f.judge(bad, r)
}

func (f *field) judge(bad int, r result) result {
	for _, m := range f.members[bad:] {
		for i := range f.machines {
			if n := m.removed()[fieldName(i)]; i < bad {
				r.faulty += n
			} else {
				r.wrong += n
			}
		}
	}
	return r
}

// published are the tests of Rapid (Suresh and others, USENIX ATC 2018, section 7) and of Lifeguard
// (Dadgar and others, DSN 2018, section V). The members with a fault are the first.
var published = []struct {
	name, fault string
	script      func(*field) result
}{
	{"crashes", "10 members crash together", func(f *field) result {
		const crashes = 10
		// The last ones: the seeds stay.
		first := len(f.members) - crashes
		for i := first; i < len(f.members); i++ {
			f.machines[i].Crash()
			f.members[i].close()
		}
		f.members, f.machines = f.members[:first], f.machines[:first]
		return f.settle(0, first)
	}},
	{"loss at few", "1 % of them lose 80 % of what they send", func(f *field) result {
		bad := max(1, len(f.members)/100)
		for _, m := range f.machines[:bad] {
			m.lose(0.8)
		}
		f.during(bad, func() { time.Sleep(f.lasting) })
		for _, m := range f.machines[:bad] {
			m.lose(0)
		}
		return f.settle(bad, len(f.members))
	}},
	{"flip-flop", "1 % of them receive nothing for 20 s of each 40 s", func(f *field) result {
		bad := max(1, len(f.members)/100)
		f.during(bad, func() {
			for began := time.Now(); time.Since(began) < f.lasting; {
				for i := range bad {
					for j := range f.machines {
						if i != j {
							f.network.Block(fieldIP(j), fieldIP(i))
						}
					}
				}
				time.Sleep(20 * time.Second)
				f.network.Heal()
				time.Sleep(20 * time.Second)
			}
		})
		return f.settle(bad, len(f.members))
	}},
	{"loss everywhere", "all of them lose 20 % of their packets", func(f *field) result {
		f.network.SetLoss(0.2)
		time.Sleep(f.lasting)
		f.network.SetLoss(0)
		return f.settle(0, len(f.members))
	}},
	{"stalls", "6 % of them stop for 16.4 s, run 64 ms", func(f *field) result {
		bad := max(1, len(f.members)*8/128)
		stall := func(on bool) {
			for _, m := range f.machines[:bad] {
				m.stall(on)
			}
		}
		f.during(bad, func() {
			for began := time.Now(); time.Since(began) < f.lasting; {
				stall(true)
				time.Sleep(16384 * time.Millisecond)
				stall(false)
				time.Sleep(64 * time.Millisecond)
			}
		})
		return f.settle(bad, len(f.members))
	}},
}

// PUBLISHED_SIZE sets the size of the fleets and makes memberlist's default configuration run, too:
// `make bench-published`. Without it, a small fleet holds the promises.
func TestNoMemberWithoutAFaultIsRemovedInThePublishedTestsOfRapidAndLifeguard(t *testing.T) {
	size, lasting, compare := 20, 40*time.Second, false
	if s := os.Getenv("PUBLISHED_SIZE"); s != "" {
		var err error
		if size, err = strconv.Atoi(s); err != nil || size < 20 {
			t.Fatalf("PUBLISHED_SIZE %q: give at least 20 members", s)
		}
		lasting, compare = 5*time.Minute, true
	}
	for _, p := range published {
		t.Run(p.name, func(t *testing.T) {
			row := func(kind string, r result, cost time.Duration) {
				t.Logf("| %d | %s | %s | %.1f | %d | %d | %.1f | %.1f | %.1f |", size, p.fault, kind, r.formed.Seconds(), r.wrong, r.faulty, 100*r.seen, r.settled.Seconds(), cost.Seconds())
			}
			began := time.Now()
			if compare {
				r := play(t, size, lasting, newPlain, p.script)
				row("memberlist", r, time.Since(began))
			}
			began = time.Now()
			r := play(t, size, lasting, newProven, p.script)
			row("Ringway", r, time.Since(began))
			if r.wrong != 0 {
				t.Errorf("members without a fault were removed %d times", r.wrong)
			}
			if r.settled == 0 {
				t.Error("the members that live do not see each other 10 minutes after the fault")
			}
		})
	}
}
