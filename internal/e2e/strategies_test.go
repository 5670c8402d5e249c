//go:build unix

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/history"
	"github.com/ringway/ringway/internal/procs"
)

const keyHeader = "Ringway-Key"

// keyed is where a request with a key goes; the key may be empty.
func (f *fleet) keyed(t *testing.T, r *relay, service, key string) (endpoint string, ok bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	req, err := request{addr: r.Ingress, path: "/", service: service}.http(ctx)
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
// advertises stable and that r3 only forwards, one that the relays are configured to keep on
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
			procs.Await(t, r.ID+" serves "+service, func() bool {
				var v serviceView
				status := f.api(r.Admin, "/api/v1/services/"+service, &v)
				if status != 200 || v.Endpoints != 4 {
					return false
				}
				_, ready := f.ready(r.Admin)
				return ready == 200 && (v.Role == "forwarding" && service == "keyed" && r.ID == "r3" || v.Range == 4)
			})
		}
	}

	// One key, one worker, whichever relay it comes to; that is what `route` reports.
	home := map[string]string{}
	key2 := "" // one that lives on w2
	for i := 0; i < 12 || key2 == ""; i++ {
		key := fmt.Sprint("key", i)
		for _, r := range f.relays {
			worker, ok := f.keyed(t, r, "keyed", key)
			if !ok || home[key] != "" && home[key] != worker {
				t.Fatalf("%s through %s: %q, before %q", key, r.ID, worker, home[key])
			}
			home[key] = worker
		}
		if home[key] == "w2" {
			key2 = key
		}
	}
	out := ringway(t, "route", "keyed", "--key", key2, "--admin-addr", f.relays[0].Admin)
	if out.Code != 0 || !strings.Contains(out.Stdout, "strategy  stable (advertised by the service)") || !strings.Contains(out.Stdout, "winner    w2") {
		t.Errorf("%v", out)
	}
	out = ringway(t, "route", "keyed", "--key", key2, "--admin-addr", f.relays[2].Admin)
	if out.Code != 0 || !strings.Contains(out.Stdout, "r3, forwarding") || !strings.Contains(out.Stdout, "primary") {
		t.Errorf("%v", out)
	}
	if out := ringway(t, "route", "absent", "--admin-addr", f.relays[0].Admin); out.Code != 2 {
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
	dead.backend.Kill()
	dead.Kill()
	second := ""
	for _, r := range f.relays {
		worker, ok := f.keyed(t, r, "keyed", key2) // immediately: by a second attempt
		if !ok || worker == "w2" || second != "" && second != worker {
			t.Errorf("%s after the death of w2 through %s: %q, before %q", key2, r.ID, worker, second)
		}
		second = worker
		if worker, _ := f.keyed(t, r, "chosen", ""); worker != "w3" {
			t.Errorf("chosen goes to %s through %s, not to w3", worker, r.ID)
		}
	}
	for key, worker := range home {
		if now, ok := f.keyed(t, f.relays[2], "keyed", key); !ok || worker != "w2" && now != worker {
			t.Errorf("%s moved from %s to %s, and w2 has died", key, worker, now)
		}
	}
}

// TestAKeyIsTakenFromWhereItsServiceHasItThroughEveryRelay has two services with a
// source of their own each; r3 forwards both, and sends the key along.
func TestAKeyIsTakenFromWhereItsServiceHasItThroughEveryRelay(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{
		Relays: 3, Workers: 4,
		RelayArgs: []string{
			"--selection", "stable", "--skip-relay", "shop=r3", "--skip-relay", "games=r3",
			"--key-source", "shop=cookie:sid", "--key-source", "games=query:user;header:X-User",
		},
		Services: func(int) []string { return []string{"shop", "games"} },
	})
	for _, r := range f.relays {
		for _, service := range []string{"shop", "games"} {
			procs.Await(t, r.ID+" serves "+service, func() bool {
				var v serviceView
				status := f.api(r.Admin, "/api/v1/services/"+service, &v)
				_, ready := f.ready(r.Admin)
				return status == 200 && ready == 200 && v.Endpoints == 4 && (v.Role == "forwarding" && r.ID == "r3" || v.Range == 4)
			})
		}
	}
	ask := func(r *relay, service, path, header, value string) string {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		req, err := request{addr: r.Ingress, path: path, service: service}.http(ctx)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(keyHeader, fmt.Sprint(time.Now().UnixNano())) // not where these have it
		if header != "" {
			req.Header.Set(header, value)
		}
		resp, err := f.client.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if seen := resp.Header.Get("Seen-Reserved"); seen != "" || resp.StatusCode != http.StatusOK {
			t.Errorf("%d; the worker sees %q", resp.StatusCode, seen)
		}
		return resp.Header.Get(endpointHeader)
	}
	workers := map[string]bool{}
	for i := range 12 {
		key := fmt.Sprint("key", i)
		shop, games := map[string]bool{}, map[string]bool{}
		for _, r := range f.relays {
			shop[ask(r, "shop", "/", "Cookie", "theme=dark; sid="+key)] = true
			games[ask(r, "games", "/?user="+key, "", "")] = true
			games[ask(r, "games", "/", "X-User", key)] = true
		}
		if len(shop) != 1 || len(games) != 1 {
			t.Errorf("%s: shop goes to %v, games to %v", key, shop, games)
		}
		for worker := range games {
			workers[worker] = true
			out := ringway(t, "route", "games", "--key", key, "--admin-addr", f.relays[0].Admin)
			if out.Code != 0 || !strings.Contains(out.Stdout, "winner    "+worker) {
				t.Errorf("%s goes to %s: %v", key, worker, out)
			}
		}
	}
	if len(workers) < 3 {
		t.Errorf("12 keys go to %v", workers)
	}
}

// sessions opens a dozen long sessions: every worker gets three, or nearly.
func (f *fleet) sessions(t *testing.T) {
	t.Helper()
	counts := map[string]int{}
	var open []*http.Response
	for range 12 {
		req, err := request{addr: f.relays[0].Ingress, path: "/events?key=session", service: "slotted"}.http(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		resp, err := f.client.http.Do(req) // the head comes immediately
		if err != nil {
			t.Fatal(err)
		}
		counts[resp.Header.Get(endpointHeader)]++
		open = append(open, resp)
	}
	for _, w := range f.workers {
		if n := counts[w.ID]; n < 2 || n > 4 {
			t.Errorf("12 sessions are shared out as %v", counts)
			break
		}
	}
	f.release(t, "session")
	for _, resp := range open {
		_ = resp.Body.Close()
	}
}

// TestNoWorkerHoldsMoreSessionsThanItsSlots has two relays concurrently open sessions of
// services that w1, w2 and w3 take one each of; w4 takes any number of two of them and
// does not offer the third.
func TestNoWorkerHoldsMoreSessionsThanItsSlots(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{
		Relays: 2, Workers: 4, Secure: true,
		Services: func(n int) []string {
			if n == 4 {
				return []string{"calls", "games;selection=slots", "idle"}
			}
			return []string{"calls;slots=1", "games;slots=1;selection=slots", "tight;slots=1"}
		},
	})
	for _, r := range f.relays {
		for service, workers := range map[string]int{"calls": 4, "games": 4, "tight": 3} {
			procs.Await(t, r.ID+" serves "+service, func() bool {
				var v serviceView
				status := f.api(r.Admin, "/api/v1/services/"+service, &v)
				_, ready := f.ready(r.Admin)
				return status == 200 && v.Endpoints == workers && v.Range == workers && ready == 200
			})
		}
	}
	open := func(service string, n int) (refused []*http.Response, end func()) {
		t.Helper()
		sessions := &history.History{}
		for _, id := range []string{"w1", "w2", "w3"} {
			sessions.Add(history.Entry{Kind: history.Slots, Endpoint: id, Count: 1})
		}
		var held []history.Entry
		var mu sync.Mutex
		var opening sync.WaitGroup
		var answers []*http.Response
		for i := range n {
			req, err := request{method: "POST", addr: f.relays[i%2].Ingress, path: "/events?key=" + service, service: service}.http(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			opening.Go(func() {
				resp, err := f.client.http.Do(req) // the head comes immediately
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				answers = append(answers, resp)
				if resp.StatusCode != http.StatusOK {
					refused = append(refused, resp)
					return
				}
				held = append(held, history.Entry{Kind: history.Executed, ID: fmt.Sprint(service, " ", i), Endpoint: resp.Header.Get("Worker"), At: time.Now()})
			})
		}
		opening.Wait()
		return refused, func() {
			t.Helper()
			for i := range held {
				held[i].Until = time.Now()
			}
			sessions.Add(held...)
			sessions.Expect(t, history.Limits{})
			f.release(t, service)
			for _, resp := range answers {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
		}
	}
	for _, service := range []string{"calls", "games"} {
		refused, end := open(service, 12)
		if len(refused) > 0 {
			t.Errorf("%d of 12 sessions of %s are refused", len(refused), service)
		}
		end()
	}
	// No worker has room for a fourth: the client gets an error, and no worker has seen it.
	refused, end := open("tight", 5)
	if len(refused) != 2 {
		t.Errorf("5 sessions of 3 slots: %d are refused", len(refused))
	}
	for _, resp := range refused {
		if resp.StatusCode != http.StatusServiceUnavailable || resp.Header.Get("Retry-After") == "" {
			t.Errorf("%s %v", resp.Status, resp.Header)
		}
	}
	end()
	procs.Await(t, "there is room again", func() bool {
		refused, end := open("tight", 1)
		end()
		return len(refused) == 0
	})
}
