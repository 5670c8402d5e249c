//go:build linux

package hostile

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
)

// siege is how long all attacks last.
func siege() time.Duration {
	if os.Getenv("LONG_TESTS") != "" {
		return 10 * time.Minute
	}
	return 5 * time.Second
}

// cpuTime is what a process has used of the processors.
func cpuTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	var user, system int64
	if _, err := fmt.Sscanf(strings.Join(strings.Fields(rest)[11:13], " "), "%d %d", &user, &system); err != nil {
		t.Fatal(err)
	}
	return time.Duration(user+system) * (time.Second / 100) // Linux counts hundredths
}

// slowestRequest is the one that waited longest for its answer.
type slowestRequest struct {
	mu   sync.Mutex
	took time.Duration
	what string
}

func (s *slowestRequest) note(took time.Duration, what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if took > s.took {
		s.took, s.what = took, what
	}
}

// TestAllAttacksAtOnceFailNoRequest has a turncoat doubt all members, announce boots, exchange false
// states, greet in other names, hold streams and offer what its certificate does not name, and a
// client fill connections with requests that never end: all of it while honest clients ask.
func TestAllAttacksAtOnceFailNoRequest(t *testing.T) {
	// Before the hog fills connections the honest clients have asked that often.
	const clients, mostMemory, askedBefore = 4, 200 << 20, 100
	f := startFleet(t, fleetConfig{Relays: 3, Workers: 12, Services: echo})
	c := startTurncoat(t, f, own)
	o := newSender(t, f, c.packets)
	victims := append(f.instances("w"), f.instances("r")...)
	raw := o.exchange(20_000, 400)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stops []func()
	attack := func(pause time.Duration, once func()) { stops = append(stops, every(t, pause, once)) }
	attack(20*time.Millisecond, func() {
		v := victims[rand.IntN(len(victims))]
		kind := []byte{msgDead, msgSuspect}[rand.IntN(2)]
		o.send(f.gossipOf(true), message(kind, dead{Incarnation: rand.Uint32() >> rand.IntN(32), Node: v.name(), From: c.id}))
	})
	boots := atomic.Uint64{}
	attack(20*time.Millisecond, func() { o.send(f.gossipOf(false), c.boot(o, c.node.Epoch()+boots.Add(1))) })
	attack(2*time.Second, func() {
		conn, err := c.node.OpenStream(ctx, f.Relays[rand.IntN(len(f.Relays))].ID, "ml/1")
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
		_, _ = conn.Write(raw)
		_, _ = io.Copy(io.Discard, conn)
	})
	attack(5*time.Second, func() {
		c.offer(t, advertise.Service{Name: echo, Address: c.sidecar, Secured: true, Weight: 100}, advertise.Service{Name: fmt.Sprintf("made-up-%d", rand.IntN(1000)), Address: c.sidecar, Secured: true})
	})
	stops = append(stops, c.holdStreams(t, f.ids(), 20))

	var asked, failed atomic.Int64
	var slowest slowestRequest
	before := map[string]time.Duration{}
	for _, r := range f.Relays {
		before[r.ID] = cpuTime(t, r.PID())
	}
	begun := time.Now()
	var honest sync.WaitGroup
	for n := range clients {
		client := caller{host: fmt.Sprintf("127.0.3.%d", 10+n)}.client(t)
		honest.Go(func() {
			for ctx.Err() == nil {
				r := f.Relays[rand.IntN(len(f.Relays))]
				sent := time.Now()
				status, body := send(client, call{method: http.MethodPost, addr: r.Ingress, path: "/", header: map[string]string{serviceHeader: echo}})
				slowest.note(time.Since(sent), fmt.Sprintf("%v after the attacks began, through %s, answered by %.40s", sent.Sub(begun).Round(time.Millisecond), r.ID, body))
				asked.Add(1)
				if status != http.StatusOK || !strings.HasPrefix(body, "w") {
					if failed.Add(1) <= 5 {
						t.Errorf("%v after the attacks began, through %s: %d %.200s", time.Since(begun).Round(time.Millisecond), r.ID, status, body)
					}
				}
				time.Sleep(5 * time.Millisecond) // the attackers and the fleet share the machine
			}
		})
	}
	procs.Await(t, "honest clients have asked while the other attacks run", func() bool { return asked.Load() >= askedBefore })
	defer time.AfterFunc(siege(), cancel).Stop()
	attack(10*time.Second, func() {
		for _, r := range f.Relays {
			if end, err := f.hog(caller{host: "127.0.3.66"}, r); end != nil && err == nil {
				context.AfterFunc(ctx, end)
			}
		}
	})
	honest.Wait()
	for _, stop := range stops {
		stop()
	}
	for _, r := range f.Relays {
		peak := memory(t, r.PID(), "VmHWM:")
		// Each request of the client that ends none needs a connection to a worker: an honest one waits
		// behind those that are still being opened.
		opened := f.metrics(r.Admin, "ringway_relay_upstream_dials_total", func(series string) bool { return strings.Contains(series, `"opened"`) })
		t.Logf("%s: %d MiB at its peak, %.0f %% of a processor, %v refusals, %v connections to workers opened", r.ID, peak>>20, 100*(cpuTime(t, r.PID())-before[r.ID]).Seconds()/time.Since(begun).Seconds(), f.refusals(r.Admin), opened)
		if peak > mostMemory {
			t.Errorf("%s has %d MiB, at most %d MiB are allowed", r.ID, peak>>20, mostMemory>>20)
		}
	}
	t.Logf("%d of %d requests failed in %v, the slowest took %v: sent %s", failed.Load(), asked.Load(), time.Since(begun).Round(time.Second), slowest.took.Round(time.Millisecond), slowest.what)
	c.stop() // its probes end within seconds
	procs.Await(t, "all members are there", func() bool { return f.allThere() == nil })
	f.wellDuring(watching)
}
