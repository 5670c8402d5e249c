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
		if got := RedactService(text); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	const credential = "Bearer T-1"
	for _, text := range []string{
		"a=127.0.0.1:1;check=http:/;header=Authorization:Bearer T-1;weight=none",
		"a=127.0.0.1:1;check=http:/;header=Authorization:Bearer T-1;interval=2",
		"a=127.0.0.1:1;check=http:/;header=Authorization:Bearer T-1;rise=0",
		"a=127.0.0.1:1;header=Authorization:Bearer T-1",
		"a=127.0.0.1:1;check=http:/;headers=Authorization:Bearer T-1",
		"a=127.0.0.1:1;check=http:/;Header=Authorization:Bearer T-1",
		"a=127.0.0.1:1;check=http:/;header=Authorization Bearer T-1",
	} {
		s, set := DefaultSettings(), settings.New("worker", "RINGWAY")
		s.Declare(set)
		err := set.Load(settings.Sources{Environ: []string{"RINGWAY_SERVICE=" + text}})
		if err == nil || strings.Contains(err.Error(), "T-1") || !strings.Contains(err.Error(), "RINGWAY_SERVICE") {
			t.Errorf("%s: %v", text, err)
		}
		for _, v := range set.Values() {
			if strings.Contains(v.Value, credential) {
				t.Errorf("%s: %s is shown as %s", text, v.Name, v.Value)
			}
		}
	}

	// What follows is shown.
	s, set := DefaultSettings(), settings.New("worker", "RINGWAY")
	s.Declare(set)
	if err := set.Load(settings.Sources{Environ: []string{"RINGWAY_CLUSTER=a", "RINGWAY_ENVIRONMENT=b", "RINGWAY_SERVICE=a=127.0.0.1:1;check=http:/;header=X-A:T-1,b=127.0.0.1:2;weight=3"}}); err != nil {
		t.Fatal(err)
	}
	for _, v := range set.Values() {
		if v.Name == serviceSetting && v.Value != "a=127.0.0.1:1;check=http:/;header=X-A:(redacted),b=127.0.0.1:2;weight=3" {
			t.Errorf("two services are shown as %s", v.Value)
		}
	}
}
