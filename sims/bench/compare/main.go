package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

func main() {
	cfg := config{procs: []int{1, 2}}
	flag.IntVar(&cfg.rounds, "rounds", 7, "measurements of each side, taken in turn; the medians count")
	flag.DurationVar(&cfg.span, "span", 100*time.Millisecond, "length of one measurement")
	flag.BoolVar(&cfg.check, "check", false, "fail when ours, with the time given, takes more than half of go-kratos' processor time or allocates")
	flag.Parse()
	if err := run(os.Stdout, cfg); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

type config struct {
	procs  []int
	rounds int
	span   time.Duration
	check  bool
}

// cell holds the measurements of one size and number of processors: figures by
// side and round.
type cell struct {
	endpoints, procs int
	figures          [][]figure
}

func run(out io.Writer, cfg config) error {
	if cfg.rounds < 1 || cfg.span <= 0 {
		return fmt.Errorf("rounds is %d and span %v; both must be positive", cfg.rounds, cfg.span)
	}
	cells, err := measureAll(cfg)
	if err != nil {
		return err
	}
	if err := printTable(out, cells); err != nil {
		return err
	}
	if !cfg.check {
		return nil
	}
	var broken []error
	for _, c := range cells {
		broken = append(broken, c.judge())
	}
	return errors.Join(broken...)
}

func measureAll(cfg config) ([]cell, error) {
	var cells []cell
	for _, n := range sizes {
		operations := make([]func() operation, len(sides))
		times := make([]int, len(sides))
		for i, s := range sides {
			var err error
			if operations[i], err = s.prepare(n); err != nil {
				return nil, fmt.Errorf("prepare %s with %d endpoints: %w", s.name, n, err)
			}
			if times[i], err = timesFor(operations[i](), cfg.span); err != nil {
				return nil, fmt.Errorf("%s with %d endpoints: %w", s.name, n, err)
			}
		}
		for _, procs := range cfg.procs {
			c := cell{endpoints: n, procs: procs, figures: make([][]figure, len(sides))}
			for range cfg.rounds { // sides take turns, so that a noisy neighbour affects all of them
				for i, s := range sides {
					f, err := measure(operations[i], procs, times[i])
					if err != nil {
						return nil, fmt.Errorf("%s with %d endpoints: %w", s.name, n, err)
					}
					c.figures[i] = append(c.figures[i], f)
				}
			}
			cells = append(cells, c)
		}
	}
	return cells, nil
}

func printTable(out io.Writer, cells []cell) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "endpoints\tprocessors\tselector\tcpu ns\twall ns\tallocs\tours ÷ it\tours with clock ÷ it")
	for _, c := range cells {
		for i, s := range sides {
			fmt.Fprintf(w, "%d\t%d\t%s\t%.0f\t%.0f\t%.0f\t%.2f\t%.2f\n", c.endpoints, c.procs, s.name,
				c.median(i, func(f figure) float64 { return f.cpu }),
				c.median(i, func(f figure) float64 { return f.wall }),
				c.median(i, func(f figure) float64 { return f.allocs }),
				c.ratio(timeGiven, i), c.ratio(clockRead, i))
		}
	}
	return w.Flush()
}

// mostOfKratos is the largest allowed share of go-kratos' processor time for timeGiven.
const mostOfKratos = 0.5

// judge returns an error for each promise that does not hold in this cell.
func (c cell) judge() error {
	var broken []error
	if r := c.ratio(timeGiven, goKratos); r > mostOfKratos {
		broken = append(broken, fmt.Errorf("%d endpoints, %d processors: ours takes %.2f of go-kratos' time; at most %.2f is promised", c.endpoints, c.procs, r, mostOfKratos))
	}
	for _, i := range []int{timeGiven, clockRead} {
		// Allocations of the runtime are far below one in a thousand operations.
		if a := c.median(i, func(f figure) float64 { return f.allocs }); a > 0.001 {
			broken = append(broken, fmt.Errorf("%d endpoints, %d processors: %s allocates %.3f times per request; 0 is promised", c.endpoints, c.procs, sides[i].name, a))
		}
	}
	return errors.Join(broken...)
}

func (c cell) median(side int, of func(figure) float64) float64 {
	values := make([]float64, len(c.figures[side]))
	for i, f := range c.figures[side] {
		values[i] = of(f)
	}
	return middle(values)
}

// ratio returns the median over the rounds of side a's processor time divided by
// side b's.
func (c cell) ratio(a, b int) float64 {
	values := make([]float64, len(c.figures[a]))
	for i := range values {
		values[i] = c.figures[a][i].cpu / c.figures[b][i].cpu
	}
	return middle(values)
}

func middle(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
