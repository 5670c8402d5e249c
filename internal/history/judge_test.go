package history

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// good is a history that keeps all rules, with an entry of each kind.
func good() []Entry {
	return []Entry{
		{Kind: Slots, Endpoint: "w1", Count: 1},
		{Kind: Key, Client: "r1", Key: "a", At: at(0)},
		{Kind: Key, Client: "r2", Key: "b", At: at(1)},
		{Kind: Key, Client: "r2", Key: "a", At: at(5)},
		{Kind: Key, Client: "r3", Key: "c", At: at(6)},
		{Kind: Key, Client: "r3", At: at(7)},
		{Kind: Request, ID: "1", Client: "c1", Service: "echo", Endpoint: "w1", At: at(2), Until: at(4), Status: 200, Echo: "1", Once: true},
		{Kind: Executed, ID: "1", Endpoint: "w1", At: at(2), Until: at(4)},
		{Kind: Executed, ID: "2", Endpoint: "w1", At: at(4), Until: at(5)},
		{Kind: Request, ID: "2", Client: "c2", Service: "echo", Endpoint: "w1", At: at(3), Until: at(5), Status: 200, Echo: "2"},
		{Kind: Down, Endpoint: "w1", At: at(6)},
		{Kind: Request, ID: "3", Endpoint: "w1", At: at(8), Status: 502},
		{Kind: Up, Endpoint: "w1", At: at(20)},
		{Kind: Request, ID: "4", Endpoint: "w1", At: at(21), Status: 502, Once: true},
		{Kind: Share, Endpoint: "w2", Count: 3, Old: 3, New: 4, At: at(22)},
	}
}

var limits = Limits{Down: 3 * time.Second, Fork: 5 * time.Second}

func TestAHistoryThatKeepsTheRulesHasNoViolation(t *testing.T) {
	h := &History{}
	h.Add(good()...)
	var lines bytes.Buffer
	if err := h.Write(&lines); err != nil {
		t.Fatal(err)
	}
	read, err := Read(&lines)
	if err != nil {
		t.Fatal(err)
	}
	for name, h := range map[string]*History{"as recorded": h, "as read": read} {
		if found := h.Judge(limits); len(found) != 0 {
			t.Errorf("%s: %v", name, found)
		}
	}
}

func TestEachRuleFindsAPlantedViolationAndNamesItsLine(t *testing.T) {
	for name, c := range map[string]struct {
		planted Entry
		want    string
	}{
		"an answer to another client":          {Entry{Kind: Request, ID: "5", Echo: "1", At: at(23)}, "5 got the answer to 1"},
		"a POST that is executed twice":        {Entry{Kind: Executed, ID: "1", Endpoint: "w3", At: at(3)}, "1 was executed 2 times"},
		"an answer that was not executed":      {Entry{Kind: Request, ID: "5", Status: 200, At: at(23)}, "5 was answered and never executed"},
		"a request to an endpoint that is out": {Entry{Kind: Request, ID: "5", Endpoint: "w1", At: at(10)}, "5 went to w1, which has been down for 4s"},
		"an execution while it is out":         {Entry{Kind: Executed, ID: "5", Endpoint: "w1", At: at(19)}, "5 went to w1, which has been down for 13s"},
		"more than the slots":                  {Entry{Kind: Executed, ID: "5", Endpoint: "w1", At: at(3), Until: at(4)}, "w1 executes 2 requests at a time and has 1 slots"},
		"fewer connections than both plans":    {Entry{Kind: Share, Endpoint: "w2", Count: 2, Old: 3, New: 4}, "w2 has 2 connections"},
		"a fork that does not heal":            {Entry{Kind: Key, Client: "r1", Key: "b", At: at(24)}, "the relays still use different keys"},
	} {
		t.Run(name, func(t *testing.T) {
			h := &History{}
			h.Add(append(good(), c.planted)...)
			found := h.Judge(limits)
			if len(found) != 1 || !strings.Contains(found[0], c.want) || !strings.HasPrefix(found[0], "line ") {
				t.Errorf("found %q, want one with %q", found, c.want)
			}
		})
	}
	h := &History{}
	h.Add(Entry{Kind: Key, Client: "r1", Key: "a", At: at(0)}, Entry{Kind: Key, Client: "r2", Key: "b", At: at(0)}, Entry{Kind: Key, Client: "r1", Key: "b", At: at(6)})
	if found := h.Judge(limits); len(found) != 1 || found[0] != "line 3: the relays used different keys for 6s, more than 5s" {
		t.Errorf("a fork that heals late: %q", found)
	}
}

func TestALineThatIsNoEntryIsRefusedWithItsNumber(t *testing.T) {
	if _, err := Read(strings.NewReader("{}\n{]\n")); err == nil || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("got %v", err)
	}
}
