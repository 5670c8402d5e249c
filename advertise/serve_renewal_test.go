package advertise_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership/identity"
)

// renewable returns a member's certificate of some validity, and renew, which replaces it with one of
// an hour.
func renewable(t *testing.T, authority *identity.Authority, claims identity.Claims, validity time.Duration) (_ *identity.Source, renew func()) {
	t.Helper()
	dir := t.TempDir()
	files := identity.Files{Certificate: filepath.Join(dir, "cert"), Key: filepath.Join(dir, "key"), Authorities: filepath.Join(dir, "ca")}
	issue := func(validity time.Duration) {
		cert, key, err := authority.Issue(claims, validity)
		if err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string][]byte{files.Certificate: cert, files.Key: key, files.Authorities: authority.CertificatePEM()} {
			if err := os.WriteFile(name, content, 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	issue(validity)
	source, err := identity.NewSource(files, identity.SourceConfig{})
	if err != nil {
		t.Fatal(err)
	}
	return source, func() {
		issue(time.Hour)
		if replaced, err := source.Reload(); !replaced || err != nil {
			t.Fatal(replaced, err)
		}
	}
}

// ownKey is of a value that a program gives its connections.
type ownKey struct{}

// Both sides have renewed their certificates, and at the end of the old one a connection is closed
// whatever it carries.
func TestAConnectionToAServerEndsInOrderBeforeTheCertificateThatItBeganWith(t *testing.T) {
	t.Parallel()
	const validity = 12 * time.Second // half of it is for a busy machine
	for protocol, short := range map[string]identity.Role{"http/1.1": identity.RoleWorker, "h2": identity.RoleRelay} {
		t.Run(fmt.Sprintf("%s, that of the %s", protocol, short), func(t *testing.T) {
			t.Parallel()
			authority, err := identity.NewAuthority(identity.AuthorityConfig{Validity: 24 * time.Hour})
			if err != nil {
				t.Fatal(err)
			}
			of := func(role identity.Role, node string) (*identity.Source, func()) {
				lasts := time.Hour
				if role == short {
					lasts = validity
				}
				return renewable(t, authority, identity.Claims{Role: role, Cluster: "shop", Environment: "dev", Node: node}, lasts)
			}
			end := time.Now().Add(validity)
			worker, renewWorker := of(identity.RoleWorker, "echo-1")
			relay, renewRelay := of(identity.RoleRelay, "relay-1")
			socket := procs.Listen(t)
			a, err := advertise.NewAdvertiser(advertise.AdvertiserConfig{
				Cluster: "shop", Environment: "dev", ID: "echo-1", Identity: worker, BindAddr: "127.0.0.1:0", Seeds: []string{"127.0.0.1:1"},
				Services: []advertise.Service{{Name: "echo", Address: socket.Addr().String(), Secured: true}},
			})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				done <- a.Serve(ctx, socket, &http.Server{
					Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						_, _ = fmt.Fprint(w, r.Context().Value(ownKey{}))
					}),
					ConnContext: func(ctx context.Context, _ net.Conn) context.Context { return context.WithValue(ctx, ownKey{}, "kept") },
				})
			}()
			t.Cleanup(func() {
				stop()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
			config := relay.ClientConfig(relay.Policy(identity.DataPlane), identity.Expected{}, protocol)
			config.VerifyConnection = nil // this client needs no proof
			transport := &http.Transport{TLSClientConfig: config, Protocols: new(http.Protocols)}
			transport.Protocols.SetHTTP1(protocol != "h2")
			transport.Protocols.SetHTTP2(protocol == "h2")
			t.Cleanup(transport.CloseIdleConnections)
			opened := 0
			get := func() {
				t.Helper()
				trace := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) {
					if !got.Reused {
						opened++
					}
				}})
				resp, err := transport.RoundTrip(mustGet(t, "https://"+socket.Addr().String()+"/").WithContext(trace))
				if err != nil {
					t.Fatal(err)
				}
				body, err := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != http.StatusOK || string(body) != "kept" || err != nil {
					t.Fatalf("%s %q %v", resp.Status, body, err)
				}
			}
			get()
			renewWorker()
			renewRelay()
			every := time.NewTicker(20 * time.Millisecond)
			defer every.Stop()
			for opened < 2 && time.Now().Before(end) {
				<-every.C
				get()
			}
			if !time.Now().Before(end) {
				t.Errorf("%d connections before the certificate has ended", opened)
			}
		})
	}
}
