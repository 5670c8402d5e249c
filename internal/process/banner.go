package process

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"unicode/utf8"
)

// Banner is the first output of a daemon: its name, its addresses and its security.
type Banner struct {
	// Title is the first line and the log message, for example "relay v1.2.3".
	Title string
	// Rows are shown in this order; the keys name them in the log line. Rows with an empty
	// value are omitted.
	Rows []slog.Attr
}

// Show writes the banner as a table to w if [NewLogger] would write text for people, and
// otherwise as one info line to logger. Level and format are those of the log, so a quiet
// log has no banner.
func (b Banner) Show(w io.Writer, logger *slog.Logger, format string) error {
	if !logger.Enabled(context.Background(), slog.LevelInfo) {
		return nil
	}
	if !humanReadable(w, format) {
		logger.LogAttrs(context.Background(), slog.LevelInfo, b.Title, b.rows()...)
		return nil
	}
	_, err := b.WriteTo(w)
	return err
}

// WriteTo writes the banner as a table, in one Write.
func (b Banner) WriteTo(w io.Writer) (int64, error) {
	rows := b.rows()
	width := 0
	for _, row := range rows {
		width = max(width, utf8.RuneCountInString(row.Key))
	}
	var text strings.Builder
	text.WriteString(b.Title + "\n\n")
	for _, row := range rows {
		fmt.Fprintf(&text, "  %*s  %s\n", width, row.Key, row.Value)
	}
	text.WriteString("\n")
	n, err := io.WriteString(w, text.String())
	if err != nil {
		err = fmt.Errorf("write the start banner: %w", err)
	}
	return int64(n), err
}

func (b Banner) rows() []slog.Attr {
	var rows []slog.Attr
	for _, row := range b.Rows {
		if row.Value.Resolve().String() != "" {
			rows = append(rows, row)
		}
	}
	return rows
}
