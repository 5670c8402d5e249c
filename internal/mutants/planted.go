package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// planted is a binary of the tests that has many faults: to compile it takes about as long as to
// compile it with one. A function with faults becomes
//
//	func f() {
//		switch plantedFault {
//		case 1: { … the body with the first fault … }
//		default: { … the body … }
//		}
//	}
//
// and the environment specifies which fault there is.
type planted struct {
	binary  string
	numbers map[fault]int // of those that were tried together, 0 for one that does not compile
	skipped string        // a pattern of the slow tests, and of those that fail without a fault, such as one that counts allocations
}

const faultVariable = "PLANTED_FAULT"

// faultNumber is a file of the package, which has the number of the fault.
const faultNumber = `package %s

import (
	"os"
	"strconv"
)

var plantedFault, _ = strconv.Atoi(os.Getenv("` + faultVariable + `"))
`

// plant builds a binary with those faults that compile. Each failure to compile names some that do not.
func (b *bench) plant(ctx context.Context, faults []fault) error {
	b.planted = planted{binary: filepath.Join(b.scratch, "planted.test"), numbers: map[fault]int{}}
	for _, f := range faults {
		if b.reached(f) && !f.labelled {
			b.planted.numbers[f] = len(b.planted.numbers) + 1
		}
	}
	for {
		texts, lines, err := b.texts()
		if err != nil || len(lines) == 0 {
			return err
		}
		err = b.build(ctx, b.planted.binary, texts, "-gcflags=-e")
		if err == nil {
			break
		}
		wrong := faultsAt(err.Error(), lines)
		if len(wrong) == 0 || ctx.Err() != nil {
			return err
		}
		for _, f := range wrong {
			b.planted.numbers[f] = 0
		}
	}
	out, err := b.run(ctx, tests{binary: b.planted.binary, limit: longest, flags: []string{"-test.v", "-test.skip=" + b.slow}})
	unfit := testsThat(out, func(passed bool, _ time.Duration) bool { return !passed })
	if b.planted.skipped = b.slow + "|" + unfit; err != nil && unfit == noTest {
		return fmt.Errorf("%s with faults that are not chosen: %w\n%s", b.directory, err, out)
	}
	return ctx.Err()
}

// place is where a fault is in a text, by lines.
type place struct {
	fault fault
	block
}

// texts returns the files with all faults that compile, and where they are.
func (b *bench) texts() (texts map[string]string, places []place, err error) {
	byFile := map[string][]fault{}
	for f, number := range b.planted.numbers {
		if number > 0 {
			byFile[f.file] = append(byFile[f.file], f)
		}
	}
	texts = map[string]string{}
	for file, faults := range byFile {
		source, err := os.ReadFile(b.path(file))
		if err != nil {
			return nil, nil, err
		}
		slices.SortFunc(faults, func(x, y fault) int { return x.body.start - y.body.start })
		text, at := strings.Builder{}, 0
		line := func() int { return 1 + strings.Count(text.String(), "\n") }
		for i, f := range faults {
			if i == 0 || faults[i-1].body != f.body {
				text.WriteString(string(source[at:f.body.start]) + " switch plantedFault {\n")
			}
			first := line()
			fmt.Fprintf(&text, "case %d: {\n%s%s%s\n}\n", b.planted.numbers[f], source[f.body.start:f.start], f.with, source[f.end:f.body.end])
			places = append(places, place{f, block{first, line() - 1}})
			if i+1 == len(faults) || faults[i+1].body != f.body {
				fmt.Fprintf(&text, "default: {\n%s\n} }\n", source[f.body.start:f.body.end])
				at = f.body.end
			}
		}
		text.Write(source[at:])
		texts[file] = text.String()
		name := regexp.MustCompile(`(?m)^package (\w+)`).FindStringSubmatch(texts[file])[1]
		texts[path.Join(b.directory, "planted_fault.go")] = fmt.Sprintf(faultNumber, name)
	}
	return texts, places, nil
}

var compilerError = regexp.MustCompile(`(?m)^(?:.*/)?([^/\s]+\.go):(\d+):`)

// faultsAt returns the faults at which the compiler has found errors.
func faultsAt(errors string, places []place) []fault {
	wrong := map[fault]bool{}
	for _, m := range compilerError.FindAllStringSubmatch(errors, -1) {
		line, _ := strconv.Atoi(m[2]) // digits only
		for _, p := range places {
			if path.Base(p.fault.file) == m[1] && p.from <= line && line <= p.to {
				wrong[p.fault] = true
			}
		}
	}
	return slices.Collect(maps.Keys(wrong))
}
