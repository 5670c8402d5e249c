package upstream

import "strings"

// isToken marks the bytes of a token (RFC 9110 §5.6.2).
var isToken = func() (t [256]bool) {
	for c := '0'; c <= '9'; c++ {
		t[c] = true
	}
	for c := 'a'; c <= 'z'; c++ {
		t[c], t[c-'a'+'A'] = true, true
	}
	for _, c := range "!#$%&'*+-.^_`|~" {
		t[c] = true
	}
	return t
}()

// isValue marks the bytes of a field value: no control characters but tab.
var isValue = func() (t [256]bool) {
	for c := range t {
		t[c] = c == '\t' || c >= ' ' && c != 0x7f
	}
	return t
}()

// isTarget marks the bytes that may stand in a request target. Blanks and
// control characters would change where the request line ends.
var isTarget = func() (t [256]bool) {
	for c := range t {
		t[c] = c > ' ' && c != 0x7f
	}
	return t
}()

func all(t *[256]bool, s string) bool {
	for i := 0; i < len(s); i++ {
		if !t[s[i]] {
			return false
		}
	}
	return true
}

func allBytes(t *[256]bool, s []byte) bool {
	for _, c := range s {
		if !t[c] {
			return false
		}
	}
	return true
}

func validToken(s string) bool { return s != "" && all(&isToken, s) }

// hasToken reports whether a comma-separated list names token, in any case.
func hasToken(list, token string) bool {
	for list != "" {
		var item string
		item, list, _ = strings.Cut(list, ",")
		if strings.EqualFold(strings.Trim(item, " \t"), token) {
			return true
		}
	}
	return false
}

func anyHasToken(lists []string, token string) bool {
	for _, l := range lists {
		if hasToken(l, token) {
			return true
		}
	}
	return false
}
