package membership

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ringway/ringway/internal/wirefixture"
	"github.com/ringway/ringway/membership/identity"
)

// The members of the fixtures. Their keys come from their names and all times are fixed, so
// that each build writes the same bytes.
const (
	wireEpoch = 1_800_000_000_000
	wireTick  = 7_000_000
)

func wireClock() time.Time { return time.UnixMilli(wireEpoch).Add(time.Minute) }

type wireMember struct {
	id   string
	role identity.Role
	keys identity.KeyType
}

var (
	wireRelay  = wireMember{"relay-1", identity.RoleRelay, identity.Ed25519}
	wireGate   = wireMember{"gate-1", identity.RoleGate, identity.Ed25519}
	wireWorker = wireMember{"worker-1", identity.RoleWorker, identity.Ed25519}
	wireP256   = wireMember{"worker-2", identity.RoleWorker, identity.ECDSAP256}
)

// source returns the certificate of the member, with the URI names that release 0.1.0 issues.
func (m wireMember) source(t *testing.T) *identity.Source {
	t.Helper()
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	end := begin.AddDate(100, 0, 0)
	root := ed25519.NewKeyFromSeed(seedOf("authority"))
	authority := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ringway"}, NotBefore: begin, NotAfter: end,
		BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}
	above, err := x509.CreateCertificate(nil, authority, authority, root.Public(), root)
	if err != nil {
		t.Fatal(err)
	}
	var private any = ed25519.NewKeyFromSeed(seedOf(m.id))
	var public any = private.(ed25519.PrivateKey).Public()
	if m.keys == identity.ECDSAP256 {
		key, err := ecdsa.ParseRawPrivateKey(elliptic.P256(), seedOf(m.id))
		if err != nil {
			t.Fatal(err)
		}
		private, public = key, key.Public()
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: m.id}, NotBefore: begin, NotAfter: end,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, name := range []string{"ringway://role/" + string(m.role), "ringway://cluster/prod", "ringway://env/eu", "ringway://dc/ams1", "ringway://node/" + m.id} {
		u, err := url.Parse(name)
		if err != nil {
			t.Fatal(err)
		}
		leaf.URIs = append(leaf.URIs, u)
	}
	der, err := x509.CreateCertificate(nil, leaf, authority, public, root)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	s, err := identity.NewStaticSource(identity.PEM{
		Certificate: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		Key:         pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8}),
		Authorities: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: above}),
	}, identity.SourceConfig{Now: wireClock})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func seedOf(name string) []byte {
	sum := sha256.Sum256([]byte("ringway fixtures, " + name))
	return sum[:]
}

// guarded returns the member with its guard.
func (m wireMember) guarded(t *testing.T, keys *Keyring) *guarded {
	t.Helper()
	w := &wire{t: t, guards: map[string]*guarded{}}
	g := w.member(m.id, func(c *Config) {
		c.Cluster, c.Environment, c.Role, c.Datacenter, c.clock, c.Keyring = "prod", "eu", m.role, "ams1", wireClock, keys
		c.Identity = m.source(t)
	})
	g.epoch, g.addr = wireEpoch, m.addr()
	g.self = instanceName(m.id, wireEpoch)
	g.tick.Store(wireTick - 1) // the next one is the first
	return g
}

func (m wireMember) addr() string {
	return map[string]string{"relay-1": "10.0.0.1:7400", "gate-1": "10.0.0.2:7400", "worker-1": "10.0.0.3:7401", "worker-2": "10.0.0.4:7401"}[m.id]
}

// metadata returns all that the binary of the role gossips.
func (m wireMember) metadata() metadata {
	d := metadata{
		Format: 1, Cluster: "prod", Environment: "eu", ID: m.id, Epoch: wireEpoch, Role: string(m.role), Datacenter: "ams1", Region: "eu-west",
		AdminAddr: "10.0.0.1:7430", Version: "0.1.0",
	}
	if m.role != identity.RoleWorker {
		d.ForwardAddr = "10.0.0.1:7420"
	}
	return d
}

// signed returns the metadata with its signature, as memberlist carries it.
func (m wireMember) signed(t *testing.T) ([]byte, error) {
	g := m.guarded(t, nil)
	d := m.metadata()
	d.GossipAddr = m.addr()
	body, err := d.encode(MaxSignature)
	return append(body, g.proofs.sign(statementMetadata, body)...), err
}

// reader returns a member that knows the certificate of another one, and its session.
func (m wireMember) reader(t *testing.T, of wireMember, keys *Keyring) *guarded {
	t.Helper()
	g := m.guarded(t, keys)
	if _, err := g.certified(of.source(t).Chain(), wireEpoch, wireTick-1); err != nil {
		t.Fatal(err)
	}
	return g
}

// raise returns a change of one byte at a place from the front, or from the back.
func raise(at int) func([]byte) []byte {
	return func(raw []byte) []byte { raw[(at+len(raw))%len(raw)]++; return raw }
}

func extend(raw []byte) []byte { return append(raw, "\x05later"...) }

// oneMore adds a field to metadata, after the fields that this build knows. raw may lack the
// last two of them. With the new field there are too many for a length in one byte.
func oneMore(raw []byte) []byte {
	missing := []byte{0xc2, 0}[raw[0]-0x9d:]
	return append(slices.Concat([]byte{0xdc, 0, 16}, raw[1:], missing), "\xa5later"...)
}

func helloFixtures() (out []wirefixture.Format) {
	value := func(verdict any, h hello, err error) (any, error) {
		return map[string]any{"verdict": verdict, "cluster": h.cluster, "environment": h.environment, "format": h.format, "protocol": h.protocol,
			"id": h.id, "epoch": h.epoch, "role": h.role, "keys": h.keys, "tick": h.tick}, err
	}
	// The members of a fleet must understand the whole hello, in one of both formats.
	read := func(h hello, b []byte) (hello, error) {
		got, complete, err := decodeHello(b)
		if refusal := h.compare(got, complete); err == nil && refusal != nil {
			err = refusal
		}
		return got, err
	}
	framed := func(raw []byte, change func([]byte) []byte) []byte {
		var out bytes.Buffer
		_ = writeFrame(&out, change(raw[2:]))
		return out.Bytes()
	}
	clear := hello{cluster: "prod", environment: "eu", format: 1, id: "relay-1", epoch: wireEpoch, role: identity.RoleRelay}
	signed := clear
	signed.format, signed.keys, signed.tick = 2, "0a1b2c3d,4e5f6071", wireTick
	for name, h := range map[string]hello{"hello": clear, "hello-signed": signed} {
		const format = 3 + 1 + 4 + 1 + 2 // magic, cluster and environment are before it
		for protocol, suffix := range map[string]string{protocolMemberlist: "", protocolKeys: "-keys", protocolProbe: "-probe", protocolSync: "-records"} {
			h.protocol = protocol
			out = append(out, wirefixture.Format{
				Name: name + suffix,
				Encode: func() ([]byte, error) {
					var frame bytes.Buffer
					err := writeFrame(&frame, h.append(nil))
					return frame.Bytes(), err
				},
				Decode: func(raw []byte) (any, error) {
					b, err := readFrame(bytes.NewReader(raw))
					if err != nil {
						return nil, err
					}
					got, err := read(h, b)
					return value(nil, got, err)
				},
				Later:   map[string]func([]byte) []byte{"a field at its end": func(raw []byte) []byte { return framed(raw, extend) }},
				Refused: map[string]func([]byte) []byte{"another format": func(raw []byte) []byte { raw[2+format] = 3; return raw }},
			})
		}
		h.protocol = protocolMemberlist
		for verdict, field := range answerFields {
			answer := h.append([]byte{byte(verdict)})
			if field == fieldNoCertificate {
				answer = answer[:1]
			}
			if field == "" {
				field = "accepted"
			}
			out = append(out, wirefixture.Format{
				Name:   name + "-answer-" + field,
				Encode: func() ([]byte, error) { return framed(append([]byte{0, 0}, answer...), bytes.Clone), nil },
				Decode: func(raw []byte) (any, error) {
					b, err := readFrame(bytes.NewReader(raw))
					if err != nil || len(b) == 0 {
						return nil, errors.Join(err, errHello)
					}
					if int(b[0]) >= len(answerFields) {
						return nil, errHello
					}
					if len(b) == 1 {
						return value(answerFields[b[0]], hello{}, nil)
					}
					got, err := read(h, b[1:])
					return value(answerFields[b[0]], got, err)
				},
			})
		}
	}
	return out
}

func metadataFixtures(t *testing.T) (out []wirefixture.Format) {
	for _, m := range []wireMember{wireRelay, wireGate, wireWorker, wireP256} {
		out = append(out, wirefixture.Format{
			Name:    "metadata-" + m.id,
			Encode:  func() ([]byte, error) { return m.metadata().encode(0) },
			Decode:  func(raw []byte) (any, error) { return decodeMetadata(raw) },
			Later:   map[string]func([]byte) []byte{"a field at its end": oneMore},
			Refused: map[string]func([]byte) []byte{"another format": raise(1)},
		}, wirefixture.Format{
			Name:   "metadata-signed-" + m.id,
			Encode: func() ([]byte, error) { return m.signed(t) },
			Random: m.keys == identity.ECDSAP256,
			Decode: func(raw []byte) (any, error) {
				by := wireRelay
				if m == wireRelay {
					by = wireGate
				}
				d, err := by.reader(t, m, nil).proofs.prove(announced{name: instanceName(m.id, wireEpoch), addr: m.addr(), metadata: raw})
				return d, err
			},
			Later: map[string]func([]byte) []byte{"a field that its author signed": func(raw []byte) []byte {
				body := oneMore(raw[: len(raw)-MaxSignature : len(raw)-MaxSignature])
				return append(body, m.guarded(t, nil).proofs.sign(statementMetadata, body)...)
			}},
			Refused: map[string]func([]byte) []byte{
				"another format": raise(1), "a signature of another kind": raise(-1), "a field without a signature": func(raw []byte) []byte { return oneMore(raw) },
			},
		})
	}
	stated := wireRelay.metadata()
	stated.GossipAddr, stated.Incarnation = wireRelay.addr(), 7
	out = append(out, wirefixture.Format{
		Name: "metadata-stated-relay-1",
		Encode: func() ([]byte, error) {
			own := stated
			own.Incarnation = unstated
			body, err := own.encode(MaxSignature)
			if err != nil {
				return nil, err
			}
			return wireRelay.guarded(t, nil).stateOwn(append(body, make([]byte, MaxSignature)...), 7)
		},
		Decode: func(raw []byte) (any, error) {
			return wireGate.reader(t, wireRelay, nil).proofs.prove(announced{name: instanceName("relay-1", wireEpoch), addr: wireRelay.addr(), metadata: raw})
		},
		Later: map[string]func([]byte) []byte{"a field that its author signed": func(raw []byte) []byte {
			body := oneMore(raw[:len(raw)-MaxSignature])
			return append(body, wireRelay.guarded(t, nil).proofs.sign(statementMetadata, body)...)
		}},
		Refused: map[string]func([]byte) []byte{"another incarnation": raise(-MaxSignature - 1)},
	})
	drained := wireRelay.metadata()
	drained.Draining = true
	return append(out, wirefixture.Format{
		Name:    "metadata-draining-relay-1",
		Encode:  func() ([]byte, error) { return drained.encode(0) },
		Decode:  func(raw []byte) (any, error) { return decodeMetadata(raw) },
		Later:   map[string]func([]byte) []byte{"a field at its end": oneMore},
		Refused: map[string]func([]byte) []byte{"another format": raise(1)},
	})
}

// packetFixtures are the packets between members with certificates.
func packetFixtures(t *testing.T) (out []wirefixture.Format) {
	user := append([]byte{messageUser, messageFormat, 'a'}, "payload"...)
	head := len(wireRelay.guarded(t, nil).header)
	for name, keys := range map[string]func() *Keyring{"": func() *Keyring { return nil }, "-sealed": func() *Keyring { return keyring(t, 1) }} {
		receive := func(raw []byte, from wireMember) (any, error) {
			to := wireGate.reader(t, from, keys())
			to.receive(raw, from.addr())
			if len(to.delivered) == 0 {
				return nil, errors.New("memberlist receives nothing")
			}
			return to.delivered, nil
		}
		refused := map[string]func([]byte) []byte{"another format": raise(head + 1), "another signature": raise(-1)}
		if name == "" {
			refused["an unknown kind"] = func(raw []byte) []byte { raw[head+2] = 9; return raw }
		}
		for _, from := range []wireMember{wireRelay, wireP256} {
			out = append(out, wirefixture.Format{
				Name: "packet" + name + "-" + from.id, Random: name != "" || from == wireP256, Refused: refused,
				Encode: func() ([]byte, error) {
					g := from.guarded(t, keys())
					return g.wrap(append(bytes.Clone(g.header), user...), wireGate.addr())
				},
				Decode: func(raw []byte) (any, error) { return receive(raw, from) },
			})
		}
		out = append(out, wirefixture.Format{
			Name: "packet-ask" + name, Random: true,
			Encode: func() (packet []byte, err error) {
				g := wireGate.guarded(t, keys())
				g.send = func(b []byte, _ string) { packet = b }
				g.request(identity.KeyID(wireRelay.source(t).Chain()[0]), requestSource{from: wireRelay.addr()})
				g.sendRequests()
				return packet, nil
			},
			Decode: func(raw []byte) (any, error) {
				g := wireRelay.guarded(t, keys())
				kinds := []int{}
				g.send = func(b []byte, to string) {
					body, _ := g.open(b)
					kinds = append(kinds, int(body[0]))
				}
				if g.receive(raw, wireGate.addr()); len(kinds) == 0 {
					return nil, errors.New("the relay does not answer")
				}
				return map[string]any{"answers": kinds}, nil
			},
			Refused: map[string]func([]byte) []byte{"another format": raise(head + 1), "a field at its end": extend},
		}, wirefixture.Format{
			// The nonce is that of the request in Decode, so the answer is not to be repeated.
			Name: "packet-certificate" + name, Random: name != "",
			Encode: func() ([]byte, error) {
				return wireGate.guarded(t, keys()).seal(appendChain([]byte{packetCertificate}, wireRelay.source(t).Chain()))
			},
			Decode: func(raw []byte) (any, error) {
				g := wireGate.guarded(t, keys())
				key := identity.KeyID(wireRelay.source(t).Chain()[0])
				g.request(key, requestSource{from: wireWorker.addr()})
				g.receive(raw, wireWorker.addr())
				c, err := g.proofs.certificate(key)
				if err != nil {
					return nil, err
				}
				return map[string]any{"claims": c.Claims, "serial": c.Serial, "not_after": c.NotAfter}, nil
			},
			Refused: map[string]func([]byte) []byte{"another format": raise(head + 1), "bytes at its end": extend},
		}, wirefixture.Format{
			Name: "packet-answer" + name, Random: name != "",
			Encode: func() (packet []byte, err error) {
				g := wireRelay.guarded(t, keys())
				g.send = func(b []byte, _ string) { packet = b }
				key := identity.KeyID(wireRelay.source(t).Chain()[0])
				g.answer(append(key[:], "nonce678"...), wireGate.addr())
				return packet, nil
			},
			Decode: func(raw []byte) (any, error) {
				g := wireGate.guarded(t, keys())
				key := identity.KeyID(wireRelay.source(t).Chain()[0])
				g.request(key, requestSource{from: wireRelay.addr()})
				g.requested[key].nonce = 0x6e6f6e6365363738
				g.receive(raw, wireRelay.addr())
				c, err := g.proofs.certificate(key)
				if err != nil {
					return nil, err
				}
				if g.sessions[sessionKey{key, wireEpoch}] == nil {
					return nil, errors.New("no session began")
				}
				return map[string]any{"claims": c.Claims, "epoch": wireEpoch}, nil
			},
			Refused: map[string]func([]byte) []byte{"another format": raise(head + 1), "another signature": raise(-1)},
		})
	}
	return out
}

// noticeFixtures are the user messages of this package, after the topic.
func noticeFixtures(t *testing.T) (out []wirefixture.Format) {
	for name, stay := range map[string]bool{"leave": false, "stay": true} {
		for suffix, secured := range map[string]bool{"": false, "-signed": true} {
			notice := leaveNotice{id: wireWorker.id, epoch: wireEpoch, stay: stay}
			topic, kind := notice.topic()
			out = append(out, wirefixture.Format{
				Name: "notice-" + name + suffix,
				Encode: func() ([]byte, error) {
					raw := notice.payload()
					if secured {
						raw = append(raw, wireWorker.guarded(t, nil).proofs.sign(kind, notice.payload())...)
					}
					return append([]byte{messageFormat, topic}, raw...), nil
				},
				Decode: func(raw []byte) (any, error) {
					g := wireRelay.reader(t, wireWorker, nil)
					n := &Node{cfg: g.cfg, leaves: make(chan leaveNotice, 1), metrics: g.metrics, guard: g.guard}
					if secured {
						n.proofs = g.proofs
					}
					d := &delegate{metrics: g.metrics, topics: map[byte]func([]byte){
						topicLeave: func(b []byte) { n.receiveNotice(b, false) }, topicStay: func(b []byte) { n.receiveNotice(b, true) },
					}}
					d.NotifyMsg(raw)
					select {
					case got := <-n.leaves:
						_, kind := got.topic()
						return map[string]any{"id": got.id, "epoch": got.epoch, "stay": got.stay}, n.Verify(got.id, kind, got.payload(), got.signature)
					default:
						return nil, errors.New("the notice is dropped")
					}
				},
				Refused: map[string]func([]byte) []byte{"another format": raise(0), "a topic of a later release": func(raw []byte) []byte { raw[1] = 0xee; return raw }},
			})
		}
	}
	return out
}

// stateFixture is the exchange of states over a stream, in the encoding of memberlist.
func stateFixture(t *testing.T) wirefixture.Format {
	return wirefixture.Format{
		Name: "state-exchange",
		Encode: func() ([]byte, error) {
			var states []pushPullState
			for i, m := range []wireMember{wireRelay, wireWorker} {
				meta, err := m.signed(t)
				if err != nil {
					return nil, err
				}
				states = append(states, pushPullState{Name: instanceName(m.id, wireEpoch), Addr: []byte{10, 0, 0, byte(1 + 2*i)}, Port: uint16(7400 + i), Meta: meta,
					Incarnation: 3, Vsn: []uint8{1, 5, 2, 0, 0, 0}})
			}
			states = append(states, pushPullState{Name: "worker-9.1700000000000", Addr: []byte{10, 0, 0, 9}, Port: 7401, State: 2, Incarnation: 1, Vsn: []uint8{1, 5, 2, 0, 0, 0}})
			return exchanged(t, wireRelay.guarded(t, nil).header, states...), nil
		},
		Decode: func(raw []byte) (any, error) {
			g := wireGate.reader(t, wireRelay, nil)
			if _, err := g.certified(wireWorker.source(t).Chain(), wireEpoch, wireTick); err != nil {
				return nil, err
			}
			g.proofs.instances["worker-9.1700000000000"] = provenInstance{} // else its death is no news
			passed, err := io.ReadAll(&inspected{Conn: stream{in: bytes.NewReader(raw)}, guard: g.guard, by: announcer{"relay-1", wireRelay.addr()}, labelled: true})
			if err != nil {
				return nil, err
			}
			names := []string{}
			for _, m := range []string{"relay-1.1800000000000", "worker-1.1800000000000", "worker-9.1700000000000"} {
				if bytes.Contains(passed, []byte(m)) {
					names = append(names, m)
				}
			}
			return map[string]any{"instances": names, "unchanged": bytes.Equal(passed, raw)}, nil
		},
	}
}

// keyFixtures are the messages that change gossip keys, and the file that stores them.
func keyFixtures(t *testing.T) (out []wirefixture.Format) {
	since := time.Date(2026, 11, 23, 12, 0, 0, 5_000_000, time.UTC)
	one := func(n int) []string { k := keyring(t, n); return k.texts() }
	requests := map[string]keysRequest{
		"list": {Operation: ListKeys}, "install": {Operation: InstallKey, Key: one(2)[0]}, "use": {Operation: UseKey, Fingerprint: fingerprintOf(testKey(2)), Since: since},
		"remove": {Operation: RemoveKey, Fingerprint: fingerprintOf(testKey(1))}, "fetch": {Operation: fetchKeys}, "give": {Operation: giveKeys, Keys: one(2), Since: since},
	}
	later := func(raw []byte) []byte { return append(raw[:len(raw)-1], `,"later":[{"a":1}]}`...) }
	for name, request := range requests {
		out = append(out, wirefixture.Format{
			Name:   "keys-" + name,
			Encode: func() ([]byte, error) { return json.Marshal(request) },
			Decode: func(raw []byte) (any, error) { var r keysRequest; return &r, json.Unmarshal(raw, &r) },
			Later:  map[string]func([]byte) []byte{"a field": later},
		}, wirefixture.Format{
			Name: "keys-" + name + "-sealed", Random: true,
			Encode: func() ([]byte, error) {
				plain, err := json.Marshal(request)
				if err != nil {
					return nil, err
				}
				return seal(testKey(1), plain, []byte("0123456789abcdefrequest"))
			},
			Decode: func(raw []byte) (any, error) {
				var r keysRequest
				plain, err := keyring(t, 1, 2).unseal(raw, []byte("0123456789abcdefrequest"))
				return &r, errors.Join(err, json.Unmarshal(plain, &r))
			},
		})
	}
	for name, reply := range map[string]keysReply{
		"ok": {Fingerprints: prints(1, 2)}, "keys": {Fingerprints: prints(1, 2), Keys: append(one(1), one(2)...), Since: since}, "failed": {Fingerprints: prints(1), Error: "why"},
	} {
		out = append(out, wirefixture.Format{
			Name:   "keys-reply-" + name,
			Encode: func() ([]byte, error) { return json.Marshal(reply) },
			Decode: func(raw []byte) (any, error) { var r keysReply; return &r, json.Unmarshal(raw, &r) },
			Later:  map[string]func([]byte) []byte{"a field": later},
		})
	}
	return append(out, wirefixture.Format{
		Name: "keys-file",
		Encode: func() ([]byte, error) {
			path := filepath.Join(t.TempDir(), "keys")
			k, err := newKeyring(path, [][]byte{testKey(1)})
			if err == nil {
				err = errors.Join(k.install(testKey(2)), k.useSince(fingerprintOf(testKey(2)), since))
			}
			if err != nil {
				return nil, err
			}
			return os.ReadFile(path)
		},
		Decode: func(raw []byte) (any, error) {
			path := filepath.Join(t.TempDir(), "keys")
			if err := os.WriteFile(path, raw, 0o600); err != nil {
				return nil, err
			}
			k, err := OpenKeyring(path)
			if err != nil {
				return nil, err
			}
			return map[string]any{"fingerprints": k.Fingerprints(), "since": k.inUseSince()}, nil
		},
		Later: map[string]func([]byte) []byte{"a line of its own": func(raw []byte) []byte { return append(raw, "# later\n"...) }},
	})
}

// A fleet has two releases while it is upgraded, and again when the upgrade is reverted.
func TestTheGossipOfReleasesIsReadAndWritten(t *testing.T) {
	formats := append(helloFixtures(), metadataFixtures(t)...)
	formats = append(append(formats, packetFixtures(t)...), noticeFixtures(t)...)
	wirefixture.Check(t, append(append(formats, stateFixture(t)), keyFixtures(t)...)...)
}
