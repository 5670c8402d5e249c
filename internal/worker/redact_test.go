package worker

import (
	"strings"
	"testing"

	"github.com/ringway/ringway/internal/settings"
)

func TestCredentialsOfAHeaderOfACheckAreShownNowhere(t *testing.T) {
	for text, want := range map[string]string{
		"a=:1": "a=:1",
		"a=:1;check=http:/;header=Authorization:Bearer T":     "a=:1;check=http:/;header=Authorization:(redacted)",
		"a=:1;check=http:/;header=X-A: T;header=X-B:T;rise=2": "a=:1;check=http:/;header=X-A:(redacted);header=X-B:(redacted);rise=2",
	} {
		if got := RedactServices(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	s, set := DefaultSettings(), settings.New("worker", "RINGWAY")
	s.Declare(set)
	err := set.Load(settings.Sources{Environ: []string{"RINGWAY_SERVICE=a=127.0.0.1:1;check=http:/;header=Authorization:Bearer T-1;weight=none"}})
	if err == nil || strings.Contains(err.Error(), "T-1") {
		t.Errorf("a wrong value: %v", err)
	}
	for _, v := range set.Values() {
		if strings.Contains(v.Value, "T-1") {
			t.Errorf("%s is shown as %s", v.Name, v.Value)
		}
	}
}
