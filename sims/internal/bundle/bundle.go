// Package bundle reads the fleet from a debug bundle of a relay (relay debug bundle), as the
// settings of the simulations.
//
// Promise: every byte of a bundle is hostile. Sizes are bounded, only the needed files are
// read, and values that are no numbers of a fleet are left out. A value that the bundle has only
// for one relay is an estimate, and marked.
package bundle

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/membership/identity"
)

const (
	// maxFile bounds a file that is read, maxBundle all that is unpacked, in bytes. A bundle
	// of 20,000 workers has 100 MiB at most.
	maxFile   = 64 << 20
	maxBundle = 1 << 30
	// maxFiles bounds the number of files.
	maxFiles = 10_000
)

// Fleet is a fleet as one relay knows it.
type Fleet struct {
	Relay string
	Taken time.Time

	Relays, Gates, Workers int
	// Services lists the services by name.
	Services []api.ListedService
	// Settings of the relay.
	Settings map[string]string

	// Rate is the mean number of requests in a second since the relay started, of the fleet
	// if all relays get equally many; 0 if unknown. Clients are the connections of clients.
	Rate    float64
	Clients int
	// Latency is the mean of the relay's estimates for workers, 0 if unknown.
	Latency time.Duration
	// Slots is the median of the slots that workers advertise, 0 if none does.
	Slots int
}

// Read reads a bundle.
func Read(r io.Reader) (*Fleet, error) {
	unzipped, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("it is no debug bundle, which is a .tar.gz of relay debug bundle: %w", err)
	}
	files := tar.NewReader(&io.LimitedReader{R: unzipped, N: maxBundle})
	f := &reader{fleet: Fleet{Settings: map[string]string{}}}
	for n := 0; ; n++ {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil && n == maxFiles {
			err = fmt.Errorf("more than %d files", maxFiles)
		}
		if err != nil {
			return nil, fmt.Errorf("it is no whole debug bundle: take another one: %w", err)
		}
		name, ok := strings.CutPrefix(header.Name, "ringway/")
		if read := f.reads(name); ok && read != nil {
			text, err := io.ReadAll(io.LimitReader(files, maxFile+1))
			if err == nil && len(text) > maxFile {
				err = fmt.Errorf("more than %d bytes", maxFile)
			}
			if err == nil {
				err = read(text)
			}
			if err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return f.finish()
}

// reader collects what the files have.
type reader struct {
	fleet   Fleet
	process string
	// The estimates of latency, weighted with requests.
	latency, weight float64
	slots           []int
	requests        float64 // of this relay
	began           float64 // Unix time in seconds
	clients         float64
}

// reads returns how a file is read, nil for a file that is not needed.
func (f *reader) reads(name string) func([]byte) error {
	service, isService := strings.CutPrefix(name, "services/")
	switch {
	case name == "MANIFEST.json":
		return f.manifest
	case name == "config.json":
		return f.config
	case name == "members.json":
		return f.members
	case name == "services.json":
		return f.services
	case name == "metrics.txt":
		return f.metrics
	case isService && strings.HasSuffix(service, ".json") && !strings.HasSuffix(service, ".plan.json"):
		return f.service
	}
	return nil
}

func (f *reader) manifest(text []byte) error {
	var m struct {
		Process string    `json:"process"`
		Time    time.Time `json:"time"`
	}
	err := json.Unmarshal(text, &m)
	f.process, f.fleet.Taken = m.Process, m.Time
	return err
}

func (f *reader) config(text []byte) error {
	var c api.Config
	err := json.Unmarshal(text, &c)
	f.fleet.Relay = c.ID
	for _, s := range c.Settings {
		f.fleet.Settings[s.Name] = s.Value
	}
	return err
}

func (f *reader) members(text []byte) error {
	var list api.Members
	err := json.Unmarshal(text, &list)
	for _, m := range list.Members {
		switch {
		case m.Leaving:
		case m.Role == identity.RoleRelay && m.ForwardAddr == "": // a program that only picks: in no plan
		case m.Role == identity.RoleRelay:
			f.fleet.Relays++
		case m.Role == identity.RoleGate:
			f.fleet.Gates++
		case m.Role == identity.RoleWorker:
			f.fleet.Workers++
		}
	}
	return err
}

func (f *reader) services(text []byte) error {
	var list api.Services
	err := json.Unmarshal(text, &list)
	f.fleet.Services = list.Services
	return err
}

func (f *reader) service(text []byte) error {
	var s api.Service
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	if s.Index >= 0 { // otherwise the peers are relays
		for _, p := range s.Peers {
			if p.EWMAms > 0 && p.EWMAms < float64(time.Hour.Milliseconds()) && p.Requests > 0 {
				f.latency += p.EWMAms * float64(p.Requests)
				f.weight += float64(p.Requests)
			}
		}
	}
	for _, e := range s.Catalogue {
		if e != nil && e.Slots > 0 {
			f.slots = append(f.slots, int(e.Slots))
		}
	}
	return nil
}

// metrics reads the few values that no other file has.
func (f *reader) metrics(text []byte) error {
	for line := range strings.Lines(string(text)) {
		for name, sum := range map[string]*float64{"ringway_relay_requests_total": &f.requests, "ringway_relay_client_connections": &f.clients, "process_start_time_seconds": &f.began} {
			rest, ok := strings.CutPrefix(line, name)
			if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
				continue
			}
			fields := strings.Fields(rest[strings.LastIndexByte(rest, '}')+1:])
			if len(fields) == 0 {
				continue
			}
			if v, err := strconv.ParseFloat(fields[0], 64); err == nil && v >= 0 && v < 1e15 {
				*sum += v
			}
		}
	}
	return nil
}

func (f *reader) finish() (*Fleet, error) {
	out := &f.fleet
	switch {
	case f.process == "":
		return nil, errors.New("it has no MANIFEST.json, so it is no debug bundle: take one with relay debug bundle")
	case f.process != "relay":
		return nil, fmt.Errorf("it is the bundle of a %.20q, which does not know the settings of relays: take one with relay debug bundle", f.process)
	case out.Relays == 0 || out.Workers == 0:
		return nil, fmt.Errorf("it has %d relays and %d workers: take one of a relay that has joined a fleet with workers", out.Relays, out.Workers)
	}
	if up := float64(out.Taken.Unix()) - f.began; f.began > 0 && up > 0 {
		out.Rate = f.requests / up * float64(out.Relays)
	}
	out.Clients = int(f.clients) * out.Relays
	if f.weight > 0 {
		out.Latency = time.Duration(f.latency / f.weight * float64(time.Millisecond)).Round(time.Microsecond)
	}
	if slices.Sort(f.slots); len(f.slots) > 0 {
		out.Slots = f.slots[len(f.slots)/2]
	}
	return out, nil
}
