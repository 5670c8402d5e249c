package main

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// figure is one measurement, per operation.
type figure struct {
	cpu    float64 // ns of processor time, user and system, garbage collection included
	wall   float64 // ns; with two processors about half of cpu
	allocs float64
}

// measure runs times operations on each of procs goroutines in parallel, with as
// many processors.
func measure(newOperation func() operation, procs, times int) (figure, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(procs))
	ops := make([]operation, procs)
	for i := range ops {
		ops[i] = newOperation()
	}
	runtime.GC() // this measurement must not pay for garbage of the last one
	errs := make([]error, procs)
	var before, after runtime.MemStats
	var running sync.WaitGroup
	runtime.ReadMemStats(&before)
	cpu, err := cpuTime()
	start := time.Now()
	for i, op := range ops {
		running.Go(func() { errs[i] = repeat(op, times) })
	}
	running.Wait()
	wall := time.Since(start)
	cpuAfter, err2 := cpuTime()
	runtime.ReadMemStats(&after)
	n := float64(procs * times)
	return figure{
		cpu:    float64(cpuAfter-cpu) / n,
		wall:   float64(wall) / n,
		allocs: float64(after.Mallocs-before.Mallocs) / n,
	}, errors.Join(append(errs, err, err2)...)
}

// timesFor returns how many operations take about span on one goroutine.
func timesFor(op operation, span time.Duration) (int, error) {
	for times := 1024; ; times *= 2 {
		start := time.Now()
		if err := repeat(op, times); err != nil {
			return 0, err
		}
		if took := time.Since(start); took >= span/8 {
			return max(1, int(float64(times)*float64(span)/float64(took))), nil
		}
	}
}

// cpuTime returns the processor time of this process so far. Processor time is
// steadier than wall time on a shared machine.
func cpuTime() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, fmt.Errorf("read the processor time: %w", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}
