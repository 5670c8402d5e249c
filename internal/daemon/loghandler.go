package daemon

import (
	"context"
	"log/slog"
	"time"

	"github.com/rs/zerolog"
)

// timeFormat is RFC 3339 with milliseconds. zerolog's own format is a package
// variable, which a library must not change.
const timeFormat = "2006-01-02T15:04:05.000Z07:00"

// logHandler puts zerolog's slog handler right in three places: the time has
// milliseconds, durations carry their unit (zerolog writes bare numbers), and a
// group prefixes only the attributes added after it (zerolog applies it to the
// earlier ones too).
type logHandler struct {
	next   slog.Handler
	least  slog.Leveler // records below it are dropped; it may change
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
