package gossip

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ringway/ringway/membership/identity"
)

// Config configures one fleet.
type Config struct {
	// Members is the number of members, at least 10; one in twenty is a relay, at least three.
	Members int
	// Events is how often each event is repeated, at least 1; joins happen twice as often.
	Events int
	// Burst is the share of workers that change their offers at the same time, 0 to 1.
	Burst float64
	// Loss is the share of packets lost after the fleet has formed, 0 to 1.
	Loss float64
	// Encrypted gives all members a gossip key. Packets without encryption are some 45 bytes
	// shorter.
	Encrypted bool
	// Interval is how often a member compares its records with another one; 0 is the default.
	Interval time.Duration
	// Seed is the seed for loss, jitter and the exchanges. memberlist uses its own random
	// source, so equal seeds do not repeat a run exactly.
	Seed uint64
	// Step, if not nil, is called after each of the Steps parts of the work.
	Step func()
}

// Kind is a kind of event.
type Kind string

// The kinds, in the order in which they happen.
const (
	Join  Kind = "join"  // a worker joins: until all members see its endpoint and it sees all endpoints
	Leave Kind = "leave" // a worker leaves: from its first message until no member sees its endpoint
	Crash Kind = "crash" // a worker dies without a message: until no member sees its endpoint
	Burst Kind = "burst" // many offers change at the same time: until all members see all changes
)

// Kinds returns all kinds.
func Kinds() []Kind { return []Kind{Join, Leave, Crash, Burst} }

// round is the repeated sequence of events. A round does not change the number of members.
var round = []Kind{Join, Leave, Join, Crash, Burst}

// Steps returns how often Config.Step is called.
func (c Config) Steps() int { return 2 + c.Events*len(round) }

// Result holds the measurements of one fleet.
type Result struct {
	Members int
	Idle    Traffic // of one member in one minute without events
	Events  map[Kind][]Event
	// WrongDeaths is how often a member wrongly considered another member failed: the other
	// member was alive, or had left and this member had missed the message.
	WrongDeaths int
}

// Traffic is the sent traffic, without the headers of IP, UDP and TCP.
type Traffic struct {
	Packets, PacketBytes, StreamBytes float64
}

// Bytes returns the bytes of packets and streams together.
func (t Traffic) Bytes() float64 { return t.PacketBytes + t.StreamBytes }

// Event holds the measurements of one event.
type Event struct {
	// Most is the time until 95 % of the members have seen the event, Last the time until the
	// last member has. Both are at most limit, also if the event was not seen by then.
	Most, Last time.Duration
	// Gossip is the number of packet bytes that each member sent for the event, on average,
	// in addition to the traffic of an idle member.
	Gossip float64
	// Streamed is the number of bytes on the streams of the joiner, in both directions.
	Streamed float64
}

const (
	// limit is the longest wait for one event: full exchanges repair every loss within that
	// time.
	limit = 10 * time.Minute
	// settleTime is how long members still gossip about an event after all have seen it.
	settleTime = 10 * time.Second
	// announceInterval is the time that a joiner needs to gossip about one other member. A joiner
	// gossips about every member it learns of: 24 copies of 170 bytes each, in 30 packets of
	// 1400 bytes per second.
	announceInterval = 120 * time.Millisecond
	// leastIdle is the shortest measurement of an idle fleet.
	leastIdle = 4 * time.Minute
	// exchangeInterval is memberlist's PushPullInterval.
	exchangeInterval = time.Minute
	// startIn is the time in which all members start.
	startIn = 5 * time.Second
)

// Measure forms a fleet, measures it idle and then measures all events.
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
			sent := f.traffic(func() { e, err = f.runEvent(kind, n) })
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

// form starts all members. When hundreds of members join, each gossips about all others two
// dozen times. That gossip would be most of the work of a run and is not measured. So only
// each third of these packets, which are large, is sent until the gossip has ended. Full
// exchanges repair the loss.
func (f *fleet) form() error {
	f.lossy.Store(true)
	relays := max(seeds, f.cfg.Members/20)
	for i := range f.cfg.Members {
		role := identity.RoleWorker
		if i < relays {
			role = identity.RoleRelay
		}
		if _, err := f.start(role); err != nil {
			return err
		}
		time.Sleep(startIn / time.Duration(f.cfg.Members))
	}
	time.Sleep(f.announceAll())
	f.lossy.Store(false)
	// Until the gossip about the joins has ended, and every member exchanges full states at its
	// period: the first exchange is up to an interval later than that.
	time.Sleep(max(2*settleTime, exchangeInterval+f.period()-f.announceAll()))
	for waited := time.Duration(0); !f.agree(); waited += time.Second {
		if waited > limit {
			return fmt.Errorf("its members do not agree %v after they were started", limit)
		}
		time.Sleep(time.Second)
	}
	return nil
}

// announceAll returns the time that a joiner needs to gossip about all members.
func (f *fleet) announceAll() time.Duration { return time.Duration(len(f.members)) * announceInterval }

// idleFor returns the duration of the idle measurement: a whole number of periods, so that each
// measurement has the average number of full exchanges.
func (f *fleet) idleFor() time.Duration {
	period := f.period()
	return (leastIdle + period - 1) / period * period
}

// period returns the time between two exchanges of full states that a member starts. memberlist
// extends it for more than 32 members, in the same way as this function.
func (f *fleet) period() time.Duration {
	period := exchangeInterval
	if n := float64(len(f.members)); n > 32 {
		period *= time.Duration(math.Ceil(math.Log2(n/32)) + 1)
	}
	return period
}

// traffic measures the traffic of all members while run runs.
func (f *fleet) traffic(run func()) Traffic {
	before := f.network.Counters()
	run()
	after := f.network.Counters()
	return Traffic{
		float64(after.Packets - before.Packets), float64(after.PacketBytes - before.PacketBytes), float64(after.StreamBytes - before.StreamBytes),
	}
}

// runEvent causes the n-th event and waits until all members have seen the event and no longer
// gossip about it.
func (f *fleet) runEvent(kind Kind, n int) (Event, error) {
	var e Event
	var err error
	// A different delay for each event, so that events begin at different phases of the
	// intervals.
	time.Sleep(time.Duration(n) * 137 * time.Millisecond)
	switch kind {
	case Join:
		e, err = f.join()
		time.Sleep(f.announceAll())
	case Leave:
		e, err = f.leave()
	case Crash:
		e = f.crash()
	case Burst:
		e, err = f.burst(fmt.Sprintf("v1.0.%d", n+1))
	}
	time.Sleep(settleTime)
	return e, err
}

func (f *fleet) join() (Event, error) {
	workers := f.members[0].catalogue.View().EndpointCount() + 1
	m, err := f.start(identity.RoleWorker)
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
	time.Sleep(time.Second) // a leaving member still answers probes for a moment
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
	workers := slices.DeleteFunc(slices.Clone(f.members), func(m *member) bool { return m.role != identity.RoleWorker })
	changed := workers[:max(1, int(math.Round(f.cfg.Burst*float64(len(workers)))))]
	for _, m := range changed {
		if err := m.catalogue.Offer(offer(m, version)); err != nil {
			return Event{}, err
		}
	}
	next := map[*member]int{} // by member: the first index of changed that the member has not seen
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
