package screen

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"golang.org/x/term"
)

// Screen is a terminal, or a part of it.
type Screen struct {
	// Out receives the frames.
	Out io.Writer
	// Size returns the columns and lines of the terminal. Required.
	Size func() (width, height int)
	// Top draws from the top of the terminal. Otherwise frames begin where the cursor was before
	// the first one, so that earlier output stays.
	Top bool

	drawn int // lines of the last frame, above the cursor
}

// SizeOf returns a Size. Of a terminal that does not report its size it is 80 × 24.
func SizeOf(terminal *os.File) func() (width, height int) {
	return func() (int, int) {
		width, height, err := term.GetSize(int(terminal.Fd()))
		if err != nil || width <= 0 || height <= 0 {
			return 80, 24
		}
		return width, height
	}
}

// Draw replaces the last frame. It shows as much of the lines as fits, and how many do not.
func (s *Screen) Draw(lines []string) error {
	width, height := s.Size()
	if fit := max(height-2, 0); len(lines) >= height {
		lines = append(slices.Clip(lines[:fit]), fmt.Sprintf("and %d lines more", len(lines)-fit))
	}
	const home, clearLine, clearRest = "\x1b[H", "\x1b[K", "\x1b[J"
	var b strings.Builder
	switch {
	case s.Top:
		b.WriteString(home)
	case s.drawn > 0:
		fmt.Fprintf(&b, "\r\x1b[%dA", s.drawn)
	}
	for _, l := range lines {
		b.WriteString(cut(l, width) + clearLine + "\r\n")
	}
	b.WriteString(clearRest)
	s.drawn = len(lines)
	_, err := io.WriteString(s.Out, b.String())
	return err
}

// cut returns the part of a line that fits, because a terminal would continue the line below and so
// scroll. Colours take no room, and those of the rest are kept, because the last one may end another.
func cut(line string, width int) string {
	colour := false
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\x1b':
			colour = true
		case colour:
			colour = r != 'm'
		case width == 0:
			return -1
		default:
			width--
		}
		return r
	}, line)
}
