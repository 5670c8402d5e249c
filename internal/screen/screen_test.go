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
	s := screen.Screen{Out: quoting{}}
	_ = s.Draw([]string{"w1 active", "w2 joining"})
	_ = s.Draw([]string{"w1 active"})
	// Output:
	// "w1 active\x1b[K\r\nw2 joining\x1b[K\r\n\x1b[J"
	// "\r\x1b[2Aw1 active\x1b[K\r\n\x1b[J"
}

// quoting shows what a terminal would get.
type quoting struct{}

func (quoting) Write(p []byte) (int, error) { return fmt.Printf("%q\n", p) }

func TestAFrameFromTheTopMovesNoLines(t *testing.T) {
	var out strings.Builder
	s := screen.Screen{Out: &out, Top: true}
	for range 2 {
		out.Reset()
		if err := s.Draw([]string{"a"}); err != nil || out.String() != "\x1b[Ha\x1b[K\r\n\x1b[J" {
			t.Errorf("%q, %v", out.String(), err)
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
