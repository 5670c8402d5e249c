package relay

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/ringway/ringway/internal/settings"
)

// ingressAddr is an address for requests of clients.
type ingressAddr struct {
	addr    string // host:port
	secured bool   // clients begin with TLS
}

// The schemes of an address of the ingress.
const (
	clearScheme = "http://"
	tlsScheme   = "tls://"
)

// parseIngressAddr parses HOST:PORT, http://HOST:PORT or tls://HOST:PORT.
func parseIngressAddr(text string) (ingressAddr, error) {
	var a ingressAddr
	a.addr, a.secured = strings.CutPrefix(text, tlsScheme)
	if !a.secured {
		a.addr = strings.TrimPrefix(text, clearScheme)
	}
	if a.addr == "" {
		return a, errors.New("the address is missing")
	}
	return a, settings.CheckAddress(a.addr)
}

// String returns the form that parseIngressAddr parses.
func (a ingressAddr) String() string {
	if a.secured {
		return tlsScheme + a.addr
	}
	return a.addr
}

// parseIngressAddrs parses all addresses. One that is used twice is an error.
func parseIngressAddrs(texts []string) ([]ingressAddr, error) {
	var all []ingressAddr
	for _, text := range texts {
		a, err := parseIngressAddr(text)
		if err != nil {
			return nil, fmt.Errorf("the address %q of the ingress: %w", text, err)
		}
		for _, b := range all {
			if a.conflicts(b) {
				return nil, fmt.Errorf("the address %q of the ingress is used twice: each address needs a host or port of its own", text)
			}
		}
		all = append(all, a)
	}
	if len(all) == 0 {
		return nil, errors.New("the ingress needs an address")
	}
	return all, nil
}

// conflicts reports whether only one of the two addresses can be bound.
func (a ingressAddr) conflicts(b ingressAddr) bool {
	hostA, portA, _ := net.SplitHostPort(a.addr)
	hostB, portB, _ := net.SplitHostPort(b.addr)
	if portA != portB || portA == "0" {
		return false
	}
	ipA, ipB := net.ParseIP(hostA), net.ParseIP(hostB)
	return hostA == hostB || ipA != nil && ipA.Equal(ipB) || unspecified(hostA) || unspecified(hostB)
}

// unspecified reports whether a host means all addresses of this machine.
func unspecified(host string) bool {
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// ingressAddrs is the rule of a setting.
var ingressAddrs = settings.Rule[string]{
	Allowed: "HOST:PORT, http://HOST:PORT or tls://HOST:PORT, with port 0 for a free one",
	Holds:   func(text string) bool { _, err := parseIngressAddr(text); return err == nil },
}

// checkIngress checks the settings of the ingress together: what New refuses, without reading
// files, which Check does.
func (s *Settings) checkIngress() []settings.Problem {
	var problems []settings.Problem
	add := func(p settings.Problem) { problems = append(problems, p) }
	secured := false
	var all []ingressAddr
	for _, text := range s.IngressAddrs {
		a, err := parseIngressAddr(text)
		if err != nil {
			continue // the rule of the setting refuses it
		}
		for _, b := range all {
			if a.conflicts(b) {
				add(settings.Problem{Setting: "ingress-addr", Value: text, Reason: "only one of it and " + b.String() + " can be bound", Allowed: "addresses that differ in host or port"})
				break
			}
		}
		all = append(all, a)
		secured = secured || a.secured
	}
	sessions, _ := s.TCP.listeners() // they have a check of their own
	for _, l := range sessions {
		for _, b := range all {
			if (ingressAddr{addr: l.Addr}).conflicts(b) {
				add(settings.Problem{Setting: "tcp-ingress", Related: []string{"tls-passthrough", "ingress-addr"}, Value: l.Addr, Reason: "only one of it and the --ingress-addr " + b.String() + " can be bound", Allowed: "addresses that differ in host or port"})
			}
		}
	}
	for _, l := range sessions {
		all = append(all, ingressAddr{addr: l.Addr})
	}
	for _, own := range []struct{ setting, addr string }{{"peer-addr", s.PeerAddr}, {"admin-addr", s.AdminAddr}} {
		for _, b := range all {
			if (ingressAddr{addr: own.addr}).conflicts(b) { // never a unix socket, which has no port
				add(settings.Problem{Setting: own.setting, Related: []string{"ingress-addr", "tcp-ingress", "tls-passthrough"}, Value: own.addr, Reason: "only one of it and " + b.String() + ", which is for clients, can be bound", Allowed: "addresses that differ in host or port"})
				break
			}
		}
	}
	const pair = "ingress-tls-cert"
	if len(s.IngressAddrs) == 0 {
		add(settings.Problem{Setting: "ingress-addr", Reason: "clients need an address", Allowed: ingressForms})
	}
	switch certs, keys := len(s.IngressTLSCerts), len(s.IngressTLSKeys); {
	case certs != keys:
		add(settings.Problem{Setting: pair, Related: []string{"ingress-tls-key"}, Reason: fmt.Sprintf("%d certificates and %d keys do not make pairs", certs, keys), Allowed: "as many as --ingress-tls-key, in the same order"})
	case secured && certs == 0:
		add(settings.Problem{Setting: pair, Related: []string{"ingress-addr"}, Reason: "an address " + tlsScheme + " needs a certificate and its key", Allowed: "the path of a certificate, and --ingress-tls-key"})
	case certs > 0 && !secured:
		add(settings.Problem{Setting: pair, Related: []string{"ingress-addr"}, Reason: "no address of the ingress begins with " + tlsScheme + ", so no client would see it", Allowed: "nothing without --ingress-addr " + tlsScheme + "HOST:PORT"})
	}
	if s.IngressClientCA != "" && !secured {
		add(settings.Problem{Setting: "ingress-client-ca", Related: []string{"ingress-addr"}, Reason: "clients present certificates only in TLS, and no address of the ingress begins with " + tlsScheme, Allowed: "nothing without --ingress-addr " + tlsScheme + "HOST:PORT"})
	}
	return problems
}

const ingressForms = "HOST:PORT, or " + tlsScheme + "HOST:PORT for TLS"
