package daemon

import (
	"cmp"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/rs/zerolog"
)

// Printable is text as it may be shown on a terminal: as it is, or as a Go string in
// quotes when anything in it is not printable. What other members say of themselves
// could otherwise move the cursor, hide lines or look like lines of our own.
func Printable(text string) string {
	for _, r := range text {
		if !unicode.IsPrint(r) {
			return strconv.Quote(text)
		}
	}
	if !utf8.ValidString(text) {
		return strconv.Quote(text)
	}
	return text
}

// PrintableLines is [Printable] for each line. Tabs stay.
func PrintableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if spaced := strings.ReplaceAll(line, "\t", " "); Printable(spaced) != spaced {
			lines[i] = strconv.Quote(line)
		}
	}
	return strings.Join(lines, "\n")
}

// NewConsole writes log lines for people: JSON goes in, text comes out. Only the
// colours are control characters in it.
func NewConsole(out io.Writer, colour bool) io.Writer {
	return zerolog.ConsoleWriter{Out: out, NoColor: !colour, TimeFormat: "15:04:05.000", FormatPrepare: printableEvent}
}

// printableEvent makes printable what zerolog writes as it is: names, what comes before
// the fields, and values that are no strings.
func printableEvent(event map[string]any) error {
	for name, v := range event {
		text, isText := v.(string)
		switch name {
		case zerolog.TimestampFieldName, zerolog.LevelFieldName, zerolog.CallerFieldName, zerolog.MessageFieldName:
			if isText {
				event[name] = Printable(text)
			}
			continue
		}
		if !isText {
			v = printableValue(v)
		}
		shown := Printable(name)
		if shown != name {
			delete(event, name)
		}
		event[shown] = v
	}
	return nil
}

func printableValue(v any) any {
	switch v := v.(type) {
	case string:
		return Printable(v)
	case []any:
		for i := range v {
			v[i] = printableValue(v[i])
		}
	case map[string]any:
		out := make(map[string]any, len(v))
		for name, inner := range v {
			out[Printable(name)] = printableValue(inner)
		}
		return out
	}
	return v
}

// Natural compares two ids as people do: a run of digits counts as a number, so that
// w2 comes before w10. Ids that differ in leading zeros alone are compared as text.
func Natural(a, b string) int {
	x, y := a, b
	for x != "" && y != "" {
		if n, m := digits(x), digits(y); n > 0 && m > 0 {
			p, q := strings.TrimLeft(x[:n], "0"), strings.TrimLeft(y[:m], "0")
			if c := cmp.Or(cmp.Compare(len(p), len(q)), strings.Compare(p, q)); c != 0 {
				return c
			}
			x, y = x[n:], y[m:]
			continue
		}
		if x[0] != y[0] {
			return cmp.Compare(x[0], y[0])
		}
		x, y = x[1:], y[1:]
	}
	return cmp.Or(cmp.Compare(len(x), len(y)), strings.Compare(a, b))
}

// digits is how many digits text begins with.
func digits(text string) int {
	return len(text) - len(strings.TrimLeft(text, "0123456789"))
}
