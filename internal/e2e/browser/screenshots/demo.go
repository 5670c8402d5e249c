package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"
	"unicode/utf8"
)

// window draws lines of text as the window of a terminal. textLength sets the width of a line
// to that of its cells of 8.43 pixels, so that columns stay aligned with any font.
var window = template.Must(template.New("").Parse(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {{printf "%.0f %.0f" .Width .Height}}" font-family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace" font-size="14">
<title>relay demo</title>
<rect width="100%" height="100%" rx="10" fill="#0d131d"/>
<circle cx="22" cy="18" r="6" fill="#ff7b7b"/>
<circle cx="42" cy="18" r="6" fill="#f3b562"/>
<circle cx="62" cy="18" r="6" fill="#5fd4ab"/>
<text x="50%" y="23" text-anchor="middle" fill="#a3b0c5">relay demo</text>
{{range .Lines}}{{if .Text}}<text x="18" y="{{.Y}}" xml:space="preserve" textLength="{{printf "%.1f" .Width}}" fill="#e7ecf4">{{html .Text}}</text>
{{end}}{{end}}</svg>
`))

// demoTable runs a demo in the terminal of script(1), and draws the first table in which a
// killed worker was replaced.
func demoTable(ctx context.Context, dir, binaries string) error {
	relay := filepath.Join(binaries, "relay")
	out, err := exec.CommandContext(ctx, "script", "-qec", "stty rows 42 cols 124; exec '"+relay+"' demo --seed 7 --kill-every 6s --for 30s", os.DevNull).Output()
	if err != nil {
		return fmt.Errorf("run %s demo: %w: %s", relay, err, out)
	}
	// The first two lines stay. A table begins where the cursor moves up to its first line, and
	// ends with the sequence that clears the rest of the screen.
	text := strings.NewReplacer("\r", "", "\x1b[K", "").Replace(string(out))
	head := strings.Join(strings.SplitAfterN(text, "\n", 3)[:2], "")
	for _, table := range strings.Split(text, "\x1b[J")[1:] {
		if _, table, _ := strings.Cut(table, "A"); strings.Contains(table, "active again\n") {
			return draw(filepath.Join(dir, "demo.svg"), head+table)
		}
	}
	return fmt.Errorf("the demo showed no worker that was killed and replaced: %s", out)
}

func draw(file, screen string) error {
	type line struct {
		Y     int
		Width float64
		Text  string
	}
	var shown struct {
		Width, Height float64
		Lines         []line
	}
	for row, text := range strings.Split(strings.TrimRight(screen, "\n"), "\n") {
		l := line{60 + 20*row, 8.43 * float64(utf8.RuneCountInString(text)), text}
		shown.Lines, shown.Width, shown.Height = append(shown.Lines, l), max(shown.Width, l.Width+36), float64(l.Y+30)
	}
	var b bytes.Buffer
	if err := window.Execute(&b, shown); err != nil {
		return err
	}
	return os.WriteFile(file, b.Bytes(), 0o644)
}
