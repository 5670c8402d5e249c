package explore

import (
	"errors"
	"strings"
	"testing"
)

// Planted is the test of a model itself: it explores faulty, in which a test has planted a fault,
// and logs the violation. The test fails if there is none, if its script has not steps lines, or
// if the same script breaks a promise of sound, which has no fault.
func Planted[S any](t testing.TB, faulty, sound Model[S], steps int) {
	t.Helper()
	_, err := faulty.Explore()
	var violation *Violation
	if !errors.As(err, &violation) {
		t.Fatalf("the planted fault was not found: %v", err)
	}
	t.Log(violation)
	if n := len(strings.Split(violation.Script, "\n")); n != steps {
		t.Errorf("%d steps, want %d", n, steps)
	}
	if _, err := sound.Replay(violation.Script); err != nil {
		t.Errorf("without the fault: %v", err)
	}
}
