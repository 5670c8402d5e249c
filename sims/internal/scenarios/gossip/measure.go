package gossip

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ringway/ringway/membership"
)

// Config is one fleet.
type Config struct {
	// Members is how many there are, at least 10; one in twenty is a relay, at least three.
	Members int
	// Events is how often each event is repeated, at least 1; joins happen twice as often.
	Events int
	// Burst is the share of workers that change what they offer at one time, 0 to 1.
	Burst float64
	// Loss is the share of packets that vanish once the fleet is formed, 0 to 1.
	Loss float64
	// Encrypted gives all a gossip key. Without, packets are some 45 bytes shorter.
	Encrypted bool
	// Interval is how often a member compares its records with another one; 0 is the default.
	Interval time.Duration
	// Seed feeds loss, jitter and the exchanges. memberlist draws from its own source, so a
	// run is not repeated exactly.
	Seed uint64
	// Step is called after each part of the work, of which there are Steps. May be nil.
	Step func()
}

// Kind is what happens to a fleet.
type Kind string

// The kinds, in the order in which they happen.
const (
	Join  Kind = "join"  // a worker joins: until all see its endpoint and it sees all of theirs
	Leave Kind = "leave" // a worker leaves: from its first word until nobody sees its endpoint
	Crash Kind = "crash" // a worker dies without a word: until nobody sees its endpoint
	Burst Kind = "burst" // many offers change at one time: until all see all changes
)

// Kinds are all kinds.
func Kinds() []Kind { return []Kind{Join, Leave, Crash, Burst} }

// round is what happens again and again. It leaves as many members as there were.
var round = []Kind{Join, Leave, Join, Crash, Burst}

// Steps is how often Config.Step is called.
func (c Config) Steps() int { return 2 + c.Events*len(round) }

// Result is what one fleet showed.
type Result struct {
	Members int
	Idle    Traffic // of one member in one minute, when nothing happens
	Events  map[Kind][]Event
	// WrongDeaths is how often a member took another to have failed that had not: it had left
	// without this member hearing of it, or was alive.
	WrongDeaths int
}

// Traffic is what was sent, by sender, without the headers of IP, UDP and TCP.
type Traffic struct {
	Packets, PacketBytes, StreamBytes float64
}

// Bytes are those of packets and streams.
func (t Traffic) Bytes() float64 { return t.PacketBytes + t.StreamBytes }

// Event is one thing that happened.
type Event struct {
	// Most is until 95 % of the members had seen it, Last until the last one had. Both are the
	// limit where it was not seen within that.
	Most, Last time.Duration
	// Gossip is the packet bytes that it cost each member on the average, beyond what an
	// idle one sends.
	Gossip float64
	// Streamed is the bytes on the streams of the one that joined, in both directions.
	Streamed float64
}

const (
	// limit bounds the wait for one event: full exchanges repair everything within that.
	limit = 10 * time.Minute
	// aftermath is how long news is passed on after everybody has it.
	aftermath = 10 * time.Second
	// tellOfOne is how long a newcomer, which tells of everybody that it has met, takes for
	// each of them: it sends 24 copies of 170 bytes, in 30 packets of 1400 bytes a second.
	tellOfOne = 120 * time.Millisecond
	// leastIdle is how long an idle fleet is watched at least.
	leastIdle = 4 * time.Minute
	// startIn is the time in which all members are started.
	startIn = 5 * time.Second
)

// Measure runs a fleet through all that can happen to it.
func Measure(cfg Config) (Result, error) {
	if cfg.Members < 10 || cfg.Events < 1 || cfg.Burst < 0 || cfg.Burst > 1 || cfg.Loss < 0 || cfg.Loss > 1 {
		return Result{}, fmt.Errorf("gossip: %d members, %d events, burst %v, loss %v: at least 10, at least 1, 0 to 1 and 0 to 1 are allowed", cfg.Members, cfg.Events, cfg.Burst, cfg.Loss)
	}
	if cfg.Step == nil {
		cfg.Step = func() {}
	}
	var out Result
	err := virtually(func() (err error) {
		f := newFleet(cfg)
		out, err = f.measure()
		if closeErr := f.close(); err == nil {
			err = closeErr
		}
		return err
	})
	if err != nil {
		return Result{}, fmt.Errorf("gossip: a fleet of %d: %w", cfg.Members, err)
	}
	return out, nil
}

func (f *fleet) measure() (Result, error) {
	out := Result{Members: f.cfg.Members, Events: map[Kind][]Event{}}
	if err := f.form(); err != nil {
		return out, err
	}
	f.network.SetLoss(f.cfg.Loss)
	f.cfg.Step()
	idleFor := f.idleFor()
	idle := f.traffic(func() { time.Sleep(idleFor) })
	perMinute := func(v float64) float64 { return v / idleFor.Minutes() / float64(len(f.members)) }
	out.Idle = Traffic{perMinute(idle.Packets), perMinute(idle.PacketBytes), perMinute(idle.StreamBytes)}
	f.cfg.Step()

	deaths := 0
	for n := range f.cfg.Events {
		for _, kind := range round {
			before := len(f.members)
			var e Event
			var err error
			began := time.Now()
			sent := f.traffic(func() { e, err = f.happen(kind, n) })
			if err != nil {
				return out, err
			}
			size := float64(max(before, len(f.members)))
			e.Gossip = sent.PacketBytes/size - out.Idle.PacketBytes*time.Since(began).Minutes()
			out.Events[kind] = append(out.Events[kind], e)
			if kind == Crash {
				deaths += len(f.members)
			}
			f.cfg.Step()
		}
	}
	failures, err := f.failures()
	if err != nil {
		return out, err
	}
	out.WrongDeaths = max(0, failures-deaths)
	return out, nil
}

// form starts all members. When hundreds join at once, each tells of all others two dozen
// times, which is most of the work of a run and none of what it measures: of those packets,
// which are large, only each third is sent until they have become few. What is missed the
// exchanges repair.
func (f *fleet) form() error {
	f.thin.Store(true)
	relays := max(seeds, f.cfg.Members/20)
	for i := range f.cfg.Members {
		role := membership.RoleWorker
		if i < relays {
			role = membership.RoleRelay
		}
		if _, err := f.start(role); err != nil {
			return err
		}
		time.Sleep(startIn / time.Duration(f.cfg.Members))
	}
	time.Sleep(f.tellAll())
	f.thin.Store(false)
	time.Sleep(2 * aftermath) // until the news of the joins is old
	for waited := time.Duration(0); !f.agree(); waited += time.Second {
		if waited > limit {
			return fmt.Errorf("its members do not agree %v after they were started", limit)
		}
		time.Sleep(time.Second)
	}
	return nil
}

// tellAll is until somebody has told of everybody.
func (f *fleet) tellAll() time.Duration { return time.Duration(len(f.members)) * tellOfOne }

// idleFor is a whole number of full exchanges of each member, so that no fleet is watched while
// more of them happen than on the average. memberlist makes the minute between two of them
// longer where there are many members, as here.
func (f *fleet) idleFor() time.Duration {
	period := time.Minute
	if n := float64(len(f.members)); n > 32 {
		period *= time.Duration(math.Ceil(math.Log2(n/32)) + 1)
	}
	return (leastIdle + period - 1) / period * period
}

// traffic measures what all send while something runs.
func (f *fleet) traffic(run func()) Traffic {
	before := f.network.Counters()
	run()
	after := f.network.Counters()
	return Traffic{
		float64(after.Packets - before.Packets), float64(after.PacketBytes - before.PacketBytes), float64(after.StreamBytes - before.StreamBytes),
	}
}

// happen lets something happen, for the n-th time, and waits until all know and no longer talk
// about it.
func (f *fleet) happen(kind Kind, n int) (Event, error) {
	var e Event
	var err error
	// A moment of its own for each, so that no two begin in the same place of the intervals.
	time.Sleep(time.Duration(n) * 137 * time.Millisecond)
	switch kind {
	case Join:
		e, err = f.join()
		time.Sleep(f.tellAll())
	case Leave:
		e, err = f.leave()
	case Crash:
		e = f.crash()
	case Burst:
		e, err = f.burst(fmt.Sprintf("v1.0.%d", n+1))
	}
	time.Sleep(aftermath)
	return e, err
}

func (f *fleet) join() (Event, error) {
	workers := f.members[0].catalogue.View().EndpointCount() + 1
	m, err := f.start(membership.RoleWorker)
	if err != nil {
		return Event{}, err
	}
	var e Event
	e.Most, e.Last = f.await(func(other *member) bool {
		v := other.catalogue.View()
		if other == m {
			return v.EndpointCount() == workers
		}
		_, there := v.Endpoint(service, m.id)
		return there
	})
	e.Streamed = float64(m.host.streamed.Load())
	return e, nil
}

func (f *fleet) leave() (Event, error) {
	m := f.last()
	left := make(chan error, 1)
	f.tasks.Go(func() { left <- m.node.Leave(context.Background()) })
	f.members = f.members[:len(f.members)-1]
	var e Event
	e.Most, e.Last = f.await(gone(m))
	f.members = append(f.members, m)
	err := <-left
	time.Sleep(time.Second) // a leaver still answers probes for a moment
	f.kill(m)
	return e, err
}

func (f *fleet) crash() Event {
	m := f.last()
	f.kill(m)
	var e Event
	e.Most, e.Last = f.await(gone(m))
	return e
}

func gone(m *member) func(*member) bool {
	return func(other *member) bool {
		_, there := other.catalogue.View().Endpoint(service, m.id)
		return !there
	}
}

func (f *fleet) burst(version string) (Event, error) {
	workers := slices.DeleteFunc(slices.Clone(f.members), func(m *member) bool { return m.role != membership.RoleWorker })
	changed := workers[:max(1, int(math.Round(f.cfg.Burst*float64(len(workers)))))]
	for _, m := range changed {
		if err := m.catalogue.Offer(offer(m, version)); err != nil {
			return Event{}, err
		}
	}
	next := map[*member]int{} // the first of the changed that a member has not seen
	var e Event
	e.Most, e.Last = f.await(func(m *member) bool {
		v := m.catalogue.View()
		for ; next[m] < len(changed); next[m]++ {
			if offered, there := v.Endpoint(service, changed[next[m]].id); !there || offered.Version != version {
				return false
			}
		}
		return true
	})
	return e, nil
}
