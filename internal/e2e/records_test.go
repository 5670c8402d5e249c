//go:build unix

package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

// record is what these tests read of a line.
type record struct {
	ID       string `json:"ringway.request.id"`
	Relay    string `json:"ringway.relay"`
	From     string `json:"ringway.forwarded_by"`
	Path     string `json:"url.path"`
	Version  string `json:"network.protocol.version"`
	Status   int    `json:"http.response.status_code"`
	Call     string `json:"rpc.response.status_code"`
	Tunnel   bool   `json:"ringway.tunnel"`
	Attempts []struct {
		Endpoint string
		Status   int
	} `json:"ringway.attempts"`
}

// records reads the file of a relay and those that it was renamed to.
func records(t *testing.T, r *relay) (found []record) {
	t.Helper()
	files, err := filepath.Glob(r.records + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(text) {
			var one record
			if err := json.Unmarshal(line, &one); err != nil || line[len(line)-1] != '\n' {
				t.Fatalf("%s: %v in %q", file, err, line)
			}
			found = append(found, one)
		}
	}
	return found
}

// byID returns records by their IDs, which must differ.
func byID(t *testing.T, records []record) map[string]record {
	t.Helper()
	found := map[string]record{}
	for _, one := range records {
		if other, twice := found[one.ID]; twice || one.ID == "" {
			t.Errorf("two records of one ID: %+v, %+v", one, other)
		}
		found[one.ID] = one
	}
	return found
}

// stops lets relays write their last records.
func stops(t *testing.T, relays ...*relay) {
	t.Helper()
	for _, r := range relays {
		r.Signal(t, syscall.SIGTERM)
		if code := r.Exit(t); code != 0 {
			t.Errorf("%s ended with %d", r.ID, code)
		}
	}
}

// TestEveryKindOfRequestIsRecordedByBothRelays sends what the relays can carry.
func TestEveryKindOfRequestIsRecordedByBothRelays(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 1, Records: true, RelayArgs: servedBy("r2", 2, echo, rpc),
		Services: func(int) []string { return []string{echo, rpc + ";protocol=h2c"} }})
	affine, forwarding := f.roles(t, echo, 1)
	_, rpcForwarding := f.roles(t, rpc, 1)
	first := forwarding[0]
	for _, promise := range []func(*testing.T){
		f.webSocketPasses(first, echo), f.webSocketPassesOverHTTP2(first, echo), f.eventsPass(first, echo),
		f.trailersPass(first, echo), f.largeBodiesPass(first, echo), f.grpcPasses(rpcForwarding[0], rpc),
	} {
		promise(t)
	}
	stops(t, first, affine)
	of := map[*relay]map[string]record{first: byID(t, records(t, first)), affine: byID(t, records(t, affine))}
	tunnels, calls, forwarded := map[string]int{}, 0, 0
	for r, found := range of {
		for id, one := range found {
			if one.From != "" {
				continue // the other relay's record is the one to count
			}
			forwarded++
			other, ok := of[map[bool]*relay{true: affine, false: first}[r == first]][id]
			if !ok || other.From != r.ID || other.Status != one.Status || other.Call != one.Call || other.Tunnel != one.Tunnel || other.Path != one.Path {
				t.Errorf("%+v\nof %s, and at the other relay %+v", one, r.ID, other)
			}
			if one.Tunnel {
				tunnels[one.Version]++
			}
			if one.Call == "OK" {
				calls++
			}
		}
	}
	if tunnels["1.1"] == 0 || tunnels["2"] == 0 || calls == 0 || forwarded < 6 {
		t.Errorf("tunnels by version: %v, %d calls of gRPC, %d requests in all", tunnels, calls, forwarded)
	}
}

// TestARotationUnderLoadLosesNoRecordOfEitherRelay rotates both files as logrotate does.
func TestARotationUnderLoadLosesNoRecordOfEitherRelay(t *testing.T) {
	t.Parallel()
	const clients, rotations = 4, 3
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 1, Records: true, RelayArgs: servedBy("r2", 2, echo), Services: func(int) []string { return []string{echo} }})
	affine, forwarding := f.roles(t, echo, 1)
	first := forwarding[0]

	var sent atomic.Int64
	var over atomic.Bool
	var load sync.WaitGroup
	for range clients {
		load.Go(func() {
			for !over.Load() {
				path := fmt.Sprint("/of/", sent.Add(1))
				if a := f.client.send(request{addr: first.Ingress, path: path, service: echo}); a.status != 200 {
					t.Errorf("%s: %v", path, a)
				}
			}
		})
	}
	for n := range rotations {
		goal := sent.Load() + 50
		procs.Await(t, "load", func() bool { return sent.Load() > goal })
		for _, r := range []*relay{first, affine} {
			if err := os.Rename(r.records, fmt.Sprint(r.records, ".", n)); err != nil {
				t.Fatal(err)
			}
			r.Signal(t, syscall.SIGHUP)
			procs.Await(t, r.ID+" has opened its new file", func() bool { _, err := os.Stat(r.records); return err == nil })
		}
	}
	over.Store(true)
	load.Wait()
	stops(t, first, affine)
	atFirst, atAffine := byID(t, records(t, first)), byID(t, records(t, affine))
	paths := map[string]bool{}
	if n := int(sent.Load()); len(atFirst) != n || len(atAffine) != n {
		t.Errorf("%d requests, %d records of %s and %d of %s", n, len(atFirst), first.ID, len(atAffine), affine.ID)
	}
	for id, one := range atFirst {
		other := atAffine[id]
		paths[one.Path] = true
		if one.Path != other.Path || one.Relay != first.ID || other.Relay != affine.ID || other.From != first.ID || one.Status != 200 || other.Status != 200 || one.Attempts[0].Endpoint != affine.ID || other.Attempts[0].Endpoint != "w1" {
			t.Fatalf("%s:\n%+v\n%+v", id, one, other)
		}
	}
	if len(paths) != len(atFirst) {
		t.Errorf("%d records of %d requests", len(atFirst), len(paths))
	}
}

// TestATapOfAllRelaysShowsARequestAtEachOfThem has one that forwards.
func TestATapOfAllRelaysShowsARequestAtEachOfThem(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 1, Records: true, RelayArgs: servedBy("r2", 2, echo), Services: func(int) []string { return []string{echo} }})
	_, forwarding := f.roles(t, echo, 1)
	first := forwarding[0]
	tap := start(t, processConfig{Name: "relay tap", Binary: "relay", Args: []string{"tap", echo, "--all", "-o", "json", "--where", "status=200 && method=GET", "--admin-addr", first.Admin}})
	seen := func(path string) (at []record) {
		for line := range strings.Lines(tap.Output()) {
			var one record
			if json.Unmarshal([]byte(line), &one) == nil && one.Path == path {
				at = append(at, one)
			}
		}
		return at
	}
	var at []record
	n := 0
	procs.Await(t, "the request at both relays", func() bool { // the taps may open after the first request
		n++
		path := fmt.Sprint("/of/", n)
		f.client.send(request{method: "POST", addr: first.Ingress, path: "/post", service: echo})
		if a := f.client.send(request{addr: first.Ingress, path: path, service: echo}); a.status != 200 {
			t.Fatal(a)
		}
		for range 100 {
			if at = seen(path); len(at) == 2 {
				return true
			}
			time.Sleep(10 * time.Millisecond) // polls a state
		}
		return false
	})
	if at[0].ID == "" || at[0].ID != at[1].ID || at[0].Relay == at[1].Relay {
		t.Errorf("%+v", at)
	}
	if posts := seen("/post"); len(posts) > 0 {
		t.Errorf("the filter lets pass %+v", posts)
	}
	tap.Signal(t, syscall.SIGINT)
	if code := tap.Exit(t); code != 0 {
		t.Errorf("Ctrl-C is no failure: %d\n%s", code, tap.Output())
	}
}
