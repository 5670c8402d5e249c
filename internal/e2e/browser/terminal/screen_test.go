package terminal_test

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/e2e/browser/terminal"
)

// A table that is redrawn in place is there once.
func Example() {
	var s terminal.Screen
	for n := range 3 {
		if n > 0 {
			fmt.Fprint(&s, "\r\x1b[2A")
		}
		fmt.Fprintf(&s, "worker  %d req/s\x1b[K\r\nstate   up\x1b[K\r\n\x1b[J", 10*n)
	}
	fmt.Println(strings.Join(s.Lines(), "\n"))
	// Output:
	// worker  20 req/s
	// state   up
}

func TestTheScreenIsThatOfATerminal(t *testing.T) {
	for text, want := range map[string][]string{
		"one\r\ntwo":                         {"one", "two"},
		"one\r\ntwo\r\n\x1b[2AX":             {"Xne", "two"},
		"longer\rab\x1b[K":                   {"ab"},
		"one\r\ntwo\r\nthree\r\x1b[1A\x1b[J": {"one"},
		"… 5 ms\r\n":                         {"… 5 ms"},
		"a\nb":                               {"a", " b"},
		"\x1b[9Atop":                         {"top"},
	} {
		var whole, bytewise terminal.Screen
		_, _ = io.WriteString(&whole, text) // it never fails
		for i := range len(text) {
			_, _ = bytewise.Write([]byte{text[i]})
		}
		if got := whole.Lines(); !slices.Equal(got, want) || !slices.Equal(bytewise.Lines(), want) || whole.Unknown != 0 {
			t.Errorf("%q: %q, %q byte by byte, want %q", text, got, bytewise.Lines(), want)
		}
	}
}

func TestWhatIsNotUnderstoodIsCounted(t *testing.T) {
	var s terminal.Screen
	_, _ = io.WriteString(&s, "a\x1b[31mb\x1b7\a") // it never fails
	if s.Unknown != 3 || s.Lines()[0] != "ab" {
		t.Errorf("%d, %q", s.Unknown, s.Lines())
	}
}

func TestThePictureHasTheLinesAndIsWellFormed(t *testing.T) {
	var s terminal.Screen
	_, _ = io.WriteString(&s, "a <b> & c\r\n\r\nlast") // it never fails
	var b strings.Builder
	if err := s.SVG(&b, `the "title"`); err != nil {
		t.Fatal(err)
	}
	var texts []string
	d, inText := xml.NewDecoder(strings.NewReader(b.String())), false
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			inText = token.Name.Local == "text"
		case xml.CharData:
			if inText {
				texts = append(texts, string(token))
			}
		case xml.EndElement:
			inText = false
		}
	}
	if want := []string{`the "title"`, "a <b> & c", "last"}; !slices.Equal(texts, want) {
		t.Errorf("%q, want %q", texts, want)
	}
}
