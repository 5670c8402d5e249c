package memnet_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"

	"github.com/ringway/ringway/internal/memnet"
)

const addrA, addrB = "10.0.0.1:7400", "10.0.0.2:7400"

var ipA, ipB = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")

// bubble runs a test with two hosts under a virtual clock.
func bubble(t *testing.T, cfg memnet.Config, test func(t *testing.T, n *memnet.Network, a, b *memnet.Host)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New(cfg)
		defer n.Close()
		test(t, n, n.Host("10.0.0.1"), n.Host("10.0.0.2"))
	})
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// pair returns the two ends of a stream from a to b.
func pair(t *testing.T, a, b *memnet.Host) (ours, theirs net.Conn) {
	t.Helper()
	ln := must[net.Listener](t)(b.Listen(addrB))
	ours = must[net.Conn](t)(a.Dial(context.Background(), addrB))
	return ours, must[net.Conn](t)(ln.Accept())
}

func TestAStreamIsAConnAsTheStandardLibraryMeansIt(t *testing.T) {
	nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
		n := memnet.New(memnet.Config{Latency: 10 * time.Microsecond})
		ln, err := n.Host("10.0.0.2").Listen(addrB)
		if err != nil {
			return nil, nil, nil, err
		}
		ours, err := n.Host("10.0.0.1").Dial(context.Background(), addrB)
		if err != nil {
			return nil, nil, nil, err
		}
		theirs, err := ln.Accept()
		return ours, theirs, func() { _ = n.Close() }, err
	})
}

func TestAPacketArrivesAfterTheLatencyAndNamesItsSender(t *testing.T) {
	bubble(t, memnet.Config{Latency: 3 * time.Millisecond}, func(t *testing.T, n *memnet.Network, a, b *memnet.Host) {
		from, to := must[net.PacketConn](t)(a.ListenPacket(addrA)), must[net.PacketConn](t)(b.ListenPacket(addrB))
		began := time.Now()
		if _, err := from.WriteTo([]byte("ping"), to.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 2) // shorter than the packet, whose rest is cut off
		got, sender, err := to.ReadFrom(buf)
		if err != nil || string(buf[:got]) != "pi" || sender.String() != addrA || time.Since(began) != 3*time.Millisecond {
			t.Fatalf("read %q from %v after %v, %v", buf[:got], sender, time.Since(began), err)
		}
		if _, isUDP := sender.(*net.UDPAddr); !isUDP {
			t.Fatalf("the sender is a %T", sender)
		}
		if _, err := from.WriteTo(nil, net.UDPAddrFromAddrPort(netip.MustParseAddrPort("10.0.0.9:1"))); err != nil {
			t.Fatalf("a packet to no listener is no error: %v", err)
		}
		time.Sleep(time.Second)
		if c := n.Counters(); c.Packets != 2 || c.PacketBytes != 4 || c.Delivered != 1 || c.Unbound != 1 {
			t.Fatal(c)
		}
	})
}

func TestDeadlinesEndWaitsAsTimeouts(t *testing.T) {
	bubble(t, memnet.Config{}, func(t *testing.T, _ *memnet.Network, a, b *memnet.Host) {
		pc := must[net.PacketConn](t)(a.ListenPacket(addrA))
		ours, _ := pair(t, a, b)
		for name, wait := range map[string]func(time.Time) error{
			"packet read": func(d time.Time) error {
				_ = pc.SetDeadline(d)
				_, _, err := pc.ReadFrom(make([]byte, 1))
				return err
			},
			"stream read": func(d time.Time) error {
				_ = ours.SetReadDeadline(d)
				_, err := ours.Read(make([]byte, 1))
				return err
			},
			"stream write": func(d time.Time) error {
				_ = ours.SetWriteDeadline(d)
				_, err := ours.Write(make([]byte, 1<<20)) // more than the other end takes in
				return err
			},
		} {
			began := time.Now()
			err := wait(began.Add(time.Second))
			var timeout net.Error
			if !errors.As(err, &timeout) || !timeout.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Second {
				t.Errorf("%s: %v after %v", name, err, time.Since(began))
			}
		}
	})
}

func TestADialToNoListenerIsRefusedAndOneIntoAHoleHangs(t *testing.T) {
	bubble(t, memnet.Config{Latency: time.Millisecond}, func(t *testing.T, n *memnet.Network, a, b *memnet.Host) {
		var op *net.OpError
		_, err := a.Dial(context.Background(), addrB)
		if !errors.As(err, &op) || op.Op != "dial" || op.Net != "tcp" || !errors.Is(err, syscall.ECONNREFUSED) {
			t.Fatalf("refused dial: %v", err)
		}
		must[net.Listener](t)(b.Listen(addrB))
		n.Blackhole(ipB)
		ctx, cancel := context.WithTimeout(context.Background(), 7*time.Second)
		defer cancel()
		began := time.Now()
		_, err = a.Dial(ctx, addrB)
		if !errors.As(err, &op) || !op.Timeout() || time.Since(began) != 7*time.Second {
			t.Fatalf("dial into a hole: %v after %v", err, time.Since(began))
		}
		time.AfterFunc(time.Second, n.Heal)
		if _, err = a.Dial(context.Background(), addrB); err != nil {
			t.Fatalf("a dial that waited for the path: %v", err)
		}
		if c := n.Counters(); c.Dials != 3 || c.DialsOK != 1 || c.DialsRefused != 1 || c.DialsTimedOut != 1 {
			t.Fatal(c)
		}
	})
}

func TestAnEstablishedStreamStallsInAHoleAndGoesOnAfterwards(t *testing.T) {
	bubble(t, memnet.Config{Latency: time.Millisecond}, func(t *testing.T, n *memnet.Network, a, b *memnet.Host) {
		ours, theirs := pair(t, a, b)
		n.Blackhole(ipB)
		began := time.Now()
		if _, err := ours.Write([]byte("late")); err != nil {
			t.Fatal(err)
		}
		_ = ours.Close()
		time.AfterFunc(time.Minute, n.Heal)
		got, err := io.ReadAll(theirs)
		if err != nil || string(got) != "late" || time.Since(began) != time.Minute {
			t.Fatalf("read %q after %v, %v", got, time.Since(began), err)
		}
	})
}

func TestFaultsCutThePathsTheyName(t *testing.T) {
	for name, tc := range map[string]struct {
		fault  func(*memnet.Network)
		ab, ba bool
	}{
		"none":              {func(*memnet.Network) {}, true, true},
		"one way":           {func(n *memnet.Network) { n.Block(ipA, ipB) }, false, true},
		"two groups":        {func(n *memnet.Network) { n.Partition([]netip.Addr{ipA}, []netip.Addr{ipB}) }, false, false},
		"one group":         {func(n *memnet.Network) { n.Partition([]netip.Addr{ipA, ipB}) }, true, true},
		"one in no group":   {func(n *memnet.Network) { n.Partition([]netip.Addr{ipA}, nil) }, true, true},
		"a hole":            {func(n *memnet.Network) { n.Blackhole(ipA) }, false, false},
		"everything healed": {func(n *memnet.Network) { n.Blackhole(ipA); n.Block(ipB, ipA); n.Heal() }, true, true},
		"loss of all":       {func(n *memnet.Network) { n.SetLoss(1) }, false, false},
	} {
		bubble(t, memnet.Config{}, func(t *testing.T, n *memnet.Network, a, b *memnet.Host) {
			pa, pb := must[net.PacketConn](t)(a.ListenPacket(addrA)), must[net.PacketConn](t)(b.ListenPacket(addrB))
			tc.fault(n)
			passes := func(from, to net.PacketConn) bool {
				_, _ = from.WriteTo([]byte("x"), to.LocalAddr())
				_ = to.SetReadDeadline(time.Now().Add(time.Second))
				_, _, err := to.ReadFrom(make([]byte, 1))
				return err == nil
			}
			if ab, ba := passes(pa, pb), passes(pb, pa); ab != tc.ab || ba != tc.ba {
				t.Errorf("%s: a→b %v, b→a %v", name, ab, ba)
			}
		})
	}
}

func TestLossIsTheShareAsked(t *testing.T) {
	bubble(t, memnet.Config{Seed: 1, Loss: 0.2}, func(t *testing.T, n *memnet.Network, a, b *memnet.Host) {
		from, to := must[net.PacketConn](t)(a.ListenPacket(addrA)), must[net.PacketConn](t)(b.ListenPacket(addrB))
		const packets = 5000 // fewer than the receive queue holds
		for range packets {
			_, _ = from.WriteTo([]byte("x"), to.LocalAddr())
		}
		// 20 % of 5000 is 1000; five standard deviations are 141.
		if c := n.Counters(); c.Lost < 859 || c.Lost > 1141 || c.Lost+c.Delivered != packets {
			t.Fatal(c)
		}
	})
}

func TestACrashEndsEverythingOnTheHostAndItsAddressIsFree(t *testing.T) {
	bubble(t, memnet.Config{}, func(t *testing.T, _ *memnet.Network, a, b *memnet.Host) {
		ours, _ := pair(t, a, b)
		pc := must[net.PacketConn](t)(b.ListenPacket(addrB))
		b.Crash()
		if _, _, err := pc.ReadFrom(nil); !errors.Is(err, net.ErrClosed) {
			t.Fatalf("a socket of a crashed host reads %v", err)
		}
		if _, err := ours.Read(make([]byte, 1)); err != io.EOF {
			t.Fatalf("the peer of a crashed host reads %v", err)
		}
		must[net.PacketConn](t)(b.ListenPacket(addrB)) // free again

		b.Move("10.0.0.3")
		if _, err := b.Listen(addrB); !errors.Is(err, syscall.EADDRNOTAVAIL) {
			t.Fatalf("a moved host binds its old address: %v", err)
		}
		if ln := must[net.Listener](t)(b.Listen("0.0.0.0:0")); ln.Addr().(*net.TCPAddr).IP.String() != "10.0.0.3" {
			t.Fatalf("bound %v", ln.Addr())
		}
	})
}

func TestOneAddressIsBoundOnce(t *testing.T) {
	bubble(t, memnet.Config{}, func(t *testing.T, _ *memnet.Network, a, _ *memnet.Host) {
		must[net.Listener](t)(a.Listen(addrA))
		must[net.PacketConn](t)(a.ListenPacket(addrA)) // one port carries both
		if _, err := a.Listen(addrA); !errors.Is(err, syscall.EADDRINUSE) {
			t.Error(err)
		}
		if _, err := a.ListenPacket(addrA); !errors.Is(err, syscall.EADDRINUSE) {
			t.Error(err)
		}
	})
}

// A bubble panics when it ends with a goroutine that waits, so this fails loudly
// if Close leaves a call hanging.
func TestCloseEndsEveryBlockedCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New(memnet.Config{})
		a, b := n.Host("10.0.0.1"), n.Host("10.0.0.2")
		ours, theirs := pair(t, a, b)
		pc := must[net.PacketConn](t)(a.ListenPacket(addrA))
		ln := must[net.Listener](t)(a.Listen(addrA))
		n.Block(ipA, ipB)
		var blocked sync.WaitGroup
		blocked.Go(func() { _, _ = ours.Read(make([]byte, 1)) })
		blocked.Go(func() { _, _ = theirs.Write(make([]byte, 1<<20)) })
		blocked.Go(func() { _, _, _ = pc.ReadFrom(make([]byte, 1)) })
		blocked.Go(func() { _, _ = ln.Accept() })
		blocked.Go(func() { _, _ = a.Dial(context.Background(), addrB) })
		synctest.Wait()
		_ = n.Close()
		blocked.Wait()
		if _, err := a.Listen("10.0.0.1:1"); !errors.Is(err, net.ErrClosed) {
			t.Errorf("a closed network listens: %v", err)
		}
	})
}
