package session

import (
	"bufio"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership"
)

// relay answers the first session with a row of one relay, and reports when it has, and when the worker
// moves.
func relay(t *testing.T, id string, row func() RowRelay) (address string, began, moved chan time.Time) {
	t.Helper()
	listener := procs.Listen(t)
	began, moved = make(chan time.Time, 1), make(chan time.Time, 1)
	done := make(chan struct{})
	t.Cleanup(func() { _ = listener.Close(); <-done })
	go func() {
		defer close(done)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer func() { _ = conn.Close() }()
		reader := bufio.NewReader(conn)
		if _, err := http.ReadRequest(reader); err != nil {
			return
		}
		_, _ = fmt.Fprintf(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n", Protocol)
		began <- time.Now()
		_, _ = conn.Write(AppendFrame(nil, KindRow, Row{Version: 1, Self: id, Epoch: 1, Size: 1, Relays: []RowRelay{row()}}.Encode()))
		for {
			switch kind, _, err := ReadFrame(reader, MaxHello); {
			case err != nil:
				return
			case kind == KindMoved:
				moved <- time.Now()
				return
			}
		}
	}()
	return listener.Addr().String(), began, moved
}

// Moved earlier, a worker would be in no list: that of its new relay is still on its way.
func TestAWorkerMovesWhenTheListOfItsNewRelayHasReachedTheOthers(t *testing.T) {
	var next RowRelay
	nextAddress, nextBegan, _ := relay(t, "r1", func() RowRelay { return next })
	next = RowRelay{ID: "r1", Epoch: 1, Address: nextAddress}
	seed, _, moved := relay(t, "r2", func() RowRelay { return next })
	c, err := NewClient(Config{Member: membership.Config{ID: "w1", Cluster: "c", Environment: "e"}, Seeds: []string{seed}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	select {
	case at := <-moved:
		if after := at.Sub(<-nextBegan); after < listTime {
			t.Errorf("moved after %v, before the others have the list", after)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("the worker does not move to the relay of its row")
	}
}
