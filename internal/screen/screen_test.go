package screen_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/screen"
)

// Two frames, the second of which is shorter.
func Example() {
	s := screen.Screen{Out: quoting{}, Size: size(80, 24)}
	_ = s.Draw([]string{"w1 active", "w2 joining"})
	_ = s.Draw([]string{"w1 active"})
	// Output:
	// "w1 active\x1b[K\r\nw2 joining\x1b[K\r\n\x1b[J"
	// "\r\x1b[2Aw1 active\x1b[K\r\n\x1b[J"
}

func size(width, height int) func() (int, int) { return func() (int, int) { return width, height } }

// quoting shows what a terminal would get.
type quoting struct{}

func (quoting) Write(p []byte) (int, error) { return fmt.Printf("%q\n", p) }

func TestAFrameFromTheTopMovesNoLines(t *testing.T) {
	var out strings.Builder
	s := screen.Screen{Out: &out, Size: size(80, 24), Top: true}
	for range 2 {
		out.Reset()
		if err := s.Draw([]string{"a"}); err != nil || out.String() != "\x1b[Ha\x1b[K\r\n\x1b[J" {
			t.Errorf("%q, %v", out.String(), err)
		}
	}
}

func TestAFrameThatDoesNotFitItsTerminalIsCutAndDoesNotScrollIt(t *testing.T) {
	for _, c := range []struct {
		width, height int
		lines, want   []string
	}{
		{5, 4, []string{"größe", "größer", "c"}, []string{"größe", "größe", "c"}},
		{4, 4, []string{"\x1b[32mwide\x1b[0mr", "a \x1b[31mbc\x1b[0m"}, []string{"\x1b[32mwide\x1b[0m", "a \x1b[31mbc\x1b[0m"}},
		{3, 4, []string{"a \x1b[31mbcd\x1b[0m"}, []string{"a \x1b[31mb\x1b[0m"}},
		{80, 4, []string{"a", "b", "c", "d"}, []string{"a", "b", "and 2 lines more"}},
		{7, 2, []string{"a", "b"}, []string{"and 2 l"}},
	} {
		var out strings.Builder
		s := screen.Screen{Out: &out, Size: size(c.width, c.height), Top: true}
		err := s.Draw(c.lines)
		if want := "\x1b[H" + strings.Join(c.want, "\x1b[K\r\n") + "\x1b[K\r\n\x1b[J"; err != nil || out.String() != want {
			t.Errorf("%d × %d: %q, %v, want %q", c.width, c.height, out.String(), err, want)
		}
	}
}

func TestATerminalWithoutASizeHasTheUsualOne(t *testing.T) {
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if width, height := screen.SizeOf(file)(); width != 80 || height != 24 {
		t.Errorf("%d × %d", width, height)
	}
}
