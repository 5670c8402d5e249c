package http1

import (
	"net/netip"
	"strings"
)

// isHost marks the bytes of names in the host of a URI (RFC 3986 §3.2.2). Two that it has are left
// out: an escape, because another reader may decode it to another name, and a comma, because some
// proxies join two Host fields so.
var isHost = func() (t [256]bool) {
	for c := range t {
		t[c] = isToken[c] && c != '%' && c != '#' && c != '^' && c != '`' && c != '|'
	}
	for _, c := range "();=" {
		t[c] = true
	}
	return t
}()

// ValidHost reports whether s is a host, with a port or without, as a Host field or an authority
// has it: a name whose labels are not empty, or an IP address, of IPv6 in brackets. A name may end
// with a dot. An empty host is valid: the client's target has none (RFC 9110 §7.2).
func ValidHost(s string) bool {
	if s == "" {
		return true
	}
	host, port := s, ""
	if s[0] == '[' {
		end := strings.IndexByte(s, ']')
		if end < 0 || !validIPv6(s[1:end]) {
			return false
		}
		if host, port = "", s[end+1:]; port != "" && port[0] != ':' {
			return false
		}
	} else {
		if i := strings.IndexByte(s, ':'); i >= 0 {
			host, port = s[:i], s[i:]
		}
		if !validName(host) {
			return false
		}
	}
	return port == "" || validPort(port[1:])
}

// validName reports whether s is a name, or an address of IPv4, which looks like one.
func validName(s string) bool {
	if s == "" || s[0] == '.' {
		return false
	}
	for i := range len(s) {
		if !isHost[s[i]] || s[i] == '.' && s[i-1] == '.' {
			return false
		}
	}
	return true
}

func validIPv6(s string) bool {
	addr, err := netip.ParseAddr(s)
	return err == nil && addr.Is6() && addr.Zone() == "" // a zone means something only on the client's host
}

// validPort reports whether s is the number of a port, or empty: then it is that of the scheme.
func validPort(s string) bool {
	if len(s) > len("65535") {
		return false
	}
	n := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
		n = n*10 + int(s[i]-'0')
	}
	return n <= 65535
}
