//go:build linux

package hostile

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/procs"
	"github.com/ringway/ringway/membership"
	"github.com/ringway/ringway/membership/identity"
)

// The numbers of memberlist's messages (net.go of v0.7).
const (
	msgPing     = 0
	msgAck      = 2
	msgSuspect  = 3
	msgAlive    = 4
	msgDead     = 5
	msgCompound = 7
	msgUser     = 8
	msgCRC      = 12
)

// The messages, with memberlist's names of their fields: they are on the wire.
type (
	ping struct {
		SeqNo      uint32
		Node       string
		SourceAddr []byte `codec:",omitempty"`
		SourcePort uint16 `codec:",omitempty"`
		SourceNode string `codec:",omitempty"`
	}
	ack   struct{ SeqNo uint32 }
	alive struct {
		Incarnation uint32
		Node        string
		Addr        []byte
		Port        uint16
		Meta        []byte
		Vsn         []uint8
	}
	dead struct { // also suspect
		Incarnation uint32
		Node        string
		From        string
	}
)

// metadata is what members announce about themselves, in the order of package membership.
type metadata struct {
	Format                                                    int
	Cluster, Environment, ID                                  string
	Epoch                                                     uint64
	Role, Datacenter, Region, ForwardAddr, AdminAddr, Version string
	AdvertiseSequence                                         uint64
	GossipAddr                                                string
}

// outsider holds the gossip key and has one UDP socket, no certificate. It speaks
// memberlist's wire format and that of signed packets, and answers the probes of the
// members that it makes up.
type outsider struct {
	t      *testing.T
	label  string
	aead   cipher.AEAD
	conn   *net.UDPConn
	signer signer
}

// signer is in whose name packets are signed.
type signer struct {
	epoch  uint64
	booted time.Time
	sign   func(message []byte) (signature []byte)
	// certified means that the signatures are in order.
	certified bool
}

// forger has no key to sign with: it names the certificate of a member, which it has
// seen in a handshake, and hopes.
func forger(t *testing.T, f *fleet, id string) signer {
	t.Helper()
	pair, err := tls.LoadX509KeyPair(f.Security.Path(id+".crt"), f.Security.Path(id+".key"))
	if err != nil {
		t.Fatal(err)
	}
	name := identity.KeyID(pair.Certificate[0])
	return signer{epoch: uint64(time.Now().UnixMilli()), booted: time.Now().Add(-time.Hour), sign: func([]byte) []byte {
		signature := make([]byte, 64)
		_, _ = rand.Read(signature) // never fails
		return append(name[:], signature...)
	}}
}

func newOutsider(t *testing.T, f *fleet) *outsider {
	t.Helper()
	return newSender(t, f, forger(t, f, "r1"))
}

func newSender(t *testing.T, f *fleet, in signer) *outsider {
	t.Helper()
	text, err := os.ReadFile(f.Security.Path("gossip.key"))
	if err != nil {
		t.Fatal(err)
	}
	key, err := membership.ParseKey(string(text))
	if err != nil {
		t.Fatal(err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	o := &outsider{t: t, label: cluster + "/" + environment, signer: in}
	if o.aead, err = cipher.NewGCM(block); err != nil {
		t.Fatal(err)
	}
	if o.conn, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(procs.FreeAddrOn(t, "127.0.9.1")))); err != nil {
		t.Fatal(err)
	}
	stopped := make(chan struct{})
	go func() { defer close(stopped); o.answerProbes() }()
	t.Cleanup(func() { _ = o.conn.Close(); <-stopped })
	return o
}

func (o *outsider) addr() netip.AddrPort { return o.conn.LocalAddr().(*net.UDPAddr).AddrPort() }

func encodeAs(handle *codec.MsgpackHandle, v any) []byte {
	var out []byte
	if err := codec.NewEncoderBytes(&out, handle).Encode(v); err != nil {
		panic(err) // the types are in this file
	}
	return out
}

// message is one of memberlist's.
func message(kind byte, v any) []byte {
	return append([]byte{kind}, encodeAs(&codec.MsgpackHandle{}, v)...)
}

// compound puts messages into one.
func compound(messages [][]byte) []byte {
	if len(messages) == 1 {
		return messages[0]
	}
	plain := []byte{msgCompound, byte(len(messages))}
	for _, m := range messages {
		plain = binary.BigEndian.AppendUint16(plain, uint16(len(m)))
	}
	return append(plain, bytes.Join(messages, nil)...)
}

// seal puts the gossip key around what follows a head.
func (o *outsider) seal(head, version, plain, bound []byte) []byte {
	nonce := make([]byte, o.aead.NonceSize())
	_, _ = rand.Read(nonce) // never fails
	out := slices.Concat(head, version, nonce)
	return o.aead.Seal(out, nonce, plain, bound)
}

func (o *outsider) header() []byte { return append([]byte{244, byte(len(o.label))}, o.label...) }

// unsigned is a packet as memberlist makes it.
func (o *outsider) unsigned(plain []byte) []byte {
	return o.seal(o.header(), []byte{1}, plain, []byte(o.label))
}

// signed is a packet as members with certificates make it (package membership, guard):
// a kind, boot and time of the sender, the message, and a signature that covers the
// destination, too.
func (o *outsider) signed(plain []byte, to string) []byte {
	uint48 := func(b []byte, n uint64) []byte { return append(b, binary.BigEndian.AppendUint64(nil, n)[2:]...) }
	const kindGossip = 1
	body := uint48([]byte{kindGossip}, o.signer.epoch)
	body = append(uint48(body, uint64(time.Since(o.signer.booted)/time.Microsecond)), plain...)
	body = append(body, o.signer.sign(slices.Concat([]byte("ringway packet\x00"+o.label+"\x00"+to+"\x00"), body))...)
	head := append(o.header(), 'R', 1)
	return o.seal(head, nil, body, head)
}

// send sends messages to each address: signed, and, without a certificate to sign with,
// unsigned as well. Packets may be lost, so attacks repeat.
func (o *outsider) send(to []string, messages ...[]byte) {
	plain := compound(messages)
	for _, addr := range to {
		at := netip.MustParseAddrPort(addr)
		_, _ = o.conn.WriteToUDPAddrPort(o.signed(plain, addr), at)
		if !o.signer.certified {
			_, _ = o.conn.WriteToUDPAddrPort(o.unsigned(plain), at)
		}
	}
}

// open is the way back, nil for a packet that is not for the holder of the key.
func (o *outsider) open(packet []byte) []byte {
	sealed, label, err := memberlist.RemoveLabelHeaderFromPacket(packet)
	n := 1 + o.aead.NonceSize()
	if err != nil || label != o.label || len(sealed) < n {
		return nil
	}
	plain, err := o.aead.Open(nil, sealed[1:n], sealed[n:], []byte(label))
	if err != nil {
		return nil
	}
	if len(plain) > 5 && plain[0] == msgCRC {
		plain = plain[5:]
	}
	return plain
}

// answerProbes has the made-up members live.
func (o *outsider) answerProbes() {
	buf := make([]byte, 64<<10)
	for {
		n, from, err := o.conn.ReadFromUDPAddrPort(buf)
		if err != nil {
			return
		}
		for _, m := range split(o.open(buf[:n])) {
			var p ping
			if len(m) == 0 || m[0] != msgPing || codec.NewDecoderBytes(m[1:], &codec.MsgpackHandle{}).Decode(&p) != nil {
				continue
			}
			_, _ = o.conn.WriteToUDPAddrPort(o.unsigned(message(msgAck, ack{p.SeqNo})), from)
		}
	}
}

// split takes a compound message apart.
func split(plain []byte) (messages [][]byte) {
	if len(plain) < 2 || plain[0] != msgCompound {
		return [][]byte{plain}
	}
	n := int(plain[1])
	sizes, rest := plain[2:], plain[min(len(plain), 2+2*n):]
	for i := range n {
		if len(sizes) < 2*i+2 || len(rest) < int(binary.BigEndian.Uint16(sizes[2*i:])) {
			return messages
		}
		size := int(binary.BigEndian.Uint16(sizes[2*i:]))
		messages, rest = append(messages, rest[:size]), rest[size:]
	}
	return messages
}

// instance is one life of a member, true or made up.
type instance struct {
	id    string
	epoch uint64
}

func (i instance) name() string { return fmt.Sprintf("%s.%d", i.id, i.epoch) }

// isAlive announces that a member lives where the outsider listens.
func (o *outsider) isAlive(of instance, role identity.Role) []byte {
	array := &codec.MsgpackHandle{WriteExt: true}
	array.StructToArray = true
	meta := encodeAs(array, metadata{Format: 1, Cluster: cluster, Environment: environment, ID: of.id, Epoch: of.epoch,
		Role: string(role), ForwardAddr: o.addr().String(), Version: "forged"})
	return message(msgAlive, alive{Incarnation: 1, Node: of.name(), Addr: o.addr().Addr().AsSlice(), Port: o.addr().Port(),
		Meta: meta, Vsn: []uint8{1, 5, 2, 0, 0, 0}})
}

// The topics of package membership's messages: 1 is its own goodbye.
const (
	messageFormat = 1
	topicLeave    = 1
	kindRecord    = 1
	recordTopic   = byte('a')
)

// says is a leave notice or another message of our own above memberlist's.
func says(topic byte, payload ...byte) []byte {
	return append([]byte{msgUser, messageFormat, topic}, payload...)
}

// goodbye announces that a member leaves.
func goodbye(of instance) []byte { return says(topicLeave, leaveNotice(of)...) }

func leaveNotice(of instance) []byte {
	payload := binary.BigEndian.AppendUint64(nil, of.epoch)
	return append(append(payload, byte(len(of.id))), of.id...)
}

// offers announces what a member offers.
func (o *outsider) offers(of instance, sequence uint64, services ...advertise.Service) []byte {
	raw, err := advertise.Record{NodeID: of.id, Epoch: of.epoch, Sequence: sequence, Services: services}.Encode()
	if err != nil {
		o.t.Error(err)
	}
	return says(recordTopic, append([]byte{kindRecord}, raw...)...)
}

// gossipOf are the gossip addresses of relays, and of workers.
func (f *fleet) gossipOf(workers bool) (addrs []string) {
	for _, r := range f.Relays {
		addrs = append(addrs, r.Gossip)
	}
	for _, w := range f.Workers {
		if workers {
			addrs = append(addrs, w.Gossip)
		}
	}
	return addrs
}

// instances has the epochs of the real members, which every holder of the key can read in
// the gossip.
func (f *fleet) instances(prefix string) (all []instance) {
	for _, m := range f.listed(f.Relays[0]) {
		if strings.HasPrefix(m.ID, prefix) {
			all = append(all, instance{m.ID, m.Epoch})
		}
	}
	return all
}
