package requestlog

import (
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"
)

// The bounds on texts in bytes, before they are escaped. A longer text is cut and ends
// with an ellipsis.
const (
	maxName  = 128 // IDs, services, callers, addresses, codes
	maxPath  = 2048
	maxError = 256
)

// Append adds the line of the record, with its line end.
func Append(dst []byte, r *Record) []byte {
	o := object{dst: append(dst, '{')}
	o.key("timestamp")
	o.dst = append(o.dst, '"')
	o.dst = r.Time.UTC().AppendFormat(o.dst, "2006-01-02T15:04:05.000000Z")
	o.dst = append(o.dst, '"')
	o.text("ringway.request.id", r.ID, maxName)
	o.text("trace_id", r.Trace, maxName)
	o.text("ringway.relay", r.Relay, maxName)
	o.text("ringway.forwarded_by", r.From, maxName)
	o.text("ringway.service", r.Service, maxName)
	o.text("ringway.caller", r.Caller, maxName)
	o.text("client.address", r.Client, maxName)
	o.text("http.request.method", r.Method, maxName)
	o.text("url.path", r.Path, maxPath)
	o.text("url.query", r.Query, maxPath)
	if r.Session {
		o.text("network.transport", "tcp", maxName)
	} else {
		o.text("network.protocol.name", "http", maxName)
		o.text("network.protocol.version", r.Protocol, maxName)
	}
	if r.Status != 0 {
		o.number("http.response.status_code", int64(r.Status))
	}
	o.text("rpc.response.status_code", r.CallStatus, maxName)
	o.text("ringway.outcome", r.Outcome, maxName)
	o.text("error.type", r.Code, maxName)
	o.number("http.request.body.size", r.BytesIn)
	o.number("http.response.body.size", r.BytesOut)
	o.time("ringway.wait_ms", r.Wait)
	o.time("ringway.connect_ms", r.Connect)
	if r.FirstByte > 0 {
		o.time("ringway.first_byte_ms", r.FirstByte)
	}
	o.time("ringway.duration_ms", r.Total)
	if r.Tunnel {
		o.flag("ringway.tunnel", true)
	}
	if r.Plan != 0 {
		o.key("ringway.plan.version")
		o.dst = appendHex(append(o.dst, '"'), r.Plan, 16)
		o.dst = append(o.dst, '"')
	}
	o.flag("ringway.sampled", r.Sampled)
	if len(r.Attempts) > 0 {
		o.key("ringway.attempts")
		for i := range r.Attempts {
			if i == 0 {
				o.dst = append(o.dst, '[')
			} else {
				o.dst = append(o.dst, ',')
			}
			o.dst = r.Attempts[i].append(o.dst)
		}
		o.dst = append(o.dst, ']')
	}
	return append(o.dst, "}\n"...)
}

func (a *Attempt) append(dst []byte) []byte {
	o := object{dst: append(dst, '{')}
	o.text("endpoint", a.Endpoint, maxName)
	o.text("address", a.Address, maxName)
	o.text("chosen_by", a.Chosen, maxName)
	if a.Status != 0 {
		o.number("status", int64(a.Status))
	}
	o.text("failure", a.Failure, maxName)
	o.text("error", a.Error, maxError)
	o.text("code", a.Code, maxName)
	o.time("start_ms", a.Began)
	if a.Wait > 0 {
		o.time("wait_ms", a.Wait)
	}
	if a.Connect > 0 {
		o.time("connect_ms", a.Connect)
	}
	o.time("duration_ms", a.Took)
	o.flag("reused", a.Reused)
	return append(o.dst, '}')
}

// object writes the members of a JSON object.
type object struct {
	dst  []byte
	some bool
}

// key begins a member. Names of members need no escapes.
func (o *object) key(name string) {
	if o.some {
		o.dst = append(o.dst, ',')
	}
	o.some = true
	o.dst = append(o.dst, '"')
	o.dst = append(o.dst, name...)
	o.dst = append(o.dst, '"', ':')
}

// text adds a text that is not empty.
func (o *object) text(name, value string, limit int) {
	if value == "" {
		return
	}
	o.key(name)
	o.dst = appendText(o.dst, value, limit)
}

func (o *object) number(name string, value int64) {
	o.key(name)
	o.dst = strconv.AppendInt(o.dst, value, 10)
}

func (o *object) flag(name string, value bool) {
	o.key(name)
	o.dst = strconv.AppendBool(o.dst, value)
}

// time adds a duration in milliseconds, to the microsecond.
func (o *object) time(name string, d time.Duration) {
	o.key(name)
	us := max(d.Microseconds(), 0)
	o.dst = strconv.AppendInt(o.dst, us/1000, 10)
	if rest := us % 1000; rest != 0 {
		o.dst = append(o.dst, '.', byte('0'+rest/100), byte('0'+rest/10%10), byte('0'+rest%10))
	}
}

const hexDigits = "0123456789abcdef"

func appendHex(dst []byte, value uint64, digits int) []byte {
	for i := digits - 1; i >= 0; i-- {
		dst = append(dst, hexDigits[value>>(4*i)&0xf])
	}
	return dst
}

// ellipsis ends a text that was cut.
const ellipsis = "…"

// appendText adds a JSON string. What a terminal would not print is escaped, and a byte
// that is not UTF-8 becomes U+FFFD.
func appendText(dst []byte, s string, limit int) []byte {
	cut := len(s) > limit
	if cut {
		s = s[:limit]
		for range utf8.UTFMax - 1 { // no half of a character
			if r, size := utf8.DecodeLastRuneInString(s); r != utf8.RuneError || size != 1 {
				break
			}
			s = s[:len(s)-1]
		}
	}
	dst = append(dst, '"')
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			i++
			switch {
			case c == '"' || c == '\\':
				dst = append(dst, '\\', c)
			case c < ' ' || c == 0x7f:
				dst = appendEscape(dst, rune(c))
			default:
				dst = append(dst, c)
			}
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && size == 1:
			dst = append(dst, `\ufffd`...)
		case unicode.IsPrint(r):
			dst = append(dst, s[i:i+size]...)
		default:
			dst = appendEscape(dst, r)
		}
		i += size
	}
	if cut {
		dst = append(dst, ellipsis...)
	}
	return append(dst, '"')
}

// appendEscape adds \u escapes, two of them for a character beyond 16 bits.
func appendEscape(dst []byte, r rune) []byte {
	if r > 0xffff {
		r -= 0x10000
		dst = appendEscape(dst, 0xd800+r>>10)
		r = 0xdc00 + r&0x3ff
	}
	return appendHex(append(dst, '\\', 'u'), uint64(r), 4)
}
