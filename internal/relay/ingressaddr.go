package relay

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ringway/ringway/internal/process"
	"github.com/ringway/ringway/internal/relay/clienttls"
	"github.com/ringway/ringway/internal/settings"
)

// ingressAddr is an address for requests of clients.
type ingressAddr struct {
	addr    string // host:port
	secured bool   // clients begin with TLS
	// pairs and clientCA replace Config.IngressTLS and Config.IngressClientCA at this address, if
	// they are not nil.
	pairs    []clienttls.Pair
	clientCA *string
}

// The schemes of an address of the ingress.
const (
	clearScheme = "http://"
	tlsScheme   = "tls://"
)

// parseIngressAddr parses HOST:PORT, http://HOST:PORT or tls://HOST:PORT, the last with files of
// its own, as in tls://HOST:PORT;cert=FILE;key=FILE;client-ca=FILE.
func parseIngressAddr(text string) (a ingressAddr, err error) {
	address, files, found := strings.Cut(text, ";")
	if a.addr, a.secured = strings.CutPrefix(address, tlsScheme); !a.secured {
		a.addr = strings.TrimPrefix(address, clearScheme)
	}
	switch {
	case a.addr == "":
		return a, errors.New("the address is missing")
	case found && !a.secured:
		return a, fmt.Errorf("%q is only for an address that begins with %s", files, tlsScheme)
	}
	if a.addr, err = settings.ParseAddress(a.addr); err != nil {
		return a, err
	}
	var certs, keys []string
	for part := range strings.SplitSeq(files, ";") {
		key, value, _ := strings.Cut(part, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch {
		case key == "" && value == "":
		case key == "client-ca" && a.clientCA == nil:
			a.clientCA = &value
		case key == "cert" && value != "":
			certs = append(certs, value)
		case key == "key" && value != "":
			keys = append(keys, value)
		default:
			return a, fmt.Errorf("%q is unknown, empty or given twice", part)
		}
	}
	if len(certs) != len(keys) {
		return a, fmt.Errorf("%d certificates and %d keys do not make pairs", len(certs), len(keys))
	}
	for i := range certs {
		a.pairs = append(a.pairs, clienttls.Pair{Certificate: certs[i], Key: keys[i]})
	}
	return a, nil
}

// String returns the form that parseIngressAddr parses.
func (a ingressAddr) String() string {
	if !a.secured {
		return a.addr
	}
	text := tlsScheme + a.addr
	for _, p := range a.pairs {
		text += ";cert=" + p.Certificate + ";key=" + p.Key
	}
	if a.clientCA != nil {
		text += ";client-ca=" + *a.clientCA
	}
	return text
}

// site returns how TLS ends at the address.
func (a ingressAddr) site(cfg *Config) clienttls.Site {
	site := clienttls.Site{Pairs: a.pairs, ClientCA: cfg.IngressClientCA}
	if site.Pairs == nil {
		site.Pairs = cfg.IngressTLS
	}
	if a.clientCA != nil {
		site.ClientCA = *a.clientCA
	}
	return site
}

// usesCommon reports whether addresses use the pairs, and the authorities, that are for all
// addresses with TLS.
func usesCommon(addrs []ingressAddr) (pairs, authorities bool) {
	for _, a := range addrs {
		pairs = pairs || a.secured && a.pairs == nil
		authorities = authorities || a.secured && a.clientCA == nil
	}
	return pairs, authorities
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
			if process.Collide(a.addr, b.addr) {
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

// checkIngress checks the settings of the ingress together, and its addresses with those for members: what New refuses, without reading
// files, which Check does.
func (s *Settings) checkIngress() []settings.Problem {
	var problems []settings.Problem
	add := func(p settings.Problem) { problems = append(problems, p) }
	var all []ingressAddr
	for _, text := range s.IngressAddrs {
		a, err := parseIngressAddr(text)
		if err != nil {
			add(settings.Problem{Setting: "ingress-addr", Value: text, Reason: err.Error(), Allowed: ingressForms})
			continue
		}
		for _, b := range all {
			if process.Collide(a.addr, b.addr) {
				add(settings.Problem{Setting: "ingress-addr", Value: text, Reason: "only one of it and " + b.String() + " can be bound", Allowed: "addresses that differ in host or port"})
				break
			}
		}
		all = append(all, a)
	}
	if len(problems) > 0 {
		return problems // the others may be consequences
	}
	pairs, authorities := usesCommon(all)
	sessions := s.TCP.listeners() // their conflicts with each other have a check of their own
	for _, l := range sessions {
		for _, b := range all {
			if process.Collide(l.Addr, b.addr) {
				add(settings.Problem{Setting: "tcp-ingress", Related: []string{"tls-passthrough", "ingress-addr"}, Value: l.Addr, Reason: "only one of it and the --ingress-addr " + b.String() + " can be bound", Allowed: "addresses that differ in host or port"})
			}
		}
	}
	for _, l := range sessions {
		all = append(all, ingressAddr{addr: l.Addr})
	}
	members := []process.Listener{{Setting: "gossip-addr", Addr: s.GossipAddr}, {Setting: "peer-addr", Addr: s.PeerAddr}, {Setting: "admin-addr", Addr: s.AdminAddr}}
	problems = append(problems, process.CheckListeners(members...)...)
	for _, own := range members {
		for _, b := range all {
			if process.Collide(own.Addr, b.addr) {
				add(settings.Problem{Setting: own.Setting, Related: []string{"ingress-addr", "tcp-ingress", "tls-passthrough"}, Value: own.Addr, Reason: "only one of it and " + b.String() + ", which is for clients, can be bound", Allowed: "addresses that differ in host or port"})
				break
			}
		}
	}
	const pair, unused = "ingress-tls-cert", "no address of the ingress begins with " + tlsScheme + " and has none of its own, so no client would see it"
	if len(s.IngressAddrs) == 0 {
		add(settings.Problem{Setting: "ingress-addr", Reason: "clients need an address", Allowed: ingressForms})
	}
	switch certs, keys := len(s.IngressTLSCerts), len(s.IngressTLSKeys); {
	case certs != keys:
		add(settings.Problem{Setting: pair, Related: []string{"ingress-tls-key"}, Reason: fmt.Sprintf("%d certificates and %d keys do not make pairs", certs, keys), Allowed: "as many as --ingress-tls-key, in the same order"})
	case pairs && certs == 0:
		add(settings.Problem{Setting: pair, Related: []string{"ingress-addr"}, Reason: "an address " + tlsScheme + " needs a certificate and its key", Allowed: "the path of a certificate, and --ingress-tls-key"})
	case certs > 0 && !pairs:
		add(settings.Problem{Setting: pair, Related: []string{"ingress-addr"}, Reason: unused, Allowed: "nothing without --ingress-addr " + tlsScheme + "HOST:PORT"})
	}
	if s.IngressClientCA != "" && !authorities {
		add(settings.Problem{Setting: "ingress-client-ca", Related: []string{"ingress-addr"}, Reason: unused, Allowed: "nothing without --ingress-addr " + tlsScheme + "HOST:PORT"})
	}
	return problems
}

const ingressForms = "HOST:PORT, or " + tlsScheme + "HOST:PORT for TLS, which ;cert=FILE;key=FILE and ;client-ca=FILE may follow; port 0 is a free one"
