package ringwaygrpc_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testpb "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	ringwaygrpc "github.com/ringway/ringway/adapters/grpc"
	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/selection/router"
)

// counting counts the picks of one worker.
type counting struct {
	ringwaygrpc.Router
	worker string
	picks  atomic.Int64
}

func (c *counting) Pick(ctx context.Context, service, key string) (router.Pick, error) {
	pick, err := c.Router.Pick(ctx, service, key)
	if seen := pick; err == nil && seen.Endpoint().NodeID == c.worker {
		c.picks.Add(1)
	}
	return pick, err
}

func TestAFailedDialCountsAsAFailureOfTheWorkerAndOfNoCall(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	for _, id := range []string{"a", "b", "c", "d"} {
		c.worker(id, "")
	}
	dead := c.worker("dead", "")
	c.sees("a", "b", "c", "d", "dead")
	counted := &counting{Router: c.router, worker: "dead"}
	client := c.client(func(cfg *ringwaygrpc.Config) { cfg.Router = counted })
	c.reaches(client, "a", "b", "c", "d", "dead")
	dead.grpc.Stop() // its agent goes on
	counted.picks.Store(0)
	const calls = 3000
	var failed []error
	for range calls {
		if _, err := call(t.Context(), client); err != nil {
			failed = append(failed, err)
		}
	}
	if len(failed) > 1 { // one call may be on the way when the connection ends
		t.Errorf("%d calls failed, though four of five workers accept connections: %v", len(failed), failed)
	}
	if n := counted.picks.Load(); n > calls/50 {
		t.Errorf("the router picked a worker that refuses connections for %d of %d calls", n, calls)
	}
	listen(t, dead, dead.addr)
	c.reaches(client, "dead")
}

func TestTheOnlyWorkerWithAConnectionGetsEveryCall(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	all := []string{"up"}
	for i := range 10 { // more than a pick can exclude
		s := &server{id: fmt.Sprint("down-", i), addr: procs.FreeAddr(t)}
		all = append(all, s.id)
		c.offer(s, advertise.Service{Protocol: advertise.H2C})
	}
	c.worker("up", "")
	c.sees(all...)
	client := c.client(nil)
	for range 200 {
		if _, err := call(t.Context(), client, grpc.WaitForReady(true)); err != nil {
			t.Fatal(err)
		}
	}
	for range 200 {
		if _, err := call(t.Context(), client); err != nil {
			t.Fatal(err)
		}
	}
}

// Nothing makes a call pick again when a slot becomes free, so a call that waited here would wait
// until its deadline.
func TestACallIsRefusedIfTheWorkersWithAConnectionAreFull(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	c.offer(&server{id: "down", addr: procs.FreeAddr(t)}, advertise.Service{Protocol: advertise.H2C})
	c.worker("up", ";slots=1")
	c.sees("down", "up")
	client := c.client(nil)
	c.reaches(client, "up")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	stream, err := client.FullDuplexCall(ctx, grpc.WaitForReady(true))
	if err != nil {
		t.Fatal(err)
	}
	if id, err := echoed(stream); id != "up" || err != nil {
		t.Fatal(id, err)
	}
	for _, waits := range []bool{false, true} {
		if _, err := call(t.Context(), client, grpc.WaitForReady(waits)); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("waits %v: %v", waits, err)
		}
	}
}

func TestAWorkerThatFailsGetsFewCallsAndComesBack(t *testing.T) {
	t.Parallel()
	for mood, limit := range map[int32]time.Duration{failing: waitTime, hanging: 250 * time.Millisecond} {
		t.Run(map[int32]string{failing: "fails", hanging: "hangs"}[mood], func(t *testing.T) {
			t.Parallel()
			c := startCluster(t, fleet.Config{Insecure: true})
			for _, id := range []string{"a", "b", "c", "d"} {
				c.worker(id, "")
			}
			bad := c.worker("bad", "")
			c.sees("a", "b", "c", "d", "bad")
			client := c.client(nil)
			c.reaches(client, "a", "b", "c", "d", "bad")
			before := bad.calls.Load()
			bad.mood.Store(mood)
			// It gets none for seconds if it joined last, or was a little slower than the others.
			calls, failed := 0, 0
			for began := time.Now(); calls < 1000 || bad.calls.Load() == before && time.Since(began) < waitTime; calls++ {
				ctx, cancel := context.WithTimeout(t.Context(), limit)
				if _, err := call(ctx, client); err != nil {
					failed++
				}
				cancel()
			}
			// On a slow machine a healthy worker may be later than the limit of a call to a hanging one.
			if mood == failing && failed > calls/20 {
				t.Errorf("%d of %d calls failed because of one of five workers", failed, calls)
			}
			if got := bad.calls.Load() - before; got == 0 || got > int64(calls)/20 {
				t.Errorf("the failing one of five workers got %d of %d calls", got, calls)
			}
			bad.mood.Store(well)
			c.reaches(client, "bad")
		})
	}
}

func TestCallsFailWhileNoWorkerAcceptsConnectionsAndThenGoOn(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	s := c.worker("a", "")
	c.sees("a")
	client := c.client(nil)
	c.reaches(client, "a")
	s.grpc.Stop()
	for end := time.Now().Add(waitTime); ; {
		_, err := call(t.Context(), client)
		if status.Code(err) == codes.Unavailable && strings.Contains(err.Error(), "none of 1 endpoints accepts a connection, such as a ("+s.addr+")") {
			break
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	answered := make(chan error, 1)
	go func() {
		_, err := call(t.Context(), client, grpc.WaitForReady(true))
		answered <- err
	}()
	listen(t, s, s.addr)
	if err := <-answered; err != nil {
		t.Errorf("a call that waits until the worker is back: %v", err)
	}
}

func TestADrainingWorkerGetsNoCallsAndItsStreamsGoOn(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	c.worker("drained", "")
	c.sees("drained")
	client := c.client(nil)
	c.reaches(client, "drained")
	stream, err := client.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := echoed(stream); err != nil {
		t.Fatal(err)
	}
	c.worker("other", "")
	c.sees("drained", "other")
	c.reaches(client, "other")
	if err := c.Drain("drained"); err != nil {
		t.Fatal(err)
	}
	c.sees("other")
	late := 0 // the connection learns of the drain an instant after the router
	for range 300 {
		switch id, err := call(t.Context(), client); {
		case err == nil && id == "drained" && late == 0:
			late++
		case err != nil || id != "other":
			t.Fatalf("%q answered (%v) while a worker drains", id, err)
		}
		if id, err := echoed(stream); id != "drained" || err != nil {
			t.Fatalf("a stream that began before the drain: %q, %v", id, err)
		}
	}
	if err := stream.CloseSend(); err != nil {
		t.Error(err)
	}
	if _, err := stream.Recv(); err == nil {
		t.Error("the stream does not end")
	}
}

func TestAWorkerThatIsKilledIsForgottenAndItsNextLifeIsUsed(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	c.worker("a", "")
	c.worker("b", "")
	killed := c.worker("killed", "")
	c.sees("a", "b", "killed")
	client := c.client(nil)
	c.reaches(client, "a", "b", "killed")
	killed.grpc.Stop()
	if err := c.Kill("killed"); err != nil {
		t.Fatal(err)
	}
	failed := 0
	for end := time.Now().Add(waitTime); ; {
		if _, err := call(t.Context(), client); err != nil {
			failed++
		}
		endpoints, _ := c.router.Endpoints("echo")
		if len(endpoints) == 2 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the killed worker is still an endpoint")
		}
	}
	if failed > 1 {
		t.Errorf("%d calls failed after a kill, one at a time", failed)
	}
	listen(t, killed, killed.addr)
	c.agent(killed, "")
	c.reaches(client, "killed")
}

// withCertificate gives a client the certificate of a caller, which the authority of a fleet issues.
func withCertificate(t *testing.T, of *fleet.Fleet) func(*ringwaygrpc.Config) {
	t.Helper()
	member := membership.Config{Cluster: "shop", Environment: "dev", ID: "caller", Role: identity.RoleObserver}
	if err := of.Equip(&member); err != nil {
		t.Fatal(err)
	}
	return func(cfg *ringwaygrpc.Config) { cfg.Identity = member.Identity }
}

func TestACertificateIsProvenOnBothSides(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{})
	c.worker("a", "")
	c.worker("b", "")
	c.sees("a", "b")
	c.reaches(c.client(withCertificate(t, c.Fleet)), "a", "b")
	for want, client := range map[string]func(*ringwaygrpc.Config){
		"requires mutual TLS": nil,
		"TLS with worker":     withCertificate(t, fleet.New(fleet.Config{Cluster: "shop", Environment: "dev"})),
	} {
		if _, err := call(t.Context(), c.client(client)); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q: %v", want, err)
		}
	}
}

func TestAClientWithACertificateSendsNothingInClearText(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	c.worker("a", "")
	c.sees("a")
	member := membership.Config{Cluster: "shop", Environment: "dev", ID: "caller", Role: identity.RoleObserver}
	if err := fleet.New(fleet.Config{}).Equip(&member); err != nil {
		t.Fatal(err)
	}
	client := c.client(func(cfg *ringwaygrpc.Config) { cfg.Identity = member.Identity })
	if _, err := call(t.Context(), client); status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "nothing in clear text") {
		t.Error(err)
	}
}

func TestCloseEndsWhatIsOnTheWay(t *testing.T) {
	t.Parallel()
	c := startCluster(t, fleet.Config{Insecure: true})
	s := c.worker("a", "")
	c.sees("a")
	conn, err := ringwaygrpc.NewClient(ringwaygrpc.Config{Router: c.router, Service: "echo"}, grpc.WithStatsHandler(stages{}))
	if err != nil {
		t.Fatal(err)
	}
	client := testpb.NewTestServiceClient(conn)
	c.reaches(client, "a")
	s.mood.Store(hanging)
	before := s.calls.Load()
	ended := make(chan error, 1)
	go func() {
		_, err := call(context.Background(), client)
		ended <- err
	}()
	for s.calls.Load() == before {
		time.Sleep(time.Millisecond)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; status.Code(err) != codes.Canceled {
		t.Error(err)
	}
}
