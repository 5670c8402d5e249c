package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"
)

func main() {
	testing.Init() // testing.Benchmark reads its flags
	rounds := flag.Int("rounds", 7, "measurements of each side, taken in turn; the median counts")
	span := flag.Duration("span", 200*time.Millisecond, "length of one measurement")
	flag.Parse()
	if err := run(os.Stdout, *rounds, *span); err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// figure is one measurement.
type figure struct {
	cpu    float64 // ns of processor time per operation, garbage collection included
	wall   float64 // ns
	allocs int64
}

func run(out io.Writer, rounds int, span time.Duration) error {
	if rounds < 1 || span <= 0 {
		return fmt.Errorf("rounds is %d and span %v; both must be positive", rounds, span)
	}
	if err := flag.Set("test.benchtime", span.String()); err != nil {
		return fmt.Errorf("set the length of a measurement: %w", err)
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "endpoints\tours cpu ns\tkratos cpu ns\tratio cpu\tours wall ns\tkratos wall ns\tratio wall\tours allocs\tkratos allocs\t")
	for _, n := range sizes {
		ours, err := ringway(n)
		if err != nil {
			return fmt.Errorf("prepare ours with %d endpoints: %w", n, err)
		}
		theirs, err := kratos(n)
		if err != nil {
			return fmt.Errorf("prepare kratos with %d endpoints: %w", n, err)
		}
		var a, b []figure
		for range rounds { // in turn, so that a noisy neighbour hits both
			fa, errA := measure(ours)
			fb, errB := measure(theirs)
			if err := errors.Join(errA, errB); err != nil {
				return err
			}
			a, b = append(a, fa), append(b, fb)
		}
		cpuA, cpuB := median(a, figure.cpuTime), median(b, figure.cpuTime)
		wallA, wallB := median(a, figure.wallTime), median(b, figure.wallTime)
		fmt.Fprintf(w, "%d\t%.0f\t%.0f\t%.2f\t%.0f\t%.0f\t%.2f\t%d\t%d\t\n",
			n, cpuA, cpuB, cpuA/cpuB, wallA, wallB, wallA/wallB, a[0].allocs, b[0].allocs)
	}
	return w.Flush()
}

func (f figure) cpuTime() float64  { return f.cpu }
func (f figure) wallTime() float64 { return f.wall }

func median(figures []figure, of func(figure) float64) float64 {
	values := make([]float64, len(figures))
	for i, f := range figures {
		values[i] = of(f)
	}
	slices.Sort(values)
	return values[len(values)/2]
}

// measure runs the operation through testing.Benchmark. The processor time is
// taken around the timed loop of the last, longest run.
func measure(op operation) (figure, error) {
	var cpu time.Duration
	var failed error
	result := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		before, err := cpuTime()
		if err == nil {
			err = repeat(op, b.N)
		}
		after, err2 := cpuTime()
		if err := errors.Join(err, err2); err != nil {
			failed = err
			b.FailNow()
		}
		cpu = after - before
	})
	if failed != nil {
		return figure{}, failed
	}
	if result.N == 0 {
		return figure{}, errors.New("the benchmark did not run")
	}
	return figure{
		cpu:    float64(cpu) / float64(result.N),
		wall:   float64(result.T) / float64(result.N),
		allocs: result.AllocsPerOp(),
	}, nil
}

// cpuTime is what this process has used so far, user and system. It is steadier
// than wall time on a shared machine.
func cpuTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("read the processor time: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
