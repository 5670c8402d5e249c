package xds

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/envoyproxy/go-control-plane/pkg/resource/v3"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	grpcmetadata "google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// hostile is a client that sends what it likes, until the context ends.
type hostile struct {
	ctx  context.Context
	dial func(context.Context) discovery.AggregatedDiscoveryServiceClient
	sent *atomic.Int64
}

// stream opens a stream of the state of the world. It is read if read is set.
func (h hostile) stream(read bool) (send func(*discovery.DiscoveryRequest) bool) {
	s, err := h.dial(h.ctx).StreamAggregatedResources(h.ctx)
	if err != nil {
		return func(*discovery.DiscoveryRequest) bool { return false }
	}
	if read {
		go func() {
			for err := error(nil); err == nil; {
				_, err = s.Recv()
			}
		}()
	}
	return func(r *discovery.DiscoveryRequest) bool {
		r.TypeUrl = resource.EndpointType
		h.sent.Add(1)
		return s.Send(r) == nil
	}
}

func (c *cluster) dial(ctx context.Context) discovery.AggregatedDiscoveryServiceClient {
	conn, err := grpc.NewClient("passthrough:///"+c.Addr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		c.t.Error(err)
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	return discovery.NewAggregatedDiscoveryServiceClient(conn)
}

func someNames(prefix string, n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("%s-%d", prefix, i))
	}
	return names
}

// hostilities are what one client does after the other, each with an id of its own.
var hostilities = map[string]func(h hostile, id string){
	"endless subscriptions": func(h hostile, id string) {
		send := h.stream(true)
		for i := 0; send(&discovery.DiscoveryRequest{Node: &core.Node{Id: id}, ResourceNames: someNames(fmt.Sprintf("made-up-%d", i), 512)}); i++ {
		}
	},
	"versions and nonces that were never given": func(h hostile, id string) {
		send := h.stream(true)
		for i := 0; send(&discovery.DiscoveryRequest{Node: &core.Node{Id: id}, ResourceNames: []string{"echo"}, VersionInfo: strings.Repeat("9", i%100), ResponseNonce: fmt.Sprint(i % 3)}); i++ {
		}
	},
	"a reader that reads nothing": func(h hostile, id string) {
		send := h.stream(false)
		for i := 0; send(&discovery.DiscoveryRequest{Node: &core.Node{Id: id}, ResourceNames: []string{"echo"}, VersionInfo: fmt.Sprint(-i)}); i++ {
		}
	},
	"metadata of nodes": func(h hostile, id string) {
		huge, _ := structpb.NewStruct(map[string]any{"x": strings.Repeat("y", maxRequest-4096)})
		send := h.stream(true)
		for send(&discovery.DiscoveryRequest{Node: &core.Node{Id: id, Metadata: huge}, ResourceNames: []string{"echo"}}) {
		}
	},
	"streams": func(h hostile, id string) {
		for h.ctx.Err() == nil {
			one := h
			var end func()
			one.ctx, end = context.WithTimeout(h.ctx, 2*time.Second)
			for range 4 {
				client := h.dial(one.ctx)
				one.dial = func(context.Context) discovery.AggregatedDiscoveryServiceClient { return client }
				for range maxStreams { // the most of a connection
					one.stream(true)(&discovery.DiscoveryRequest{Node: &core.Node{Id: id}, ResourceNames: []string{"echo"}})
				}
			}
			end()
		}
	},
	"increments of nothing": func(h hostile, id string) {
		s, err := h.dial(h.ctx).DeltaAggregatedResources(h.ctx)
		if err != nil {
			return
		}
		versions := map[string]string{}
		for _, name := range someNames("had", 512) {
			versions[name] = strings.Repeat("v", 64)
		}
		go func() {
			for err := error(nil); err == nil; {
				_, err = s.Recv()
			}
		}()
		for i := 0; err == nil; i++ {
			h.sent.Add(1)
			err = s.Send(&discovery.DeltaDiscoveryRequest{Node: &core.Node{Id: id}, TypeUrl: resource.EndpointType, InitialResourceVersions: versions,
				ResourceNamesSubscribe: []string{fmt.Sprint("made-up-", i), "echo"}, ResourceNamesUnsubscribe: someNames("never", 500), ResponseNonce: fmt.Sprint(i)})
		}
	},
}

// heapNow returns the bytes in use, those of the clients included.
func heapNow() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func TestARequestCostsNoMoreThanTheFieldsThatAreRead(t *testing.T) {
	const costs = 64 << 10
	for name, node := range map[string]*core.Node{
		"extensions": {Id: "envoy-0", Extensions: slices.Repeat([]*core.Extension{{}}, maxRequest/4)},
		"names":      nil,
		"features":   {Id: "envoy-0", ClientFeatures: make([]string, maxRequest/4)},
		"metadata":   {Id: "envoy-0", Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{"x": structpb.NewStringValue(strings.Repeat("y", maxRequest/2))}}},
	} {
		r := &discovery.DiscoveryRequest{Node: node, ResourceNames: []string{"echo"}}
		if node == nil {
			r.ResourceNames = make([]string, maxRequest/4)
		}
		request, err := proto.Marshal(r)
		if err != nil || len(request) > maxRequest {
			t.Fatal(len(request), err)
		}
		var before, after runtime.MemStats
		const times = 100 // of which some need new buffers
		runtime.ReadMemStats(&before)
		for range times {
			if err := decode(request, r); (err == nil) != (node != nil) {
				t.Fatalf("%s: %v", name, err)
			}
		}
		runtime.ReadMemStats(&after)
		if cost := (after.TotalAlloc - before.TotalAlloc) / times; cost > costs {
			t.Errorf("%s: a request of %d KiB costs %d KiB, want %d at most", name, len(request)>>10, cost>>10, costs>>10)
		}
		if node != nil && (r.GetNode().GetId() != "envoy-0" || len(r.GetResourceNames()) != 1) {
			t.Errorf("%s: %v", name, r)
		}
	}
}

func TestAStreamWithLargeHeaderFieldsIsRefused(t *testing.T) {
	c := start(t, nil)
	for size, want := range map[int]codes.Code{maxHeader / 2: codes.OK, 2 * maxHeader: codes.Internal} {
		ctx, stop := context.WithCancel(grpcmetadata.AppendToOutgoingContext(t.Context(), "x", strings.Repeat("y", size)))
		defer stop()
		s, err := c.dial(ctx).StreamAggregatedResources(ctx, grpc.WaitForReady(true))
		if err == nil {
			_ = s.CloseSend()
			if _, err = s.Recv(); err == io.EOF {
				err = nil
			}
		}
		if status.Code(err) != want {
			t.Errorf("%d bytes: %v, want %v", size, err, want)
		}
	}
}

// raw opens a connection over which a test sends the frames of HTTP/2. It returns the settings of the server.
func (c *cluster) raw() (*http2.Framer, *http2.SettingsFrame) {
	c.t.Helper()
	conn, err := net.Dial("tcp", c.Addr())
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(waitTime))
	if _, err := conn.Write([]byte(http2.ClientPreface)); err != nil {
		c.t.Fatal(err)
	}
	frames := http2.NewFramer(conn, conn)
	if err := frames.WriteSettings(); err != nil {
		c.t.Fatal(err)
	}
	f, err := frames.ReadFrame()
	settings, ok := f.(*http2.SettingsFrame)
	if err != nil || !ok {
		c.t.Fatal(f, err)
	}
	return frames, settings
}

// A server of gRPC measures connections, to raise the windows of all of their streams, by a PING for the
// first data.
func TestTheServerRaisesTheWindowOfNoClient(t *testing.T) {
	frames, settings := start(t, nil).raw()
	if size, ok := settings.Value(http2.SettingInitialWindowSize); ok && size > window {
		t.Errorf("the window of a stream has %d bytes, want %d at most", size, window)
	}
	var fields bytes.Buffer
	encoder := hpack.NewEncoder(&fields)
	for _, field := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":authority", "xds"}, {":path", discovery.AggregatedDiscoveryService_StreamAggregatedResources_FullMethodName}, {"content-type", "application/grpc"}, {"te", "trailers"}} {
		if err := encoder.WriteField(hpack.HeaderField{Name: field[0], Value: field[1]}); err != nil {
			t.Fatal(err)
		}
	}
	ours := [8]byte{1}
	if err := errors.Join(frames.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: fields.Bytes(), EndHeaders: true}),
		frames.WriteData(1, false, make([]byte, 5)), frames.WritePing(false, ours)); err != nil {
		t.Fatal(err)
	}
	for {
		f, err := frames.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if ping, ok := f.(*http2.PingFrame); ok {
			if !ping.IsAck() || ping.Data != ours {
				t.Errorf("the server measures the connection: %v", ping)
			}
			return
		}
	}
}

func TestAConnectionWithoutAStreamCostsLittleAndEnds(t *testing.T) {
	const conns, costs = 500, 24 << 10
	c := start(t, nil)
	before := heapNow()
	var frames *http2.Framer
	for range conns {
		frames, _ = c.raw()
		if _, err := frames.ReadFrame(); err != nil { // the server has our settings
			t.Fatal(err)
		}
	}
	if cost := (heapNow() - before) / conns; cost > costs {
		t.Errorf("a connection costs %d KiB, its client included, want %d at most", cost>>10, costs>>10)
	}
	for begun := time.Now(); ; {
		f, err := frames.ReadFrame()
		if err != nil {
			t.Fatalf("%v after %v, want the end of the connection to be announced", err, time.Since(begun))
		}
		if f.Header().Type == http2.FrameGoAway {
			if took := time.Since(begun); took > 3*idleTime {
				t.Errorf("a connection without a stream ended after %v", took)
			}
			return
		}
	}
}

func TestHostileClientsDelayNoOtherAndLeaveNothing(t *testing.T) {
	const changes, mostHeap = 20, 96 << 20
	c := start(t, nil)
	w := c.worker(0, "echo")
	good := c.envoy(&core.Node{Id: "envoy-0"}, insecure.NewCredentials(), "echo")
	good.until("endpoints", func() bool { return len(endpointsOf(t, good.has["echo"])) == 1 })
	before, most := heapNow(), uint64(0)
	goroutines := runtime.NumGoroutine()

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	sent := map[string]*atomic.Int64{}
	for name, act := range hostilities {
		count := new(atomic.Int64)
		sent[name] = count
		h := hostile{ctx: ctx, sent: count, dial: c.dial}
		id := "hostile-" + strings.ReplaceAll(name, " ", "-")
		all.Go(func() {
			for ctx.Err() == nil {
				one := h
				var end func()
				one.ctx, end = context.WithCancel(ctx)
				act(one, id)
				// Its connections stay for longer than the server keeps them; then their memory, which is
				// not that of the server, is given back.
				time.AfterFunc(2*idleTime, end)
			}
		})
	}
	var slowest time.Duration
	for n := range changes {
		begun := time.Now()
		if err := w.Set(advertise.Service{Name: "echo", Address: fmt.Sprintf("127.0.0.1:%d", 1000+n)}); err != nil {
			t.Fatal(err)
		}
		good.until("the change", func() bool {
			return endpointsOf(t, good.has["echo"])["w0"].GetEndpoint().GetAddress().GetSocketAddress().GetPortValue() == uint32(1000+n)
		})
		slowest = max(slowest, time.Since(begun))
		most = max(most, heapNow())
	}
	for name, n := range sent {
		if t.Logf("%s: %d requests", name, n.Load()); n.Load() < 10 {
			t.Errorf("%s: %d requests were sent: the attack did not take place", name, n.Load())
		}
	}
	t.Logf("a change reaches an honest client in %v at most; the heap has %d MiB at most, before %d MiB", slowest.Round(time.Millisecond), most>>20, before>>20)
	if most > before+mostHeap {
		t.Errorf("the heap has %d MiB, before %d MiB; at most %d MiB may be added", most>>20, before>>20, mostHeap>>20)
	}
	if n := testutil.ToFloat64(c.metrics.refused.WithLabelValues(refusedStreams)); n == 0 {
		t.Error("no stream in excess was refused")
	}
	stop()
	all.Wait()
	left := func() (clients, streams int) {
		c.clients.mu.Lock()
		defer c.clients.mu.Unlock()
		return len(c.clients.byID), len(c.clients.streams)
	}
	for deadline := time.Now().Add(waitTime); ; time.Sleep(10 * time.Millisecond) {
		clients, streams := left()
		if clients == 1 && streams == 1 && runtime.NumGoroutine() < goroutines+20 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d clients, %d streams and %d goroutines are left, before there were %d goroutines", clients, streams, runtime.NumGoroutine(), goroutines)
		}
	}
	if good.mu.Lock(); good.err != nil {
		t.Error("the stream of an honest client has ended:", status.Code(good.err) == codes.OK, good.err)
	}
	good.mu.Unlock()
}

func TestACertificateHasNoMoreConnectionsThanItsShare(t *testing.T) {
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Name: "test", Validity: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	source := func(role identity.Role, node string) *identity.Source {
		s, err := authority.Source(identity.Claims{Role: role, Cluster: "shop", Environment: "dev", Node: node}, time.Hour-time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	var c *cluster
	thief := source(identity.RoleRelay, "thief")
	refused := func() float64 {
		return testutil.ToFloat64(c.metrics.connections.WithLabelValues("too_many_of_certificate"))
	}
	connect := func() *tls.Conn {
		plain, err := net.Dial("tcp", c.Addr())
		if err != nil {
			t.Fatal(err)
		}
		conn := tls.Client(plain, thief.ClientConfig(thief.Policy(identity.Hello), identity.Expected{Node: "control"}, "h2"))
		if err := conn.HandshakeContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(waitTime))
		if _, err = io.ReadFull(conn, make([]byte, 9)); err != nil { // the first frame, unless it is refused
			_ = conn.Close()
			return nil
		}
		return conn
	}
	var open []*tls.Conn
	for round, took := 0, idleTime; took >= idleTime && round < 5; round++ { // after idleTime the first are closed
		c = start(t, func(m *membership.Config, _ *Config) { m.Identity = source(identity.RoleObserver, "control") })
		open = nil
		began := time.Now()
		for range 2 * maxConns {
			if conn := connect(); conn != nil {
				open = append(open, conn)
				defer conn.Close()
			}
		}
		took = time.Since(began)
	}
	if len(open) != maxConns || refused() != maxConns {
		t.Errorf("%d of %d connections stay open, %v are counted as refused", len(open), 2*maxConns, refused())
	}
	honest := source(identity.RoleRelay, "envoy-0")
	good := c.envoy(&core.Node{Id: "envoy-0"}, credentials.NewTLS(honest.ClientConfig(honest.Policy(identity.Hello), identity.Expected{Node: "control"}, "h2")), "echo")
	good.until("endpoints", func() bool { return good.has["echo"] != nil })
	_ = open[0].Close()
	for deadline := time.Now().Add(waitTime); connect() == nil; {
		if time.Now().After(deadline) {
			t.Fatal("the place of a connection that has ended is not free")
		}
	}
}
