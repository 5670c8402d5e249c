package advertise

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/ringway/ringway/internal/memnet"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// large is a fleet of 10,000 workers with three services each: what it offers,
// with ids, addresses and boot times as they are in a data centre.
func large(b *testing.B) (alive []membership.Member, raws [][]byte, record func(i int, sequence uint64) []byte) {
	b.Helper()
	epoch := func(i int) uint64 { return uint64(start.UnixMilli()) - uint64(i*i)%(30*86400*1000) }
	record = func(i int, sequence uint64) []byte {
		r := Record{NodeID: fmt.Sprintf("worker-%d.rack-%d", i, i%40), Epoch: epoch(i), Sequence: sequence}
		for j := range 3 {
			r.Services = append(r.Services, Service{
				Name: fmt.Sprintf("service-%d", (i+j)%30), Address: fmt.Sprintf("10.%d.%d.%d:%d", i%40, i/250%250, i%250, 8080+j),
				Weight: int32(1 + sequence%100), Version: "v1.42.0",
			})
		}
		raw, err := r.Encode()
		if err != nil {
			b.Fatal(err)
		}
		return raw
	}
	for i := range 10_000 {
		alive = append(alive, membership.Member{ID: fmt.Sprintf("worker-%d.rack-%d", i, i%40), Epoch: epoch(i), Role: identity.RoleWorker})
		raws = append(raws, record(i, 1))
	}
	return alive, raws, record
}

// carried is what both directions of all exchanges of c took on the stream.
func carried(c *Catalogue) float64 {
	return testutil.ToFloat64(c.metrics.bytes.WithLabelValues("sent")) + testutil.ToFloat64(c.metrics.bytes.WithLabelValues("received"))
}

// A node opens two exchanges a minute and answers two, on average.
const exchangesAMinute = 4

func BenchmarkIdleExchangeOf10000Workers(b *testing.B) {
	alive, raws, _ := large(b)
	x, stopX := run(b, "r1", alive, raws)
	defer stopX()
	y, stopY := run(b, "r2", alive, raws)
	defer stopY()
	before, n := carried(x), 0.0
	b.ReportAllocs()
	for b.Loop() {
		exchange(b, x, y)
		n++
	}
	perExchange := (carried(x) - before) / n
	b.ReportMetric(perExchange, "B/exchange")
	b.ReportMetric(exchangesAMinute*perExchange, "B/min/node")
	if exchangesAMinute*perExchange > 100 {
		b.Fatalf("%v bytes a minute and node, at most 100 are promised", exchangesAMinute*perExchange)
	}
}

func BenchmarkRepairOfOneAmong10000Workers(b *testing.B) {
	for _, behind := range []string{"initiator", "responder"} {
		b.Run(behind+"-is-behind", func(b *testing.B) {
			alive, raws, record := large(b)
			x, stopX := run(b, "r1", alive, raws)
			defer stopX()
			y, stopY := run(b, "r2", alive, raws)
			defer stopY()
			ahead, late := y, x
			if behind == "responder" {
				ahead, late = x, y
			}
			n, total, most := 0, 0.0, 0.0
			for b.Loop() {
				b.StopTimer()
				i := n * 7919 % 10_000
				hold(b, ahead, record(i, uint64(2+n)))
				before := carried(x)
				b.StartTimer()
				exchange(b, x, y)
				b.StopTimer()
				took := carried(x) - before
				total, most, n = total+took, max(most, took), n+1
				var roots [2]uint64
				for i, c := range []*Catalogue{ahead, late} {
					if err := c.onLoop(context.Background(), func() { roots[i] = c.store.root }); err != nil {
						b.Fatal(err)
					}
				}
				if roots[0] != roots[1] {
					b.Fatal("not repaired within one exchange")
				}
				b.StartTimer()
			}
			b.ReportMetric(total/float64(n), "B/repair")
			b.ReportMetric(most, "B/repair-max")
			if most > 4096 {
				b.Fatalf("a repair took %v bytes, at most 4096 are promised", most)
			}
		})
	}
}

func BenchmarkCatchUpWith10000Workers(b *testing.B) {
	alive, raws, _ := large(b)
	full, stop := run(b, "r1", alive, raws)
	defer stop()
	size := 0
	for _, raw := range raws {
		size += len(raw)
	}
	wire, n := 0.0, 0.0
	for b.Loop() {
		empty, stop := run(b, "r2", alive, nil)
		exchange(b, empty, full)
		wire, n = wire+carried(empty), n+1
		stop()
	}
	b.ReportMetric(wire/n, "B/catch-up")
	b.ReportMetric(float64(size), "B/records")
}

// BenchmarkStreamOfAnExchange measures what surrounds an exchange on a real
// stream: hello and, with certificates, the TLS handshake.
func BenchmarkStreamOfAnExchange(b *testing.B) {
	for _, security := range []string{"clear", "mtls"} {
		b.Run(security, func(b *testing.B) {
			network := memnet.New(memnet.Config{Seed: 1})
			defer func() { _ = network.Close() }()
			var authority *identity.Authority
			if security == "mtls" {
				a, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 24 * time.Hour})
				if err != nil {
					b.Fatal(err)
				}
				authority = a
			}
			member := func(id, ip string) *membership.Node {
				cfg := membership.Config{
					Cluster: "prod", Environment: "eu", ID: id, Role: identity.RoleRelay, BindAddr: ip + ":7400",
					Seeds: []string{"10.0.0.1:7400"}, Network: network.Host(ip),
				}
				if authority != nil {
					source, err := authority.Source(identity.Claims{Role: identity.RoleRelay, Cluster: "prod", Environment: "eu", Node: id}, time.Hour)
					if err != nil {
						b.Fatal(err)
					}
					cfg.Identity = source
				}
				node, err := membership.New(cfg)
				if err != nil {
					b.Fatal(err)
				}
				return node
			}
			x, y := member("relay-1", "10.0.0.1"), member("relay-2", "10.0.0.2")
			served := make(chan struct{})
			y.HandleStream(streamProtocol, func(_ context.Context, _ membership.Peer, conn net.Conn) {
				defer func() { served <- struct{}{} }()
				f := speak(b, conn)
				if _, _, err := f.receive(maxOpeningBytes); err == nil {
					_ = f.send(context.Background(), frameSame, nil)
				}
			})
			for _, node := range []*membership.Node{x, y} {
				if err := node.Start(context.Background()); err != nil {
					b.Fatal(err)
				}
				defer func() { _ = node.Close() }()
			}
			for s := range x.Watch(b.Context()) {
				if len(s.Members()) == 2 {
					break
				}
			}
			n, total := 0.0, 0.0
			for b.Loop() {
				before := network.Counters().StreamBytes
				conn, err := x.OpenStream(context.Background(), "relay-2", streamProtocol)
				if err != nil {
					b.Fatal(err)
				}
				f := speak(b, conn)
				if err := f.send(context.Background(), frameHello, hello(1)); err != nil {
					b.Fatal(err)
				}
				if _, _, err := f.receive(maxFrameBytes); err != nil {
					b.Fatal(err)
				}
				_ = conn.Close()
				<-served
				total, n = total+float64(network.Counters().StreamBytes-before), n+1
			}
			b.ReportMetric(total/n, "B/exchange")
			b.ReportMetric(exchangesAMinute*total/n, "B/min/node")
		})
	}
}
