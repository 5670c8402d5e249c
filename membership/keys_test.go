package membership

import (
	"bytes"
	"log/slog"
	"net"
	"sync"
	"testing"

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
