package screen

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// Screen is a terminal, or a part of it.
type Screen struct {
	// Out receives the frames.
	Out io.Writer
	// Size returns the columns and lines of the terminal.
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

// Draw replaces the last frame.
func (s *Screen) Draw(lines []string) error {
	const home, clearLine, clearRest = "\x1b[H", "\x1b[K", "\x1b[J"
	var b strings.Builder
	switch {
	case s.Top:
		b.WriteString(home)
	case s.drawn > 0:
		fmt.Fprintf(&b, "\r\x1b[%dA", s.drawn)
	}
	for _, l := range lines {
		b.WriteString(l + clearLine + "\r\n")
	}
	b.WriteString(clearRest)
	s.drawn = len(lines)
	_, err := io.WriteString(s.Out, b.String())
	return err
}
