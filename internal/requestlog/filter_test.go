package requestlog

import (
	"strings"
	"testing"
	"time"
)

func TestAFilterSelectsRecords(t *testing.T) {
	r := Record{Status: 503, Total: 250 * time.Millisecond, Method: "GET", Caller: "web \"1\"", Code: "timeout", Attempts: []Attempt{{Endpoint: "w1"}, {Endpoint: "w2"}}}
	for text, want := range map[string]bool{
		"": true, "  ": true,
		"status=503": true, "status!=503": false, "status>=500": true, "status<=503": true, "status>503": false, "status<500": false,
		"duration>=250ms": true, "duration>0.25s": false, "duration<1s": true, "duration<=249ms": false,
		"method=GET": true, "method != GET": false, `caller="web \"1\""`: true, `caller!="web \"1\""`: false, "caller=web": false,
		"endpoint=w1": true, "endpoint = w2": true, "endpoint=w3": false, "endpoint!=w3": true, "endpoint!=w2": false,
		"code=timeout": true, `code!=""`: true, `code=""`: false,
		"status>=500 && method=GET&&endpoint=w2": true, "status>=500 && method=POST": false,
	} {
		f, err := ParseFilter(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if f.Matches(&r) != want {
			t.Errorf("%q matches: %v", text, !want)
		}
	}
	if f, _ := ParseFilter("status<500"); !f.Matches(&Record{}) { // no answer
		t.Error("a request without an answer has status 0")
	}
}

func TestAMalformedFilterIsRefusedWithThePosition(t *testing.T) {
	for text, want := range map[string]string{
		"state=1":               `position 1: want status, duration, method, caller, endpoint or code, got "state"`,
		"=1":                    "position 1: want status",
		"status":                "position 7: want =, !=",
		"status 500":            "position 8: want =, !=",
		"status==500":           `position 8: want a value; an empty text is ""`,
		"status>=":              "position 9: want a value",
		"status=abc":            `position 8: "abc" is no status`,
		"status=1000":           "position 8",
		"status=-1":             "position 8",
		"duration>5":            `position 10: "5" is no duration: want one such as 250ms`,
		"duration>-1s":          "position 10",
		"method>GET":            "position 7: method is a text: only = and !=",
		"code<=a":               "position 5: code is a text",
		`caller="x`:             "position 8: the quoted text has no end",
		"status=1 method=GET":   "position 10: want && between",
		"status=1 & method=GET": "position 10: want &&",
		"status=1 && ":          "position 13: want status",
		"status=1||status=2":    "position 8", // | belongs to the word
		strings.Repeat("status=1&&", maxComparisons) + "status=1": "at most 16 comparisons",
		strings.Repeat(" ", maxFilter+1):                          "at most 1024 are allowed",
	} {
		if _, err := ParseFilter(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

func FuzzParseFilter(f *testing.F) {
	for _, text := range []string{"status>=500&&method=GET", `caller="a\"b" && endpoint!=w1`, "duration<1s", "code=", `"`, "status=\\", "status=1&&&"} {
		f.Add(text)
	}
	r := full()
	f.Fuzz(func(t *testing.T, text string) {
		filter, err := ParseFilter(text)
		switch {
		case err != nil && len(err.Error()) > 300:
			t.Errorf("a long error: %s", err)
		case err != nil && !strings.HasPrefix(err.Error(), "filter, position ") && len(text) <= maxFilter:
			t.Errorf("no position: %s", err)
		case err == nil:
			// The conjunction of a filter with itself selects the same.
			twice, err := ParseFilter(text + "&&" + text)
			if strings.TrimSpace(strings.ReplaceAll(text, "\t", " ")) != "" && len(filter.comparisons) <= maxComparisons/2 && 2*len(text)+2 <= maxFilter {
				if err != nil || twice.Matches(&r) != filter.Matches(&r) {
					t.Errorf("%q twice: %v", text, err)
				}
			}
		}
	})
}
