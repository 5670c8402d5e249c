package trust

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	"github.com/ringway/ringway/internal/wirefixture"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/gossip"
)

// wireGuarded returns a member of the fixtures with its guard.
func wireGuarded(t *testing.T, m wirefixture.Member, sealed bool) *guarded {
	t.Helper()
	w := &wire{t: t, guards: map[string]*guarded{}}
	g := w.member(m.ID, func(s *setup) {
		s.Cluster, s.Environment, s.Role, s.Datacenter, s.Clock, s.Identity = "prod", "eu", m.Role, "ams1", wirefixture.Clock, m.Source(t)
		if sealed {
			withKey(1)(s)
		}
	})
	g.epoch, g.addr = wirefixture.Epoch, m.Addr
	g.self = gossip.InstanceName(m.ID, wirefixture.Epoch)
	g.tick.Store(wirefixture.Tick - 1) // the next one is the first
	return g
}

// wireMetadata returns all that the binary of the role gossips.
func wireMetadata(m wirefixture.Member) gossip.Metadata {
	d := gossip.Metadata{
		Format: 1, Cluster: "prod", Environment: "eu", ID: m.ID, Epoch: wirefixture.Epoch, Role: string(m.Role), Datacenter: "ams1", Region: "eu-west",
		AdminAddr: "10.0.0.1:7430", Version: "0.1.0",
	}
	if m.Role != identity.RoleWorker {
		d.ForwardAddr = "10.0.0.1:7420"
	}
	return d
}

// wireSigned returns the metadata with its signature, as memberlist carries it.
func wireSigned(t *testing.T, m wirefixture.Member) ([]byte, error) {
	g := wireGuarded(t, m, false)
	d := wireMetadata(m)
	d.GossipAddr = m.Addr
	body, err := d.Encode(MaxSignature)
	return append(body, g.proofs.sign(statementMetadata, body)...), err
}

// wireReader returns a member that knows the certificate of another one, and its session.
func wireReader(t *testing.T, m, of wirefixture.Member, sealed bool) *guarded {
	t.Helper()
	g := wireGuarded(t, m, sealed)
	if err := g.Certified(of.Source(t).Chain(), wirefixture.Epoch, wirefixture.Tick-1); err != nil {
		t.Fatal(err)
	}
	return g
}

// oneMore adds a field to metadata, after the fields that this build knows. raw may lack the
// last two of them. With the new field there are too many for a length in one byte.
func oneMore(raw []byte) []byte {
	missing := []byte{0xc2, 0}[raw[0]-0x9d:]
	return append(slices.Concat([]byte{0xdc, 0, 16}, raw[1:], missing), "\xa5later"...)
}

func metadataFixtures(t *testing.T) (out []wirefixture.Format) {
	for _, m := range []wirefixture.Member{wirefixture.Relay, wirefixture.Gate, wirefixture.Worker, wirefixture.WorkerP256} {
		out = append(out, wirefixture.Format{
			Name:    "metadata-" + m.ID,
			Encode:  func() ([]byte, error) { return wireMetadata(m).Encode(0) },
			Decode:  func(raw []byte) (any, error) { return gossip.DecodeMetadata(raw) },
			Later:   map[string]func([]byte) []byte{"a field at its end": oneMore},
			Refused: map[string]func([]byte) []byte{"another format": wirefixture.Raise(1)},
		}, wirefixture.Format{
			Name:   "metadata-signed-" + m.ID,
			Encode: func() ([]byte, error) { return wireSigned(t, m) },
			Random: m.RandomSignature(),
			Decode: func(raw []byte) (any, error) {
				by := wirefixture.Relay
				if m == wirefixture.Relay {
					by = wirefixture.Gate
				}
				d, err := wireReader(t, by, m, false).proofs.prove(announced{name: gossip.InstanceName(m.ID, wirefixture.Epoch), addr: m.Addr, metadata: raw})
				return d, err
			},
			Later: map[string]func([]byte) []byte{"a field that its author signed": func(raw []byte) []byte {
				body := oneMore(raw[: len(raw)-MaxSignature : len(raw)-MaxSignature])
				return append(body, wireGuarded(t, m, false).proofs.sign(statementMetadata, body)...)
			}},
			Refused: map[string]func([]byte) []byte{
				"another format": wirefixture.Raise(1), "a signature of another kind": wirefixture.Raise(-1), "a field without a signature": func(raw []byte) []byte { return oneMore(raw) },
			},
		})
	}
	stated := wireMetadata(wirefixture.Relay)
	stated.GossipAddr, stated.Incarnation = wirefixture.Relay.Addr, 7
	out = append(out, wirefixture.Format{
		Name: "metadata-stated-relay-1",
		Encode: func() ([]byte, error) {
			own := stated
			own.Incarnation = unstated
			body, err := own.Encode(MaxSignature)
			if err != nil {
				return nil, err
			}
			return wireGuarded(t, wirefixture.Relay, false).stateOwn(append(body, make([]byte, MaxSignature)...), 7)
		},
		Decode: func(raw []byte) (any, error) {
			return wireReader(t, wirefixture.Gate, wirefixture.Relay, false).proofs.prove(announced{name: gossip.InstanceName("relay-1", wirefixture.Epoch), addr: wirefixture.Relay.Addr, metadata: raw})
		},
		Later: map[string]func([]byte) []byte{"a field that its author signed": func(raw []byte) []byte {
			body := oneMore(raw[:len(raw)-MaxSignature])
			return append(body, wireGuarded(t, wirefixture.Relay, false).proofs.sign(statementMetadata, body)...)
		}},
		Refused: map[string]func([]byte) []byte{"another incarnation": wirefixture.Raise(-MaxSignature - 1)},
	})
	drained := wireMetadata(wirefixture.Relay)
	drained.Draining = true
	return append(out, wirefixture.Format{
		Name:    "metadata-draining-relay-1",
		Encode:  func() ([]byte, error) { return drained.Encode(0) },
		Decode:  func(raw []byte) (any, error) { return gossip.DecodeMetadata(raw) },
		Later:   map[string]func([]byte) []byte{"a field at its end": oneMore},
		Refused: map[string]func([]byte) []byte{"another format": wirefixture.Raise(1)},
	})
}

// packetFixtures are the packets between members with certificates.
func packetFixtures(t *testing.T) (out []wirefixture.Format) {
	user := append([]byte{gossip.KindUser, 1, 'a'}, "payload"...)
	head := len(wireGuarded(t, wirefixture.Relay, false).header)
	for name, sealed := range map[string]bool{"": false, "-sealed": true} {
		receive := func(raw []byte, from wirefixture.Member) (any, error) {
			to := wireReader(t, wirefixture.Gate, from, sealed)
			to.Receive(raw, from.Addr)
			if len(to.delivered) == 0 {
				return nil, errors.New("memberlist receives nothing")
			}
			return to.delivered, nil
		}
		refused := map[string]func([]byte) []byte{"another format": wirefixture.Raise(head + 1), "another signature": wirefixture.Raise(-1)}
		if name == "" {
			refused["an unknown kind"] = func(raw []byte) []byte { raw[head+2] = 9; return raw }
		}
		for _, from := range []wirefixture.Member{wirefixture.Relay, wirefixture.WorkerP256} {
			out = append(out, wirefixture.Format{
				Name: "packet" + name + "-" + from.ID, Random: name != "" || from.RandomSignature(), Refused: refused,
				Encode: func() ([]byte, error) {
					g := wireGuarded(t, from, sealed)
					return g.Wrap(append(bytes.Clone(g.header), user...), wirefixture.Gate.Addr)
				},
				Decode: func(raw []byte) (any, error) { return receive(raw, from) },
			})
		}
		out = append(out, wirefixture.Format{
			Name: "packet-ask" + name, Random: true,
			Encode: func() (packet []byte, err error) {
				g := wireGuarded(t, wirefixture.Gate, sealed)
				g.send = func(b []byte, _ string) { packet = b }
				g.request(identity.KeyID(wirefixture.Relay.Source(t).Chain()[0]), requestSource{from: wirefixture.Relay.Addr})
				g.sendRequests()
				return packet, nil
			},
			Decode: func(raw []byte) (any, error) {
				g := wireGuarded(t, wirefixture.Relay, sealed)
				kinds := []int{}
				g.send = func(b []byte, to string) {
					body, _ := g.open(b)
					kinds = append(kinds, int(body[0]))
				}
				if g.Receive(raw, wirefixture.Gate.Addr); len(kinds) == 0 {
					return nil, errors.New("the relay does not answer")
				}
				return map[string]any{"answers": kinds}, nil
			},
			Refused: map[string]func([]byte) []byte{"another format": wirefixture.Raise(head + 1), "a field at its end": wirefixture.Extend},
		}, wirefixture.Format{
			// The nonce is that of the request in Decode, so the answer is not to be repeated.
			Name: "packet-certificate" + name, Random: name != "",
			Encode: func() ([]byte, error) {
				return wireGuarded(t, wirefixture.Gate, sealed).seal(appendChain([]byte{packetCertificate}, wirefixture.Relay.Source(t).Chain()))
			},
			Decode: func(raw []byte) (any, error) {
				g := wireGuarded(t, wirefixture.Gate, sealed)
				key := identity.KeyID(wirefixture.Relay.Source(t).Chain()[0])
				g.request(key, requestSource{from: wirefixture.Worker.Addr})
				g.Receive(raw, wirefixture.Worker.Addr)
				c, err := g.proofs.certificate(key)
				if err != nil {
					return nil, err
				}
				return map[string]any{"claims": c.Claims, "serial": c.Serial, "not_after": c.NotAfter}, nil
			},
			Refused: map[string]func([]byte) []byte{"another format": wirefixture.Raise(head + 1), "bytes at its end": wirefixture.Extend},
		}, wirefixture.Format{
			Name: "packet-answer" + name, Random: name != "",
			Encode: func() (packet []byte, err error) {
				g := wireGuarded(t, wirefixture.Relay, sealed)
				g.send = func(b []byte, _ string) { packet = b }
				key := identity.KeyID(wirefixture.Relay.Source(t).Chain()[0])
				g.answer(append(key[:], "nonce678"...), wirefixture.Gate.Addr)
				return packet, nil
			},
			Decode: func(raw []byte) (any, error) {
				g := wireGuarded(t, wirefixture.Gate, sealed)
				key := identity.KeyID(wirefixture.Relay.Source(t).Chain()[0])
				g.request(key, requestSource{from: wirefixture.Relay.Addr})
				g.requested[key].nonce = 0x6e6f6e6365363738
				g.Receive(raw, wirefixture.Relay.Addr)
				c, err := g.proofs.certificate(key)
				if err != nil {
					return nil, err
				}
				if g.sessions[sessionKey{key, wirefixture.Epoch}] == nil {
					return nil, errors.New("no session began")
				}
				return map[string]any{"claims": c.Claims, "epoch": wirefixture.Epoch}, nil
			},
			Refused: map[string]func([]byte) []byte{"another format": wirefixture.Raise(head + 1), "another signature": wirefixture.Raise(-1)},
		})
	}
	return out
}

// stateFixture is the exchange of states over a stream, in the encoding of memberlist.
func stateFixture(t *testing.T) wirefixture.Format {
	return wirefixture.Format{
		Name: "state-exchange",
		Encode: func() ([]byte, error) {
			var states []gossip.State
			for i, m := range []wirefixture.Member{wirefixture.Relay, wirefixture.Worker} {
				meta, err := wireSigned(t, m)
				if err != nil {
					return nil, err
				}
				states = append(states, gossip.State{Name: gossip.InstanceName(m.ID, wirefixture.Epoch), Addr: []byte{10, 0, 0, byte(1 + 2*i)}, Port: uint16(7400 + i), Meta: meta,
					Incarnation: 3, Vsn: []uint8{1, 5, 2, 0, 0, 0}})
			}
			states = append(states, gossip.State{Name: "worker-9.1700000000000", Addr: []byte{10, 0, 0, 9}, Port: 7401, State: 2, Incarnation: 1, Vsn: []uint8{1, 5, 2, 0, 0, 0}})
			return exchanged(t, wireGuarded(t, wirefixture.Relay, false).header, states...), nil
		},
		Decode: func(raw []byte) (any, error) {
			g := wireReader(t, wirefixture.Gate, wirefixture.Relay, false)
			if err := g.Certified(wirefixture.Worker.Source(t).Chain(), wirefixture.Epoch, wirefixture.Tick); err != nil {
				return nil, err
			}
			g.proofs.instances["worker-9.1700000000000"] = provenInstance{} // else its death is no news
			passed, err := io.ReadAll(&inspected{Conn: stream{in: bytes.NewReader(raw)}, guard: g.Guard, by: announcer{"relay-1", wirefixture.Relay.Addr}, labelled: true})
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

// A fleet has two releases while it is upgraded, and again when the upgrade is reverted.
func TestTheSignedGossipOfReleasesIsReadAndWritten(t *testing.T) {
	wirefixture.Check(t, append(append(metadataFixtures(t), packetFixtures(t)...), stateFixture(t))...)
}
