package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
)

// decide are the packages whose mistakes send a request to the wrong place, or trust the wrong member.
var decide = []string{
	"affinity", "selection", "internal/outlier", "internal/relaypool", "internal/peering",
	"membership", "membership/internal/trust", "advertise",
	"internal/proxy/http1", "internal/proxy/http2", "internal/proxy/downstream", "internal/proxy/upstream",
}

//go:embed survivors.txt
var survivorsFile string

var errUnexplained = errors.New("faults survived without a reason: write a test for each, or a reason into survivors.txt")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	sample := flag.Int("sample", 25, "faults to try in each package, beside those that do not compile; 0 for all")
	seed := flag.Uint64("seed", 1, "which faults are in the sample")
	var only *regexp.Regexp
	flag.Func("only", "try only faults whose names match this pattern, such as those that have survived", func(s string) (err error) {
		only, err = regexp.Compile(s)
		return err
	})
	flag.Parse()
	if err := run(ctx, options{sample: *sample, seed: *seed, only: only, packages: flag.Args()}, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

type options struct {
	sample   int
	seed     uint64
	only     *regexp.Regexp
	packages []string // directories; none: those that decide
}

// score is what became of the faults of one package.
type score struct {
	directory   string
	candidates  int
	counts      map[result]int
	unexplained int
}

// run tries the faults of the packages and writes each survivor, then the scores.
func run(ctx context.Context, o options, out io.Writer) error {
	reasons, err := parseSurvivors(survivorsFile)
	if err != nil {
		return err
	}
	repository, err := os.Getwd()
	if err != nil {
		return err
	}
	if len(o.packages) == 0 {
		o.packages = decide
	}
	var scores []score
	unexplained := 0
	for _, directory := range o.packages {
		s, err := tryPackage(ctx, target{repository: repository, directory: path.Clean(directory), reasons: reasons}, o, out)
		if err != nil && ctx.Err() == nil {
			return err
		}
		scores = append(scores, s)
		unexplained += s.unexplained
		if ctx.Err() != nil { // what was tried counts: the next run with this seed begins with the same faults
			break
		}
	}
	writeScores(out, scores)
	if unexplained > 0 {
		return errUnexplained
	}
	return nil
}

// target is a package to try, and the reasons of known survivors.
type target struct {
	repository, directory string
	reasons               map[string]string
}

// tryPackage tries a sample of the faults of one package.
func tryPackage(ctx context.Context, t target, o options, out io.Writer) (score, error) {
	s := score{directory: t.directory, counts: map[result]int{}}
	faults, err := faultsIn(t.repository, t.directory)
	if err != nil {
		return s, err
	}
	s.candidates = len(faults)
	rand.New(rand.NewPCG(o.seed, 0)).Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
	scratch, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return s, err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	b := &bench{repository: t.repository, scratch: scratch, directory: t.directory}
	if err := b.prepare(ctx); err != nil {
		return s, err
	}
	if o.only != nil {
		faults = slices.DeleteFunc(faults, func(f fault) bool { return !o.only.MatchString(f.name) })
	}
	batch := 0
	for i, f := range faults {
		if o.sample > 0 && s.tried() == o.sample {
			break
		}
		if i == batch {
			if batch = len(faults); o.sample > 0 {
				batch = min(batch, i+o.sample-s.tried())
			}
			if err := b.plant(ctx, faults[i:batch]); err != nil {
				return s, err
			}
		}
		r, err := b.try(ctx, f)
		if err != nil {
			return s, err
		}
		s.counts[r]++
		if r != survived && r != unrun {
			continue
		}
		reason := t.reasons[f.name]
		if reason == "" {
			s.unexplained++
			reason = "NO REASON"
		}
		_, _ = fmt.Fprintf(out, "%s:%d: %s\n  %s\n\t%s\n", f.file, f.line, r, f.name, reason)
	}
	return s, nil
}

func (s score) caught() int { return s.counts[caught] + s.counts[hung] }
func (s score) tried() int  { return s.caught() + s.counts[survived] + s.counts[unrun] }

func writeScores(out io.Writer, scores []score) {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "package\tfaults\ttried\tcaught\tby hanging\tsurvived\tof these not run\twithout a reason\tnot compiled\tscore")
	for _, s := range scores {
		percent := "–"
		if s.tried() > 0 {
			percent = fmt.Sprintf("%.0f %%", 100*float64(s.caught())/float64(s.tried()))
		}
		_, _ = fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\n", s.directory, s.candidates, s.tried(), s.caught(), s.counts[hung],
			s.counts[survived]+s.counts[unrun], s.counts[unrun], s.unexplained, s.counts[uncompiled], percent)
	}
	_ = table.Flush()
}

// faultsIn are the faults of a package's files, in the order of their names.
func faultsIn(repository, directory string) (faults []fault, err error) {
	files, err := filepath.Glob(filepath.Join(repository, filepath.FromSlash(directory), "*.go"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		found, err := faultsOf(path.Join(directory, filepath.Base(file)), string(source))
		if err != nil {
			return nil, err
		}
		faults = append(faults, found...)
	}
	if len(faults) == 0 {
		return nil, fmt.Errorf("%s has no code in which a fault could be planted: is it a package, from the root of the repository?", directory)
	}
	return faults, nil
}

// parseSurvivors reads the names of faults, each with its reason on a line that begins with a tab.
func parseSurvivors(text string) (map[string]string, error) {
	reasons := map[string]string{}
	name := ""
	for i, line := range strings.Split(text, "\n") {
		reason, indented := strings.CutPrefix(line, "\t")
		switch {
		case line == "" || line[0] == '#':
			continue
		case indented && name != "" && strings.TrimSpace(reason) != "":
			reasons[name] = reason
			name = ""
		case indented || name != "":
			return nil, fmt.Errorf("survivors.txt:%d: a fault has one line with its name and one with its reason, after a tab", i+1)
		default:
			name = line
		}
	}
	if name != "" {
		return nil, fmt.Errorf("survivors.txt: %s has no reason", name)
	}
	return reasons, nil
}
