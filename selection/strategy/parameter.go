package strategy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringway/ringway/ring"
)

// parameter is one field of Spec: how it is read, written and checked.
type parameter interface {
	key() string
	takenBy(strategy string) bool
	reset(*Spec) // to the default
	parse(*Spec, string) error
	text(*Spec) string
	check(*Spec) error
}

// The parameters in the order of Spec's fields.
var parameters = []parameter{
	preferred{},
	period{named{"expiry", []string{Closest, Farthest}}, 5 * time.Minute, func(s *Spec) *time.Duration { return &s.Expiry }},
	period{named{"timeout", []string{Closest, Farthest}}, 2 * time.Second, func(s *Spec) *time.Duration { return &s.Timeout }},
	number{named{"vnodes", []string{Slots}}, 1, ring.MaxVirtualNodes, ring.DefaultVirtualNodes, func(s *Spec) *int { return &s.VirtualNodes }},
	number{named{"samples", []string{Slots}}, 1, maxSamples, 2, func(s *Spec) *int { return &s.Samples }},
	number{named{"maxscan", []string{Slots}}, 1, 256, 16, func(s *Spec) *int { return &s.MaxScan }},
	number{named{"jitter", []string{Slots}}, 0, 64, 4, func(s *Spec) *int { return &s.SlotJitter }},
	period{named{"fresh", []string{Slots}}, 10 * time.Second, func(s *Spec) *time.Duration { return &s.Fresh }},
	factor{named{"bound", []string{Stable}}, 100, 1.25, func(s *Spec) *float64 { return &s.Bound }},
}

// maxSamples is the most that Spec.Samples may be.
const maxSamples = 8

type named struct {
	name       string
	strategies []string
}

func (n named) key() string                  { return n.name }
func (n named) takenBy(strategy string) bool { return slices.Contains(n.strategies, strategy) }

// number is a count within bounds.
type number struct {
	named
	low, high, normal int
	field             func(*Spec) *int
}

func (n number) reset(s *Spec)       { *n.field(s) = n.normal }
func (n number) text(s *Spec) string { return strconv.Itoa(*n.field(s)) }

func (n number) parse(s *Spec, text string) (err error) {
	if *n.field(s), err = strconv.Atoi(text); err != nil {
		return fmt.Errorf("%q is no whole number", text)
	}
	return nil
}

func (n number) check(s *Spec) error {
	if v := *n.field(s); v < n.low || v > n.high {
		return fmt.Errorf("selection: parameter %s of strategy %s must be in %d..%d, not %d", n.name, s.Name, n.low, n.high, v)
	}
	return nil
}

// period is a time that must be greater than 0.
type period struct {
	named
	normal time.Duration
	field  func(*Spec) *time.Duration
}

func (p period) reset(s *Spec)       { *p.field(s) = p.normal }
func (p period) text(s *Spec) string { return p.field(s).String() }

func (p period) parse(s *Spec, text string) (err error) {
	if *p.field(s), err = time.ParseDuration(text); err != nil {
		return fmt.Errorf("%q is no duration, such as 10s or 5m", text)
	}
	return nil
}

func (p period) check(s *Spec) error {
	if v := *p.field(s); v <= 0 {
		return fmt.Errorf("selection: parameter %s of strategy %s must be greater than 0, not %v", p.name, s.Name, v)
	}
	return nil
}

// factor is 0, which turns something off, or more than 1.
type factor struct {
	named
	high, normal float64
	field        func(*Spec) *float64
}

func (f factor) reset(s *Spec)       { *f.field(s) = f.normal }
func (f factor) text(s *Spec) string { return strconv.FormatFloat(*f.field(s), 'g', -1, 64) }

func (f factor) parse(s *Spec, text string) (err error) {
	if *f.field(s), err = strconv.ParseFloat(text, 64); err != nil {
		return fmt.Errorf("%q is no number, such as 1.25", text)
	}
	return nil
}

func (f factor) check(s *Spec) error {
	if v := *f.field(s); !(v == 0 || v > 1 && v <= f.high) { // negated, so that NaN is refused too
		return fmt.Errorf("selection: parameter %s of strategy %s must be 0 (off), or above 1 and at most %g, not %v", f.name, s.Name, f.high, v)
	}
	return nil
}

// preferred is the list of nodes.
type preferred struct{}

func (preferred) key() string { return "preferred" }
func (preferred) takenBy(strategy string) bool {
	return slices.Contains([]string{Manual, Ordered, Closest, Farthest}, strategy)
}
func (preferred) reset(s *Spec)       { s.Preferred = nil }
func (preferred) text(s *Spec) string { return strings.Join(s.Preferred, ",") }

// parse takes what environment variables make of a list: spaces and empty places
// do not count.
func (preferred) parse(s *Spec, text string) error {
	s.Preferred = nil
	for node := range strings.SplitSeq(text, ",") {
		if node = strings.TrimSpace(node); node != "" {
			s.Preferred = append(s.Preferred, node)
		}
	}
	return nil
}

func (preferred) check(s *Spec) error {
	if len(s.Preferred) == 0 && (s.Name == Manual || s.Name == Ordered) {
		return fmt.Errorf("selection: %w: strategy %s requires at least one node in preferred", ErrNotConfigured, s.Name)
	}
	for i, node := range s.Preferred {
		switch {
		case node == "" || node != strings.TrimSpace(node) || strings.ContainsAny(node, ",;"):
			return fmt.Errorf("selection: parameter preferred of strategy %s: %q is no name of a node", s.Name, node)
		case slices.Contains(s.Preferred[:i], node):
			return fmt.Errorf("selection: parameter preferred of strategy %s names %q twice: name it once", s.Name, node)
		}
	}
	return nil
}
