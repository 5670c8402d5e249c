package presence

import (
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/explore"
	"github.com/ringway/ringway/membership"
)

// The model below has all ways in which a worker begins and loses sessions with two relays, dies and
// starts again, while the relays send their lists to a third one, over streams that break, and one of
// them restarts. The lists, their changes, the frames, and what the third relay makes of them are those
// of production.

const (
	exploredLives  = 2
	exploredBreaks = 1 // of streams
)

// owner is a relay that lists workers.
type owner struct {
	own   log
	began bool     // the stream to the third relay has begun
	sent  uint64   // up to where the list is on the stream
	wire  [][]byte // frames on the stream
	whole bool     // the first of them is a list, not a change
}

// seen is the list of an owner at the third relay.
type seen struct {
	list
	whole bool // this stream has brought it
}

// presenceState is a state of the model. What a step changes it copies before.
type presenceState struct {
	life             uint64 // of the worker
	alive            bool
	owners           [2]owner
	seen             [2]seen
	begun            int // sessions
	breaks, restarts int
}

// presenceRules are what the model calls, in which a test plants a fault, and how many sessions
// begin and relays restart.
type presenceRules struct {
	sessions, restarts int
	put                func(*log, listed)
	begin              func(*owner) [][]byte // what a new stream carries first
}

func wholeList(o *owner) (frames [][]byte) {
	for _, c := range o.own.whole() {
		frames = append(frames, c.encode())
	}
	return frames
}

var realPresence = presenceRules{sessions: 2, put: (*log).put, begin: wholeList}

func cloned(l list) list {
	l.workers = maps.Clone(l.workers)
	return l
}

func (o owner) clone() owner {
	o.own.list, o.own.changes, o.wire = cloned(o.own.list), slices.Clone(o.own.changes), slices.Clone(o.wire)
	return o
}

func lifeOf(epoch uint64) listed {
	w := worker("w1", epoch, 1)
	w.draining = false
	return w
}

// third returns the third relay in a state. Its lists are copies.
func (s presenceState) third() *Fleet {
	f := &Fleet{
		cfg: membership.Config{ID: "r3", MaxMembers: math.MaxInt}, own: log{list: *newList()}, lists: map[string]*foreign{}, records: map[instance]uint64{},
		asked: map[instance]time.Time{}, left: map[instance]struct{}{}, wake: make(chan struct{}, 1), choices: newChoices(), metrics: exploredMetrics,
	}
	for i := range s.seen {
		f.lists[fmt.Sprintf("r%d", i+1)] = &foreign{list: cloned(s.seen[i].list), wants: make(chan []instance, 1)}
	}
	for epoch := range uint64(exploredLives + 1) {
		f.records[lifeOf(epoch).instance] = 1
	}
	return f
}

var exploredMetrics = newMetrics(nil)

// read has the third relay read one frame.
func (s presenceState) read(i int) presenceState {
	o := s.owners[i].clone()
	payload, isList := o.wire[0], o.whole
	o.wire, o.whole = o.wire[1:], false
	s.owners[i] = o
	c, err := decodeChange(payload)
	if err != nil {
		panic(err)
	}
	if isList {
		next := newList()
		for _, w := range c.listed {
			next.put(w)
		}
		next.sequence = c.sequence
		s.seen[i] = seen{*next, true}
		return s
	}
	f := s.third()
	l := f.lists[fmt.Sprintf("r%d", i+1)]
	if err := f.apply(l, c); err != nil || !s.seen[i].whole {
		return s.broken(i) // production closes the stream
	}
	s.seen[i].list = l.list
	return s
}

// broken ends a stream, with what is on it.
func (s presenceState) broken(i int) presenceState {
	o := s.owners[i].clone()
	o.began, o.wire = false, nil
	s.owners[i], s.seen[i].whole = o, false
	return s
}

// send puts on a stream what is new.
func (r presenceRules) send(s presenceState, i int) presenceState {
	o := s.owners[i].clone()
	if !o.began {
		o.wire, o.whole = r.begin(&o), true
	} else {
		frames, _ := o.own.after(o.sent) // few enough that all are kept
		for _, c := range frames {
			o.wire = append(o.wire, c.encode())
		}
	}
	o.began, o.sent = true, o.own.sequence
	s.owners[i] = o
	return s
}

func (r presenceRules) steps(s presenceState) (steps []explore.Step[presenceState]) {
	step := func(next func() presenceState, format string, args ...any) {
		steps = append(steps, explore.Step[presenceState]{Name: fmt.Sprintf(format, args...), Next: next})
	}
	switch {
	case s.alive:
		step(func() presenceState { t := s; t.alive = false; return t }, "the worker dies")
	case s.life < exploredLives:
		step(func() presenceState { t := s; t.alive, t.life = true, s.life+1; return t }, "the worker starts")
	}
	for i := range s.owners {
		o := &s.owners[i]
		held, listed := o.own.workers["w1"]
		if s.alive && s.begun < r.sessions && (!listed || held.epoch < s.life) {
			step(func() presenceState {
				t, o := s, s.owners[i].clone()
				r.put(&o.own, lifeOf(s.life))
				t.owners[i], t.begun = o, s.begun+1
				return t
			}, "r%d has a session", i+1)
		}
		if listed && (!s.alive || held.epoch < s.life) {
			step(func() presenceState {
				t, o := s, s.owners[i].clone()
				o.own.drop(held.instance, false)
				t.owners[i] = o
				return t
			}, "r%d sees the end of the session", i+1)
		}
		if !o.began || o.sent < o.own.sequence {
			step(func() presenceState { return r.send(s, i) }, "r%d sends", i+1)
		}
		if len(o.wire) > 0 {
			step(func() presenceState { return s.read(i) }, "r3 reads r%d", i+1)
		}
		if o.began && s.breaks < exploredBreaks {
			step(func() presenceState { t := s.broken(i); t.breaks++; return t }, "the stream of r%d breaks", i+1)
		}
		if s.restarts < r.restarts {
			step(func() presenceState { // r3 forgets the list of the life that ended
				t := s
				t.owners[i], t.seen[i] = owner{own: log{list: *newList()}}, seen{list: *newList()}
				t.restarts++
				return t
			}, "r%d restarts", i+1)
		}
	}
	return steps
}

func (s presenceState) key() string {
	var b strings.Builder
	of := func(l list) {
		w, there := l.workers["w1"]
		fmt.Fprint(&b, there, w.epoch, " ")
	}
	fmt.Fprint(&b, s.life, s.alive, s.begun, s.breaks, s.restarts)
	for i, o := range s.owners {
		fmt.Fprint(&b, "|", o.began, o.whole, o.own.sequence-o.sent, o.own.sequence-s.seen[i].sequence, s.seen[i].whole, " ")
		of(o.own.list)
		of(s.seen[i].list)
		for _, c := range o.own.changes[max(0, len(o.own.changes)-int(min(o.own.sequence-o.sent, uint64(len(o.own.changes))))):] {
			fmt.Fprint(&b, c.id.epoch, c.gone, " ")
		}
		for _, payload := range o.wire {
			fmt.Fprintf(&b, "%x ", payload)
		}
	}
	return b.String()
}

// check is what must hold once all streams have carried what there is: r3 has the lists of the owners,
// and sees the latest life that one of them lists, and no other.
func (r presenceRules) check(s presenceState) error {
	for i := range s.owners {
		for n := 0; !s.owners[i].began || s.owners[i].sent < s.owners[i].own.sequence || len(s.owners[i].wire) > 0; n++ {
			if n > 20 {
				return fmt.Errorf("the stream of r%d comes to no end", i+1)
			}
			if len(s.owners[i].wire) > 0 {
				s = s.read(i)
			} else {
				s = r.send(s, i)
			}
		}
	}
	f := s.third()
	f.changedEverywhere()
	f.choose(time.Now())
	latest := uint64(0)
	for i, o := range s.owners {
		if l := s.seen[i].list; !maps.Equal(l.workers, o.own.workers) || l.hash != o.own.hash || l.sequence != o.own.sequence {
			return fmt.Errorf("r%d lists %v, and r3 read %v", i+1, o.own.workers, l.workers)
		}
		latest = max(latest, o.own.workers["w1"].epoch)
	}
	if got := f.best["w1"].epoch; got != latest {
		return fmt.Errorf("r3 sees life %d, and the latest that is listed is %d", got, latest)
	}
	return nil
}

func (r presenceRules) model() explore.Model[presenceState] {
	s := presenceState{}
	for i := range s.owners {
		s.owners[i].own, s.seen[i].list = log{list: *newList()}, *newList()
	}
	return explore.Model[presenceState]{Start: s, Steps: r.steps, Key: presenceState.key, Check: r.check, Most: 2_000_000}
}

// With LONG_TESTS=1 four sessions begin, and a relay restarts: 206,092 states in 20 s.
func TestNoOrderOfEventsShowsAWorkerThatNoRelayListsOrHidesOneThatIs(t *testing.T) {
	r, least, began := realPresence, 10_000, time.Now()
	if os.Getenv("LONG_TESTS") != "" {
		r.sessions, r.restarts, least = 4, 1, 200_000
	}
	result, err := r.model().Explore()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d states, %d steps, depth %d, in %v", result.States, result.Steps, result.Depth, time.Since(began).Round(time.Millisecond))
	if result.States < least {
		t.Errorf("only %d states: the model has lost events", result.States)
	}
}

func TestTheExplorerFindsALogThatDoesNotSayThatALifeIsReplaced(t *testing.T) {
	explore.Planted(t, presenceRules{sessions: 2, begin: wholeList, put: func(l *log, w listed) {
		l.list.put(w)
		l.record(logged{id: w.instance})
	}}.model(), realPresence.model(), 8)
}

func TestTheExplorerFindsANewStreamThatGoesOnWhereTheLastOneBroke(t *testing.T) {
	explore.Planted(t, presenceRules{sessions: 2, put: (*log).put, begin: func(o *owner) (frames [][]byte) {
		changes, _ := o.own.after(o.sent)
		for _, c := range changes {
			frames = append(frames, c.encode())
		}
		return frames
	}}.model(), realPresence.model(), 4)
}
