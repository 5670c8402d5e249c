package demo

import (
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/term"
)

// display shows one moment after the other.
type display interface {
	show(frame) error
	// event is called with each death and return.
	event(text string) error
}

// lineDisplay prints one line for each.
type lineDisplay struct{ out io.Writer }

func (d lineDisplay) show(f frame) error {
	_, err := fmt.Fprintln(d.out, f.line())
	return err
}

func (d lineDisplay) event(text string) error {
	_, err := fmt.Fprintln(d.out, "        "+text)
	return err
}

// screen redraws a table in place, where it stands in the terminal, so that what
// was there before stays.
type screen struct {
	out    io.Writer
	size   func() (width, height int)
	drawn  int // lines of the last frame, above the cursor
	events []string
}

// shownEvents is how many deaths and returns stay in sight.
const shownEvents = 4

func newScreen(terminal *os.File) *screen {
	return &screen{out: terminal, size: func() (int, int) {
		width, height, err := term.GetSize(int(terminal.Fd()))
		if err != nil || width <= 0 || height <= 0 { // some terminals do not know their size
			return 80, 24
		}
		return width, height
	}}
}

const (
	clearLine = "\x1b[K"
	clearRest = "\x1b[J"
)

func (s *screen) show(f frame) error {
	f.Events = s.events
	width, height := s.size()
	var b strings.Builder
	if s.drawn > 0 {
		fmt.Fprintf(&b, "\r\x1b[%dA", s.drawn)
	}
	lines := f.table(width, height)
	for _, l := range lines {
		b.WriteString(l + clearLine + "\r\n")
	}
	b.WriteString(clearRest)
	s.drawn = len(lines)
	_, err := io.WriteString(s.out, b.String()) // one write, so that nothing flickers
	return err
}

func (s *screen) event(text string) error {
	s.events = append(s.events, text)
	s.events = s.events[max(0, len(s.events)-shownEvents):]
	return nil
}
