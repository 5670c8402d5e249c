package explore_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/explore"
)

var errFour = errors.New("there are four")

// jugs is the riddle of two jugs of 3 and 5 litres, with which 4 litres are measured in six steps.
func jugs(check func([2]int) error) explore.Model[[2]int] {
	size := [2]int{3, 5}
	return explore.Model[[2]int]{
		Steps: func(s [2]int) (steps []explore.Step[[2]int]) {
			step := func(name string, next [2]int) {
				steps = append(steps, explore.Step[[2]int]{Name: name, Next: func() [2]int { return next }})
			}
			for i := range s {
				full, empty, poured := s, s, s
				full[i], empty[i] = size[i], 0
				n := min(s[i], size[1-i]-s[1-i])
				poured[i], poured[1-i] = s[i]-n, s[1-i]+n
				step(fmt.Sprintf("fill %d", size[i]), full)
				step(fmt.Sprintf("empty %d", size[i]), empty)
				step(fmt.Sprintf("pour %d", size[i]), poured)
			}
			return steps
		},
		Key:   func(s [2]int) string { return fmt.Sprint(s) },
		Check: check,
		Most:  100,
	}
}

func always([2]int) error { return nil }

func neverFour(s [2]int) error {
	if s[1] == 4 {
		return errFour
	}
	return nil
}

func TestEveryStateIsVisitedOnce(t *testing.T) {
	visits := map[[2]int]int{}
	result, err := jugs(func(s [2]int) error { visits[s]++; return nil }).Explore()
	if err != nil || result.States != 16 || len(visits) != 16 || result.Steps != 16*6 {
		t.Fatalf("%+v, %d visited, %v", result, len(visits), err)
	}
	for s, n := range visits {
		if n != 1 {
			t.Errorf("%v checked %d times", s, n)
		}
	}
}

func TestTheScriptOfAViolationIsTheShortestAndReplaysIt(t *testing.T) {
	_, err := jugs(neverFour).Explore()
	var violation *explore.Violation
	if !errors.As(err, &violation) || !errors.Is(err, errFour) {
		t.Fatal(err)
	}
	if want := "fill 5\npour 5\nempty 3\npour 5\nfill 5\npour 5"; violation.Script != want {
		t.Errorf("%s, want %s", violation.Script, want)
	}
	last, err := jugs(neverFour).Replay("# as found\n\n" + violation.Script)
	if !errors.Is(err, errFour) || last != [2]int{3, 4} {
		t.Errorf("the replay ends with %v, %v", last, err)
	}
	if last, err := jugs(always).Replay(violation.Script); err != nil || last != [2]int{3, 4} {
		t.Errorf("without the promise: %v, %v", last, err)
	}
}

func TestAStartThatBreaksThePromiseIsAViolationWithoutSteps(t *testing.T) {
	_, err := jugs(func([2]int) error { return errFour }).Explore()
	var violation *explore.Violation
	if !errors.As(err, &violation) || violation.Script != "" {
		t.Fatal(err)
	}
}

func TestMoreStatesThanAllowedAreAnError(t *testing.T) {
	model := jugs(always)
	model.Most = 10
	if result, err := model.Explore(); err == nil || !strings.Contains(err.Error(), "more than 10 states") || result.States != 11 {
		t.Fatalf("%+v, %v", result, err)
	}
}

func TestAScriptWithAnImpossibleStepNamesTheLine(t *testing.T) {
	if _, err := jugs(always).Replay("fill 5\nfill 7"); err == nil || !strings.Contains(err.Error(), `line 2: "fill 7" cannot happen`) {
		t.Fatal(err)
	}
}

// A lamp that must not be on twice: the shortest way there is found, and played again.
func ExampleModel_Explore() {
	lamp := explore.Model[int]{
		Steps: func(on int) []explore.Step[int] {
			return []explore.Step[int]{{Name: "press", Next: func() int { return on + 1 }}}
		},
		Key: func(on int) string { return fmt.Sprint(on) },
		Check: func(on int) error {
			if on > 1 {
				return errors.New("on twice")
			}
			return nil
		},
		Most: 10,
	}
	_, err := lamp.Explore()
	fmt.Println(err)
	// Output:
	// on twice after
	// press
	// press
}
