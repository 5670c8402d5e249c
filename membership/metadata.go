package membership

import (
	"fmt"
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
}

func msgpack() *codec.MsgpackHandle {
	h := &codec.MsgpackHandle{WriteExt: true}
	h.StructToArray = true
	h.MaxInitLen = 64 // nothing in here is longer; a hostile length allocates no more
	return h
}

// encode returns the wire form, or an error that names the longest field when
// the whole does not fit.
func (m metadata) encode() ([]byte, error) {
	var buf []byte
	if err := codec.NewEncoderBytes(&buf, msgpack()).Encode(&m); err != nil {
		return nil, fmt.Errorf("encode node metadata: %w", err)
	}
	if len(buf) > memberlist.MetaMaxSize {
		name, value := m.longest()
		return nil, fmt.Errorf("node metadata is %d bytes, %d are allowed: shorten %s (%d bytes, %.20q…)",
			len(buf), memberlist.MetaMaxSize, name, len(value), value)
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

// decodeMetadata reads bytes that anybody may have sent.
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
		return metadata{}, fmt.Errorf("node metadata: role %q is not one of relay, gate, worker", m.Role)
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

const (
	maxID   = 63
	idChars = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
)

// checkID guards every name that another node chose: it ends up in logs, in
// tables and in hash input.
func checkID(id string) error {
	if id == "" || len(id) > maxID || strings.Trim(id, idChars) != "" {
		return fmt.Errorf("id %.80q: allowed are 1 to %d of letters, digits, '.', '_' and '-'", id, maxID)
	}
	return nil
}
