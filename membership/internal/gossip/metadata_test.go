package gossip

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/ringway/ringway/membership/identity"
)

func sampleMetadata() Metadata {
	return Metadata{
		Format: MetadataFormat, Cluster: "prod", Environment: "eu", ID: "relay-1", Epoch: 1_790_000_000_000, Role: "relay",
		Datacenter: "ams1", Region: "eu-west", ForwardAddr: "10.0.0.1:7420", AdminAddr: "10.0.0.1:7430", Version: "v1.2.3", AdvertiseSequence: 9,
	}
}

func TestMetadataSurvivesTheWire(t *testing.T) {
	for i, draining := range []bool{false, true, false, true} {
		want := sampleMetadata()
		want.Draining = draining
		if i > 1 {
			want.Incarnation = 7
		}
		b, err := want.Encode(0)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeMetadata(b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("decoded differs (-want +got):\n%s", diff)
		}
	}
}

func TestEveryRoleButClientIsReadFromMetadata(t *testing.T) {
	for _, role := range identity.Roles() {
		m := sampleMetadata()
		m.Role = string(role)
		b, err := m.Encode(0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeMetadata(b); (err == nil) != role.Member() {
			t.Errorf("%s: %v", role, err)
		}
	}
}

func TestMetadataOfALaterBuildWithMoreFieldsIsRead(t *testing.T) {
	m := sampleMetadata()
	later := []any{m.Format, m.Cluster, m.Environment, m.ID, m.Epoch, m.Role, m.Datacenter, m.Region,
		m.ForwardAddr, m.AdminAddr, m.Version, m.AdvertiseSequence, m.GossipAddr, m.Draining, m.Incarnation, "a field of tomorrow", 17}
	var b []byte
	if err := codec.NewEncoderBytes(&b, msgpack()).Encode(later); err != nil {
		t.Fatal(err)
	}
	got, err := DecodeMetadata(b)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(m, got); diff != "" {
		t.Fatalf("decoded differs (-want +got):\n%s", diff)
	}
}

func TestMetadataThatCannotFitNamesTheFieldThatIsTooLong(t *testing.T) {
	m := sampleMetadata()
	m.Version = strings.Repeat("v", 600)
	_, err := m.Encode(0)
	if err == nil || !strings.Contains(err.Error(), "shorten version (600 bytes") {
		t.Fatalf("got %v, want an error that names the version", err)
	}
}

func TestMetadataFromStrangersIsRefusedNotTrusted(t *testing.T) {
	for name, change := range map[string]func(*Metadata){
		"another format":       func(m *Metadata) { m.Format = 2 },
		"an unknown role":      func(m *Metadata) { m.Role = "king" },
		"the role of a client": func(m *Metadata) { m.Role = "client" },
		"no id":                func(m *Metadata) { m.ID = "" },
		"an id with a newline": func(m *Metadata) { m.ID = "a\nb" },
		"an id of 64 letters":  func(m *Metadata) { m.ID = strings.Repeat("a", 64) },
	} {
		m := sampleMetadata()
		change(&m)
		b, err := m.Encode(0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeMetadata(b); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := DecodeMetadata(make([]byte, 513)); err == nil {
		t.Error("513 bytes: accepted")
	}
}

func FuzzMetadata(f *testing.F) {
	for _, incarnation := range []uint32{0, 7, 1<<32 - 1} {
		m := sampleMetadata()
		m.Incarnation = incarnation
		b, _ := m.Encode(0)
		f.Add(b)
	}
	f.Add([]byte{0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeMetadata(b)
		if err != nil {
			return
		}
		again, err := m.Encode(0)
		if err != nil {
			return // longer in our own form, e.g. numbers that were sent as short ones
		}
		back, err := DecodeMetadata(again)
		if err != nil || back != m {
			t.Fatalf("%+v became %+v (%v)", m, back, err)
		}
	})
}
