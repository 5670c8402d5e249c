package requestlog

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Filter selects records. The zero value matches all.
type Filter struct{ comparisons []comparison }

// maxFilter bounds the text of a filter in bytes, maxComparisons its parts: each record of
// a tapped service costs one evaluation.
const (
	maxFilter      = 1024
	maxComparisons = 16
)

// comparison is one part of a filter, such as status>=500.
type comparison struct {
	field, op string
	text      string
	number    int64 // of a status, or of a duration in nanoseconds
}

// filterFields has the fields; those that are true are numbers and can be ordered.
var filterFields = map[string]bool{"status": true, "duration": true, "method": false, "caller": false, "endpoint": false, "code": false}

const fieldNames = "status, duration, method, caller, endpoint or code"

// ParseFilter reads comparisons that are joined by &&:
//
//	filter     = [ comparison { "&&" comparison } ]
//	comparison = field operator value
//	field      = "status" | "duration" | "method" | "caller" | "endpoint" | "code"
//	operator   = "=" | "!=" | ">=" | "<=" | ">" | "<"
//	value      = word | quoted
//
// A word has no space, quote, &, or character of an operator. In a quoted text a backslash
// takes the next character as it is. Texts have only = and !=. The errors name the position,
// counted in bytes from 1.
func ParseFilter(text string) (Filter, error) {
	if len(text) > maxFilter {
		return Filter{}, fmt.Errorf("the filter has %d bytes: at most %d are allowed", len(text), maxFilter)
	}
	p := filterParser{text: text}
	p.blanks()
	if p.at == len(text) {
		return Filter{}, nil
	}
	var f Filter
	for {
		c, err := p.comparison()
		if err != nil {
			return Filter{}, err
		}
		if len(f.comparisons) == maxComparisons {
			return Filter{}, p.fail(p.at, "at most %d comparisons are allowed", maxComparisons)
		}
		f.comparisons = append(f.comparisons, c)
		p.blanks()
		switch {
		case p.at == len(text):
			return f, nil
		case !strings.HasPrefix(text[p.at:], "&&"):
			return Filter{}, p.fail(p.at, "want && between comparisons, got %.10q", text[p.at:])
		}
		p.at += 2
	}
}

type filterParser struct {
	text string
	at   int
}

func (p *filterParser) fail(at int, format string, args ...any) error {
	return fmt.Errorf("filter, position %d: %s", at+1, fmt.Sprintf(format, args...))
}

func (p *filterParser) blanks() {
	for p.at < len(p.text) && (p.text[p.at] == ' ' || p.text[p.at] == '\t') {
		p.at++
	}
}

// word reads until a byte that ends a word.
func (p *filterParser) word() string {
	from := p.at
	for p.at < len(p.text) && strings.IndexByte(" \t\"&=!<>", p.text[p.at]) < 0 {
		p.at++
	}
	return p.text[from:p.at]
}

func (p *filterParser) comparison() (c comparison, err error) {
	p.blanks()
	from := p.at
	c.field = p.word()
	ordered, known := filterFields[c.field]
	if !known {
		return c, p.fail(from, "want %s, got %.20q", fieldNames, c.field)
	}
	p.blanks()
	from = p.at
	for _, op := range []string{"!=", ">=", "<=", "=", ">", "<"} {
		if strings.HasPrefix(p.text[p.at:], op) {
			c.op = op
			break
		}
	}
	switch {
	case c.op == "":
		return c, p.fail(from, "want =, !=, >=, <=, > or < after %s", c.field)
	case !ordered && c.op != "=" && c.op != "!=":
		return c, p.fail(from, "%s is a text: only = and != are allowed", c.field)
	}
	p.at += len(c.op)
	p.blanks()
	from = p.at
	if c.text, err = p.value(); err != nil {
		return c, err
	}
	switch c.field {
	case "status":
		c.number, err = strconv.ParseInt(c.text, 10, 64)
		if err != nil || c.number < 0 || c.number > 999 {
			return c, p.fail(from, "%.20q is no status: want a number from 0 (no answer) to 999", c.text)
		}
	case "duration":
		d, err := time.ParseDuration(c.text)
		if err != nil || d < 0 {
			return c, p.fail(from, "%.20q is no duration: want one such as 250ms or 2s", c.text)
		}
		c.number = int64(d)
	}
	return c, nil
}

// value reads a word or a quoted text.
func (p *filterParser) value() (string, error) {
	from := p.at
	if p.at < len(p.text) && p.text[p.at] == '"' {
		var b strings.Builder
		for p.at++; p.at < len(p.text); p.at++ {
			switch c := p.text[p.at]; {
			case c == '"':
				p.at++
				return b.String(), nil
			case c == '\\' && p.at+1 < len(p.text):
				p.at++
				b.WriteByte(p.text[p.at])
			default:
				b.WriteByte(c)
			}
		}
		return "", p.fail(from, "the quoted text has no end")
	}
	word := p.word()
	if word == "" {
		return "", p.fail(from, `want a value; an empty text is ""`)
	}
	return word, nil
}

// Matches reports whether all comparisons hold. The endpoint is that of any attempt:
// endpoint!=w1 holds if no attempt went to w1.
func (f Filter) Matches(r *Record) bool {
	for i := range f.comparisons {
		if !f.comparisons[i].holds(r) {
			return false
		}
	}
	return true
}

func (c *comparison) holds(r *Record) bool {
	switch c.field {
	case "status":
		return c.ordered(int64(r.Status))
	case "duration":
		return c.ordered(int64(r.Total))
	case "method":
		return (r.Method == c.text) == (c.op == "=")
	case "caller":
		return (r.Caller == c.text) == (c.op == "=")
	case "code":
		return (r.Code == c.text) == (c.op == "=")
	}
	for i := range r.Attempts {
		if r.Attempts[i].Endpoint == c.text {
			return c.op == "="
		}
	}
	return c.op == "!="
}

func (c *comparison) ordered(value int64) bool {
	switch c.op {
	case "=":
		return value == c.number
	case "!=":
		return value != c.number
	case ">=":
		return value >= c.number
	case "<=":
		return value <= c.number
	case ">":
		return value > c.number
	}
	return value < c.number
}
