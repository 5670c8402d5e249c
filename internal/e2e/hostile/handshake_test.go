//go:build linux

package hostile

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"io"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/internal/relay/clienttls/clienttlstest"
)

// door is a listener that begins with TLS.
type door struct {
	name, addr  string
	member      *procs.Member
	refused     string       // its member counts there what it refuses
	certificate *tls.Config  // that an attacker has: its handshake costs as much as that of an honest peer
	honest      func() error // opens a connection as it should be
}

// guest is where the attacks on TLS come from. Clients there are named by a load balancer.
var guest = caller{host: "127.0.3.66", reported: "203.0.113.66"}

// dial connects as the attacker.
func (d *door) dial() (net.Conn, error) {
	from := guest
	if d.name != "ingress" {
		from.reported = ""
	}
	return from.dial(d.addr)
}

// startDoors starts a fleet whose relay also serves clients over TLS.
func startDoors(t *testing.T) (*fleet, []*door) {
	cert, key := clienttlstest.New(t).Files(filepath.Join(t.TempDir(), "shop"), clienttlstest.Certificate{DNS: []string{"shop.test"}})
	secured := procs.FreeAddrOn(t, "127.0.1.1")
	f := startFleet(t, fleetConfig{Relays: 1, Workers: 2, RelayArgs: []string{
		"--ingress-addr", "tls://" + secured, "--ingress-tls-cert", cert, "--ingress-tls-key", key, "--proxy-protocol-from", guest.host + "/32"}})
	for _, claims := range []procs.Claims{{Role: "relay", Node: "r9"}, {Role: "worker", Node: "w9"}} {
		if err := f.Security.Issue(claims); err != nil {
			t.Fatal(err)
		}
	}
	r, w := f.Relays[0], f.Workers[0]
	thief := func(protocol string) *tls.Config { return f.Security.TLSConfig(t, "w9", protocol) }
	return f, []*door{
		{"ingress", secured, r, "ringway_relay_ingress_refused_total", f.Security.TLSConfig(t, "", "http/1.1"), func() error {
			conn, err := tls.DialWithDialer(&net.Dialer{Timeout: handshakeTime}, "tcp", secured, f.Security.TLSConfig(t, "", "http/1.1"))
			if err == nil {
				_ = conn.Close()
			}
			return err
		}},
		{"peers", r.Peer, r, "ringway_relay_peers_refused_total", thief("h2"), func() error { return f.handshake(r.Peer, "r9", "h2") }},
		{"gossip", r.Gossip, r, "ringway_membership_refusals_total", thief("probe/1"), func() error { return f.handshake(r.Gossip, "w9", "probe/1") }},
		{"sidecar", w.Sidecar, w, "ringway_sidecar_refused_total", thief("http/1.1"), func() error { return f.handshake(w.Sidecar, "r9", "http/1.1") }},
	}
}

// clientHello is the record with which a handshake begins.
func clientHello(t *testing.T, config *tls.Config) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer far.Close()
	go func() { _ = tls.Client(near, config).Handshake(); _ = near.Close() }()
	record := make([]byte, 5)
	if _, err := io.ReadFull(far, record); err != nil {
		t.Fatal(err)
	}
	record = append(record, make([]byte, int(record[3])<<8|int(record[4]))...)
	if _, err := io.ReadFull(far, record[5:]); err != nil {
		t.Fatal(err)
	}
	return record
}

// records divides a handshake message into records of n bytes.
func records(message []byte, n int) (out []byte) {
	for len(message) > 0 {
		part := message[:min(n, len(message))]
		message = message[len(part):]
		out = append(append(out, 22, 3, 1, byte(len(part)>>8), byte(len(part))), part...)
	}
	return out
}

// openings are ways to begin a handshake that leads nowhere.
func openings(t *testing.T) map[string]func(net.Conn) {
	usual := clientHello(t, &tls.Config{ServerName: "shop.test", NextProtos: []string{"h2"}})
	names := make([]string, 200)
	for i := range names {
		names[i] = strings.Repeat("p", 255)
	}
	// crypto/tls has no longer list, and no longer name.
	lists := clientHello(t, &tls.Config{ServerName: strings.Repeat(strings.Repeat("n", 60)+".", 4) + "test", NextProtos: names[:60]})
	garbage := make([]byte, 32<<10)
	_, _ = rand.Read(garbage)
	message := func(n int) []byte { // a ClientHello of n bytes
		return append([]byte{1, byte(n >> 16), byte(n >> 8), byte(n)}, bytes.Repeat([]byte{3}, n)...)
	}
	whole := func(b []byte) func(net.Conn) {
		return func(conn net.Conn) { _, _ = conn.Write(b) }
	}
	return map[string]func(net.Conn){
		"a byte per second": func(conn net.Conn) {
			for _, b := range usual {
				if _, err := conn.Write([]byte{b}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		},
		"records of one byte":      whole(records(usual[5:], 1)),
		"half a ClientHello":       whole(usual[:len(usual)/2]),
		"empty records":            whole(bytes.Repeat([]byte{22, 3, 1, 0, 0}, 5000)),
		"long names and protocols": whole(lists),
		"a ClientHello of 64 KiB":  whole(records(message(65_500), 16<<10)),
		"a ClientHello of 16 MiB":  whole(records(message(1<<24 - 1)[:1<<20], 16<<10)),
		"garbage":                  whole(garbage),
		"records of garbage":       whole(records(garbage, 16<<10)),
		"alerts":                   whole(bytes.Repeat([]byte{21, 3, 3, 0, 2, 1, 100}, 5000)),
		"a ClientHello and then a flood of it": func(conn net.Conn) {
			for range 1000 {
				if _, err := conn.Write(usual); err != nil {
					return
				}
			}
		},
	}
}

// refusals sums what a door has refused, for a reason or for all.
func (d *door) refusals(f *fleet, reason string) float64 {
	return f.metrics(d.member.Admin, d.refused, func(series string) bool {
		return strings.Contains(series, `reason="`+reason) && !strings.Contains(series, `"outbound"`)
	})
}

func (f *fleet) goroutines(m *procs.Member) float64 { return f.metrics(m.Admin, "go_goroutines", nil) }

// TestOddAndSlowHandshakesBlockNoPeer has one address, without a secret, hold 1,200 connections at each
// listener with TLS whose handshakes lead nowhere, and open each again when it is closed.
func TestOddAndSlowHandshakesBlockNoPeer(t *testing.T) {
	t.Parallel()
	const held, honest, mostMemory, mostGoroutines = 1200, 20, 64 << 20, 4 * 1200
	f, doors := startDoors(t)
	ways := openings(t)
	for _, d := range doors {
		t.Run(d.name, func(t *testing.T) {
			goroutines, before, grown := f.goroutines(d.member), d.refusals(f, ""), measured(t, d.member.PID())
			ctx, cancel := context.WithCancel(t.Context())
			var attacks sync.WaitGroup
			var opened atomic.Int64
			for range held / len(ways) {
				for _, way := range ways {
					attacks.Go(func() {
						for ctx.Err() == nil {
							if conn, err := d.dial(); err == nil {
								release := context.AfterFunc(ctx, func() { _ = conn.Close() })
								way(conn)
								opened.Add(1)
								_, _ = io.Copy(io.Discard, conn) // until the other end has enough of it
								release()
								_ = conn.Close()
							}
							select {
							case <-ctx.Done():
							case <-time.After(500 * time.Millisecond):
							}
						}
					})
				}
			}
			procs.Await(t, "the attacks have begun and are refused", func() bool {
				return opened.Load() > held/2 && d.refusals(f, "") > before+held/10
			})
			for range honest {
				if err := d.honest(); err != nil {
					t.Error("the handshake of an honest peer:", err)
				}
			}
			f.serves(10)
			most, cost := f.goroutines(d.member)-goroutines, grown()
			cancel()
			attacks.Wait()
			t.Logf("%d connections of the attacker, %v refused; %v goroutines and %d MiB more", opened.Load(), d.refusals(f, "")-before, most, cost.growth>>20)
			if most > mostGoroutines || cost.growth > mostMemory {
				t.Errorf("%v goroutines and %d MiB more, at most %d and %d MiB are allowed", most, cost.growth>>20, mostGoroutines, mostMemory>>20)
			}
			procs.Await(t, "nothing is left of it", func() bool { return f.goroutines(d.member) < goroutines+30 })
		})
	}
	if err := f.Ended(); err != nil {
		t.Error(err)
	}
}

// TestOneAddressBeginsABoundedNumberOfHandshakes has one address make whole handshakes as fast as
// it can: as a client, and with the certificate of a worker where it is refused only at the end.
func TestOneAddressBeginsABoundedNumberOfHandshakes(t *testing.T) {
	const clients, lasts = 400, 5 * time.Second
	each := 125 * runtime.GOMAXPROCS(0)
	f, doors := startDoors(t)
	for _, d := range doors {
		t.Run(d.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), lasts)
			defer cancel()
			var attacks sync.WaitGroup
			var made, tried atomic.Int64
			spent, begun, refused := measured(t, d.member.PID()), time.Now(), d.refusals(f, "too_")
			for range clients {
				attacks.Go(func() {
					for ctx.Err() == nil {
						tried.Add(1)
						conn, err := d.dial()
						if err == nil {
							if err = tls.Client(conn, d.certificate).HandshakeContext(ctx); err == nil {
								made.Add(1)
							}
							_ = conn.Close()
						}
						if err != nil { // the attackers share the machine with the fleet
							time.Sleep(50 * time.Millisecond)
						}
					}
				})
			}
			for ctx.Err() == nil {
				if err := d.honest(); err != nil {
					t.Error("the handshake of an honest peer:", err)
				}
			}
			attacks.Wait()
			took, cost := time.Since(begun), spent()
			t.Logf("%d handshakes of %d in %v; the member used %v of a processor, %v of it for each handshake", made.Load(), tried.Load(), took.Round(time.Millisecond),
				cost.cpu, (cost.cpu / time.Duration(max(1, made.Load()))).Round(time.Microsecond))
			if d.refusals(f, "too_") == refused {
				t.Error("nothing was counted as refused for its address")
			}
			if most := int64(float64(each) * (took.Seconds() + 3)); made.Load() > most {
				t.Errorf("%d handshakes in %v, at most %d are allowed", made.Load(), took, most)
			}
			f.serves(10)
		})
	}
	if err := f.Ended(); err != nil {
		t.Error(err)
	}
}
