//go:build unix

package e2e

import (
	"context"
	"syscall"
	"testing"

	"github.com/coder/websocket"

	"github.com/ringway/ringway/internal/procs"
)

// sessionDrainTimeout is long, because a drain ends its sessions evenly over this time. The checks of
// these tests must end before the first of two sessions does.
const sessionDrainTimeout = "21s"

func TestWebSocketsOutliveTheDrainOfRequestsAndAreClosedCleanly(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 1, Secure: true,
		RelayArgs: append(servedBy("r2", 2, "echo"), "--drain-timeout", "1s", "--session-drain-timeout", sessionDrainTimeout),
		Services:  func(int) []string { return []string{"echo"} }})
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	conns := map[*relay]*websocket.Conn{}
	for _, r := range f.relays {
		f.serves(t, r, "echo")
	}
	for _, r := range f.relays {
		conn, _, err := f.dialWebSocket(ctx, r, "echo")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.CloseNow() }()
		conns[r] = conn
	}
	forwarding, affine := f.relays[0], f.relays[1]
	var p plan
	f.api(forwarding.Admin, "/api/v1/services/echo/plan", &p)
	if len(p.Relays) != 1 || p.Relays[0].Relay != affine.ID {
		t.Fatalf("%+v", p)
	}
	echoes := func(r *relay) {
		t.Helper()
		if err := conns[r].Write(ctx, websocket.MessageText, []byte("still here")); err != nil {
			t.Errorf("over %s: %v", r.ID, err)
		} else if _, got, err := conns[r].Read(ctx); err != nil || string(got) != "still here" {
			t.Errorf("over %s: %q, %v", r.ID, got, err)
		}
	}
	stop := func(r *relay) {
		t.Helper()
		r.Signal(t, syscall.SIGTERM)
		procs.Await(t, r.ID+" has drained its requests", func() bool { return r.Logged("draining sessions", "") })
		for _, r := range f.running() {
			echoes(r)
		}
	}

	stop(forwarding)
	if _, _, err := conns[forwarding].Read(ctx); websocket.CloseStatus(err) != websocket.StatusGoingAway {
		t.Errorf("the end over %s: %v", forwarding.ID, err)
	}
	if code := forwarding.Exit(t); code != 0 {
		t.Errorf("%s exited with %d", forwarding.ID, code)
	}

	stop(affine)
	affine.Signal(t, syscall.SIGTERM)
	if code := affine.Exit(t); code != 1 {
		t.Errorf("after a second signal %s exited with %d", affine.ID, code)
	}
	if _, _, err := conns[affine].Read(ctx); err == nil || websocket.CloseStatus(err) == websocket.StatusGoingAway {
		t.Errorf("the end over %s: %v", affine.ID, err)
	}
}

func TestWebSocketsThroughAWorkerThatStopsAreClosedCleanly(t *testing.T) {
	t.Parallel()
	f := startFleet(t, fleetConfig{Relays: 2, Workers: 1, Secure: true,
		RelayArgs:  servedBy("r2", 2, "echo"),
		WorkerArgs: []string{"--drain-timeout", "1s", "--session-drain-timeout", sessionDrainTimeout},
		Services:   func(int) []string { return []string{"echo"} }})
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	for _, r := range f.relays {
		f.serves(t, r, "echo")
	}
	var conns []*websocket.Conn
	for _, r := range f.relays {
		conn, _, err := f.dialWebSocket(ctx, r, "echo")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.CloseNow() }()
		conns = append(conns, conn)
	}
	w := f.worker("w1")
	w.Signal(t, syscall.SIGTERM)
	procs.Await(t, "the worker has drained its requests", func() bool { return w.Logged("draining sessions", "") })
	if !w.Logged("leaving the cluster", "") {
		t.Error("it drains before the relays know that it leaves")
	}
	if a := f.client.get(w.Admin, "/metrics"); a.status != 200 {
		t.Errorf("the admin API answers %v while sessions drain", a)
	}
	for i, conn := range conns {
		if err := conn.Write(ctx, websocket.MessageText, []byte("still here")); err != nil {
			t.Errorf("over %s: %v", f.relays[i].ID, err)
		} else if _, got, err := conn.Read(ctx); err != nil || string(got) != "still here" {
			t.Errorf("over %s: %q, %v", f.relays[i].ID, got, err)
		}
	}
	for i, conn := range conns {
		if _, _, err := conn.Read(ctx); websocket.CloseStatus(err) != websocket.StatusGoingAway {
			t.Errorf("the end over %s: %v", f.relays[i].ID, err)
		}
	}
	if code := w.Exit(t); code != 0 {
		t.Errorf("the worker exited with %d", code)
	}
}
