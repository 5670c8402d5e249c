package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-kratos/kratos/v2/registry"
	"github.com/go-kratos/kratos/v2/selector"
	"github.com/go-kratos/kratos/v2/selector/p2c"

	"github.com/ringway/ringway/selection"
)

// sizes are the numbers of endpoints measured.
var sizes = []int{8, 100, 1000}

// operation is one pick and its end.
type operation func() error

// warmup is how many operations run before measuring, per endpoint, so that
// every endpoint has statistics.
const warmup = 50

func ringway(n int) (operation, error) {
	balancer, err := selection.NewBalancer(selection.DefaultConfig())
	if err != nil {
		return nil, err
	}
	endpoints := make([]selection.Endpoint, n)
	for i := range endpoints {
		endpoints[i] = selection.Endpoint{ID: fmt.Sprintf("10.0.%d.%d:80", i/256, i%256), Weight: 1}
	}
	// The epoch lies back so that no slow start falls into the measurement.
	epoch := time.Now().Add(-time.Minute)
	if err := balancer.Update(endpoints, 0); err != nil {
		return nil, err
	}
	load := 0
	op := func() error {
		p, err := balancer.Pick(selection.Instant(time.Since(epoch)), nil)
		if err != nil {
			return err
		}
		load++
		balancer.Done(p, selection.Instant(time.Since(epoch)), selection.Success.WithLoad(load&3))
		return nil
	}
	if err := repeat(op, warmup*n); err != nil {
		return nil, err
	}
	balancer.Refresh(selection.Instant(time.Since(epoch)))
	return op, nil
}

func kratos(n int) (operation, error) {
	s := p2c.New()
	nodes := make([]selector.Node, n)
	for i := range nodes {
		nodes[i] = selector.NewNode("http", fmt.Sprintf("10.0.%d.%d:80", i/256, i%256), &registry.ServiceInstance{Name: "echo"})
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
	return op, repeat(op, warmup*n)
}

func repeat(op operation, times int) error {
	for range times {
		if err := op(); err != nil {
			return err
		}
	}
	return nil
}
