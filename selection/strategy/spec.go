package strategy

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// The names of the strategies.
const (
	P2C          = "p2c" // the default; it is selection.Balancer, not of this package
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

// Names returns the names of all strategies, the default first.
func Names() []string { return slices.Clone(names) }

// Spec is a strategy's name with its parameters. A strategy takes the parameters
// that name it; the others stay zero. Parse and Default fill in the defaults.
type Spec struct {
	// Name is one of Names.
	Name string

	// Preferred are nodes in order of preference. manual and ordered need at least
	// one; closest and farthest measure and use only these as long as the range has
	// any of them.
	Preferred []string

	// Expiry is how long closest and farthest use a connect time before they
	// measure it again; after a failure it is a tenth of that. Default 5 min.
	Expiry time.Duration
	// Timeout bounds one attempt of closest and farthest to connect. Default 2 s.
	Timeout time.Duration

	// VirtualNodes (V) is how many places an endpoint has on the ring of slots: 1
	// to 64, default 8. More make the shares more even (with one sample the largest
	// of 1000 is 2.5 times the mean at 8, 1.7 times at 32), at V places of memory.
	VirtualNodes int
	// Samples (K) is how many places slots compares: 1 to 8, default 2. 1 never
	// reads a load. 2 evens out the shares whatever V is; more gain little.
	Samples int
	// MaxScan is how many stale endpoints slots passes over in one pick, over all
	// samples and around the end of the ring, one met at two places counting
	// twice: 1 to 256, default 16.
	MaxScan int
	// SlotJitter is the most that slots adds to a load by chance, so that those who
	// read the same old loads do not all choose the same endpoint: 0 (off) to 64,
	// default 4.
	SlotJitter int
	// Fresh is how long ago slots may have seen an endpoint to pick it. Default
	// 10 s.
	Fresh time.Duration

	// Bound is how many times its share, by weight, of the requests in flight stable
	// gives an endpoint: above 1 to 100, default 1.25; 0 gives it any number. Two
	// requests in flight are always within it.
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
// "slots;vnodes=16;samples=3", "ordered;preferred=w2,w1". Parameters not given
// have their defaults; "" is p2c. All problems are reported at once.
func Parse(text string) (Spec, error) {
	name, rest, more := strings.Cut(text, ";")
	if name = strings.TrimSpace(name); name == "" {
		name = P2C
	}
	if s := (Spec{Name: name}); !slices.Contains(names, name) {
		return Spec{}, s.Validate() // which parameters it would take, nobody can say
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
				parameters[i].reset(&s) // one problem is said once
			}
		}
		given = append(given, key)
	}
	if err := errors.Join(append(errs, s.Validate())...); err != nil {
		return Spec{}, err
	}
	return s, nil
}

// takes lists the parameters of a strategy for an error.
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

// String returns the form that Parse reads, with what differs from the defaults.
func (s Spec) String() string {
	text, normal := s.Name, Default(s.Name)
	for _, p := range parameters {
		if p.takenBy(s.Name) && p.text(&s) != p.text(&normal) {
			text += ";" + p.key() + "=" + p.text(&s)
		}
	}
	return text
}

// Validate reports every problem at once, in the order of the fields, or nil.
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
