package ingress

import (
	"net/http"
	"strings"
	"testing"
)

func TestWhatMayBeRepeated(t *testing.T) {
	for method, want := range map[string]bool{"GET": true, "HEAD": true, "OPTIONS": true, "TRACE": true, "PUT": true, "DELETE": true, "POST": false, "PATCH": false, "BREW": false} {
		empty, _ := http.NewRequest(method, "/", http.NoBody)
		if got := repeatable(empty); got != want {
			t.Errorf("%s: %v", method, got)
		}
		full, _ := http.NewRequest(method, "/", strings.NewReader("x"))
		if repeatable(full) {
			t.Errorf("%s with a body that cannot be read again: repeated", method)
		}
	}
}
