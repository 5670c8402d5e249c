package membership

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/ringway/ringway/internal/wirefixture"
	"github.com/ringway/ringway/membership/identity"
	"github.com/ringway/ringway/membership/internal/trust"
)

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
	clear := hello{cluster: "prod", environment: "eu", format: 1, id: "relay-1", epoch: wirefixture.Epoch, role: identity.RoleRelay}
	signed := clear
	signed.format, signed.keys, signed.tick = 2, "0a1b2c3d,4e5f6071", wirefixture.Tick
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
				Later:   map[string]func([]byte) []byte{"a field at its end": func(raw []byte) []byte { return framed(raw, wirefixture.Extend) }},
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

// wireGuard returns the guard of a member of the fixtures.
func wireGuard(t *testing.T, m wirefixture.Member) *trust.Guard {
	return trust.New(t.Context(), trust.Config{Identity: m.Source(t), Label: "prod/eu", MaxMembers: 10, Clock: wirefixture.Clock})
}

// noticeFixtures are the user messages of this package, after the topic.
func noticeFixtures(t *testing.T) (out []wirefixture.Format) {
	for name, stay := range map[string]bool{"leave": false, "stay": true} {
		for suffix, secured := range map[string]bool{"": false, "-signed": true} {
			notice := leaveNotice{id: wirefixture.Worker.ID, epoch: wirefixture.Epoch, stay: stay}
			topic, kind := notice.topic()
			out = append(out, wirefixture.Format{
				Name: "notice-" + name + suffix,
				Encode: func() ([]byte, error) {
					raw := notice.payload()
					if secured {
						raw = append(raw, wireGuard(t, wirefixture.Worker).Sign(trust.Statement(kind), notice.payload())...)
					}
					return append([]byte{messageFormat, topic}, raw...), nil
				},
				Decode: func(raw []byte) (any, error) {
					n := &Node{leaves: make(chan leaveNotice, 1), metrics: newMetrics(prometheus.NewRegistry(), func() float64 { return 0 })}
					if secured {
						n.guard = wireGuard(t, wirefixture.Relay)
						if err := n.guard.Certified(wirefixture.Worker.Source(t).Chain(), wirefixture.Epoch, wirefixture.Tick-1); err != nil {
							return nil, err
						}
					}
					d := &delegate{metrics: n.metrics, topics: map[byte]func([]byte){
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
				Refused: map[string]func([]byte) []byte{"another format": wirefixture.Raise(0), "a topic of a later release": func(raw []byte) []byte { raw[1] = 0xee; return raw }},
			})
		}
	}
	return out
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
	wirefixture.Check(t, slices.Concat(helloFixtures(), noticeFixtures(t), keyFixtures(t))...)
}
