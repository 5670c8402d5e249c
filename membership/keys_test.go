package membership

import (
	"bytes"
	"io"
	"log/slog"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringway/ringway/internal/memnet"
	"github.com/ringway/ringway/membership/identity"
)

func TestASealedMessageOpensOnlyWithItsKeyAndItsChallenge(t *testing.T) {
	ours := keyring(t, 1, 2)
	sealed, err := seal(testKey(2), []byte("install"), []byte("challenge"))
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := ours.unseal(sealed, []byte("challenge")); err != nil || string(plain) != "install" {
		t.Fatalf("%q, %v", plain, err)
	}
	for name, attempt := range map[string]func() ([]byte, error){
		"played back later": func() ([]byte, error) { return ours.unseal(sealed, []byte("another challenge")) },
		"without the key":   func() ([]byte, error) { return keyring(t, 1).unseal(sealed, []byte("challenge")) },
		"changed on the way": func() ([]byte, error) {
			damaged := bytes.Clone(sealed)
			damaged[len(damaged)-1] ^= 1
			return ours.unseal(damaged, []byte("challenge"))
		},
		"cut short": func() ([]byte, error) { return ours.unseal(sealed[:fingerprintSize+3], []byte("challenge")) },
		"empty":     func() ([]byte, error) { return ours.unseal(nil, []byte("challenge")) },
	} {
		if plain, err := attempt(); err == nil {
			t.Errorf("%s: opened as %q", name, plain)
		}
	}
}

func FuzzSealedMessage(f *testing.F) {
	const said = `{"operation":"list"}`
	good, err := seal(testKey(1), []byte(said), nil) // another nonce in each process
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(fingerprintOf(testKey(1)) + "short"))
	f.Fuzz(func(t *testing.T, sealed []byte) {
		k, err := NewKeyring(testKey(1))
		if err != nil {
			t.Fatal(err)
		}
		if plain, err := k.unseal(sealed, nil); err == nil && string(plain) != said {
			t.Fatalf("%x opened as %q, which was not sealed", sealed, plain)
		}
	})
}

func FuzzUserMessage(f *testing.F) {
	f.Add([]byte{messageFormat, topicLeave, 0, 0, 0, 0, 0, 0, 0, 1, 2, 'w', '1'})
	f.Add([]byte{messageFormat, firstTopic})
	f.Fuzz(func(t *testing.T, b []byte) {
		n := &Node{leaves: make(chan leaveNotice, 1), metrics: newMetrics(nil, func() float64 { return 0 })}
		heard := false
		d := &delegate{metrics: n.metrics, topics: map[byte]func([]byte){
			topicLeave: func(b []byte) { n.receiveNotice(b, false) }, firstTopic: func([]byte) { heard = true },
		}}
		d.NotifyMsg(b)
		if heard && (b[0] != messageFormat || b[1] != firstTopic) {
			t.Fatalf("%x reached a topic that it does not name", b)
		}
	})
}

// recorded keeps the bytes read from a connection.
type recorded struct {
	net.Conn
	read bytes.Buffer
}

func (r *recorded) Read(b []byte) (int, error) {
	n, err := r.Conn.Read(b)
	r.read.Write(b[:n])
	return n, err
}

func TestAReplyAboutKeysIsNotPlayedBackToItsInitiator(t *testing.T) {
	n := &Node{cfg: Config{Keyring: keyring(t, 1)}, metrics: newMetrics(nil, func() float64 { return 0 }), logger: slog.New(slog.DiscardHandler)}
	near, far := net.Pipe()
	var served sync.WaitGroup
	served.Go(func() { n.serveKeys(t.Context(), Peer{ID: "r2", Role: identity.RoleRelay}, far) })
	conn := &recorded{Conn: near}
	honest, err := n.exchangeKeys(t.Context(), conn, keysRequest{Operation: ListKeys})
	served.Wait()
	if err != nil || honest.Error != "" || len(honest.Fingerprints) != 1 {
		t.Fatalf("%+v, %v", honest, err)
	}

	near, far = net.Pipe()
	served.Go(func() { // challenge and reply of then, whatever is asked now
		_, _ = far.Write(conn.read.Bytes()[:2+16])
		_, _ = readFrame(far)
		_, _ = far.Write(conn.read.Bytes()[2+16:])
	})
	replayed, err := n.exchangeKeys(t.Context(), near, keysRequest{Operation: UseKey, Fingerprint: "another"})
	served.Wait()
	if err == nil {
		t.Errorf("the reply of another exchange counts: %+v", replayed)
	}
}

func TestAMemberThatOpensEndlessStreamsForKeysHoldsFewAndDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const flood = 100
		network := memnet.New(memnet.Config{Seed: 1, Latency: time.Millisecond})
		defer network.Close()
		a := authority(t)
		join := func(id string, role identity.Role, host string) *testNode {
			h := network.Host(host)
			n := start(t, func(c *Config) {
				c.ID, c.Role, c.Network, c.BindAddr, c.Keyring = id, role, h, host+":7400", keyring(t, 1)
				if id != "r1" {
					c.Seeds = []string{"10.0.0.1:7400"}
				}
				certified(t, a, c, nil)
			})
			return n
		}
		relay := join("r1", identity.RoleRelay, "10.0.0.1")
		other := join("r2", identity.RoleRelay, "10.0.0.2")
		mallory := join("w1", identity.RoleWorker, "10.0.0.3")
		for _, n := range []*testNode{relay, other, mallory} {
			defer n.Close()
			n.await(t, "all", sees("r1", "r2", "w1"))
		}
		held := func() int { // the streams whose handlers run, those of memberlist among them
			relay.transport.mu.Lock()
			defer relay.transport.mu.Unlock()
			return len(relay.transport.open)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		before := held()
		for range flood {
			conn, err := mallory.OpenStream(t.Context(), "r1", protocolKeys)
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.Copy(io.Discard, conn); _ = conn.Close() }()
		}
		time.Sleep(100 * time.Millisecond) // less than a request may take
		synctest.Wait()
		if n := relay.asking.Len(); n != 2 || held() > before+5 {
			t.Errorf("%d streams wait for a request, want 2; %d are open", n, held())
		}
		results, err := other.Keys(t.Context(), ListKeys, "")
		if err != nil || len(results) != 3 {
			t.Errorf("another relay was not answered: %v, %v", results, err)
		}
		time.Sleep(2 * keysTimeout)
		for range 100 { // a stream of memberlist may have just begun
			if synctest.Wait(); held() <= before {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if n := held(); n > before {
			t.Errorf("%d streams are left, %d were there before", n, before)
		}
		if silent, key := relay.Refusals("silent"), relay.Refusals(reasonOf(fieldKey)); silent != flood || key != 0 {
			t.Errorf("%v streams were counted as silent and %v as with a wrong key, want %d and 0", silent, key, flood)
		}
	})
}

func TestARequestAboutKeysThatIsNotUnderstoodIsCountedByItsFault(t *testing.T) {
	for reason, send := range map[string]func(net.Conn, []byte){
		"gossip_key": func(conn net.Conn, challenge []byte) {
			sealed, _ := seal(testKey(2), []byte(`{"operation":"list"}`), append(challenge, "request"...))
			_ = writeFrame(conn, sealed)
		},
		"malformed": func(conn net.Conn, challenge []byte) {
			sealed, _ := seal(testKey(1), []byte(`{`), append(challenge, "request"...))
			_ = writeFrame(conn, sealed)
		},
		"silent": func(conn net.Conn, _ []byte) { _, _ = conn.Write([]byte{0, 9, 1}) }, // and no more
	} {
		synctest.Test(t, func(t *testing.T) {
			n := &Node{cfg: Config{Keyring: keyring(t, 1)}, metrics: newMetrics(nil, func() float64 { return 0 }), logger: slog.New(slog.DiscardHandler)}
			near, far := net.Pipe()
			var served sync.WaitGroup
			served.Go(func() { n.serveKeys(t.Context(), Peer{ID: "r2", Role: identity.RoleRelay}, far) })
			challenge, err := readFrame(near)
			if err != nil {
				t.Fatal(err)
			}
			send(near, challenge)
			served.Wait()
			for _, other := range []string{"gossip_key", "malformed", "silent"} {
				want := 0.0
				if other == reason {
					want = 1
				}
				if got := n.Refusals(other); got != want {
					t.Errorf("a request that is %s: counted %v as %s", reason, got, other)
				}
			}
		})
	}
}
