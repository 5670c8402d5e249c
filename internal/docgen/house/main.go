// Command house counts what a change of structure should change: packages, imports that lead
// upwards, long files, exported names, lines of code, comments and tests, walks through the files,
// and words of docs.
//
// Promise: equal trees give equal bytes, so the output before and after a change can be compared
// line by line.
//
//	docs/architecture.md ──► floors ──┐
//	                                  ├──► one line for each package, and the sums
//	*.go ──► imports, names, lines ───┘
//	docs/*.md ──► words by folder, without what a program writes
//
// Rules: the program reads files and runs none. It counts directories with Go code of all modules,
// without testdata; generated files count as others do. An import leads upwards if the page has the
// imported package on a higher floor, or if the package is a part of internal/relay and the
// importing one is on a floor below that of internal/relay.
//
//	make house
//	go run ./internal/docgen/house REPOSITORY
package main

import (
	"fmt"
	"os"
)

func main() {
	repository := "."
	if len(os.Args) > 1 {
		repository = os.Args[1]
	}
	h, err := count(repository)
	if err == nil {
		err = h.write(os.Stdout)
	}
	if err == nil {
		var words map[string]int
		if words, err = handWritten(repository); err == nil {
			writeWords(os.Stdout, words)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}
