package xds

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/ringway/ringway/internal/loglimit"
	"github.com/ringway/ringway/membership/identity"
)

func TestStreamsWithoutARequestBlockNoClient(t *testing.T) {
	c := start(t, nil)
	c.worker(1, "echo")
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var streams []discovery.AggregatedDiscoveryService_StreamAggregatedResourcesClient
	var conn *grpc.ClientConn
	for i := range maxSilent + 1 {
		if i%maxStreams == 0 { // the most of a connection
			var err error
			if conn, err = grpc.NewClient("passthrough:///"+c.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
		}
		s, err := discovery.NewAggregatedDiscoveryServiceClient(conn).StreamAggregatedResources(ctx)
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, s)
	}
	// One of them is in excess, whatever the order in which they arrive.
	ended := make(chan error, len(streams))
	for _, s := range streams {
		go func() {
			_, err := s.Recv()
			ended <- err
		}()
	}
	if err := <-ended; status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a stream in excess ends with %v", err)
	}
	e := c.envoy(&core.Node{Id: "envoy-0"}, insecure.NewCredentials(), "echo")
	e.until("the endpoints of echo", func() bool { return e.has["echo"] != nil || e.err != nil })
	if e.err != nil {
		t.Error(e.err)
	}
	stop()
	for range len(streams) - 1 {
		<-ended
	}
}

func TestASilentStreamGivesItsPlaceToANewOneOfTheSameSourceFirst(t *testing.T) {
	room := newSilent()
	var hostile []*silentStream
	first := room.enter("10.0.0.1")
	for range 2 * maxSilent {
		hostile = append(hostile, room.enter("10.0.0.2"))
	}
	if displaced(first) {
		t.Error("a source with one stream lost it to a source with many")
	}
	gone := len(hostile) - (maxSilent - 1)
	if i := slices.IndexFunc(hostile, func(s *silentStream) bool { return !displaced(s) }); i != gone {
		t.Errorf("the %d oldest have lost their places, want %d", i, gone)
	}
	for _, s := range append(hostile, first) {
		room.leave(s)
	}
	if n := len(room.streams); n > 0 {
		t.Errorf("%d are left", n)
	}
	for i := range maxSilent + 1 {
		hostile = append(hostile, room.enter(fmt.Sprint("10.0.1.", i)))
	}
	if !displaced(hostile[2*maxSilent]) || displaced(hostile[2*maxSilent+1]) {
		t.Error("not the oldest of equal sources has lost its place")
	}
}

func displaced(s *silentStream) bool {
	select {
	case <-s.displaced:
		return true
	default:
		return false
	}
}

// Behind a NAT all clients have one address: with certificates their ids are the sources.
func TestACertificateTakesNoPlaceOfAnother(t *testing.T) {
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Name: "test", Validity: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	own, err := authority.Source(identity.Claims{Role: identity.RoleObserver, Cluster: "shop", Environment: "dev", Node: "xds"}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	f := newClients(Config{MaxClients: 2}, own, newMetrics(prometheus.NewRegistry()), loglimit.New(slog.New(slog.DiscardHandler)))
	defer f.lines.Stop()
	as := func(node string) context.Context {
		source, err := authority.Source(identity.Claims{Role: identity.RoleRelay, Cluster: "shop", Environment: "dev", Node: node}, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		leaf, err := x509.ParseCertificate(source.Chain()[0])
		if err != nil {
			t.Fatal(err)
		}
		state := tls.ConnectionState{HandshakeComplete: true, PeerCertificates: []*x509.Certificate{leaf}}
		return peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{State: state}})
	}
	if one, other := f.sourceOf(as("envoy-0")), f.sourceOf(as("envoy-1")); one != "envoy-0" || other != "envoy-1" {
		t.Errorf("the sources are %q and %q", one, other)
	}
}
