package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-kratos/kratos/v2/registry"
	"github.com/go-kratos/kratos/v2/selector"
	"github.com/go-kratos/kratos/v2/selector/p2c"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/base"

	"github.com/ringway/ringway/selection"
	"github.com/ringway/ringway/sims/bench/compare/gozero"
)

// sizes are the numbers of endpoints measured.
var sizes = []int{8, 100, 1000}

// operation is one pick and its end, as a success.
type operation func() error

// side is one selector.
type side struct {
	name string
	// prepare warms up one selector over n endpoints and returns a function that
	// gives every goroutine a separate operation on that selector.
	prepare func(n int) (func() operation, error)
}

// Indexes of sides. -check compares timeGiven with goKratos.
const (
	timeGiven = iota
	clockRead
	goKratos
)

var sides = []side{
	timeGiven: {"ringway, time given", ringwayTimeGiven},
	clockRead: {"ringway, clock read", ringwayClockRead},
	goKratos:  {"go-kratos p2c", kratos},
	{"go-zero p2c_ewma (port)", goZero},
	{"grpc-go least request", leastRequest},
}

// warmup is how many operations run before measuring, per endpoint, so that
// every endpoint has statistics.
const warmup = 50

// ringwayTimeGiven advances time as in a relay: 100 µs between requests, 1 to
// 16 ms per request.
func ringwayTimeGiven(n int) (func() operation, error) {
	b, err := newBalancer(n)
	if err != nil {
		return nil, err
	}
	latest := func() selection.Instant { return 0 }
	newOperation := func() operation {
		// Each operation starts at the latest time of the earlier ones, so that time never
		// goes back.
		now, i := max(selection.Instant(4*time.Second), latest()), 0 // after the slow start
		before := latest
		latest = func() selection.Instant { return max(now, before()) }
		return func() error {
			now += selection.Instant(100 * time.Microsecond)
			i++
			p, err := b.Pick(now, nil)
			if err != nil {
				return err
			}
			b.Done(p, now+selection.Instant(1+i&15)*selection.Instant(time.Millisecond), selection.Result{Outcome: selection.Success, Load: i & 3, HasLoad: true})
			return nil
		}
	}
	if err := repeat(newOperation(), warmup*n); err != nil {
		return nil, err
	}
	b.Refresh(latest())
	return newOperation, nil
}

func ringwayClockRead(n int) (func() operation, error) {
	b, err := newBalancer(n)
	if err != nil {
		return nil, err
	}
	// The epoch is a minute ago, so that no slow start falls into the measurement.
	epoch := time.Now().Add(-time.Minute)
	newOperation := func() operation {
		i := 0
		return func() error {
			p, err := b.Pick(selection.Instant(time.Since(epoch)), nil)
			if err != nil {
				return err
			}
			i++
			b.Done(p, selection.Instant(time.Since(epoch)), selection.Result{Outcome: selection.Success, Load: i & 3, HasLoad: true})
			return nil
		}
	}
	if err := repeat(newOperation(), warmup*n); err != nil {
		return nil, err
	}
	b.Refresh(selection.Instant(time.Since(epoch)))
	return newOperation, nil
}

func newBalancer(n int) (*selection.Balancer[struct{}], error) {
	b, err := selection.NewBalancer[struct{}](selection.DefaultConfig())
	if err != nil {
		return nil, err
	}
	endpoints := make([]selection.Endpoint[struct{}], n)
	for i := range endpoints {
		endpoints[i] = selection.Endpoint[struct{}]{ID: address(i), Weight: 1}
	}
	return b, b.Update(endpoints, 0)
}

func kratos(n int) (func() operation, error) {
	s := p2c.New()
	nodes := make([]selector.Node, n)
	for i := range nodes {
		nodes[i] = selector.NewNode("http", address(i), &registry.ServiceInstance{Name: "echo"})
	}
	s.Apply(nodes)
	ctx := context.Background()
	op := func() error {
		_, done, err := s.Select(ctx)
		if err != nil {
			return err
		}
		done(ctx, selector.DoneInfo{})
		return nil
	}
	return func() operation { return op }, repeat(op, warmup*n)
}

func goZero(n int) (func() operation, error) {
	op := grpcOperation(goZeroPicker(n))
	return func() operation { return op }, repeat(op, warmup*n)
}

func goZeroPicker(n int) balancer.Picker {
	ready := make(map[balancer.SubConn]base.SubConnInfo, n)
	for i := range n {
		var info base.SubConnInfo
		info.Address.Addr = address(i)
		ready[&offlineConn{}] = info
	}
	return new(gozero.Builder).Build(base.PickerBuildInfo{ReadySCs: ready})
}

func address(i int) string { return fmt.Sprintf("10.0.%d.%d:80", i/256, i%256) }

func repeat(op operation, times int) error {
	for range times {
		if err := op(); err != nil {
			return err
		}
	}
	return nil
}
