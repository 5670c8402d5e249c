package gossip

import (
	"encoding/binary"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"

	"github.com/ringway/ringway/membership/identity"
)

// MetadataFormat is the first number of the metadata array. It changes only if a field changes
// its meaning; new fields are appended under the same number.
const MetadataFormat = 1

// Metadata is the data that memberlist carries about each node, at most 512 bytes. It is encoded
// as an array: the order of the fields is the wire format. Append fields, never insert.
type Metadata struct {
	Format      int
	Cluster     string
	Environment string
	ID          string
	Epoch       uint64
	Role        string
	Datacenter  string
	Region      string
	ForwardAddr string
	AdminAddr   string
	Version     string
	// AdvertiseSequence is always 0: it is kept because the order of the fields is the wire format.
	AdvertiseSequence uint64
	// GossipAddr is the node's gossip address, so that the signature covers it. Releases
	// that do not sign leave it empty.
	GossipAddr string
	// Draining is left out while it is false, so that the bytes are those of earlier releases.
	Draining bool `codec:"Draining" json:",omitempty"`
	// Incarnation is that under which the metadata is gossiped, so that the signature covers
	// it (see package trust). It is encoded with a fixed size, and left out without certificates.
	Incarnation uint32 `codec:"Incarnation" json:",omitempty"`
}

func msgpack() *codec.MsgpackHandle {
	h := &codec.MsgpackHandle{WriteExt: true}
	h.StructToArray = true
	h.MaxInitLen = 64 // every field is shorter; a hostile length allocates no more than this
	return h
}

// Encode returns the wire form, or an error with the longest field if the metadata and a
// signature of the given size exceed the limit.
func (m Metadata) Encode(signature int) ([]byte, error) {
	var buf []byte
	incarnation := m.Incarnation
	m.Incarnation = 0
	if err := codec.NewEncoderBytes(&buf, msgpack()).Encode(&m); err != nil {
		return nil, fmt.Errorf("encode node metadata: %w", err)
	}
	// The codec writes a number in as few bytes as it needs. The guard replaces the incarnation in
	// encoded metadata, so it is appended here with four bytes, whatever its value.
	buf = buf[:len(buf)-1] // the incarnation, one byte
	switch {
	case incarnation != 0:
		buf = binary.BigEndian.AppendUint32(append(buf, 0xce), incarnation)
	case m.Draining: // the first byte is the number of fields
		buf[0]--
	default:
		buf = buf[:len(buf)-1]
		buf[0] -= 2
	}
	if limit := memberlist.MetaMaxSize - signature; len(buf) > limit {
		name, value := m.longest()
		return nil, fmt.Errorf("node metadata is %d bytes, %d are allowed: shorten %s (%d bytes, %.20q…)",
			len(buf), limit, name, len(value), value)
	}
	return buf, nil
}

func (m Metadata) longest() (name, value string) {
	for _, f := range []struct{ name, value string }{
		{"cluster", m.Cluster}, {"environment", m.Environment}, {"id", m.ID},
		{"datacenter", m.Datacenter}, {"region", m.Region}, {"version", m.Version},
		{"forward address", m.ForwardAddr}, {"admin address", m.AdminAddr},
	} {
		if len(f.value) > len(value) {
			name, value = f.name, f.value
		}
	}
	return name, value
}

// DecodeMetadata decodes untrusted bytes.
func DecodeMetadata(b []byte) (Metadata, error) {
	var m Metadata
	if len(b) > memberlist.MetaMaxSize {
		return m, fmt.Errorf("node metadata is %d bytes, %d are allowed", len(b), memberlist.MetaMaxSize)
	}
	if err := codec.NewDecoderBytes(b, msgpack()).Decode(&m); err != nil {
		return Metadata{}, fmt.Errorf("decode node metadata: %w", err)
	}
	if m.Format != MetadataFormat {
		return Metadata{}, fmt.Errorf("node metadata has format %d, this build reads %d", m.Format, MetadataFormat)
	}
	if err := identity.CheckName(m.ID); err != nil {
		return Metadata{}, fmt.Errorf("node metadata: id %w", err)
	}
	if !identity.Role(m.Role).Member() {
		return Metadata{}, fmt.Errorf("node metadata: role %.80q is not one of relay, gate, worker, observer", m.Role)
	}
	for _, f := range []struct{ name, value string }{{"datacenter", m.Datacenter}, {"region", m.Region}} {
		if f.value == "" {
			continue
		}
		if err := identity.CheckName(f.value); err != nil {
			return Metadata{}, fmt.Errorf("node metadata: %s %w", f.name, err)
		}
	}
	for _, f := range []struct{ name, value string }{{"forward address", m.ForwardAddr}, {"admin address", m.AdminAddr}, {"gossip address", m.GossipAddr}} {
		if f.value != "" && !ValidAddr(f.value) {
			return Metadata{}, fmt.Errorf("node metadata: %s %.80q is not host:port", f.name, f.value)
		}
	}
	if !Printable(m.Version) {
		return Metadata{}, fmt.Errorf("node metadata: version %.80q has characters that cannot be printed", m.Version)
	}
	return m, nil
}

// Printable refuses control characters in texts that are shown in logs and on terminals.
func Printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// ValidAddr accepts host:port with a host that is an address or a name.
func ValidAddr(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil && host != "" && strings.Trim(host, hostChars+":%") == ""
}

const (
	hostChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
)
