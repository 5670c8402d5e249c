package membership

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/hashicorp/go-msgpack/v2/codec"
	"github.com/hashicorp/memberlist"
)

// metadataFormat is the leading number of the metadata array. It changes only
// if a field changes its meaning; new fields are appended under the same number.
const metadataFormat = 1

// metadata is what memberlist carries about each node, at most 512 bytes. It
// travels as an array: fields are found by their place, so their order is the
// wire format. Append, never insert.
type metadata struct {
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
	// AdvertiseSequence is the newest sequence of the node's advertisement.
	AdvertiseSequence uint64
	// GossipAddr is where the node gossips, so that a signature covers it. It is
	// empty in releases that do not sign.
	GossipAddr string
}

func msgpack() *codec.MsgpackHandle {
	h := &codec.MsgpackHandle{WriteExt: true}
	h.StructToArray = true
	h.MaxInitLen = 64 // nothing in here is longer; a hostile length allocates no more
	return h
}

// encode returns the wire form, or an error that names the longest field when
// the whole does not fit beside a signature of so many bytes.
func (m metadata) encode(signature int) ([]byte, error) {
	var buf []byte
	if err := codec.NewEncoderBytes(&buf, msgpack()).Encode(&m); err != nil {
		return nil, fmt.Errorf("encode node metadata: %w", err)
	}
	if limit := memberlist.MetaMaxSize - signature; len(buf) > limit {
		name, value := m.longest()
		return nil, fmt.Errorf("node metadata is %d bytes, %d are allowed: shorten %s (%d bytes, %.20q…)",
			len(buf), limit, name, len(value), value)
	}
	return buf, nil
}

func (m metadata) longest() (name, value string) {
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

// decodeMetadata reads bytes that anyone may have sent.
func decodeMetadata(b []byte) (metadata, error) {
	var m metadata
	if len(b) > memberlist.MetaMaxSize {
		return m, fmt.Errorf("node metadata is %d bytes, %d are allowed", len(b), memberlist.MetaMaxSize)
	}
	if err := codec.NewDecoderBytes(b, msgpack()).Decode(&m); err != nil {
		return metadata{}, fmt.Errorf("decode node metadata: %w", err)
	}
	if m.Format != metadataFormat {
		return metadata{}, fmt.Errorf("node metadata has format %d, this build reads %d", m.Format, metadataFormat)
	}
	if err := checkID(m.ID); err != nil {
		return metadata{}, fmt.Errorf("node metadata: %w", err)
	}
	if !Role(m.Role).Valid() {
		return metadata{}, fmt.Errorf("node metadata: role %.80q is not one of relay, gate, worker", m.Role)
	}
	for _, f := range []struct{ name, value string }{{"datacenter", m.Datacenter}, {"region", m.Region}} {
		if f.value != "" && checkID(f.value) != nil {
			return metadata{}, fmt.Errorf("node metadata: %s %.80q: allowed are 1 to %d of letters, digits, '.', '_' and '-'", f.name, f.value, maxID)
		}
	}
	for _, f := range []struct{ name, value string }{{"forward address", m.ForwardAddr}, {"admin address", m.AdminAddr}, {"gossip address", m.GossipAddr}} {
		if f.value != "" && !validAddr(f.value) {
			return metadata{}, fmt.Errorf("node metadata: %s %.80q is not host:port", f.name, f.value)
		}
	}
	if !printable(m.Version) {
		return metadata{}, fmt.Errorf("node metadata: version %.80q has characters that cannot be printed", m.Version)
	}
	return m, nil
}

func (m metadata) member(gossipAddr string) Member {
	return Member{
		ID: m.ID, Epoch: m.Epoch, Role: Role(m.Role),
		Cluster: m.Cluster, Environment: m.Environment,
		Datacenter: m.Datacenter, Region: m.Region,
		GossipAddr: gossipAddr, ForwardAddr: m.ForwardAddr, AdminAddr: m.AdminAddr,
		Version: m.Version,
	}
}

// printable guards texts that end up in logs and on terminals.
func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r > '~' })
}

// validAddr accepts host:port with a host that is an address or a name.
func validAddr(s string) bool {
	host, port, err := net.SplitHostPort(s)
	if err != nil {
		return false
	}
	_, err = strconv.ParseUint(port, 10, 16)
	return err == nil && host != "" && strings.Trim(host, idChars+":%") == ""
}

const (
	maxID   = 63
	idChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
)

// NameRule says what CheckName allows.
const NameRule = "1 to 63 of letters, digits, '.', '_' and '-'"

// CheckName reports what is wrong with the name of a cluster, an environment, a member,
// a datacenter or a region.
func CheckName(name string) error { return checkID(name) }

// checkID guards every name that another node chose: it ends up in logs, in
// tables and in hash input.
func checkID(id string) error {
	if id == "" || len(id) > maxID || strings.Trim(id, idChars) != "" {
		return fmt.Errorf("id %.80q: allowed are 1 to %d of letters, digits, '.', '_' and '-'", id, maxID)
	}
	return nil
}
