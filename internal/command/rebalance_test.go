package command_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/command"
	adminapi "github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/wire"
	"github.com/ringway/ringway/membership"
)

// rebalancer is an admin API of relays that rebalance, and the requests that it got.
type rebalancer struct {
	members api.Members
	hang    chan struct{} // closed when a rebalance has begun, which then does not end; nil: it ends

	mu    sync.Mutex
	asked []string
}

func (b *rebalancer) start(t *testing.T, id string) (addr string) {
	t.Helper()
	answer := func(state string) api.Rebalance {
		a := api.Rebalance{Relay: id, Service: "chat", Role: "affine", State: state, Rate: 10, Workers: []api.RebalancedWorker{
			{Worker: "w1", Weight: 0.5, Sessions: 40, Share: 20, Surplus: 18, Bound: 22}, {Worker: "w\x1b2", Weight: 0.5, Share: 20, Joining: true}, {Worker: "w3", Out: "evicted", Sessions: 3},
		}}
		if state == api.RebalanceDone {
			a.Asked, a.Reason = 18, "no worker is above its share"
		}
		return a
	}
	mux := http.NewServeMux()
	note := func(r *http.Request) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.asked = append(b.asked, id+" "+r.Method+" "+r.URL.RawQuery)
	}
	mux.HandleFunc("GET /api/v1/services/chat/rebalance", func(w http.ResponseWriter, r *http.Request) {
		note(r)
		adminapi.WriteJSON(w, http.StatusOK, answer(api.RebalancePlanned))
	})
	mux.HandleFunc("POST /api/v1/services/chat/rebalance", func(w http.ResponseWriter, r *http.Request) {
		note(r)
		if r.URL.Query().Get("rate") == "99" {
			adminapi.WriteError(w, http.StatusConflict, "a rebalance of chat is running")
			return
		}
		w.Header().Set(wire.RelayHeader, id)
		for _, state := range []string{api.RebalancePlanned, api.RebalanceRunning, api.RebalanceDone} {
			if state == api.RebalanceDone && b.hang != nil {
				close(b.hang)
				<-r.Context().Done()
				return
			}
			line, _ := json.Marshal(answer(state))
			_, _ = w.Write(append(line, '\n'))
			_ = http.NewResponseController(w).Flush()
		}
	})
	mux.HandleFunc("GET /api/v1/members", func(w http.ResponseWriter, _ *http.Request) { adminapi.WriteJSON(w, http.StatusOK, b.members) })
	mux.HandleFunc("GET /api/v1/departures", func(w http.ResponseWriter, _ *http.Request) {
		adminapi.WriteJSON(w, http.StatusOK, api.Departures{})
	})
	server := httptest.NewServer(mux)
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

func runRebalance(ctx context.Context, args ...string) (out, notes string, err error) {
	c := command.RebalanceCommand()
	var stdout, stderr bytes.Buffer
	c.SetOut(&stdout)
	c.SetErr(&stderr)
	c.SetArgs(args)
	c.SilenceErrors, c.SilenceUsage = true, true
	err = c.ExecuteContext(ctx)
	return stdout.String(), stderr.String(), err
}

func TestADryRunShowsWhatARebalanceWouldDo(t *testing.T) {
	b := &rebalancer{}
	addr := b.start(t, "r1")
	out, _, err := runRebalance(t.Context(), "chat", "--dry-run", "--admin-addr", addr)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"r1: 43 sessions of chat, 18 to go\n", "WORKER", "w1              40     20       18     22         0      0  -", `"w\x1b2"`, "has just joined", "evicted: gets no new sessions"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if !slices.Equal(b.asked, []string{"r1 GET cut=false&rate=10"}) {
		t.Errorf("%q", b.asked)
	}
	if out, _, err = runRebalance(t.Context(), "chat", "--dry-run", "-o", "json", "--admin-addr", addr); err != nil || !json.Valid([]byte(out)) {
		t.Errorf("%v %s", err, out)
	}
}

func TestARebalanceShowsItsProgressAndItsEnd(t *testing.T) {
	b := &rebalancer{}
	addr := b.start(t, "r1")
	out, _, err := runRebalance(t.Context(), "chat", "--rate", "2.5", "--cut", "--admin-addr", addr)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"43 sessions of chat, 18 to go\nWORKER", "18 to go, 0 asked\n", "18 asked to go; no worker is above its share\nWORKER"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if !slices.Equal(b.asked, []string{"r1 POST cut=true&rate=2.5"}) {
		t.Errorf("%q", b.asked)
	}
	if out, _, err = runRebalance(t.Context(), "chat", "-o", "json", "--admin-addr", addr); err != nil || strings.Count(out, "\n") != 3 {
		t.Errorf("%v %s", err, out)
	}
	if _, _, err = runRebalance(t.Context(), "chat", "--rate", "99", "--admin-addr", addr); err == nil || err.Error() != "a rebalance of chat is running" {
		t.Error(err)
	}
	if _, _, err = runRebalance(t.Context(), "chat", "--admin-addr", tapped(t, "r1", nil)); err == nil {
		t.Error("a relay that knows no rebalance is no error")
	}
}

func TestARebalanceThatIsInterruptedIsAFailure(t *testing.T) {
	b := &rebalancer{hang: make(chan struct{})}
	addr := b.start(t, "r1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		<-b.hang
		cancel()
	}()
	if _, _, err := runRebalance(ctx, "chat", "--admin-addr", addr); err == nil || !strings.Contains(err.Error(), "interrupted: 0 sessions") {
		t.Error(err)
	}
}

func TestARebalanceOfAllRelaysAsksOneAfterTheOther(t *testing.T) {
	b := &rebalancer{}
	first, second := b.start(t, "r1"), b.start(t, "r2")
	b.members = api.Members{Self: "r1"}
	text := fmt.Sprintf(`[{"id":"r1","role":"relay","state":"alive","admin_addr":%[1]q},{"id":"r2","role":"relay","state":"alive","admin_addr":%[2]q},
		{"id":"r3","role":"relay","state":"alive","admin_addr":%[1]q},{"id":"g1","role":"gate","state":"alive","admin_addr":%[2]q}]`, first, second)
	var listed []membership.Member
	if err := json.Unmarshal([]byte(text), &listed); err != nil {
		t.Fatal(err)
	}
	b.members.Members = listed
	out, notes, err := runRebalance(t.Context(), "chat", "--all", "--admin-addr", first)
	if err == nil || err.Error() != "1 of 3 relays have failed" {
		t.Error(err)
	}
	if !strings.Contains(notes, "r3: ") {
		t.Error(notes)
	}
	want := []string{"r1 POST cut=false&rate=10&relay=r1", "r2 POST cut=false&rate=10&relay=r2", "r1 POST cut=false&rate=10&relay=r3"}
	if !slices.Equal(b.asked, want) || strings.Count(out, "r2: ") != 3 {
		t.Errorf("%q\n%s", b.asked, out)
	}
	b.asked = nil
	if _, _, err := runRebalance(t.Context(), "chat", "--all", "--dry-run", "--admin-addr", first); err == nil || !slices.Contains(b.asked, "r1 GET cut=false&rate=10&relay=r3") {
		t.Errorf("%q, %v", b.asked, err)
	}
}
