package process

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/rs/zerolog"
	"golang.org/x/term"
)

// LogLevels are the levels that [NewLogger] accepts, the most verbose first.
func LogLevels() []string { return []string{"debug", "info", "warn", "error"} }

// LogFormats are the formats that [NewLogger] accepts.
func LogFormats() []string { return []string{"auto", "json", "console", "text"} }

// NewLogger returns a logger that writes to w through zerolog: one JSON object per line
// ("json"), or lines for people ("console", also called "text", coloured on a terminal
// unless NO_COLOR is set). "auto" is "console" if w is a terminal and "json" otherwise. Log
// records below level are dropped.
//
// Times are UTC with milliseconds in JSON, local in console. Durations are written with
// their unit ("1.5s"). Each log record is one Write to w, and Writes never overlap.
func NewLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	least, err := ParseLevel(level)
	if err != nil {
		return nil, err
	}
	return NewLeveledLogger(w, format, least)
}

// ParseLevel parses one of [LogLevels].
func ParseLevel(level string) (slog.Level, error) {
	least, ok := map[string]slog.Level{
		"debug": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError,
	}[level]
	if !ok {
		return 0, fmt.Errorf("log level %q is unknown; allowed: %s", level, strings.Join(LogLevels(), ", "))
	}
	return least, nil
}

// NewLeveledLogger is [NewLogger] with a level that may change at run time, such as a
// [slog.LevelVar].
func NewLeveledLogger(w io.Writer, format string, least slog.Leveler) (*slog.Logger, error) {
	switch format {
	case "auto", "json", "console", "text":
	default:
		return nil, fmt.Errorf("log format %q is unknown; allowed: %s", format, strings.Join(LogFormats(), ", "))
	}
	handler := &logHandler{zone: time.UTC, least: least}
	out := w
	if humanReadable(w, format) {
		handler.zone = time.Local
		out = NewConsole(w, isTerminal(w) && os.Getenv("NO_COLOR") == "")
	}
	handler.next = zerolog.NewSlogHandler(zerolog.New(zerolog.SyncWriter(out)).Level(zerolog.DebugLevel))
	return slog.New(handler), nil
}

// humanReadable reports whether the format selects text for people on w.
func humanReadable(w io.Writer, format string) bool {
	return format == "console" || format == "text" || format == "auto" && isTerminal(w)
}

func isTerminal(w io.Writer) bool {
	file, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(file.Fd()))
}

// timeFormat is RFC 3339 with milliseconds. zerolog's own format is a package
// variable, which a library must not change.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// logHandler corrects three defects of zerolog's slog handler: times get milliseconds,
// durations get their unit (zerolog writes bare numbers), and a group prefixes only the
// attributes added after it (zerolog applies a group to the earlier ones too).
type logHandler struct {
	next   slog.Handler
	least  slog.Leveler // log records below it are dropped; it may change
	zone   *time.Location
	prefix string // the open groups, each followed by a dot
}

func (h *logHandler) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= h.least.Level() && h.next.Enabled(ctx, level)
}

func (h *logHandler) Handle(ctx context.Context, record slog.Record) error {
	out := slog.NewRecord(time.Time{}, record.Level, record.Message, 0)
	if !record.Time.IsZero() {
		out.AddAttrs(slog.String(zerolog.TimestampFieldName, record.Time.In(h.zone).Format(timeFormat)))
	}
	record.Attrs(func(attr slog.Attr) bool {
		out.AddAttrs(h.rewrite(h.prefix, attr)...)
		return true
	})
	return h.next.Handle(ctx, out)
}

func (h *logHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	var flat []slog.Attr
	for _, attr := range attrs {
		flat = append(flat, h.rewrite(h.prefix, attr)...)
	}
	return &logHandler{next: h.next.WithAttrs(flat), least: h.least, zone: h.zone, prefix: h.prefix}
}

func (h *logHandler) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	return &logHandler{next: h.next, least: h.least, zone: h.zone, prefix: h.prefix + name + "."}
}

// rewrite flattens groups into dotted keys and writes durations with a unit.
func (h *logHandler) rewrite(prefix string, attr slog.Attr) []slog.Attr {
	value := attr.Value.Resolve()
	switch value.Kind() {
	case slog.KindGroup:
		if attr.Key != "" {
			prefix += attr.Key + "."
		}
		var flat []slog.Attr
		for _, inner := range value.Group() {
			flat = append(flat, h.rewrite(prefix, inner)...)
		}
		return flat
	case slog.KindDuration:
		value = slog.StringValue(value.Duration().String())
	case slog.KindTime:
		value = slog.StringValue(value.Time().In(h.zone).Format(timeFormat))
	}
	if attr.Key == "" {
		return nil
	}
	return []slog.Attr{{Key: prefix + attr.Key, Value: value}}
}

// Printable returns text in a form that is safe on a terminal: unchanged, or as a Go string
// in quotes if any character is not printable. Texts from other members could otherwise
// move the cursor, hide lines or imitate lines of this program.
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

// PrintableJSON writes the characters of a JSON document that are not printable as escapes with the
// same meaning, because JSON allows most of what a terminal obeys, such as U+009B. Bytes that are
// not UTF-8 become U+FFFD, as they do for a decoder. astral is the escape of a character above
// U+FFFF; JSON has none and needs two, see [JSONEscape].
func PrintableJSON(text []byte, astral func(rune) string) []byte {
	out := make([]byte, 0, len(text))
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		switch {
		case r == utf8.RuneError && size == 1:
			out = append(out, `\ufffd`...)
		case unicode.IsPrint(r) || r == '\n':
			out = append(out, text[:size]...)
		case r == '\t' || r == '\r': // between values: in a text they are escaped
			out = append(out, ' ')
		case r > 0xffff:
			out = append(out, astral(r)...)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		text = text[size:]
	}
	return out
}

// JSONEscape is how JSON escapes a character above U+FFFF.
func JSONEscape(r rune) string {
	high, low := utf16.EncodeRune(r)
	return fmt.Sprintf(`\u%04x\u%04x`, high, low)
}

// PrintableLines is [Printable] for each line. It keeps tabs.
func PrintableLines(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if spaced := strings.ReplaceAll(line, "\t", " "); Printable(spaced) != spaced {
			lines[i] = strconv.Quote(line)
		}
	}
	return strings.Join(lines, "\n")
}

// NewConsole writes log lines for people: it reads JSON and writes text. The colours are
// the only control characters in the output.
func NewConsole(out io.Writer, colour bool) io.Writer {
	return zerolog.ConsoleWriter{Out: out, NoColor: !colour, TimeFormat: "15:04:05.000", FormatPrepare: printableEvent}
}

// printableEvent makes the parts printable that zerolog writes unchanged: names, the text
// before the fields, and values that are not strings.
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

// Natural compares two ids with their runs of digits as numbers, so that w2 comes before
// w10. Ids that differ in leading zeros only are compared as text.
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

// digits returns the number of digits at the start of text.
func digits(text string) int {
	return len(text) - len(strings.TrimLeft(text, "0123456789"))
}
