package strategy

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The names of the strategies.
const (
	P2C          = "p2c" // the default; implemented by selection.Balancer
	Stable       = "stable"
	StableSHA256 = "stable-sha256"
	Manual       = "manual"
	Ordered      = "ordered"
	Random       = "random"
	Closest      = "closest"
	Farthest     = "farthest"
	Slots        = "slots"
)

var names = []string{P2C, Stable, StableSHA256, Manual, Ordered, Random, Closest, Farthest, Slots}

// What other packages must know of a strategy, by its name:

// ByKey reports whether the request's key decides.
func (s Spec) ByKey() bool { return s.Name == Stable || s.Name == StableSHA256 }

// Measures reports whether Run measures distances.
func (s Spec) Measures() bool { return s.Name == Closest || s.Name == Farthest }

// Prefers reports whether requests go to the worker that is preferred or has the right distance, all of
// them while it can take them.
func (s Spec) Prefers() bool { return s.Measures() || s.Name == Manual || s.Name == Ordered }

// NeedsWholeRange reports whether every relay must have the whole range, so that all give the same
// result. The other strategies can draw from any sample.
func (s Spec) NeedsWholeRange() bool { return s.ByKey() || s.Prefers() }

// Names returns the names of all strategies, the default first.
func Names() []string { return slices.Clone(names) }

// Spec is a strategy's name with its parameters. The comment of a parameter names the
// strategies that take it; for others it stays zero. Parse and Default fill in the
// defaults.
type Spec struct {
	// Name is one of Names.
	Name string

	// Preferred are nodes in order of preference. manual and ordered need at least one;
	// closest and farthest measure and use only the preferred nodes if the range has any
	// of them.
	Preferred []string

	// Expiry is how long closest and farthest use a connect time before they
	// measure it again, at least 1 s; after a failure it is a tenth of that, also at least
	// 1 s. Default 5 min.
	Expiry time.Duration
	// Timeout limits one connection attempt of closest and farthest. Default 2 s.
	Timeout time.Duration

	// VirtualNodes (V) is how many positions an endpoint has on the ring of slots: 1 to
	// 64, default 8. A higher number makes shares more even (with one sample the largest
	// of 1000 shares is 2.5 times the mean at 8, 1.7 times at 32) and takes memory for V
	// positions per endpoint.
	VirtualNodes int
	// Samples (K) is how many samples slots compares: 1 to 8, default 2. With 1 it never
	// reads a load. 2 balance the shares for any V; more gain little.
	Samples int
	// MaxScan is how many stale endpoints slots passes over in one pick, for all samples
	// together: 1 to 256, default 16. An endpoint found at two positions counts twice.
	MaxScan int
	// SlotJitter is the largest random number that slots adds to a load, so that pickers
	// with the same outdated loads do not all choose the same endpoint: 0 (off) to 64,
	// default 4.
	SlotJitter int
	// Fresh is the age up to which a sign of life counts: slots picks only endpoints that were
	// seen within this time. Default 10 s.
	Fresh time.Duration

	// Bound limits the requests in flight that stable gives an endpoint, as a multiple of
	// its share by weight: above 1 to 100, default 1.25; 0 means no limit. Two requests in
	// flight are always allowed.
	Bound float64
}

// Default returns the named strategy with the defaults of its parameters.
func Default(name string) Spec {
	s := Spec{Name: name}
	for _, p := range parameters {
		if p.takenBy(name) {
			p.reset(&s)
		}
	}
	return s
}

// Parse reads "name" or "name;parameter=value;…", the form that String writes:
// "slots;vnodes=16;samples=3", "ordered;preferred=w2,w1". Missing parameters get their
// defaults; "" is p2c. All problems are reported together.
func Parse(text string) (Spec, error) {
	name, rest, more := strings.Cut(text, ";")
	if name = strings.TrimSpace(name); name == "" {
		name = P2C
	}
	if s := (Spec{Name: name}); !slices.Contains(names, name) {
		return Spec{}, s.Validate() // the parameters of an unknown strategy cannot be checked
	}
	s := Default(name)
	var errs []error
	var given []string
	for more {
		var setting string
		setting, rest, more = strings.Cut(rest, ";")
		key, value, _ := strings.Cut(setting, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		i := slices.IndexFunc(parameters, func(p parameter) bool { return p.key() == key })
		switch {
		case i < 0 || !parameters[i].takenBy(name):
			errs = append(errs, fmt.Errorf("selection: strategy %s takes no parameter %q (%s)", name, key, takes(name)))
		case slices.Contains(given, key):
			errs = append(errs, fmt.Errorf("selection: parameter %s of strategy %s is given twice: give it once", key, name))
		default:
			if err := parameters[i].parse(&s, value); err != nil {
				errs = append(errs, fmt.Errorf("selection: parameter %s of strategy %s: %w", key, name, err))
				parameters[i].reset(&s) // so that Validate does not report the problem again
			}
		}
		given = append(given, key)
	}
	if err := errors.Join(append(errs, s.Validate())...); err != nil {
		return Spec{}, err
	}
	return s, nil
}

// takes lists the parameters of a strategy, for error texts.
func takes(name string) string {
	var keys []string
	for _, p := range parameters {
		if p.takenBy(name) {
			keys = append(keys, p.key())
		}
	}
	if len(keys) == 0 {
		return "it takes none"
	}
	return "must be one of: " + strings.Join(keys, ", ")
}

// String returns the form that Parse reads, with the parameters that differ from their
// defaults.
func (s Spec) String() string {
	text, normal := s.Name, Default(s.Name)
	for _, p := range parameters {
		if p.takenBy(s.Name) && p.text(&s) != p.text(&normal) {
			text += ";" + p.key() + "=" + p.text(&s)
		}
	}
	return text
}

// Validate reports all problems together, in the order of the fields, or nil.
func (s Spec) Validate() error {
	if !slices.Contains(names, s.Name) {
		return fmt.Errorf("selection: invalid strategy: %q (must be one of: %s)", s.Name, strings.Join(names, ", "))
	}
	var errs []error
	for _, p := range parameters {
		switch {
		case p.takenBy(s.Name):
			errs = append(errs, p.check(&s))
		case p.text(&s) != p.text(new(Spec)):
			errs = append(errs, fmt.Errorf("selection: strategy %s takes no parameter %q (%s)", s.Name, p.key(), takes(s.Name)))
		}
	}
	return errors.Join(errs...)
}

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
	period{named{"expiry", []string{Closest, Farthest}}, minExpiry, 5 * time.Minute, func(s *Spec) *time.Duration { return &s.Expiry }},
	period{named{"timeout", []string{Closest, Farthest}}, 0, 2 * time.Second, func(s *Spec) *time.Duration { return &s.Timeout }},
	number{named{"vnodes", []string{Slots}}, 1, MaxVirtualNodes, DefaultVirtualNodes, func(s *Spec) *int { return &s.VirtualNodes }},
	number{named{"samples", []string{Slots}}, 1, maxSamples, 2, func(s *Spec) *int { return &s.Samples }},
	number{named{"maxscan", []string{Slots}}, 1, 256, 16, func(s *Spec) *int { return &s.MaxScan }},
	number{named{"jitter", []string{Slots}}, 0, 64, 4, func(s *Spec) *int { return &s.SlotJitter }},
	period{named{"fresh", []string{Slots}}, 0, 10 * time.Second, func(s *Spec) *time.Duration { return &s.Fresh }},
	factor{named{"bound", []string{Stable}}, 100, 1.25, func(s *Spec) *float64 { return &s.Bound }},
}

// minExpiry is the least that Spec.Expiry may be. Workers advertise it: with 1 ns, one record
// would keep every relay of the fleet busy with connections.
const minExpiry = time.Second

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
		return fmt.Errorf("%q is not a whole number", text)
	}
	return nil
}

func (n number) check(s *Spec) error {
	if v := *n.field(s); v < n.low || v > n.high {
		return fmt.Errorf("selection: parameter %s of strategy %s must be in %d..%d, not %d", n.name, s.Name, n.low, n.high, v)
	}
	return nil
}

// period is a time of at least low, or greater than 0 if low is 0.
type period struct {
	named
	low, normal time.Duration
	field       func(*Spec) *time.Duration
}

func (p period) reset(s *Spec)       { *p.field(s) = p.normal }
func (p period) text(s *Spec) string { return p.field(s).String() }

func (p period) parse(s *Spec, text string) (err error) {
	if *p.field(s), err = time.ParseDuration(text); err != nil {
		return fmt.Errorf("%q is not a duration, such as 10s or 5m", text)
	}
	return nil
}

func (p period) check(s *Spec) error {
	switch v := *p.field(s); {
	case p.low > 0 && v < p.low:
		return fmt.Errorf("selection: parameter %s of strategy %s must be at least %v, not %v", p.name, s.Name, p.low, v)
	case v <= 0:
		return fmt.Errorf("selection: parameter %s of strategy %s must be greater than 0, not %v", p.name, s.Name, v)
	}
	return nil
}

// factor is 0, which means off, or more than 1.
type factor struct {
	named
	high, normal float64
	field        func(*Spec) *float64
}

func (f factor) reset(s *Spec)       { *f.field(s) = f.normal }
func (f factor) text(s *Spec) string { return strconv.FormatFloat(*f.field(s), 'g', -1, 64) }

func (f factor) parse(s *Spec, text string) (err error) {
	if *f.field(s), err = strconv.ParseFloat(text, 64); err != nil {
		return fmt.Errorf("%q is not a number, such as 1.25", text)
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

// parse ignores spaces and empty items, because a list in an environment variable often
// contains them.
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
			return fmt.Errorf("selection: parameter preferred of strategy %s: %q is not a valid node name", s.Name, node)
		case slices.Contains(s.Preferred[:i], node):
			return fmt.Errorf("selection: parameter preferred of strategy %s names %q twice: name it once", s.Name, node)
		}
	}
	return nil
}

// Parameters returns the values of the parameters that the strategy takes, by name. The
// map is the caller's; it is nil for a strategy without parameters.
func (s Spec) Parameters() map[string]string {
	var out map[string]string
	for _, p := range parameters {
		if p.takenBy(s.Name) {
			if out == nil {
				out = map[string]string{}
			}
			out[p.key()] = p.text(&s)
		}
	}
	return out
}
