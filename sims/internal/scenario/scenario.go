package scenario

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// Scenario is one question put to the real packages. Declare it as a value in a short file
// of its own and add it to the list in sims/scenarios.go.
type Scenario struct {
	// Name is what it is called on the command line: lower case, digits and dashes.
	Name string
	// Asks is the question that it answers, one sentence.
	Asks string
	// Settings are what it varies.
	Settings []Setting
	// Promises are what must hold.
	Promises []Promise
	// Run measures. It returns an error when it cannot, not when a promise is broken.
	Run func(*Run) error
	// Takes and TakesQuick are about how long a run takes on two cores; they only move
	// the progress bar.
	Takes, TakesQuick time.Duration
}

var validName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// Validate reports everything that is wrong with the declaration.
func (s Scenario) Validate() error {
	var wrong []error
	complain := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("scenario %q: "+format, append([]any{s.Name}, args...)...))
	}
	if !validName.MatchString(s.Name) {
		complain("a name is lower case letters, digits and dashes")
	}
	if s.Asks == "" {
		complain("it does not say what it asks")
	}
	if s.Run == nil {
		complain("it has nothing to run")
	}
	if len(s.Promises) == 0 {
		complain("it promises nothing; what is it for?")
	}
	var names []string
	for _, setting := range s.Settings {
		if err := setting.validate(); err != nil {
			complain("%w", err)
		}
		names = append(names, setting.Name)
	}
	for _, p := range s.Promises {
		if p.Name == "" {
			complain("a promise has no name")
		}
		names = append(names, "promise "+p.Name)
	}
	slices.Sort(names)
	for i := 1; i < len(names); i++ {
		if names[i] == names[i-1] {
			complain("%s is declared twice", names[i])
		}
	}
	return errors.Join(wrong...)
}

// Find returns the named scenarios in the order of all; "all" is every one of them.
func Find(all []Scenario, names []string) ([]Scenario, error) {
	var known []string
	for _, s := range all {
		known = append(known, s.Name)
	}
	for _, name := range names {
		if name != "all" && !slices.Contains(known, name) {
			return nil, fmt.Errorf("there is no scenario %q: choose from %s, or all", name, sentence(known))
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(s Scenario) bool {
		return !slices.Contains(names, s.Name) && !slices.Contains(names, "all")
	}), nil
}
