package upstream

import (
	"net/http"
	"strings"
	"time"
)

// sharable reports whether a response allows caches to give it to other clients without a question
// to the service (RFC 9111 §3, §4.2.1 and §5.2.2, RFC 5861). A response that states no lifetime
// counts as not sharable, although a cache may estimate one, for example from Last-Modified: most
// services send none, and their clients would never get a cookie.
func sharable(h http.Header) bool {
	var noStore, understand, public, stale bool
	var maxAge, sharedAge age
	for _, line := range h["Cache-Control"] {
		for line != "" {
			var name, value string
			name, value, line = directive(line)
			switch name {
			case "private":
				if coversCookies(value) {
					return false // whatever else there is
				}
			case "no-store":
				noStore = true
			case "must-understand": // a cache that knows it ignores no-store
				understand = true
			case "public":
				public = true
			case "max-age":
				maxAge.add(value)
			case "s-maxage":
				sharedAge.add(value)
			case "stale-while-revalidate", "stale-if-error":
				stale = stale || positive(value)
			}
		}
	}
	switch {
	case noStore && !understand:
		return false
	// What a cache may store counts, whether it has to ask the service first or not (no-cache): after a
	// 304 it sends the cookie that it has stored, too.
	case public || stale:
		return true
	case sharedAge.stated:
		return sharedAge.fresh
	case maxAge.stated:
		return maxAge.fresh
	}
	expires, err := http.ParseTime(h.Get("Expires"))
	return err == nil && expires.After(time.Now())
}

// age is a lifetime that a response states. Of several values a positive one counts, because it is
// open which one a cache takes.
type age struct{ stated, fresh bool }

func (a *age) add(value string) { a.stated, a.fresh = true, a.fresh || positive(value) }

func positive(seconds string) bool { return strings.Trim(seconds, "0") != "" }

// coversCookies reports whether a directive with these names of fields, which is one for the whole
// response without names, covers Set-Cookie.
func coversCookies(names string) bool {
	for name := range strings.SplitSeq(names, ",") {
		if strings.EqualFold(strings.Trim(name, " \t"), "Set-Cookie") {
			return true
		}
	}
	return names == ""
}

// directive cuts the first directive off a list. A quoted value may contain commas.
func directive(list string) (name, value, rest string) {
	end := len(list)
	for i, quoted := 0, false; i < end; i++ {
		switch c := list[i]; {
		case c == '"':
			quoted = !quoted
		case c == '\\' && quoted:
			i++
		case c == ',' && !quoted:
			end = i
		}
	}
	name, value, _ = strings.Cut(strings.Trim(list[:end], " \t"), "=")
	return strings.ToLower(name), strings.Trim(value, "\""), list[min(end+1, len(list)):]
}
