package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/balancer/leastrequest"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/experimental/stats"
	"google.golang.org/grpc/resolver"
)

// leastRequest runs the original balancer of grpc-go: a channel without a network
// gives the balancer n endpoints, lets every connection succeed immediately and
// takes the picker that the balancer publishes. The picker asks a pick_first
// picker for the connection, as in a real channel.
func leastRequest(n int) (func() operation, error) {
	picker, err := leastRequestPicker(n)
	if err != nil {
		return nil, err
	}
	op := grpcOperation(picker)
	return func() operation { return op }, repeat(op, warmup*n)
}

func leastRequestPicker(n int) (balancer.Picker, error) {
	builder := balancer.Get(leastrequest.Name)
	if builder == nil {
		return nil, fmt.Errorf("grpc has no balancer %q", leastrequest.Name)
	}
	parser, ok := builder.(balancer.ConfigParser)
	if !ok {
		return nil, fmt.Errorf("grpc's balancer %q takes no configuration", leastrequest.Name)
	}
	cfg, err := parser.ParseConfig(json.RawMessage(`{"choiceCount": 2}`))
	if err != nil {
		return nil, err
	}
	channel := &offlineChannel{}
	lb := builder.Build(channel, balancer.BuildOptions{})
	state := resolver.State{Endpoints: make([]resolver.Endpoint, n)}
	for i := range state.Endpoints {
		state.Endpoints[i].Addresses = []resolver.Address{{Addr: address(i)}}
	}
	err = lb.UpdateClientConnState(balancer.ClientConnState{ResolverState: state, BalancerConfig: cfg})
	if err != nil {
		return nil, err
	}
	channel.connectAll()
	if channel.state.ConnectivityState != connectivity.Ready || len(channel.conns) != n {
		return nil, fmt.Errorf("grpc's balancer is %v with %d connections; want READY with %d",
			channel.state.ConnectivityState, len(channel.conns), n)
	}
	return channel.state.Picker, nil
}

func grpcOperation(picker balancer.Picker) operation {
	info := balancer.PickInfo{FullMethodName: "/echo.Echo/Say", Ctx: context.Background()}
	return func() error {
		result, err := picker.Pick(info)
		if err != nil {
			return err
		}
		result.Done(balancer.DoneInfo{})
		return nil
	}
}

// offlineChannel replaces a grpc.ClientConn. The embedded interface is nil, so a
// call of a method that is not implemented below panics.
type offlineChannel struct {
	balancer.ClientConn
	conns   []*offlineConn
	waiting []*offlineConn
	state   balancer.State
}

func (c *offlineChannel) NewSubConn(_ []resolver.Address, o balancer.NewSubConnOptions) (balancer.SubConn, error) {
	if o.StateListener == nil {
		return nil, errors.New("a connection without a listener")
	}
	conn := &offlineConn{channel: c, listener: o.StateListener}
	c.conns = append(c.conns, conn)
	return conn, nil
}

func (c *offlineChannel) UpdateState(s balancer.State)           { c.state = s }
func (c *offlineChannel) ResolveNow(resolver.ResolveNowOptions)  {}
func (c *offlineChannel) Target() string                         { return "offline:///echo" }
func (c *offlineChannel) MetricsRecorder() stats.MetricsRecorder { return noMetrics{} }

// connectAll brings every requested connection to READY. connectAll must not run
// inside a call of the balancer, because the balancer then holds its locks.
func (c *offlineChannel) connectAll() {
	for len(c.waiting) > 0 {
		conn := c.waiting[0]
		c.waiting = c.waiting[1:]
		conn.listener(balancer.SubConnState{ConnectivityState: connectivity.Connecting})
		conn.listener(balancer.SubConnState{ConnectivityState: connectivity.Ready})
		if conn.health != nil {
			conn.health(balancer.SubConnState{ConnectivityState: connectivity.Ready})
		}
	}
}

type offlineConn struct {
	balancer.SubConn
	channel  *offlineChannel
	listener func(balancer.SubConnState)
	health   func(balancer.SubConnState)
}

func (c *offlineConn) Connect()  { c.channel.waiting = append(c.channel.waiting, c) }
func (c *offlineConn) Shutdown() {}

func (c *offlineConn) RegisterHealthListener(health func(balancer.SubConnState)) { c.health = health }

type noMetrics struct {
	stats.UnimplementedMetricsRecorder
}
