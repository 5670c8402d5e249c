package ingress

import (
	"net/http"
	"strings"
	"testing"
)

func TestRetriesAreAShareOfTheRequestsOnceTheSavingsAreSpent(t *testing.T) {
	b := newBudget(0.2)
	for i := range savings {
		if !b.spend() {
			t.Fatalf("only %d retries were saved up", i)
		}
	}
	if b.spend() {
		t.Fatal("more than the savings")
	}
	retries := 0
	for range 1000 {
		b.earn()
		if b.spend() {
			retries++
		}
	}
	if retries != 200 {
		t.Fatalf("%d retries for 1000 requests, want 200", retries)
	}
}

func TestNoShareMeansNoRetries(t *testing.T) {
	b := newBudget(0)
	b.earn()
	if b.spend() {
		t.Fatal("a retry without a budget")
	}
}

func TestSavingsAreBounded(t *testing.T) {
	b := newBudget(1)
	for range 10 * savings {
		b.earn()
	}
	n := 0
	for b.spend() {
		n++
	}
	if n > savings+1 {
		t.Fatalf("%d retries saved up, want at most %d", n, savings)
	}
}

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
