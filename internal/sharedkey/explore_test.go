package sharedkey

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/explore"
)

// The model below has all ways in which relays generate keys, ask each other, restart, and get
// answers late, again or never. An answer is what the relay held when it was asked.

const (
	exploredRelays   = 3
	exploredRestarts = 1
)

// holder is one relay of the model.
type holder struct {
	ring keyring
	boot uint64 // its epoch: 1, 2, …
	best Key    // the oldest key with which this life of it signed
}

// sent is an answer under way.
type sent struct {
	from, to int
	boot     uint64 // of the relay that asked: an answer to an earlier life is dropped
	answer   Answer
}

// keyFleet is a state of the model. Each slice is copied before it is changed.
type keyFleet struct {
	relays   []holder
	mail     []sent
	restarts int
	last     uint64 // epoch
}

// rules are what the model calls, in which a test plants a fault, and how many answers are under way
// at a time.
type rules struct {
	learn   func(keyring, peerAnswer) (keyring, bool)
	answers int
}

var realRules = rules{learn: keyring.learn, answers: 1}

var exploredNow = time.UnixMilli(1_800_000_000_000)

const exploredRetire = time.Hour

func (h holder) answer() Answer {
	a := Answer{Key: h.ring.current}
	for _, r := range h.ring.retired {
		a.Retired = append(a.Retired, RetiredKey{r.key, r.until.Sub(exploredNow)})
	}
	return a
}

func (f keyFleet) with(i int, ring keyring) keyFleet {
	f.relays = slices.Clone(f.relays)
	h := &f.relays[i]
	h.ring = ring
	if ring.current.older(h.best) {
		h.best = ring.current
	}
	return f
}

// keyOf is the key that a life of a relay generates: the same in all histories, so that states
// coincide.
func keyOf(relay int, boot uint64) Key {
	return newKey(fmt.Appendf(nil, "%032d", 10*uint64(relay)+boot), fmt.Sprint("r", relay+1), boot)
}

func (r rules) receive(f keyFleet, to int, a Answer) keyFleet {
	ring, _ := r.learn(f.relays[to].ring, peerAnswer{answer: a, asked: exploredNow, now: exploredNow, retire: exploredRetire})
	return f.with(to, ring)
}

func (r rules) steps(f keyFleet) (steps []explore.Step[keyFleet]) {
	step := func(next func() keyFleet, format string, args ...any) {
		steps = append(steps, explore.Step[keyFleet]{Name: fmt.Sprintf(format, args...), Next: next})
	}
	for i, h := range f.relays {
		if h.ring.current.IsZero() {
			// Whether it may is decided by what the others answered, which was lost here.
			step(func() keyFleet {
				return f.with(i, h.ring.use(keyOf(i, h.boot), sourceFallback, exploredNow, exploredNow.Add(exploredRetire)))
			}, "r%d generates", i+1)
		}
		if f.restarts < exploredRestarts {
			step(func() keyFleet {
				g := f
				g.last++
				g.restarts++
				g.relays = slices.Clone(f.relays)
				g.relays[i] = holder{boot: g.last}
				return g
			}, "r%d restarts", i+1)
		}
		for j, other := range f.relays {
			if j != i && !other.ring.current.IsZero() && len(f.mail) < r.answers {
				step(func() keyFleet {
					g := f
					g.mail = append(slices.Clone(f.mail), sent{from: j, to: i, boot: h.boot, answer: other.answer()})
					return g
				}, "r%d asks r%d", i+1, j+1)
			}
		}
	}
	for n, m := range f.mail {
		step(func() keyFleet {
			g := f
			g.mail = slices.Delete(slices.Clone(f.mail), n, n+1)
			if f.relays[m.to].boot != m.boot {
				return g
			}
			return r.receive(g, m.to, m.answer)
		}, "answer %d of r%d reaches r%d", n+1, m.from+1, m.to+1)
	}
	return steps
}

func describe(k Key) string {
	if k.IsZero() {
		return "-"
	}
	id, epoch := k.generatedBy()
	return fmt.Sprint(id, ".", epoch)
}

func (f keyFleet) key() string {
	var b strings.Builder
	ring := func(current Key, retired []string) {
		slices.Sort(retired)
		fmt.Fprint(&b, describe(current), retired, " ")
	}
	for _, h := range f.relays {
		fmt.Fprint(&b, h.boot, " ", describe(h.best), " ")
		var retired []string
		for _, r := range h.ring.retired {
			retired = append(retired, describe(r.key))
		}
		ring(h.ring.current, retired)
	}
	for _, m := range f.mail {
		fmt.Fprint(&b, "| ", m.from, m.to, m.boot, " ")
		var retired []string
		for _, r := range m.answer.Retired {
			retired = append(retired, describe(r.Key))
		}
		ring(m.answer.Key, retired)
	}
	return b.String()
}

// check is what must hold in each state: no life of a relay goes back to a younger key, and once
// all have asked all, all sign with the oldest key that one of them held and accept the others.
func (r rules) check(f keyFleet) error {
	var held []Key
	for i, h := range f.relays {
		if h.best.older(h.ring.current) {
			return fmt.Errorf("r%d signed with %s and signs now with the younger %s", i+1, describe(h.best), describe(h.ring.current))
		}
		if !h.ring.current.IsZero() {
			held = append(held, h.ring.current)
		}
		for _, o := range h.ring.retired {
			held = append(held, o.key)
		}
	}
	if len(held) == 0 {
		return nil
	}
	after := f
	for range 2 { // what one relay reported in the first round reaches all in the second
		for i := range after.relays {
			for j := range after.relays {
				if a := after.relays[j].answer(); i != j && !a.Key.IsZero() {
					after = r.receive(after, i, a)
				}
			}
		}
	}
	first := after.relays[0].ring.current
	for i, h := range after.relays {
		if !h.ring.current.Equal(first) {
			return fmt.Errorf("after all asked all, r1 signs with %s and r%d with %s", describe(first), i+1, describe(h.ring.current))
		}
		for _, k := range held {
			if !h.ring.knows(k) {
				return fmt.Errorf("after all asked all, r%d does not accept %s", i+1, describe(k))
			}
		}
	}
	return nil
}

func (r rules) model() explore.Model[keyFleet] {
	f := keyFleet{}
	for i := range exploredRelays {
		f.relays = append(f.relays, holder{boot: uint64(i + 1)})
		f.last = uint64(i + 1)
	}
	return explore.Model[keyFleet]{Start: f, Steps: r.steps, Key: keyFleet.key, Check: r.check, Most: 2_000_000}
}

// With LONG_TESTS=1 two answers are under way at a time: 405,533 states in 20 s.
func TestNoOrderOfEventsLeavesTwoKeysInAFleetThatTalks(t *testing.T) {
	r, least := realRules, 10_000
	if os.Getenv("LONG_TESTS") != "" {
		r.answers, least = 2, 400_000
	}
	result, err := r.model().Explore()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d states, %d steps, depth %d", result.States, result.Steps, result.Depth)
	if result.States < least {
		t.Errorf("only %d states: the model has lost events", result.States)
	}
}

func TestTheExplorerFindsARelayThatTakesEveryKey(t *testing.T) {
	explore.Planted(t, rules{answers: 1, learn: func(r keyring, l peerAnswer) (keyring, bool) {
		return r.use(l.answer.Key, sourcePeer, l.now, l.now.Add(l.retire)), false
	}}.model(), realRules.model(), 2)
}

func TestTheExplorerFindsARelayThatForgetsTheKeysOfOthers(t *testing.T) {
	explore.Planted(t, rules{answers: 1, learn: func(r keyring, l peerAnswer) (keyring, bool) {
		l.answer.Retired = nil
		return r.learn(l)
	}}.model(), realRules.model(), 2)
}
