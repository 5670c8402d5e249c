package advertise

import (
	"reflect"
	"strings"
	"testing"

	"github.com/hashicorp/go-msgpack/v2/codec"
)

var full = Record{NodeID: "worker-1", Epoch: 1_800_000_000_000, Sequence: 7, Services: []Service{
	{Name: "a", Address: "[::1]:80", Protocol: H2C, Weight: 100, Slots: 70_000, State: Draining, Version: "v1", Tags: []string{"x", ""}},
	{Name: "b", Address: "host:65535", Protocol: HTTP1, Weight: 10, State: Ready},
}}

func TestARecordSurvivesItsEncoding(t *testing.T) {
	raw, err := full.Encode()
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeRecord(raw)
	if err != nil || !reflect.DeepEqual(got, full) {
		t.Fatalf("got %+v, %v", got, err)
	}
}

func TestFieldsOfLaterBuildsAreSkipped(t *testing.T) {
	raw, err := full.Encode()
	if err != nil {
		t.Fatal(err)
	}
	var fields []any
	h := handle()
	h.RawToString = true
	if err := codec.NewDecoderBytes(raw, h).Decode(&fields); err != nil {
		t.Fatal(err)
	}
	services := fields[4].([]any)
	services[0] = append(services[0].([]any), map[string]any{"later": []any{1.5, nil, true, -7}})
	later, err := encode(append(fields, []byte("signature"), [][]string{{"deep"}}))
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeRecord(later)
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
		{"tags", func(s *Service) { s.Tags = make([]string, 17) }},
		{"tags", func(s *Service) { s.Tags = []string{strings.Repeat("t", 65)} }},
	} {
		s := ok
		test.change(&s)
		_, err := Record{NodeID: "n", Services: []Service{s}}.Encode()
		if outcomeOf(err) != outcome("invalid_"+test.reason) || err == nil {
			t.Errorf("%+v: %v, want a refusal of its %s", s, err, test.reason)
		}
		s = s.withDefaults()
		raw, err := encode(wireRecord{recordFormat, "n", 1, 1, []wireService{{s.Name, s.Address, index(protocols[:], s.Protocol), s.Weight, s.Slots, index(states[:], s.State), s.Version, s.Tags}}})
		if err != nil {
			t.Fatal(err)
		}
		if r, err := DecodeRecord(raw); err == nil {
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
	f.Add([]byte{0x95, 1, 0xa1, 'w', 1, 1, 0xdd, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := DecodeRecord(raw)
		if err != nil {
			return
		}
		again, err := got.Encode()
		if err != nil {
			t.Fatalf("decoded what cannot be encoded: %v", err)
		}
		if twice, err := DecodeRecord(again); err != nil || twice.NodeID != got.NodeID || !sameServices(twice.Services, got.Services) {
			t.Fatalf("%+v became %+v, %v", got, twice, err)
		}
	})
}

func FuzzFrame(f *testing.F) {
	raw, err := full.Encode()
	if err != nil {
		f.Fatal(err)
	}
	for kind, v := range map[frameKind]any{
		frameHello: wireHello{1}, frameBuckets: wireBuckets{make([]byte, 8*buckets)}, frameWant: wireWant{[]wireInstance{{"a", 1}}},
		frameList: wireList{make([]byte, 32), []wireListed{{"a", 1, 2, 3}}}, frameRecords: wireRecords{[][]byte{raw}},
	} {
		b, err := encode(v)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(byte(kind), b)
	}
	f.Add(byte(0), append([]byte{kindRecord}, raw...))
	f.Fuzz(func(t *testing.T, kind byte, b []byte) {
		switch frameKind(kind) {
		case frameHello:
			_, _ = decodeHello(b)
		case frameBuckets:
			_, _ = decodeBuckets(b)
		case frameList:
			if _, list, err := decodeList(b); err == nil && len(list) > listedPerFrame {
				t.Fatalf("%d entries", len(list))
			}
		case frameWant:
			if wanted, err := decodeWant(b); err == nil && len(wanted) > listedPerFrame {
				t.Fatalf("%d instances", len(wanted))
			}
		case frameRecords:
			raws, _ := decodeRecords(b)
			total := 0
			for _, raw := range raws {
				total += len(raw)
			}
			if total > len(b) {
				t.Fatalf("%d bytes out of %d", total, len(b))
			}
		default:
			_, _ = decodeMail(b)
		}
	})
}
