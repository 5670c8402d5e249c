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
)

// record is what these tests read of a line.
type record struct {
	ID       string `json:"ringway.request.id"`
	Relay    string `json:"ringway.relay"`
	From     string `json:"ringway.forwarded_by"`
	Path     string `json:"url.path"`
	Version  string `json:"network.protocol.version"`
	Status   int    `json:"http.response.status_code"`
	Attempts []struct {
		Endpoint string
		Status   int
	} `json:"ringway.attempts"`
}

// records reads the file of a relay and those that it was renamed to, by path.
func records(t *testing.T, r *relay) map[string]record {
	t.Helper()
	files, err := filepath.Glob(r.records + "*")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]record{}
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
			if _, twice := found[one.Path]; twice {
				t.Errorf("%s recorded %s twice", r.id, one.Path)
			}
			found[one.Path] = one
		}
	}
	return found
}

// TestARotationUnderLoadLosesNoRecordOfEitherRelay rotates both files as logrotate does.
func TestARotationUnderLoadLosesNoRecordOfEitherRelay(t *testing.T) {
	t.Parallel()
	const clients, rotations = 4, 3
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 1, Records: true, RelayArgs: []string{"--relays-per-service", "1"}, Services: func(int) []string { return []string{echo} }})
	affine, forwarding := f.roles(t, echo, 1)
	first := forwarding[0]

	var sent atomic.Int64
	var over atomic.Bool
	var load sync.WaitGroup
	for range clients {
		load.Go(func() {
			for !over.Load() {
				path := fmt.Sprint("/of/", sent.Add(1))
				if a := f.client.send(request{addr: first.ingress, path: path, service: echo}); a.status != 200 {
					t.Errorf("%s: %v", path, a)
				}
			}
		})
	}
	for n := range rotations {
		goal := sent.Load() + 50
		await(t, "load", func() bool { return sent.Load() > goal })
		for _, r := range []*relay{first, affine} {
			if err := os.Rename(r.records, fmt.Sprint(r.records, ".", n)); err != nil {
				t.Fatal(err)
			}
			r.Signal(t, syscall.SIGHUP)
			await(t, r.id+" has opened its new file", func() bool { _, err := os.Stat(r.records); return err == nil })
		}
	}
	over.Store(true)
	load.Wait()
	for _, r := range []*relay{first, affine} {
		r.Signal(t, syscall.SIGTERM)
		if code := r.Exit(t); code != 0 {
			t.Errorf("%s ended with %d", r.id, code)
		}
	}
	atFirst, atAffine := records(t, first), records(t, affine)
	if n := int(sent.Load()); len(atFirst) != n || len(atAffine) != n {
		t.Errorf("%d requests, %d records of %s and %d of %s", n, len(atFirst), first.id, len(atAffine), affine.id)
	}
	for path, one := range atFirst {
		other := atAffine[path]
		if one.ID == "" || one.ID != other.ID || one.Relay != first.id || other.Relay != affine.id || other.From != first.id || one.Status != 200 || other.Status != 200 || one.Attempts[0].Endpoint != affine.id || other.Attempts[0].Endpoint != "w1" {
			t.Fatalf("%s:\n%+v\n%+v", path, one, other)
		}
	}
}

// TestATapOfAllRelaysShowsARequestAtEachOfThem has one that forwards.
func TestATapOfAllRelaysShowsARequestAtEachOfThem(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 1, Records: true, RelayArgs: []string{"--relays-per-service", "1"}, Services: func(int) []string { return []string{echo} }})
	_, forwarding := f.roles(t, echo, 1)
	first := forwarding[0]
	tap := start(t, processConfig{Name: "relay tap", Binary: "relay", Args: []string{"tap", echo, "--all", "-o", "json", "--where", "status=200 && method=GET", "--admin-addr", first.admin}})
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
	await(t, "the request at both relays", func() bool { // the taps may open after the first request
		n++
		path := fmt.Sprint("/of/", n)
		f.client.send(request{method: "POST", addr: first.ingress, path: "/post", service: echo})
		if a := f.client.send(request{addr: first.ingress, path: path, service: echo}); a.status != 200 {
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
