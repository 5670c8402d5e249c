//go:build unix

package e2e

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
)

const keyHeader = "Ringway-Key"

// keyed is where a request with a key goes; the key may be empty.
func (f *fleet) keyed(t *testing.T, r *relay, service, key string) (endpoint string, ok bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := request{addr: r.ingress, path: "/", service: service}.http(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		req.Header.Set(keyHeader, key)
	}
	resp, err := f.client.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if seen := resp.Header.Get("Seen-Reserved"); seen != "" {
		t.Errorf("the worker sees %s", seen)
	}
	return resp.Header.Get(endpointHeader), resp.StatusCode == http.StatusOK
}

// TestStrategiesHoldThroughEveryRelayAndThroughADeath has three services: one that
// advertises stable and that r3 only forwards, one that the relays are told to keep on
// w2, and one of long sessions.
func TestStrategiesHoldThroughEveryRelayAndThroughADeath(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{
		Relays: 3, Workers: 4,
		RelayArgs: []string{"--skip-relay", "keyed=r3", "--selection", "chosen=manual;preferred=w2,w3", "--selection", "slotted=slots;samples=8;jitter=0"},
		Services:  func(int) []string { return []string{"keyed;selection=stable", "chosen", "slotted"} },
	})
	for _, r := range f.relays {
		for _, service := range []string{"keyed", "chosen", "slotted"} {
			await(t, r.id+" serves "+service, func() bool {
				var v serviceView
				status := f.api(r.admin, "/api/v1/services/"+service, &v)
				if status != 200 || v.Endpoints != 4 {
					return false
				}
				_, ready := f.ready(r.admin)
				return ready == 200 && (v.Role == "forwarding" && service == "keyed" && r.id == "r3" || v.Range == 4)
			})
		}
	}

	// One key, one worker, whichever relay it comes to; that is what `route` says.
	home := map[string]string{}
	key2 := "" // one that lives on w2
	for i := 0; i < 12 || key2 == ""; i++ {
		key := fmt.Sprint("key", i)
		for _, r := range f.relays {
			worker, ok := f.keyed(t, r, "keyed", key)
			if !ok || home[key] != "" && home[key] != worker {
				t.Fatalf("%s through %s: %q, before %q", key, r.id, worker, home[key])
			}
			home[key] = worker
		}
		if home[key] == "w2" {
			key2 = key
		}
	}
	out := ringway(t, "route", "keyed", "--key", key2, "--admin-addr", f.relays[0].admin)
	if out.code != 0 || !strings.Contains(out.stdout, "strategy  stable (advertised by the service)") || !strings.Contains(out.stdout, "winner    w2") {
		t.Errorf("%v", out)
	}
	out = ringway(t, "route", "keyed", "--key", key2, "--admin-addr", f.relays[2].admin)
	if out.code != 0 || !strings.Contains(out.stdout, "r3, forwarding") || !strings.Contains(out.stdout, "primary") {
		t.Errorf("%v", out)
	}
	if out := ringway(t, "route", "nobody", "--admin-addr", f.relays[0].admin); out.code != 2 {
		t.Errorf("want exit code 2: %v", out)
	}
	anywhere := map[string]bool{}
	for range 40 {
		worker, _ := f.keyed(t, f.relays[0], "keyed", "")
		anywhere[worker] = true
	}
	if len(anywhere) < 3 {
		t.Errorf("without a key everything goes to %v", anywhere)
	}
	for range 10 {
		if worker, _ := f.keyed(t, f.relays[1], "chosen", "any"); worker != "w2" {
			t.Fatalf("chosen goes to %s, not to w2", worker)
		}
	}

	f.sessions(t)

	// w2 dies, without a word.
	dead := f.worker("w2")
	dead.backend.kill(t)
	dead.kill(t)
	second := ""
	for _, r := range f.relays {
		worker, ok := f.keyed(t, r, "keyed", key2) // at once: by a second attempt
		if !ok || worker == "w2" || second != "" && second != worker {
			t.Errorf("%s after the death of w2 through %s: %q, before %q", key2, r.id, worker, second)
		}
		second = worker
		if worker, _ := f.keyed(t, r, "chosen", ""); worker != "w3" {
			t.Errorf("chosen goes to %s through %s, not to w3", worker, r.id)
		}
	}
	for key, worker := range home {
		if now, ok := f.keyed(t, f.relays[2], "keyed", key); !ok || worker != "w2" && now != worker {
			t.Errorf("%s moved from %s to %s, and w2 has died", key, worker, now)
		}
	}
}

// sessions opens a dozen long sessions: every worker gets three, or nearly.
func (f *fleet) sessions(t *testing.T) {
	t.Helper()
	counts := map[string]int{}
	var open []*http.Response
	for range 12 {
		req, err := request{addr: f.relays[0].ingress, path: "/events?key=session", service: "slotted"}.http(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		resp, err := f.client.http.Do(req) // the head comes at once
		if err != nil {
			t.Fatal(err)
		}
		counts[resp.Header.Get(endpointHeader)]++
		open = append(open, resp)
	}
	for _, w := range f.workers {
		if n := counts[w.id]; n < 2 || n > 4 {
			t.Errorf("12 sessions are shared out as %v", counts)
			break
		}
	}
	f.release(t, "session")
	for _, resp := range open {
		_ = resp.Body.Close()
	}
}
