package main

import (
	"fmt"
	"io"
	"path"
	"regexp"
	"strings"
)

// walk is one numbered list of the architecture page: the way of a request, an event or a value
// through the files. Paragraphs below the list, about variants of the way, do not count.
type walk struct {
	title string
	// stops are the files in the order of the list. One that is named twice is there twice.
	stops []string
}

var (
	step     = regexp.MustCompile(`^\d+\. `)
	linkedGo = regexp.MustCompile(`\]\(\.\./([^)#]+\.go)\)`)
)

// walks returns the walks of the architecture page.
func walks(page string) (found []walk) {
	var w walk
	for line := range strings.Lines(page + "## \n") {
		if title, isTitle := strings.CutPrefix(line, "## "); isTitle {
			if len(w.stops) > 0 {
				found = append(found, w)
			}
			w = walk{title: strings.TrimSpace(title)}
		}
		if step.MatchString(line) {
			for _, m := range linkedGo.FindAllStringSubmatch(line, -1) {
				w.stops = append(w.stops, m[1])
			}
		}
	}
	return found
}

// count returns how many files and packages a walk has, and how often it comes back to a package
// that it has left.
func (w walk) count() (files, packages, returns int) {
	seen, rooms, last := map[string]bool{}, map[string]bool{}, ""
	for _, file := range w.stops {
		seen[file] = true
		if room := path.Dir(file); room != last {
			if rooms[room] {
				returns++
			}
			rooms[room], last = true, room
		}
	}
	return len(seen), len(rooms), returns
}

func writeWalks(out io.Writer, found []walk) {
	fmt.Fprintln(out, "\nwalks of the architecture page: files, packages, returns to a package")
	for _, w := range found {
		files, packages, returns := w.count()
		fmt.Fprintf(out, "  %4d %4d %4d  %s\n", files, packages, returns, w.title)
	}
}
