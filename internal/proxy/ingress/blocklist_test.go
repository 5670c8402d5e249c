package ingress

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/logtest"
	"github.com/ringway/ringway/internal/wire"
)

// blocking is a handler of a service without workers: it refuses what is not blocked, too, with
// another status.
func blocking(t *testing.T, by *BlockList, file ...Block) *Handler {
	return New(Config{
		Self: "r1", Services: only{known(t, "echo")}, Epoch: time.Now(), Requests: Requests{Timeout: time.Minute, MaxAttempts: 1, MaxInFlight: 100, Blocks: file},
		Blocked: by, Metrics: NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler),
	})
}

// refusesAsBlocked reports whether a request from an address is refused as blocked.
func (h *Handler) refusesAsBlocked(from string) bool {
	r := httptest.NewRequest("GET", "/", http.NoBody)
	r.RemoteAddr = from + ":1"
	r.Header.Set(wire.ServiceHeader, "echo")
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code == http.StatusForbidden
}

func TestABlockEndsWithItsTimeAndThatOfTheFileBehindItStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := prometheus.NewRegistry()
		by := NewBlockList(reg)
		begin := time.Now()
		file := []Block{{Caller: "192.0.2.1", Service: "*", Until: begin.Add(time.Hour)}, {Caller: "192.0.2.3", Service: "echo"}}
		h := blocking(t, by, file...)
		add := func(caller string, last time.Duration) {
			t.Helper()
			if _, err := by.Add(Block{Caller: caller, Service: "*", Until: time.Now().Add(last)}, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		add("192.0.2.1", time.Minute)
		add("192.0.2.2", time.Minute)
		refused := func(want ...bool) {
			t.Helper()
			for i, blocked := range want {
				if caller := fmt.Sprintf("192.0.2.%d", i+1); h.refusesAsBlocked(caller) != blocked {
					t.Errorf("after %v: %s is blocked: %t", time.Since(begin), caller, !blocked)
				}
			}
		}
		refused(true, true, true, false)
		time.Sleep(time.Minute - time.Nanosecond)
		refused(true, true, true, false)
		if n := logtest.Series(t, reg, "ringway_relay_blocks")[""]; n != 4 {
			t.Errorf("%v blocks are in effect, want 4", n)
		}
		time.Sleep(time.Nanosecond)
		refused(true, false, true, false) // of the first now the block of the file
		add("192.0.2.2", time.Minute)
		refused(true, true, true, false)
		add("192.0.2.2", 2*time.Minute) // again: the time begins again, and the count goes on
		h = blocking(t, by, file[1])    // a reload
		refused(false, true, true, false)
		want := []BlockState{
			{Block{Caller: "192.0.2.2", Service: "*", Until: begin.Add(3 * time.Minute)}, BlockOfCommand, 2},
			{Block{Caller: "192.0.2.3", Service: "echo"}, BlockOfFile, 5},
		}
		if got := by.List(time.Now()); !slices.Equal(got, want) {
			t.Errorf("in effect are %+v, want %+v", got, want)
		}
		if got, err := by.Remove("192.0.2.2", "*", time.Now()); err != nil || got != want[0] {
			t.Errorf("removed is %+v, %v", got, err)
		}
		refused(false, false, true, false)
		for _, at := range [][2]string{{"192.0.2.2", "*"}, {"192.0.2.3", "echo"}} {
			_, err := by.Remove(at[0], at[1], time.Now())
			if !errors.Is(err, ErrNoBlock) || strings.Contains(err.Error(), "the file of this relay has") != (at[1] == "echo") {
				t.Errorf("removing %v: %v", at, err)
			}
		}
	})
}

func TestBlocksOfCommandsAreBoundedAndThoseThatHaveEndedAreForgotten(t *testing.T) {
	by, now := NewBlockList(nil), time.Now()
	by.commands = make(map[[2]string]*heldBlock, maxBlocks)
	for i := range maxBlocks {
		b := Block{Caller: fmt.Sprint("caller ", i), Service: "*", Until: now.Add(time.Minute)}
		by.commands[b.at()] = b.hold(BlockOfCommand, nil)
	}
	one := Block{Caller: "one more", Service: "*", Until: now.Add(time.Hour)}
	if _, err := by.Add(one, now); err == nil || !strings.Contains(err.Error(), "10000 blocks of commands are in effect") {
		t.Error(err)
	}
	if _, err := by.Add(Block{Caller: "caller 7", Service: "*", Until: now.Add(time.Minute)}, now); err != nil {
		t.Errorf("one that is replaced: %v", err)
	}
	if _, err := by.Add(one, now.Add(time.Minute)); err != nil || len(by.commands) != 1 {
		t.Errorf("a minute later: %v, and %d are left", err, len(by.commands))
	}
}

func TestBlocksChangeWhileRequestsAreComparedWithThem(t *testing.T) {
	by := NewBlockList(nil)
	h := blocking(t, by)
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for range 100 {
				h.refusesAsBlocked("192.0.2.1")
				_, _ = by.Add(Block{Caller: "192.0.2.1", Service: "*", Until: time.Now().Add(time.Hour)}, time.Now())
				if i == 0 {
					by.setFile([]Block{{Caller: "192.0.2.1", Service: "echo"}})
				}
				by.List(time.Now())
				_, _ = by.Remove("192.0.2.1", "*", time.Now())
			}
		})
	}
	wg.Wait()
	if !h.refusesAsBlocked("192.0.2.1") {
		t.Error("the block of the file is lost")
	}
}

func TestABlockOfAnIPv6AddressIsThatOfItsNetworkHoweverItIsWritten(t *testing.T) {
	for _, caller := range []string{"2001:db8::7", "2001:DB8:0::7", "2001:db8::", "2001:db8::/64"} {
		by := NewBlockList(prometheus.NewRegistry())
		h := blocking(t, by)
		added, err := by.Add(Block{Caller: caller, Service: "*"}, time.Now())
		if listed := by.List(time.Now()); err != nil || added.Caller != "2001:db8::/64" || len(listed) != 1 || listed[0] != added {
			t.Errorf("%s is added as %q, %v, and listed as %+v", caller, added.Caller, err, listed)
		}
		if !h.refusesAsBlocked("[2001:db8::7]") || !h.refusesAsBlocked("[2001:db8::8]") || h.refusesAsBlocked("[2001:db8:0:1::7]") {
			t.Errorf("%s: other addresses than those of its network are refused", caller)
		}
		for _, text := range []string{"2001:db8::9", added.Caller} { // what is listed can be removed
			if removed, err := by.Remove(text, "*", time.Now()); err != nil || removed.Caller != added.Caller || h.refusesAsBlocked("[2001:db8::7]") {
				t.Errorf("%s is not removed as %s: %+v, %v", caller, text, removed, err)
			}
			if _, err := by.Add(Block{Caller: caller, Service: "*"}, time.Now()); err != nil {
				t.Error(err)
			}
		}
		if h := blocking(t, NewBlockList(prometheus.NewRegistry()), Block{Caller: caller, Service: "echo"}); !h.refusesAsBlocked("[2001:db8::7]") {
			t.Errorf("%s in the file blocks nothing", caller)
		}
	}
	by := NewBlockList(prometheus.NewRegistry())
	h := blocking(t, by)
	if added, err := by.Add(Block{Caller: "::ffff:192.0.2.1", Service: "*"}, time.Now()); err != nil || added.Caller != "192.0.2.1" || !h.refusesAsBlocked("192.0.2.1") {
		t.Errorf("an IPv4 address in the form of IPv6 blocks %q: %v", added.Caller, err)
	}
	for _, network := range []string{"2001:db8::/48", "192.0.2.0/24"} {
		if _, err := by.Add(Block{Caller: network, Service: "*"}, time.Now()); err == nil {
			t.Errorf("%s is added", network)
		}
	}
	if err := CheckBlocks([]Block{{Caller: "2001:db8::7", Service: "*"}, {Caller: "2001:db8::/64", Service: "*"}}); err == nil {
		t.Error("one network is blocked twice, and it is not reported")
	}
}

func TestABlockThatHasEndedIsNotRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		by := NewBlockList(prometheus.NewRegistry())
		if _, err := by.Add(Block{Caller: "192.0.2.1", Service: "*", Until: time.Now().Add(time.Minute)}, time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if _, err := by.Remove("192.0.2.1", "*", time.Now()); !errors.Is(err, ErrNoBlock) {
			t.Errorf("it is removed: %v", err)
		}
	})
}
