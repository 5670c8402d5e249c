package main

import (
	"io"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
)

func TestBytesOfBothDirectionsAreCounted(t *testing.T) {
	r, err := bulk{addr: serveTCP(t, echoBytes), sessions: 3}.run(t.Context(), 50*time.Millisecond)
	if err != nil || r.requests == 0 || r.rate <= 0 {
		t.Errorf("%+v, %v", r, err)
	}
}

func TestALostByteSpoilsAMeasurement(t *testing.T) {
	addr := serveTCP(t, func(c net.Conn) {
		defer c.Close()
		_, _ = io.ReadFull(c, make([]byte, 1)) // and never sends it back
		echoBytes(c)
	})
	if r, err := (bulk{addr: addr, sessions: 1}).run(t.Context(), 50*time.Millisecond); err == nil {
		t.Errorf("taken as %+v", r)
	}
}

func serveTCP(t *testing.T, serve func(net.Conn)) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- serveEach(ln, serve) }()
	t.Cleanup(func() {
		_ = ln.Close()
		<-ended
	})
	return ln.Addr().String()
}

func TestRecordsOfATapAreCounted(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tapped")
	text := "17:11:33.497 tap-r1 200 GET /128 0.978 ms by w3\n7 records were dropped, because they were not read fast enough\n17:11:33.498 tap-r2 200 GET /128 0.5 ms by w1\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	two := tap{fleet: &procs.Fleet{Relays: make([]*procs.Member, 2)}}
	if err := two.count(path); err != nil || two.read != 2 {
		t.Errorf("%d records, %v", two.read, err)
	}
	three := tap{fleet: &procs.Fleet{Relays: make([]*procs.Member, 3)}}
	if err := three.count(path); err == nil {
		t.Error("a relay without a record was not noticed")
	}
}
