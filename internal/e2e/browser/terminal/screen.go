package terminal

import (
	"fmt"
	"html"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Screen is the content of a terminal. It grows downwards without limit.
type Screen struct {
	// Unknown counts the skipped control sequences.
	Unknown int

	lines    [][]rune
	row, col int
	pending  []byte // the beginning of a character or control sequence
}

// Write processes the output of a program. It never fails.
func (s *Screen) Write(b []byte) (int, error) {
	s.pending = append(s.pending, b...)
	for len(s.pending) > 0 {
		n := s.take()
		if n == 0 {
			break // the next Write has the rest
		}
		s.pending = s.pending[n:]
	}
	return len(b), nil
}

// take processes one character or control sequence and returns its length, 0 if it is
// incomplete.
func (s *Screen) take() int {
	switch c := s.pending[0]; {
	case c == '\r':
		s.col = 0
	case c == '\n':
		s.row++
	case c == 0x1b:
		return s.control()
	case c < ' ':
		s.Unknown++
	default:
		if !utf8.FullRune(s.pending) {
			return 0
		}
		r, n := utf8.DecodeRune(s.pending)
		line := s.line(s.row)
		for len(*line) <= s.col {
			*line = append(*line, ' ')
		}
		(*line)[s.col] = r
		s.col++
		return n
	}
	return 1
}

// control processes a sequence ESC [ number letter.
func (s *Screen) control() int {
	if len(s.pending) < 2 {
		return 0
	}
	if s.pending[1] != '[' {
		s.Unknown++
		return 2
	}
	for i, c := range s.pending[2:] {
		if c < '@' {
			continue
		}
		argument := string(s.pending[2 : 2+i])
		switch n, err := strconv.Atoi("0" + argument); {
		case err != nil:
			s.Unknown++
		case c == 'A':
			s.row = max(0, s.row-max(1, n))
		case c == 'K' && n == 0:
			line := s.line(s.row)
			*line = (*line)[:min(len(*line), s.col)]
		case c == 'J' && n == 0:
			line := s.line(s.row)
			*line = (*line)[:min(len(*line), s.col)]
			s.lines = s.lines[:s.row+1]
		default:
			s.Unknown++
		}
		return 3 + i
	}
	return 0
}

func (s *Screen) line(row int) *[]rune {
	for len(s.lines) <= row {
		s.lines = append(s.lines, nil)
	}
	return &s.lines[row]
}

// Lines returns the lines without spaces and empty lines at the end.
func (s *Screen) Lines() []string {
	var out []string
	for _, l := range s.lines {
		out = append(out, strings.TrimRight(string(l), " "))
	}
	for len(out) > 0 && out[len(out)-1] == "" {
		out = out[:len(out)-1]
	}
	return out
}

const (
	cellWidth, cellHeight = 8.43, 20 // of a character of 14 pixels
	margin, bar           = 18, 34
)

// SVG draws the screen as a window with a title.
func (s *Screen) SVG(w io.Writer, title string) error {
	lines, wide := s.Lines(), 0
	for _, l := range lines {
		wide = max(wide, utf8.RuneCountInString(l))
	}
	width, height := float64(wide)*cellWidth+2*margin, float64(len(lines)*cellHeight+2*margin+bar)
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" font-family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace" font-size="14">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, "<title>%s</title>\n", html.EscapeString(title))
	fmt.Fprintf(&b, `<rect width="%.0f" height="%.0f" rx="10" fill="#0d131d"/>`+"\n", width, height)
	for i, colour := range []string{"#ff7b7b", "#f3b562", "#5fd4ab"} {
		fmt.Fprintf(&b, `<circle cx="%d" cy="18" r="6" fill="%s"/>`+"\n", 22+20*i, colour)
	}
	fmt.Fprintf(&b, `<text x="%.0f" y="23" text-anchor="middle" fill="#a3b0c5">%s</text>`+"\n", width/2, html.EscapeString(title))
	for i, l := range lines {
		if l == "" {
			continue
		}
		// textLength sets the width to that of the cells, so that columns stay aligned with
		// any font.
		fmt.Fprintf(&b, `<text x="%d" y="%d" xml:space="preserve" textLength="%.1f" fill="#e7ecf4">%s</text>`+"\n",
			margin, bar+margin+i*cellHeight+8, float64(utf8.RuneCountInString(l))*cellWidth, html.EscapeString(l))
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}
