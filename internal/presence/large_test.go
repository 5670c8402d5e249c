package presence

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/session"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// longestDeath is how long gossip takes to find that one of 300 relays is dead.
const longestDeath = 14 * time.Second

// event is something that happens in virtual time.
type event struct {
	at time.Time
	do func()
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// simulation is relays and workers in virtual time. Real are the rows, the lists, the frames with the
// changes, and what a relay makes of them; sessions, streams and proofs only take time.
type simulation struct {
	random  *rand.Rand
	now     time.Time
	queue   events
	relays  []membership.Member
	senders map[string]*sender
	views   []*view
	epochs  map[string]uint64          // of the workers that run
	held    map[string]map[string]bool // relays with a session, by worker
	bytes   int                        // that one relay sends to one other, all relays together
	moved   int                        // sessions that begin because a relay has ended
	unsure  map[string]time.Time       // until when a relay that has ended counts as alive, by worker
	unknown int                        // workers that ended before then
}

// sender is the own list of a relay.
type sender struct {
	own     log
	sent    uint64
	waiting bool
}

// view is one relay that reads all lists.
type view struct {
	*Fleet
	base     *membership.Snapshot
	free     time.Time // when the next snapshot may be made
	planned  bool
	expected map[string]expected // of workers, until a snapshot shows it
	took     []time.Duration
	merges   int
}

type expected struct {
	epoch uint64 // 0: gone
	since time.Time
}

func (s *simulation) after(d time.Duration, do func()) { heap.Push(&s.queue, event{s.now.Add(d), do}) }

// between draws a duration.
func (s *simulation) between(from, to time.Duration) time.Duration {
	return from + time.Duration(s.random.Int64N(int64(to-from)))
}

func (s *simulation) run(until time.Time) {
	for len(s.queue) > 0 && !s.queue[0].at.After(until) {
		e := heap.Pop(&s.queue).(event)
		s.now = e.at
		e.do()
	}
	s.now = until
}

// start begins a life of a worker, which has sessions with the relays of its row a moment later.
func (s *simulation) start(worker string) {
	epoch := uint64(s.now.UnixMilli())
	s.epochs[worker] = epoch
	for _, v := range s.views {
		v.expected[worker] = expected{epoch, s.now}
	}
	for _, relay := range rowOf(worker, s.relays, 3) {
		s.after(s.between(2*time.Millisecond, 20*time.Millisecond), func() { s.list(worker, epoch, relay.ID) })
	}
}

func (s *simulation) list(worker string, epoch uint64, relay string) {
	sender := s.senders[relay]
	if s.epochs[worker] != epoch || sender == nil {
		return
	}
	if s.held[worker] == nil {
		s.held[worker] = map[string]bool{}
	}
	s.held[worker][relay] = true
	sender.own.put(listed{instance: instance{worker, epoch}, host: netip.MustParseAddr("10.0.0.1"), version: "v0.3.0", sequence: 1})
	s.send(relay, sender)
}

// kill ends a worker: the relays see the end of its sessions.
func (s *simulation) kill(worker string) {
	life := instance{worker, s.epochs[worker]}
	delete(s.epochs, worker)
	if s.now.Before(s.unsure[worker]) { // it is listed until the death of that relay is known
		s.unknown++
	} else {
		for _, v := range s.views {
			v.expected[worker] = expected{0, s.now}
		}
	}
	for _, relay := range sorted(s.held[worker]) {
		s.after(s.between(0, 2*time.Millisecond), func() {
			if sender := s.senders[relay]; sender != nil && sender.own.drop(life, false) {
				s.send(relay, sender)
			}
		})
	}
	delete(s.held, worker)
}

// end ends a relay: its workers have a session with the next of their rows, and the others hear of its
// death from gossip.
func (s *simulation) end(relay string) {
	delete(s.senders, relay)
	s.relays = slices.DeleteFunc(slices.Clone(s.relays), func(m membership.Member) bool { return m.ID == relay })
	for worker, with := range s.held {
		if !with[relay] {
			continue
		}
		delete(with, relay)
		s.unsure[worker] = s.now.Add(longestDeath + time.Second)
		epoch := s.epochs[worker]
		for _, next := range rowOf(worker, s.relays, 3) {
			if !with[next.ID] {
				s.moved++
				s.after(s.between(50*time.Millisecond, 500*time.Millisecond), func() { s.list(worker, epoch, next.ID) })
			}
		}
	}
	for _, v := range s.views {
		s.after(s.between(longestDeath/2, longestDeath), func() {
			v.changedAll(&v.listOf(relay).list)
			delete(v.lists, relay)
			v.base = membership.NewSnapshot(v.base.Version()+1, v.cfg.ID, slices.Clone(s.relays))
			s.plan(v)
		})
	}
}

// send sends what has changed, gathered, as frames to all views.
func (s *simulation) send(relay string, from *sender) {
	if from.waiting {
		return
	}
	from.waiting = true
	s.after(gather, func() {
		from.waiting = false
		frames, ok := from.own.after(from.sent)
		if !ok {
			frames = from.own.whole()
		}
		from.sent = from.own.sequence
		for _, c := range frames {
			payload := c.encode()
			s.bytes += len(session.AppendFrame(nil, kindChange, payload))
			for _, v := range s.views {
				s.after(s.between(time.Millisecond, 5*time.Millisecond), func() {
					read, err := decodeChange(payload)
					if err != nil {
						panic(err)
					}
					if l := v.listOf(relay); read.sequence > l.sequence { // frames of one stream stay in order
						l.sequence = read.sequence - 1
						if err := v.apply(l, read); err != nil {
							panic(err)
						}
						s.plan(v)
					}
				})
			}
		}
	})
}

// plan makes a snapshot as soon as the pace allows.
func (s *simulation) plan(v *view) {
	if v.planned {
		return
	}
	v.planned = true
	s.after(max(v.free.Sub(s.now), 0), func() {
		v.planned = false
		n := v.merge(context.Background(), v.base)
		v.merges++
		v.free = s.now.Add(interval(n))
		for _, l := range v.lists {
			s.prove(v, l)
		}
		snapshot := v.snapshots.Load()
		for worker, e := range v.expected {
			if m, there := snapshot.Get(worker); there && m.Epoch == e.epoch || !there && e.epoch == 0 {
				v.took = append(v.took, s.now.Sub(e.since))
				delete(v.expected, worker)
			}
		}
	})
}

// prove answers what a view wants to know.
func (s *simulation) prove(v *view, l *foreign) {
	for {
		select {
		case wanted := <-l.wants:
			s.after(s.between(2*time.Millisecond, 10*time.Millisecond), func() {
				for _, one := range wanted {
					v.records[one] = 1
					v.changed(one.id)
				}
				s.plan(v)
			})
		default:
			return
		}
	}
}

func sorted(set map[string]bool) (all []string) {
	for one := range set {
		all = append(all, one)
	}
	slices.Sort(all)
	return all
}

// 300 relays and 50,000 attached workers, of which a hundredth a minute ends and comes back, while two
// relays end. Three of the relays are checked.
func TestFiftyThousandAttachedWorkersAreKnownWithinASecond(t *testing.T) {
	relays, workers, lasts := 30, 1_000, time.Minute
	if os.Getenv("LARGE_TESTS") != "" {
		relays, workers, lasts = 300, 50_000, 15*time.Minute
	}
	s := &simulation{random: rand.New(rand.NewPCG(1, 1)), now: time.Now(), senders: map[string]*sender{}, epochs: map[string]uint64{}, held: map[string]map[string]bool{}, unsure: map[string]time.Time{}}
	for n := range relays {
		id := fmt.Sprintf("r%03d", n)
		s.relays = append(s.relays, membership.Member{ID: id, Epoch: 1, Role: identity.RoleRelay, ForwardAddr: "10.0.1.1:7420"})
		s.senders[id] = &sender{own: log{list: *newList()}}
	}
	for n := range 3 {
		v := &view{Fleet: viewOf(fmt.Sprintf("observer-%d", n), 2*workers), expected: map[string]expected{}}
		defer v.lines.Stop()
		v.base = membership.NewSnapshot(1, v.cfg.ID, slices.Clone(s.relays))
		s.views = append(s.views, v)
	}
	var all []string
	for n := range workers {
		all = append(all, fmt.Sprintf("w%05d", n))
		s.after(s.between(0, time.Minute), func() { s.start(all[n]) })
	}
	s.run(s.now.Add(time.Minute + 10*time.Second))
	sessions := make([]int, 0, relays)
	for _, one := range s.senders {
		sessions = append(sessions, len(one.own.workers))
	}
	slices.Sort(sessions)
	t.Logf("%d relays, %d workers: %d to %d sessions of a relay, %d on average", relays, workers, sessions[0], sessions[len(sessions)-1], 3*workers/relays)
	for _, v := range s.views {
		if len(v.expected) > 0 {
			t.Fatalf("%d workers are not known after the start", len(v.expected))
		}
		v.took, v.merges = nil, 0
	}
	s.bytes = 0
	began := s.now
	pause := time.Minute / time.Duration(max(workers/100, 1))
	var churn func()
	churn = func() {
		if s.now.Sub(began) > lasts-10*time.Second {
			return
		}
		worker := all[s.random.IntN(len(all))]
		if s.epochs[worker] != 0 {
			s.kill(worker)
			s.after(3*time.Second, func() { s.start(worker) })
		}
		s.after(pause, churn)
	}
	s.after(0, churn)
	s.after(lasts/3, func() { s.end(s.relays[7].ID) })
	s.after(lasts/2, func() { s.end(s.relays[11].ID) })
	s.run(began.Add(lasts))
	var took []time.Duration
	merges := 0
	for _, v := range s.views {
		if len(v.expected) > 0 {
			t.Errorf("%s: %d changes are not known", v.cfg.ID, len(v.expected))
		}
		if n := len(v.snapshots.Load().Members()); n != len(s.relays)+len(s.epochs) || len(s.epochs) != workers {
			t.Errorf("%s sees %d members, want %d relays and %d workers", v.cfg.ID, n, len(s.relays), len(s.epochs))
		}
		took, merges = append(took, v.took...), merges+v.merges
	}
	slices.Sort(took)
	t.Logf("%d changes: known after %v in the middle, %v at most; %.1f snapshots a second; a relay sends %.0f bytes a second to all others; %d sessions have moved with two relays, and %d workers ended before the death of their relay was known",
		len(took)/len(s.views), took[len(took)/2].Round(time.Millisecond), took[len(took)-1].Round(time.Millisecond),
		float64(merges)/float64(len(s.views))/lasts.Seconds(), float64(s.bytes)*float64(relays-1)/float64(relays)/lasts.Seconds(), s.moved, s.unknown)
	if most := took[len(took)-1]; most > time.Second {
		t.Errorf("a change was known after %v", most)
	}
	for worker, with := range s.held {
		var want []string
		for _, relay := range rowOf(worker, s.relays, 3) {
			want = append(want, relay.ID)
		}
		slices.Sort(want)
		if got := sorted(with); !slices.Equal(got, want) {
			t.Fatalf("%s has sessions with %v, its row is %v", worker, got, want)
		}
	}
}
