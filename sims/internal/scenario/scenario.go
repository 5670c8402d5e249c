package scenario

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// Scenario is a simulation that answers one question about the real packages. Declare each
// scenario as a value in a separate package and add it to the list in sims/main.go.
type Scenario struct {
	// Name is the name on the command line: lower case, digits and dashes.
	Name string
	// Asks is the question that the scenario answers, one sentence.
	Asks string
	// Settings lists the settings that a user may change.
	Settings []Setting
	// Promises lists the conditions that must hold.
	Promises []Promise
	// Run measures. Run returns an error if the measurement fails, not if a promise does
	// not hold.
	Run func(*Run) error
	// Takes and TakesQuick are the approximate duration of a run on two cores; only the
	// progress bar uses them.
	Takes, TakesQuick time.Duration
}

var validName = regexp.MustCompile(`^[a-z][a-z0-9-]*$`)

// Validate reports all mistakes in the declaration.
func (s Scenario) Validate() error {
	var wrong []error
	complain := func(format string, args ...any) {
		wrong = append(wrong, fmt.Errorf("scenario %q: "+format, append([]any{s.Name}, args...)...))
	}
	if !validName.MatchString(s.Name) {
		complain("a name is lower case letters, digits and dashes")
	}
	if s.Asks == "" {
		complain("it has no question")
	}
	if s.Run == nil {
		complain("it has nothing to run")
	}
	if len(s.Promises) == 0 {
		complain("it has no promise")
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

// Find returns the named scenarios in the order of all; the name "all" selects every scenario.
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
