package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/ringway/ringway/sims/internal/scenario"
)

// progress keeps one line up to date: the share done, the running scenario and the time
// left. Without a terminal progress does nothing.
type progress struct {
	w      io.Writer // nil: no terminal
	now    func() time.Time
	names  []string
	weight []float64 // expected seconds of each scenario

	mu      sync.Mutex
	current int
	share   float64 // done of the current scenario
	began   time.Time
	drawn   time.Time
}

func newProgress(w io.Writer, which []scenario.Scenario, quick bool) *progress {
	p := &progress{now: time.Now}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.w = w
	}
	for _, s := range which {
		takes := s.Takes
		if quick {
			takes = s.TakesQuick
		}
		p.names = append(p.names, s.Name)
		p.weight = append(p.weight, max(0.1, takes.Seconds()))
	}
	p.began = p.now()
	return p
}

// of returns the function to call with the share done of scenario i, nil without a terminal.
func (p *progress) of(i int) func(float64) {
	if p.w == nil {
		return nil
	}
	p.mu.Lock()
	p.current, p.share = i, 0
	p.mu.Unlock()
	return func(done float64) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.share = max(p.share, done)
		if now := p.now(); now.Sub(p.drawn) >= 100*time.Millisecond {
			p.drawn = now
			fmt.Fprint(p.w, "\r\x1b[K"+p.line())
		}
	}
}

const barWidth = 30

// line returns the bar with the time left, extrapolated from the elapsed time and the share
// done.
func (p *progress) line() string {
	var all, done float64
	for i, w := range p.weight {
		all += w
		switch {
		case i < p.current:
			done += w
		case i == p.current:
			done += w * p.share
		}
	}
	share := done / all
	full := int(share * barWidth)
	line := fmt.Sprintf("[%s%s] %3.0f %%  %s", strings.Repeat("█", full), strings.Repeat("·", barWidth-full), 100*share, p.names[p.current])
	if len(p.names) > 1 {
		line += fmt.Sprintf(" (%d of %d)", p.current+1, len(p.names))
	}
	if share >= 0.02 {
		left := time.Duration(float64(p.now().Sub(p.began)) * (1 - share) / share)
		line += fmt.Sprintf("  %v left", left.Round(time.Second))
	}
	return line
}

func (p *progress) clear() {
	if p.w == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprint(p.w, "\r\x1b[K")
	p.drawn = p.now()
}
