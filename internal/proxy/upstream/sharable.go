package upstream

import (
	"net/http"
	"strings"
	"time"
)

// sharable reports whether a response allows caches to give it to other clients (RFC 9111 §3 and
// §5.2.2). A response without a field for caches counts as not sharable: most services send none,
// and caches have no reason then to keep an answer with a cookie.
func sharable(h http.Header) bool {
	fresh := false
	for _, line := range h["Cache-Control"] {
		for directive := range strings.SplitSeq(line, ",") {
			name, value, _ := strings.Cut(strings.Trim(directive, " \t"), "=")
			switch strings.ToLower(name) {
			case "private", "no-store":
				return false // whatever else there is
			case "public":
				fresh = true
			case "max-age", "s-maxage":
				value = strings.Trim(value, "\"")
				fresh = fresh || value != "" && strings.Trim(value, "0") != ""
			}
		}
	}
	if fresh || len(h["Cache-Control"]) > 0 {
		return fresh
	}
	expires, err := http.ParseTime(h.Get("Expires"))
	return err == nil && expires.After(time.Now())
}
