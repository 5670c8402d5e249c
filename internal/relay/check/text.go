package check

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

// mostNamed bounds how many things a sentence names.
const mostNamed = 8

// list names the first of many, sorted.
func list(names []string) string {
	names = slices.Sorted(slices.Values(names))
	if len(names) > mostNamed {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:mostNamed], ", "), len(names)-mostNamed)
	}
	return strings.Join(names, ", ")
}

// clean keeps what another relay says from moving the cursor of a terminal, and from
// turning the direction of its text.
func clean(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > 4*maxText {
		text = strings.ToValidUTF8(text[:4*maxText], "") + "…"
	}
	return text
}

// plural is a number of things.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// span writes a time roughly, as people say it.
func span(d time.Duration) string {
	switch {
	case d >= 48*time.Hour:
		return fmt.Sprintf("%d days", int(d/(24*time.Hour)))
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d hours", int(d/time.Hour))
	case d >= 2*time.Minute:
		return fmt.Sprintf("%d minutes", int(d/time.Minute))
	}
	return d.Round(time.Second / 10).String()
}
