//go:build linux

package hostile

import (
	"fmt"
	"math"
	"net/http"
	"testing"
	"time"
)

// TestOneCertificateRemovesNoMember has a turncoat doubt every member of a fleet, from outside
// as a member may: suspected, or dead, at incarnations from the lowest to the highest that
// there is, once a second and about a thousand times. The only worker of a service answers every
// request meanwhile, and no relay loses a member.
func TestOneCertificateRemovesNoMember(t *testing.T) {
	t.Parallel()
	for _, kind := range []struct {
		name    string
		message byte
	}{{"dead", msgDead}, {"suspect", msgSuspect}} {
		for _, rate := range []struct {
			name  string
			pause time.Duration
		}{{"once a second", time.Second}, {"a thousand times a second", time.Millisecond}} {
			t.Run(kind.name+" "+rate.name, func(t *testing.T) {
				t.Parallel()
				f := startFleet(t, fleetConfig{Relays: 2, Workers: 1})
				o := newSender(t, f, startTurncoat(t, f).packets)
				victims := append(f.instances("w"), f.instances("r")...)
				for _, at := range []struct {
					name         string
					incarnations func(victim instance) []uint32
				}{
					{"0", only(0)}, {"1", only(1)}, {"the current one", func(instance) (some []uint32) {
						for n := range uint32(8) { // an answer is one more than the doubt
							some = append(some, n+2)
						}
						return some
					}},
					// What was the limit for doubts and answers alike.
					{"100,000 and 10 for each second of its life", func(victim instance) []uint32 {
						return []uint32{100_000 + 10*uint32(time.Since(time.UnixMilli(int64(victim.epoch)))/time.Second)}
					}},
					{"2^31", only(1 << 31)}, {"2^32-1", only(math.MaxUint32)},
				} {
					stop := every(t, rate.pause, func() {
						var doubts [][]byte
						for _, v := range victims {
							for _, incarnation := range at.incarnations(v) {
								doubts = append(doubts, message(kind.message, dead{Incarnation: incarnation, Node: v.name(), From: fmt.Sprintf("accuser-%d.1", time.Now().UnixMilli()%3)}))
							}
						}
						for n := 0; n < len(doubts); n += 12 {
							o.send(f.gossipOf(true), doubts[n:min(n+12, len(doubts))]...)
						}
					})
					answered := 0
					var lost error // the first one
					const requests = 33
					for n := range requests {
						status, body := f.ask(f.Relays[n%2], echo, http.MethodPost, "/")
						if status == http.StatusOK && body == f.Workers[0].ID {
							answered++
						}
						if lost == nil {
							lost = f.allThere()
						}
						time.Sleep(suspicion / requests)
					}
					if answered != requests || lost != nil {
						t.Errorf("under doubts at %s, %d of %d requests are answered: %v", at.name, answered, requests, lost)
					}
					stop()
					if err := f.allThere(); err != nil {
						t.Errorf("when the doubts at %s have ended: %v", at.name, err)
					}
				}
				for _, r := range f.Relays {
					var got struct {
						Doubters map[string]uint64
					}
					f.Get(r, "/api/v1/members", &got)
					if len(got.Doubters) != 1 || got.Doubters["turncoat"] == 0 {
						t.Errorf("%s names %v", r.ID, got.Doubters)
					}
				}
				f.wellDuring(time.Second)
			})
		}
	}
}

// suspicion is longer than four members wait for the answer of a suspected one.
const suspicion = 5 * time.Second

func only(incarnation uint32) func(instance) []uint32 {
	return func(instance) []uint32 { return []uint32{incarnation} }
}

// every repeats an attack at a pace.
func every(t *testing.T, pause time.Duration, what func()) (stop func()) {
	done, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(pause)
		defer ticker.Stop()
		for {
			what()
			select {
			case <-done:
				return
			case <-ticker.C:
			}
		}
	}()
	ended := false
	stop = func() {
		if !ended {
			ended = true
			close(done)
			<-stopped
		}
	}
	t.Cleanup(stop)
	return stop
}
