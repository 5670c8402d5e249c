package clusterscript

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// History is a file as written, before a size is put in.
type History struct {
	Name         string // of the file, without its ending
	Seeds        []uint64
	Sizes, Raced []int // Sizes is just 0 where the file names none
	lines        []line
}

type line struct{ where, text string }

// Form is one form of a statement and what it does.
type Form struct {
	Form string
	Do   func(Args) error
}

// Expect is the form of an expectation.
func Expect(what string, ask func(Args) error) Form {
	return Form{"expect " + what + "[ within DURATION]", func(a Args) error {
		return Eventually(a.Duration(len(a)-1), func() error { return ask(a) })
	}}
}

// Args are the arguments of a statement in the order of its form; "" is one left out.
type Args []string

// Duration is 0 where it was left out.
func (a Args) Duration(i int) time.Duration {
	d, _ := time.ParseDuration(a[i])
	return d
}

func (a Args) Int(i int) int {
	n, _ := strconv.Atoi(a[i])
	return n
}

// Eventually asks until the answer is nil or the time is up.
func Eventually(within time.Duration, ask func() error) error {
	deadline := time.Now().Add(within)
	for {
		err := ask()
		if err == nil || !time.Now().Before(deadline) {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// Files reads all histories of a directory.
func Files(dir string) ([]*History, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.txt"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no histories in %s", dir)
	}
	var out []*History
	for _, file := range files {
		text, bad := os.ReadFile(file)
		h, wrong := Read(file, string(text))
		out, err = append(out, h), errors.Join(err, bad, wrong)
	}
	return out, err
}

// Read reads a history. Its statements are checked by the forms that play it.
func Read(file, text string) (*History, error) {
	h := &History{Name: strings.TrimSuffix(filepath.Base(file), ".txt"), Seeds: []uint64{1}, Sizes: []int{0}}
	var errs []error
	raced := false
	number := 0
	for written := range strings.Lines(text) {
		number++
		statement, _, _ := strings.Cut(written, "#")
		words := strings.Fields(statement)
		if len(words) == 0 {
			continue
		}
		l := line{fmt.Sprintf("%s:%d", file, number), strings.Join(words, " ")}
		var err error
		switch words[0] {
		case "seeds":
			h.Seeds, err = numbers[uint64](words[1:])
		case "sizes":
			h.Sizes, err = numbers[int](words[1:])
		case "raced":
			raced = true
			if !slices.Equal(words[1:], []string{"none"}) {
				h.Raced, err = numbers[int](words[1:])
			}
		default:
			h.lines = append(h.lines, l)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %q: %w", l.where, l.text, err))
		}
	}
	if !raced {
		h.Raced = h.Sizes[:min(1, len(h.Sizes))]
	}
	return h, errors.Join(errs...)
}

func numbers[N int | uint64](words []string) (out []N, err error) {
	for _, w := range words {
		n, bad := strconv.ParseUint(w, 10, 31)
		out, err = append(out, N(n)), errors.Join(err, bad)
	}
	if len(words) == 0 {
		err = errors.New("it names no number")
	}
	return out, err
}

// Has reports whether a statement begins with a word.
func (h *History) Has(word string) bool {
	return slices.ContainsFunc(h.lines, func(l line) bool { return strings.HasPrefix(l.text+" ", word+" ") })
}

// After is the history with a statement before all others.
func (h *History) After(statement string) *History {
	later := *h
	later.lines = append([]line{{h.Name, statement}}, h.lines...)
	return &later
}

// Step is a statement that is ready to be played.
type Step struct {
	Where, Text string // Where is file:line
	Do          func() error
	form        string
}

var sizePattern = regexp.MustCompile(`\b(w?)N\b`)

// Steps puts a size in and reports every line that has none of the forms.
func (h *History) Steps(size int, forms []Form) ([]Step, error) {
	patterns := make([]*regexp.Regexp, len(forms))
	for i, f := range forms {
		patterns[i] = compile(f.Form)
	}
	var steps []Step
	var errs []error
	for _, l := range h.lines {
		text := l.text
		if size > 0 {
			text = sizePattern.ReplaceAllString(text, "${1}"+strconv.Itoa(size))
		}
		i := slices.IndexFunc(patterns, func(p *regexp.Regexp) bool { return p.MatchString(text) })
		if i < 0 {
			errs = append(errs, fmt.Errorf("%s: %q: %w", l.where, text, unknown(text, forms)))
			continue
		}
		do, args := forms[i].Do, Args(patterns[i].FindStringSubmatch(text)[1:])
		steps = append(steps, Step{l.where, text, func() error { return do(args) }, forms[i].Form})
	}
	return steps, errors.Join(errs...)
}

func unknown(text string, forms []Form) error {
	if sizePattern.MatchString(text) {
		return errors.New(`no sizes are given for N: begin with a line such as "sizes 5 50"`)
	}
	verb, _, _ := strings.Cut(text, " ")
	var have []string
	for _, f := range forms {
		if first, _, _ := strings.Cut(f.Form, " "); first == verb {
			have = append(have, f.Form)
		}
	}
	if have == nil {
		return fmt.Errorf("unknown statement %q", verb)
	}
	return fmt.Errorf("no form of %q; its forms are\n\t%s", verb, strings.Join(have, "\n\t"))
}

var (
	optional = regexp.MustCompile(`\[[^][]*\]`)

	nameItem  = `(?:all|relays|workers|others|dead|\d{1,4}(?:/[1-9]\d{0,3})? of workers|[a-z]+\d{1,4}(?:\.\.[a-z]+\d{1,4})?)`
	nameList  = nameItem + `(?:, ` + nameItem + `)*`
	joinItem  = `[1-9]\d{0,3} (?:relay|gate|worker)s?`
	arguments = strings.NewReplacer(
		"NAMES", `(`+nameList+`)`,
		"SIDES", `(`+nameList+`(?: \| `+nameList+`)+)`,
		"JOINERS", `(`+joinItem+`(?:, `+joinItem+`)*)`,
		"DURATION", `((?:\d{1,5}(?:\.\d{1,5})?(?:h|ms|m|s)){1,3})`,
		"COUNT", `([1-9]\d{0,3})`,
		"PERCENT", `(100|\d\d?)%`,
		"TEXT", `"(.*)"`,
	)
)

var compiled sync.Map // by form

// compile makes every argument of a form a group of the pattern, and every option that
// has no argument.
func compile(form string) *regexp.Regexp {
	if pattern, ok := compiled.Load(form); ok {
		return pattern.(*regexp.Regexp)
	}
	pattern := optional.ReplaceAllStringFunc(form, func(option string) string {
		inner := option[1 : len(option)-1]
		if inner == strings.ToLower(inner) {
			return `(` + inner + `)?`
		}
		return `(?:` + inner + `)?`
	})
	out := regexp.MustCompile(`^` + arguments.Replace(pattern) + `$`)
	compiled.Store(form, out)
	return out
}
