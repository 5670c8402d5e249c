package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ringway/ringway/internal/procs"
)

// tap is `relay tap --all`, whose output goes to a file. The file ends it at 256 MiB.
type tap struct {
	dir   string       // with the binary
	fleet *procs.Fleet // whose relays are watched

	read, dropped int // records, of all measurements
}

// start opens the tap. The function that it returns ends the tap and counts its records.
func (t *tap) start() (end func() error, err error) {
	before, err := t.lost()
	if err != nil {
		return nil, err
	}
	out := filepath.Join(t.dir, "tapped")
	p, err := procs.Launch(procs.Config{Name: "tap", Binary: "relay", Dir: t.dir, Args: []string{"tap", "echo", "--all", "--admin-addr", t.fleet.Relays[0].Admin},
		Under: []string{"/bin/sh", "-c", `ulimit -f 524288 && exec "$0" "$@" >"$OUT"`}, Env: []string{"OUT=" + out}}) // in units of 512 bytes
	if err != nil {
		return nil, err
	}
	return func() error {
		failed := p.Ended()
		p.Kill()
		if failed != nil {
			return failed
		}
		after, err := t.lost()
		if err != nil {
			return err
		}
		t.dropped += after - before
		return t.count(out)
	}, nil
}

// count adds the records in the output of the tap. It returns an error if a relay has none.
func (t *tap) count(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	seen := map[string]bool{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) > 1 && f[1] != "records" { // "7 records were dropped, …"
			seen[f[1]] = true
			t.read++
		}
	}
	if lines.Err() == nil && len(seen) != len(t.fleet.Relays) {
		return fmt.Errorf("the tap has read records of %d relays, not of %d", len(seen), len(t.fleet.Relays))
	}
	return lines.Err()
}

// lost returns how many records the relays have dropped because the tap was too slow.
func (t *tap) lost() (n int, _ error) {
	for _, r := range t.fleet.Relays {
		body, err := t.fleet.Ask(context.Background(), r, "/metrics")
		if err != nil {
			return 0, err
		}
		const dropped = `ringway_relay_request_log_dropped_total{reason="tap_slow"}`
		value, ok := procs.Metrics(string(body))[dropped]
		if !ok {
			return 0, fmt.Errorf("%s has no metric %s", r.ID, dropped)
		}
		n += int(value)
	}
	return n, nil
}
