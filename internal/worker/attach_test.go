package worker

import (
	"strings"
	"testing"
)

func TestAnAttachedWorkerDoesNotGossipAndSaysNothingInClearTextToOtherHosts(t *testing.T) {
	for _, c := range []struct {
		change func(*Settings)
		want   string // a part of the only problem; empty: there is none
	}{
		{func(s *Settings) { s.Attach = nil }, ""},
		{func(s *Settings) {}, ""},
		{func(s *Settings) { s.Attach = []string{"localhost:7420", "[::1]:7420"} }, ""},
		{func(s *Settings) { s.Join = []string{"10.0.0.1"} }, "a worker gossips or is attached"},
		{func(s *Settings) { s.Attach = []string{"10.0.0.1:7420"} }, "in clear text"},
		{func(s *Settings) { s.Attach = []string{"dns+relays.internal:7420"} }, "in clear text"},
		{func(s *Settings) { s.Attach, s.Insecure = []string{"10.0.0.1:7420"}, true }, ""},
		{func(s *Settings) { s.Attach, s.TLSCert = []string{"10.0.0.1:7420"}, "w.crt" }, "an address of loopback"},
		{func(s *Settings) { s.Attach, s.TLSCert = []string{"dns+relays.internal"}, "w.crt" }, "an address of loopback"},
		{func(s *Settings) { s.Attach, s.TLSCert, s.SidecarAddr = []string{"10.0.0.1:7420"}, "w.crt", ":7421" }, "an address of loopback"},
		{func(s *Settings) {
			s.Attach, s.TLSCert, s.SidecarAddr = []string{"10.0.0.1:7420"}, "w.crt", "10.0.0.5:7421"
		}, ""},
		{func(s *Settings) {
			s.Attach, s.TLSCert, s.SidecarAddr, s.AdvertiseAddr = []string{"10.0.0.1:7420"}, "w.crt", ":7421", "10.0.0.5"
		}, ""},
		{func(s *Settings) { s.TLSCert = "w.crt" }, ""},
		{func(s *Settings) { s.Attach = []string{"10.0.0.1:port"} }, "port"},
	} {
		s := DefaultSettings()
		s.Attach = []string{"127.0.0.1:7420"}
		c.change(&s)
		var texts []string
		for _, p := range s.checkAttach() {
			texts = append(texts, p.Reason)
		}
		if text := strings.Join(texts, "; "); len(texts) > 1 || (text == "") != (c.want == "") || !strings.Contains(text, c.want) {
			t.Errorf("attach %v, join %v: %q, want %q", s.Attach, s.Join, text, c.want)
		}
	}
	s := DefaultSettings()
	if s.Attach = []string{"127.0.0.1:7420"}; s.reachAddr() != "" {
		t.Errorf("an attached worker is reached at %s, and it has no gossip address", s.reachAddr())
	}
	if s.AdvertiseAddr = "10.0.0.5:1"; s.reachAddr() != "10.0.0.5:1" {
		t.Errorf("with --advertise-addr it is reached at %q", s.reachAddr())
	}
}
