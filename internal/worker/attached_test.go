package worker_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/fleet"
	"github.com/ringway/ringway/internal/loadgen"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relay"
	"github.com/ringway/ringway/internal/worker"
	"github.com/ringway/ringway/membership/identity"
)

// A relay ends a session without a record after 10 s, and the worker waits before it comes back.
func TestAnAttachedWorkerIsAMemberBeforeAnyServiceIsHealthy(t *testing.T) {
	t.Parallel()
	f := fleet.New(fleet.Config{Cluster: "test", Environment: "ci", Insecure: true})
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := f.StartRelay("r1", nil); err != nil {
		t.Fatal(err)
	}
	var started atomic.Bool
	service, err := loadgen.Serve(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if !started.Load() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(service.Die)
	r := f.Relay("r1")
	for id, services := range map[string][]string{"starts": {"api=" + service.Addr() + ";check=http:/;interval=1s;rise=1"}, "has-none": nil} {
		if err := f.StartWorker(fleet.WorkerConfig{ID: id, Change: func(s *worker.Settings) {
			s.Join, s.Attach, s.Services = nil, []string{r.PeerAddr()}, services
		}}); err != nil {
			t.Fatal(err)
		}
		procs.Await(t, "worker "+id+" is a member", func() bool {
			s := r.Fleet.Snapshot()
			if s == nil {
				return false
			}
			_, there := s.Get(id)
			return there
		})
	}
	offered := func() bool {
		_, there := r.Catalogue.View().Endpoint("api", "starts")
		return there
	}
	if offered() {
		t.Error("a service that is not healthy is offered")
	}
	started.Store(true)
	procs.Await(t, "the service is offered", offered)
}

// certified writes a certificate and returns the paths of the files.
func certified(t *testing.T, authority *identity.Authority, dir string, role identity.Role, node string, validity time.Duration) (cert, key, ca string) {
	t.Helper()
	cert, key, ca = filepath.Join(dir, node+".crt"), filepath.Join(dir, node+".key"), filepath.Join(dir, "ca.crt")
	certPEM, keyPEM, err := authority.Issue(identity.Claims{Role: role, Cluster: "test", Environment: "ci", Node: node}, validity)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{cert: certPEM, key: keyPEM, ca: authority.CertificatePEM()} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key, ca
}

// counted returns the value of a series of a member.
func counted(t *testing.T, admin, series string) float64 {
	t.Helper()
	resp, err := http.Get("http://" + admin + "/metrics?all")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text := new(strings.Builder)
	if _, err := io.Copy(text, resp.Body); err != nil {
		t.Fatal(err)
	}
	n, known := procs.Metrics(text.String())[series]
	if !known {
		t.Fatalf("no series %s", series)
	}
	return n
}

// At the end of the certificate that a session began with, the worker closes it, although the relay
// has renewed its certificate long before.
func TestASessionIsReplacedBeforeTheCertificateOfItsRelayEnds(t *testing.T) {
	t.Parallel()
	const validity = 20 * time.Second // half of it is for a busy machine
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := fleet.New(fleet.Config{Cluster: "test", Environment: "ci", Insecure: true}) // its certificates last for days
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := f.StartRelay("r1", func(s *relay.Settings) {
		s.TLSCert, s.TLSKey, s.TLSCA = certified(t, authority, dir, identity.RoleRelay, "r1", validity)
	}); err != nil {
		t.Fatal(err)
	}
	r := f.Relay("r1")
	if err := f.StartWorker(fleet.WorkerConfig{ID: "w1", Change: func(s *worker.Settings) {
		s.TLSCert, s.TLSKey, s.TLSCA = certified(t, authority, dir, identity.RoleWorker, "w1", time.Hour)
		s.Join, s.Attach, s.Services = nil, []string{r.PeerAddr()}, []string{"api=127.0.0.1:9001"}
	}}); err != nil {
		t.Fatal(err)
	}
	there := func() bool {
		s := r.Fleet.Snapshot()
		if s == nil {
			return false
		}
		_, there := s.Get("w1")
		return there
	}
	procs.Await(t, "the worker is a member", there)
	certified(t, authority, dir, identity.RoleRelay, "r1", time.Hour)
	snapshots := r.Fleet.Watch(t.Context())
	ended := func(reason string) float64 {
		return counted(t, f.Worker("w1").AdminAddr(), `ringway_session_ended_total{reason="`+reason+`"}`)
	}
	procs.Await(t, "a session ends", func() bool {
		select {
		case s := <-snapshots:
			if _, there := s.Get("w1"); !there {
				t.Error("the worker is no member")
			}
		default:
		}
		return ended("moved")+ended("lost")+ended("refused") > 0
	})
	if lost, refused := ended("lost"), ended("refused"); lost+refused > 0 || !there() {
		t.Errorf("%v sessions lost and %v refused, a member: %v", lost, refused, there())
	}
}

// Its record is still one of the certificate that has ended, which relays refuse.
func TestAnAttachedWorkerComesBackAfterALapseOfItsCertificateWithoutARefusal(t *testing.T) {
	t.Parallel()
	const validity = 10 * time.Second // for a busy machine
	authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 2 * time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	f := fleet.New(fleet.Config{Cluster: "test", Environment: "ci", Insecure: true})
	t.Cleanup(func() {
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
	if err := f.StartRelay("r1", func(s *relay.Settings) {
		s.TLSCert, s.TLSKey, s.TLSCA = certified(t, authority, dir, identity.RoleRelay, "r1", time.Hour)
	}); err != nil {
		t.Fatal(err)
	}
	r := f.Relay("r1")
	if err := f.StartWorker(fleet.WorkerConfig{ID: "w1", Change: func(s *worker.Settings) {
		s.TLSCert, s.TLSKey, s.TLSCA = certified(t, authority, dir, identity.RoleWorker, "w1", validity)
		s.Join, s.Attach, s.Services = nil, []string{r.PeerAddr()}, []string{"api=127.0.0.1:9001"}
	}}); err != nil {
		t.Fatal(err)
	}
	there := func() bool {
		s := r.Fleet.Snapshot()
		if s == nil {
			return false
		}
		_, there := s.Get("w1")
		return there
	}
	procs.Await(t, "the worker is a member", there)
	procs.Await(t, "its certificate has ended", func() bool { return !there() })
	certified(t, authority, dir, identity.RoleWorker, "w1", time.Hour)
	procs.Await(t, "the worker is a member again", there)
	for admin, series := range map[string]string{
		f.Worker("w1").AdminAddr(): `ringway_session_ended_total{reason="refused"}`, r.AdminAddr(): `ringway_session_refused_total{reason="record"}`,
	} {
		if n := counted(t, admin, series); n != 0 {
			t.Errorf("%s is %v", series, n)
		}
	}
}
