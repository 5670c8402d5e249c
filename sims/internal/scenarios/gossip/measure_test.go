package gossip

import (
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/memnet"
)

func TestTimeMovesOnWhenAllWait(t *testing.T) {
	began := time.Now()
	err := virtually(func() error {
		began := time.Now()
		time.Sleep(24 * time.Hour)
		if d := time.Since(began); d != 24*time.Hour {
			t.Errorf("a day took %v", d)
		}
		return io.EOF
	})
	if !errors.Is(err, io.EOF) {
		t.Errorf("the error of what ran is %v", err)
	}
	if d := time.Since(began); d > time.Hour {
		t.Errorf("a virtual day took %v", d)
	}
}

func TestAFleetThatDoesNotEndIsAnError(t *testing.T) {
	err := virtually(func() error {
		waiting := make(chan struct{}) // of the bubble; never closed there
		go waitForever(waiting)
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), "deadlock") {
		t.Errorf("the error is %v", err)
	}
}

func waitForever(c chan struct{}) { <-c }

func TestAHostCountsItsStreamsBothWays(t *testing.T) {
	n := memnet.New(memnet.Config{})
	defer func() { _ = n.Close() }()
	lossy := new(atomic.Bool)
	a, b := &host{Host: n.Host("10.0.0.1"), lossy: lossy}, &host{Host: n.Host("10.0.0.2"), lossy: lossy}
	l, err := b.Listen("10.0.0.2:1")
	if err != nil {
		t.Fatal(err)
	}
	out, err := a.Dial(context.Background(), "10.0.0.2:1")
	if err != nil {
		t.Fatal(err)
	}
	in, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := out.Write([]byte("hello")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(in, make([]byte, 5)); err != nil {
		t.Fatal(err)
	}
	if a.streamed.Load() != 5 || b.streamed.Load() != 5 || n.Counters().StreamBytes != 5 {
		t.Errorf("counted %d sent, %d received, %d by the network, want 5", a.streamed.Load(), b.streamed.Load(), n.Counters().StreamBytes)
	}
}

func TestOnlyLargePacketsAreThinnedOutAndOnlyWhileAFleetForms(t *testing.T) {
	n := memnet.New(memnet.Config{})
	defer func() { _ = n.Close() }()
	lossy := new(atomic.Bool)
	a := &host{Host: n.Host("10.0.0.1"), lossy: lossy}
	c, err := a.ListenPacket("10.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	send := func(size int) uint64 {
		before := n.Counters().Packets
		for range 9 {
			if sent, err := c.WriteTo(make([]byte, size), c.LocalAddr()); err != nil || sent != size {
				t.Fatal(sent, err)
			}
		}
		return n.Counters().Packets - before
	}
	if got := send(largePacket + 1); got != 9 {
		t.Errorf("%d of 9 large packets sent", got)
	}
	lossy.Store(true)
	if got := send(largePacket + 1); got != 3 {
		t.Errorf("%d of 9 large packets sent while a fleet forms, want 3", got)
	}
	if got := send(largePacket); got != 9 {
		t.Errorf("%d of 9 small packets sent while a fleet forms", got)
	}
}

func measured(t *testing.T, change func(*Config)) Result {
	t.Helper()
	cfg := Config{Members: 12, Events: 1, Burst: 0.2, Seed: 1}
	if change != nil {
		change(&cfg)
	}
	r, err := Measure(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestEveryKnobChangesWhatIsMeasured(t *testing.T) {
	plain := measured(t, nil)
	if got := plain.Idle.Packets; math.Abs(got-120) > 2 {
		t.Errorf("an idle member sends %v packets a minute, want a ping and an answer each second", got)
	}
	// A packet with a key is longer by nonce, tag and version.
	if e := measured(t, func(c *Config) { c.Encrypted = true }); e.Idle.PacketBytes < plain.Idle.PacketBytes+20*plain.Idle.Packets {
		t.Errorf("encrypted, an idle member sends %v bytes in packets, in clear text %v", e.Idle.PacketBytes, plain.Idle.PacketBytes)
	}
	if e := measured(t, func(c *Config) { c.Burst = 1 }); e.Events[Burst][0].Gossip < 2*plain.Events[Burst][0].Gossip {
		t.Errorf("five times the changes cost %v bytes, the fifth %v", e.Events[Burst][0].Gossip, plain.Events[Burst][0].Gossip)
	}
	steps := 0
	e := measured(t, func(c *Config) { c.Events, c.Step = 2, func() { steps++ } })
	if len(e.Events[Join]) != 4 || len(e.Events[Crash]) != 2 || steps != (Config{Events: 2}).Steps() {
		t.Errorf("%d joins, %d crashes, %d steps", len(e.Events[Join]), len(e.Events[Crash]), steps)
	}
}

func TestAFleetThatCannotBeIsRefused(t *testing.T) {
	for _, cfg := range []Config{
		{Members: 9, Events: 1}, {Members: 10}, {Members: 10, Events: 1, Burst: 2}, {Members: 10, Events: 1, Loss: -1},
	} {
		if _, err := Measure(cfg); err == nil {
			t.Errorf("%+v is accepted", cfg)
		}
	}
}

func TestALawFindsWhatItWasMadeOf(t *testing.T) {
	for _, s := range []shape{logarithm, copies, share, linear, exchanges} {
		made := law{s, 7, 3}
		var points []point
		for _, n := range []float64{20, 150, 900} {
			points = append(points, point{n, made.at(n)})
		}
		found := fit(s, points)
		if math.Abs(found.a-7) > 1e-6 || math.Abs(found.b-3) > 1e-6 || math.Abs(found.off(points[2])) > 1e-9 {
			t.Errorf("%v was found as %v", made, found)
		}
	}
	if flat := fit(copies, []point{{200, 10}, {500, 12}}); flat.a != 0 || math.Abs(flat.b-3.6) > 0.1 {
		t.Errorf("where nothing grows the law is %v, want one in proportion", flat)
	}
}
