//go:build unix

package conformance

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/summerwind/h2spec/config"
	"github.com/summerwind/h2spec/generic"
	"github.com/summerwind/h2spec/hpack"
	"github.com/summerwind/h2spec/http2"
	"github.com/summerwind/h2spec/spec"

	"github.com/ringway/ringway/internal/procs"
)

func TestEveryCaseOfH2specPasses(t *testing.T) {
	// The service reads the body first, because cases send bodies of a wrong length.
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err == nil {
			_, _ = io.WriteString(w, strings.Repeat("an answer that is longer than one byte\n", 4))
		}
	}))
	t.Cleanup(service.Close)
	f := startFleet(t, fleetConfig{Relays: 2, Secure: true, Routes: `[{path_prefix: /, service: pages}]`,
		Services: []string{"pages=" + service.Listener.Addr().String()}})
	serving, forwarding := f.roles(t, "pages")
	for _, listener := range []struct{ name, addr, certificate string }{
		{"ingress", serving.Ingress, ""},
		{"ingress with TLS", f.secured[serving.ID], serving.ID},
		{"ingress of a relay that forwards", forwarding[0].Ingress, ""},
		{"peer listener", serving.Peer, forwarding[0].ID},
		{"sidecar", f.Workers[0].Sidecar, serving.ID},
	} {
		t.Run(listener.name, func(t *testing.T) {
			t.Parallel()
			host, port, _ := net.SplitHostPort(listener.addr)
			number, err := strconv.Atoi(port)
			if err != nil {
				t.Fatal(err)
			}
			cfg := config.Config{Host: host, Port: number, Path: "/", Timeout: procs.Patience / 6, MaxHeaderLen: 4000, Strict: true}
			if listener.certificate != "" {
				prefix := f.Security.Path(listener.certificate)
				cfg.TLS, cfg.Insecure, cfg.CertFile, cfg.CertKeyFile = true, true, prefix+".crt", prefix+".key"
			}
			ids := map[string]bool{}
			for _, group := range []*spec.TestGroup{generic.Spec(), http2.Spec(), hpack.Spec()} {
				runGroup(t, cfg, group, ids)
			}
			const least = 140 // a version with fewer is another one
			if len(ids) < least {
				t.Errorf("%d cases, want %d or more", len(ids), least)
			}
		})
	}
}

// runGroup runs the cases of a group and of the groups in it, concurrently, and adds their
// ids.
func runGroup(t *testing.T, cfg config.Config, g *spec.TestGroup, ids map[string]bool) {
	for i, c := range append(g.Tests, g.StrictTests...) {
		id := fmt.Sprintf("%s/%d", g.ID(), i+1)
		ids[id] = true
		t.Run(id, func(t *testing.T) {
			t.Parallel()
			err := runCase(cfg, id, c)
			if err == nil {
				return
			}
			actual, expected := err.Error(), "no error"
			if failed := (*spec.TestError)(nil); errors.As(err, &failed) {
				actual, expected = failed.Actual, strings.Join(failed.Expected, "\n      or: ")
			}
			t.Errorf("%s: %s\n%s\nexpected: %s\n  actual: %s", g.Title(), c.Desc, c.Requirement, expected, actual)
		})
	}
	for _, inner := range g.Groups {
		runGroup(t, cfg, inner, ids)
	}
}

// filling is held by the case that has as many requests in flight as a connection may have: a
// relay, or the worker, refuses some of those of five listeners at the same time, and a refused
// one leaves its place to the request that is one too many.
var filling sync.Mutex

// runCase runs a case. A case that h2spec would skip fails.
func runCase(cfg config.Config, id string, c *spec.TestCase) error {
	if id == "http2/4.2/3" { // sends five fields, and expects them to exceed the frame size of the peer
		first, err := spec.Dial(&cfg)
		if err != nil {
			return err
		}
		err = first.Handshake()
		cfg.MaxHeaderLen = first.MaxFrameSize() / 4 // 7 bits of a frame for each byte
		if err := errors.Join(err, first.Close()); err != nil {
			return err
		}
	}
	if id == "http2/5.1.2/1" {
		filling.Lock()
		defer filling.Unlock()
	}
	conn, err := spec.Dial(&cfg)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // most cases have ended it
	return c.Run(&cfg, conn)
}
