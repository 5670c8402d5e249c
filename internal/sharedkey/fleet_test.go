package sharedkey

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/publish"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// fleet is a cluster in one synctest bubble: the test decides which process sees which and
// which reaches which, the keepers are real.
type fleet struct {
	t       *testing.T
	started time.Time

	mu      sync.Mutex
	relays  map[string]*relay
	parts   map[string]int // partition of each id; 0 unless split
	version uint64
	asked   []string // "asker>asked", in order
}

// relay is one process.
type relay struct {
	fleet     *fleet
	member    membership.Member
	keeper    *Keeper
	snapshots publish.Value[membership.Snapshot]
	registry  *prometheus.Registry
	log       *logtest.Log
	stop      context.CancelFunc
	done      chan struct{}

	// mute relays are alive in gossip and never answer; slow ones take this long.
	mute bool
	slow time.Duration
	// lie replaces the answer.
	lie func() (Answer, error)
}

var errCut = errors.New("connection refused")

// inFleet runs the test in a bubble and ends every process after it.
func inFleet(t *testing.T, test func(t *testing.T, f *fleet)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{t: t, started: time.Now(), relays: map[string]*relay{}, parts: map[string]int{}}
		defer func() {
			for _, r := range f.all() {
				f.kill(r.member.ID)
			}
		}()
		test(t, f)
	})
}

func (f *fleet) all() []*relay {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []*relay
	for _, r := range f.relays {
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *relay) int { return older(a.member, b.member) })
	return out
}

// boot starts a process that all others see from the next publish on. Epochs are
// milliseconds, so boots of one instant are ordered by id.
func (f *fleet) boot(id string, change ...func(*Config)) *relay {
	f.t.Helper()
	r := &relay{fleet: f, registry: prometheus.NewRegistry(), log: &logtest.Log{}, done: make(chan struct{})}
	cfg := DefaultConfig()
	cfg.ID, cfg.Epoch, cfg.Role = id, uint64(time.Now().UnixMilli()), identity.RoleRelay
	cfg.Members, cfg.Insecure = r, true
	cfg.Registerer, cfg.Logger = r.registry, slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cfg.Fetch = func(ctx context.Context, m membership.Member) (Answer, error) { return f.fetch(ctx, id, m) }
	for _, c := range change {
		c(&cfg)
	}
	r.member = membership.Member{ID: id, Epoch: cfg.Epoch, Role: cfg.Role, ForwardAddr: "127.0.0.1:7420"}
	var err error
	if r.keeper, err = New(cfg); err != nil {
		f.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop = stop
	f.mu.Lock()
	f.relays[id] = r
	f.mu.Unlock()
	f.publish()
	go func() {
		defer close(r.done)
		if err := r.keeper.Run(ctx); err != nil {
			f.t.Error(err)
		}
	}()
	return r
}

func (f *fleet) kill(id string) {
	f.mu.Lock()
	r := f.relays[id]
	delete(f.relays, id)
	f.mu.Unlock()
	r.stop()
	<-r.done
	f.publish()
}

// change alters processes while none reads them, then notifies all.
func (f *fleet) change(alter func()) {
	f.mu.Lock()
	alter()
	f.mu.Unlock()
	f.publish()
}

// split cuts the fleet: members of different parts neither see nor reach each
// other. heal undoes it.
func (f *fleet) split(part int, ids ...string) {
	f.change(func() {
		for _, id := range ids {
			f.parts[id] = part
		}
	})
}

func (f *fleet) heal() { f.change(func() { clear(f.parts) }) }

// publish gives every process the snapshot of its part.
func (f *fleet) publish() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	for id, r := range f.relays {
		var members []membership.Member
		for other, o := range f.relays {
			if f.parts[other] == f.parts[id] {
				members = append(members, o.member)
			}
		}
		r.snapshots.Store(membership.NewSnapshot(f.version, id, members))
	}
}

func (f *fleet) fetch(ctx context.Context, from string, to membership.Member) (Answer, error) {
	f.mu.Lock()
	f.asked = append(f.asked, from+">"+to.ID)
	r, ok := f.relays[to.ID]
	reached := ok && f.parts[from] == f.parts[to.ID] && r.member.Instance() == to.Instance() && !r.mute
	var slow time.Duration
	var lie func() (Answer, error)
	if ok {
		slow, lie = r.slow, r.lie
	}
	f.mu.Unlock()
	select {
	case <-time.After(slow + time.Millisecond):
	case <-ctx.Done():
		return Answer{}, ctx.Err()
	}
	switch {
	case !reached:
		return Answer{}, errCut
	case lie != nil:
		return lie()
	}
	answer, err := r.keeper.Answer()
	if err != nil {
		return answer, err
	}
	// Through the wire format, so that what travels is what is tested.
	body, err := encodeAnswer("", answer)
	if err != nil {
		return Answer{}, err
	}
	return decodeAnswer("", body)
}

// wasAsked lists the processes that a process asked so far, in order.
func (f *fleet) wasAsked(by string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for _, a := range f.asked {
		if len(a) > len(by) && a[:len(by)+1] == by+">" {
			out = append(out, a[len(by)+1:])
		}
	}
	return out
}

// Snapshot and Watch make a relay the Members of its keeper.
func (r *relay) Snapshot() *membership.Snapshot { return r.snapshots.Load() }
func (r *relay) Watch(ctx context.Context) <-chan *membership.Snapshot {
	return r.snapshots.Watch(ctx)
}

func (r *relay) fingerprint() string {
	key, _ := r.keeper.Key()
	return key.Fingerprint()
}

// oneKey fails unless every process has the same key, and returns it.
func (f *fleet) oneKey() string {
	f.t.Helper()
	synctest.Wait()
	relays := f.all()
	first := relays[0].fingerprint()
	for _, r := range relays {
		if got := r.fingerprint(); got != first || got == "none" {
			f.t.Fatalf("after %v %s has key %s, %s has %s", time.Since(f.started), r.member.ID, got, relays[0].member.ID, first)
		}
	}
	return first
}

// allVerify fails unless every process accepts mac for message.
func (f *fleet) allVerify(message string, mac []byte) {
	f.t.Helper()
	for _, r := range f.all() {
		if !r.keeper.Verify([]byte(message), mac) {
			f.t.Fatalf("after %v %s refuses what was signed (%s)", time.Since(f.started), r.member.ID, message)
		}
	}
}

func (r *relay) metricValue(name, label string) float64 {
	r.fleet.t.Helper()
	return logtest.Value(r.fleet.t, r.registry, "ringway_shared_key_"+name, label)
}

func names(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("relay-%d", i+1)
	}
	return out
}
