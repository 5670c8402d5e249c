package advertise

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/go-msgpack/v2/codec"

	"github.com/ringway/ringway/membership"
)

var full = Record{NodeID: "worker-1", Epoch: 1_800_000_000_000, Sequence: 7, Services: []Service{
	{Name: "a", Address: "[::1]:80", Protocol: H2C, Weight: 100, Slots: 70_000, State: Draining, Version: "v1", Tags: []string{"x", ""},
		Secured: true, Relays: 1024, Selection: "slots(k=3)", Policy: "retry=never"},
	{Name: "b", Address: "host:65535", Protocol: HTTP1, Weight: 10, State: Ready},
	{Name: "c", Address: "host:1", Protocol: TCP, Weight: 10, State: Ready, ProxyProtocol: true},
}}

func TestARecordSurvivesItsEncoding(t *testing.T) {
	raw, err := full.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := decodeRecord(raw)
	if err != nil || !reflect.DeepEqual(got, full) {
		t.Fatalf("got %+v, %v", got, err)
	}
}

// fieldsOf takes an encoded record apart.
func fieldsOf(t *testing.T, r Record) (record, services []any) {
	t.Helper()
	raw, err := r.Encode()
	if err != nil {
		t.Fatal(err)
	}
	h := handle()
	h.RawToString = true
	if err := codec.NewDecoderBytes(raw, h).Decode(&record); err != nil {
		t.Fatal(err)
	}
	return record, record[4].([]any)
}

func TestARecordOfAnEarlierBuildIsWithoutTheLaterFields(t *testing.T) {
	later := full.Services[0]
	for n, want := range map[int]Service{
		serviceFields:     func(s Service) Service { s.Secured, s.Relays, s.Selection, s.Policy = false, 0, "", ""; return s }(later),
		serviceFields + 1: func(s Service) Service { s.Relays, s.Selection, s.Policy = 0, "", ""; return s }(later),
		serviceFields + 2: func(s Service) Service { s.Selection, s.Policy = "", ""; return s }(later),
		serviceFields + 3: func(s Service) Service { s.Policy = ""; return s }(later),
	} {
		fields, services := fieldsOf(t, full)
		services[0] = services[0].([]any)[:n]
		earlier, err := encode(fields)
		if err != nil {
			t.Fatal(err)
		}
		if got, _, err := decodeRecord(earlier); err != nil || !got.Services[0].equal(want) {
			t.Errorf("with %d fields: got %+v, %v", n, got.Services, err)
		}
	}
	fields, services := fieldsOf(t, full)
	services[0] = services[0].([]any)[:serviceFields-1]
	short, err := encode(fields)
	if err != nil {
		t.Fatal(err)
	}
	if got, _, err := decodeRecord(short); err == nil {
		t.Errorf("a service without its tags was accepted: %+v", got)
	}
}

// A signature over the fields before it can then be checked by every member that
// hears the record, however many of them that do not know it passed it on.
func TestFieldsOfLaterBuildsArePassedOnUnchanged(t *testing.T) {
	fields, services := fieldsOf(t, full)
	services[1] = append(services[1].([]any), nil, "later")
	signed, err := encode(append(fields, []byte("signature")))
	if err != nil {
		t.Fatal(err)
	}
	s, want := newStore(storeConfig{}), bytes.Clone(signed)
	e, result, err := s.merge(signed, start)
	if err != nil || result != applied || !bytes.Equal(e.raw, want) {
		t.Fatalf("stored % x (%s, %v), want % x", e.raw, result, err, want)
	}
	payload, err := e.message()
	if err != nil {
		t.Fatal(err)
	}
	m, err := decodeMail(payload)
	if err != nil || !bytes.Equal(m.raw, want) {
		t.Errorf("gossiped % x, %v", m.raw, err)
	}
	frame, err := encode(wireRecords{[][]byte{e.raw}})
	if err != nil {
		t.Fatal(err)
	}
	raws, err := decodeRecords(frame)
	if err != nil || len(raws) != 1 || !bytes.Equal(raws[0], want) {
		t.Errorf("exchanged % x, %v", raws, err)
	}
}

func TestFieldsOfLaterBuildsAreSkipped(t *testing.T) {
	fields, services := fieldsOf(t, full)
	services[0] = append(services[0].([]any), nil, map[string]any{"later": []any{1.5, nil, true, -7}})
	later, err := encode(append(fields, []byte("signature"), [][]string{{"deep"}}))
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := decodeRecord(later)
	if err != nil || !reflect.DeepEqual(got, full) {
		t.Fatalf("got %+v, %v", got, err)
	}
}

func TestInvalidServicesAreRefusedOnBothSides(t *testing.T) {
	ok := Service{Name: "a", Address: "h:1"}
	for _, test := range []struct {
		reason string
		change func(*Service)
	}{
		{"name", func(s *Service) { s.Name = "" }},
		{"name", func(s *Service) { s.Name = "-a" }},
		{"name", func(s *Service) { s.Name = strings.Repeat("a", 64) }},
		{"name", func(s *Service) { s.Name = "a/b" }},
		{"address", func(s *Service) { s.Address = "host" }},
		{"address", func(s *Service) { s.Address = ":80" }},
		{"address", func(s *Service) { s.Address = "h:0" }},
		{"address", func(s *Service) { s.Address = "h:65536" }},
		{"address", func(s *Service) { s.Address = "a b:80" }},
		{"address", func(s *Service) { s.Address = strings.Repeat("h", 260) + ":80" }},
		{"protocol", func(s *Service) { s.Protocol = "quic" }},
		{"weight", func(s *Service) { s.Weight = -1 }},
		{"weight", func(s *Service) { s.Weight = 101 }},
		{"slots", func(s *Service) { s.Slots = -1 }},
		{"state", func(s *Service) { s.State = "gone" }},
		{"version", func(s *Service) { s.Version = strings.Repeat("v", 65) }},
		{"version", func(s *Service) { s.Version = "v1\x1b[2J" }},
		{"tags", func(s *Service) { s.Tags = make([]string, 17) }},
		{"tags", func(s *Service) { s.Tags = []string{"a\nlevel=ERROR"} }},
		{"tags", func(s *Service) { s.Tags = []string{"\u202e"} }},
		{"tags", func(s *Service) { s.Tags = []string{strings.Repeat("t", 65)} }},
		{"relays", func(s *Service) { s.Relays = -1 }},
		{"relays", func(s *Service) { s.Relays = 1025 }},
		{"selection", func(s *Service) { s.Selection = strings.Repeat("s", 257) }},
		{"proxy_protocol", func(s *Service) { s.Protocol, s.ProxyProtocol = HTTP1, true }},
		{"selection", func(s *Service) { s.Selection = "p2c\x7f" }},
		{"policy", func(s *Service) { s.Policy = strings.Repeat("p", 257) }},
		{"policy", func(s *Service) { s.Policy = "retry=never\n" }},
		{"weight", func(s *Service) { s.Weight = math.MinInt32 }},
		{"weight", func(s *Service) { s.Weight = math.MaxInt32 }},
		{"slots", func(s *Service) { s.Slots = math.MinInt32 }},
		{"relays", func(s *Service) { s.Relays = math.MinInt32 }},
		{"relays", func(s *Service) { s.Relays = math.MaxInt32 }},
		{"name", func(s *Service) { s.Name = "a\xff" }},
		{"address", func(s *Service) { s.Address = "\xff:80" }},
		{"address", func(s *Service) { s.Address = "h\x00:80" }},
		{"version", func(s *Service) { s.Version = "\xff" }},
		{"tags", func(s *Service) { s.Tags = []string{"\xff"} }},
		{"selection", func(s *Service) { s.Selection = "\xff" }},
		{"policy", func(s *Service) { s.Policy = "\xff" }},
	} {
		s := ok
		test.change(&s)
		_, err := Record{NodeID: "n", Services: []Service{s}}.Encode()
		if outcomeOf(err) != outcome("invalid_"+test.reason) || err == nil {
			t.Errorf("%+v: %v, want a refusal of its %s", s, err, test.reason)
		}
		s = s.withDefaults()
		raw, err := encode(wireRecord{recordFormat, "n", 1, 1, []wireService{{s.Name, s.Address, index(protocols[:], s.Protocol), s.Weight, s.Slots, index(states[:], s.State), s.Version, s.Tags, s.flags(), s.Relays, s.Selection, s.Policy}}})
		if err != nil {
			t.Fatal(err)
		}
		if r, _, err := decodeRecord(raw); err == nil {
			t.Errorf("%s: the network's record %+v was accepted", test.reason, r)
		}
	}
	if _, err := (Record{NodeID: "n", Services: []Service{ok, ok}}).Encode(); outcomeOf(err) != "invalid_duplicate" {
		t.Errorf("two endpoints of one service: %v", err)
	}
	if _, err := (Record{NodeID: "n", Services: make([]Service, MaxServices+1)}).Encode(); outcomeOf(err) != "invalid_services" {
		t.Errorf("too many services: %v", err)
	}
}

func FuzzRecord(f *testing.F) {
	raw, err := full.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add(withSignature(statementOf(raw), bytes.Repeat([]byte{7}, membership.MaxSignature)))
	f.Add(mustEncode(f, stated))
	f.Add(withSignature(statementOf(mustEncode(f, stated)), wireSignature))
	f.Add(append(append([]byte{signedHead}, statementOf(raw)...), 0xc0)) // nil for a signature
	f.Add([]byte{0x95, 1, 0xa1, 'w', 1, 1, 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, signed, err := decodeRecord(raw)
		if err != nil {
			return
		}
		kept := newEntry(got, raw, signed)
		if !bytes.Contains(raw, signed.statement) || len(signed.signature) > membership.MaxSignature || len(kept.raw) > MaxRecordBytes {
			t.Fatalf("signed part %+v of % x", signed, raw)
		}
		if same, resigned, err := decodeRecord(kept.raw); err != nil || newEntry(same, kept.raw, resigned).stamp != kept.stamp ||
			!bytes.Equal(resigned.statement, signed.statement) || !bytes.Equal(resigned.signature, signed.signature) {
			t.Fatalf("% x is kept as % x, %v", raw, kept.raw, err)
		}
		if len(raw) < maxMailBytes {
			if m, err := decodeMail(gossiped(raw)); err != nil || m.stamp != kept.stamp || m.from != kept.instance() {
				t.Fatalf("% x is filed as %+v, %v, and kept as %v", raw, m, err, kept.stamp)
			}
		}
		again, err := got.Encode()
		if err != nil {
			t.Fatalf("decoded what cannot be encoded: %v", err)
		}
		if twice, _, err := decodeRecord(again); err != nil || twice.NodeID != got.NodeID || !sameServices(twice.Services, got.Services) || !twice.Relay.equal(got.Relay) {
			t.Fatalf("%+v became %+v, %v", got, twice, err)
		}
	})
}
