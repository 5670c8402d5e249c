package ringwaygrpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/keepalive"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/affinity"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection/router"
)

// Router is the part of a [router.Router] that clients use.
type Router interface {
	WaitReady(ctx context.Context) error
	Endpoints(service string) (endpoints []*advertise.Endpoint, changed <-chan struct{})
	Pick(ctx context.Context, service, key string) (router.Pick, error)
}

// Config describes a client. Router and Service are required.
type Config struct {
	// Router picks the endpoints. The program runs it.
	Router Router
	// Service is the name of the service, whose workers must offer it with the protocol h2c or h2.
	Service string
	// Identity is the certificate of the node of Router, for workers that require mutual TLS. Such
	// a client never sends in clear text. Default: none; workers are reached in clear text.
	Identity *identity.Source
}

// maxReconnectDelay bounds the time between two dials of an endpoint that does not accept
// connections, give or take a fifth: after an outage, calls fail for as long. An endpoint that stays
// gone costs one dial in 5 s until membership removes it.
const maxReconnectDelay = 5 * time.Second

// The system finds a host that vanishes in goneAfter: it probes while this side waits for an answer,
// and repeats what the host has not acknowledged. PINGs cannot do this, because servers of gRPC end a
// connection with more than one in five minutes. They find a process that hangs.
const (
	goneAfter = 10 * time.Second
	pingAfter = 6 * time.Minute
)

// dial opens a connection that the system probes.
func dial(ctx context.Context, addr string) (net.Conn, error) {
	d := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: goneAfter / 2, Interval: time.Second, Count: int(goneAfter / 2 / time.Second)}}
	return d.DialContext(ctx, "tcp", addr)
}

// NewClient returns a grpc.ClientConn for the target ringway:///SERVICE. The options are those of
// grpc.NewClient and take precedence, such as grpc.WithTransportCredentials for services that
// offer h2 with a certificate of their own. A service config, as given by
// grpc.WithDefaultServiceConfig, must contain {"loadBalancingConfig": [{"ringway": {}}]}, or
// every RPC fails, because no other policy gets the addresses.
func NewClient(cfg Config, options ...grpc.DialOption) (*grpc.ClientConn, error) {
	if cfg.Router == nil {
		return nil, errors.New("ringwaygrpc: no Router: give the one that router.New returns")
	}
	if err := affinity.ValidateService(cfg.Service); err != nil {
		return nil, fmt.Errorf("ringwaygrpc: %w", err)
	}
	all := append([]grpc.DialOption{
		grpc.WithResolvers(resolverBuilder{cfg.Router}),
		grpc.WithDefaultServiceConfig(`{"loadBalancingConfig": [{"` + policy + `": {}}]}`),
		grpc.WithTransportCredentials(newCredentials(cfg.Identity)),
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: 20 * time.Second, Backoff: backoff.Config{
			BaseDelay: time.Second, Multiplier: 1.6, Jitter: 0.2, MaxDelay: maxReconnectDelay,
		}}),
		grpc.WithNoProxy(), // workers are in the cluster
		grpc.WithContextDialer(dial),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: goneAfter}), // Timeout is also how long bytes stay unacknowledged
		grpc.WithChainStreamInterceptor(watchAnswer),
	}, options...)
	return grpc.NewClient(scheme+":///"+cfg.Service, all...)
}

// values are what an RPC carries to the picker. The picker reads them by one lookup.
type values struct {
	key    string
	stream *stream // nil for a unary RPC
}

type valuesKey struct{}

func valuesOf(ctx context.Context) values {
	v, _ := ctx.Value(valuesKey{}).(*values)
	if v == nil {
		return values{}
	}
	return *v
}

// WithKey returns a context whose RPCs have a key for strategies by key, such as stable: all RPCs
// with one key go to one worker. Metadata ringway-key has the same effect, costs an
// allocation, and reaches the worker.
func WithKey(ctx context.Context, key string) context.Context {
	v := valuesOf(ctx)
	v.key = key
	return context.WithValue(ctx, valuesKey{}, &v)
}
