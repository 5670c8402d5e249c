package command

import (
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/ringway/ringway/advertise"
	"github.com/ringway/ringway/internal/api"
	"github.com/ringway/ringway/internal/process"
)

// shown returns what people see in one of the forms.
func shown(output string, colour bool, people func(*page)) string {
	var b strings.Builder
	if err := (&form{output: output}).write(&b, nil, colour, people); err != nil {
		panic(err) // a strings.Builder takes everything
	}
	return b.String()
}

func TestATableAlignsColumnsAndNumbers(t *testing.T) {
	people := func(p *page) {
		p.line("above\t%s", evil[2:3])
		tab := p.table("NAME", ">N", "LAST", "+>WIDE")
		tab.add("a", "1", "x", "7")
		tab.add("longer", "1000", "", "70")
		tab.add("größe", "20", cell{"z", styleBad}, "")
		tab.write("below")
	}
	for output, want := range map[string]string{
		formTable: `above  "\x1b"
NAME       N  LAST
a          1  x
longer  1000  -
größe     20  z
below
`,
		formWide: `above  "\x1b"
NAME       N  LAST  WIDE
a          1  x        7
longer  1000  -       70
größe     20  z        -
below
`,
	} {
		if got := shown(output, false, people); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

func TestColoursTakeNoRoomAndAreOnlyThereWhenAsked(t *testing.T) {
	text := func(colour bool) string {
		return shown(formTable, colour, func(p *page) {
			tab := p.table("STATE", "NEXT")
			tab.add(stateCell("alive"), "n")
			tab.add(stateCell("failed"), "n")
			tab.write()
		})
	}
	coloured := text(true)
	if !strings.Contains(coloured, string(styleGood)+"alive"+reset+"   n") || !strings.Contains(coloured, string(styleBad)+"failed"+reset+"  n") {
		t.Errorf("got %q", coloured)
	}
	if without := text(false); strings.Contains(without, "\x1b") || without != strings.NewReplacer(string(styleGood), "", string(styleBad), "", string(bold), "", reset, "").Replace(coloured) {
		t.Errorf("got %q", without)
	}
}

func TestNothingButATerminalIsColoured(t *testing.T) {
	if coloured(&strings.Builder{}) {
		t.Error("a buffer is coloured")
	}
}

// evil is a name that clears the screen, in both spellings, reads backwards, and looks
// like a line of its own.
const evil = "w1\x1b[2J\u009b2K\x07\u202e\nforged\tline\xff"

// fill sets every text in v to evil, and makes every list, map and pointer hold one.
func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		v.SetString(evil)
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
		fill(v.Index(0))
	case reflect.Map:
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		fill(key)
		fill(value)
		v.Set(reflect.MakeMap(v.Type()))
		v.SetMapIndex(key, value)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				fill(v.Field(i))
			}
		}
	}
}

func filled[T any]() (v T) {
	fill(reflect.ValueOf(&v).Elem())
	return v
}

func TestNoTextOfAMemberReachesTheTerminalUnescaped(t *testing.T) {
	config, members, offered := filled[api.Config](), filled[MembersDocument](), filled[api.WorkerServices]()
	plan, explain, route, keys := filled[api.Plan](), filled[api.Explanation](), filled[api.Route](), filled[api.Keys]()
	forwarded, services, service, report := filled[api.Route](), filled[api.Services](), filled[api.Service](), filled[api.Report]()
	forwarded.Decision = nil
	planChange, blocks := filled[api.PlanChange](), filled[api.Blocks]()
	health := &http.Response{StatusCode: 200, Body: io.NopCloser(strings.NewReader(`{"status": "ok\u001b[2J"}`))}
	for name, write := range map[string]func(*page){
		"config":          func(p *page) { configTable(p, config, true) },
		"members":         func(p *page) { membersTable(p, &members) },
		"worker services": func(p *page) { workerServicesTable(p, &offered) },
		"worker reload":   func(p *page) { changeTable(p, filled[api.WorkerReload]()) },
		"plan":            func(p *page) { planTable(p, &plan) },
		"plan change":     func(p *page) { planChangeTable(p, &planChange) },
		"explain":         func(p *page) { explainTable(p, &explain) },
		"route":           func(p *page) { routeTable(p, &route) },
		"forwarded":       func(p *page) { routeTable(p, &forwarded) },
		"keys":            func(p *page) { keysTable(p, &keys) },
		"blocks":          func(p *page) { blocksTable(p, &blocks) },
		"services":        func(p *page) { servicesTable(p, &services) },
		"service":         func(p *page) { serviceTable(p, &service) },
		"check":           func(p *page) { checkText(p, &report) },
		"reload":          func(p *page) { reloadText(p, filled[api.Reload]()) },
		"drain":           func(p *page) { relayDrainText(p, filled[api.Drain]()) },
		"health":          func(p *page) { _ = judgeHealth(p, health) },
		"an error":        func(p *page) { _, _ = io.WriteString(p, process.PrintableLines("the relay said "+evil)) },
	} {
		text := shown(formWide, false, write)
		for line := range strings.SplitSeq(text, "\n") {
			if strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) && r != '\t' }) || strings.HasPrefix(line, "forged") && name != "an error" && name != "explain" || !utf8.ValidString(line) {
				t.Errorf("%s: a line is %q", name, line)
			}
		}
		if !strings.Contains(text, `\x1b[2J`) {
			t.Errorf("%s does not show what the member says:\n%s", name, text)
		}
	}
}

// An operator reads the report of a mass failure on a small terminal: the cause comes first, what it
// explains is one line each, and the counts show which these are.
func TestAReportOfAMassFailureFitsASmallTerminal(t *testing.T) {
	long := strings.Repeat("a long text ", 20)
	report := api.Report{Relay: "relay-1", Failures: 3, Findings: []api.Finding{
		{Check: "workers-answer", Status: api.Failed, Text: long, Cause: long, Remedy: long, Page: "docs/operations/member-down.md"},
		{Check: "members-agree", Status: api.Failed, Text: "relay-1 sees other members than relay-2", Cause: long, Remedy: long, Page: "docs", FollowsFrom: "workers-answer"},
		{Check: "view-trusted", Status: api.Failed, Text: "relay-1 lost much of the cluster", Cause: long, Remedy: long, Page: "docs", FollowsFrom: "workers-answer"},
	}}
	for i := range 19 {
		report.Findings = append(report.Findings, api.Finding{Check: fmt.Sprintf("fine-%d", i), Status: api.OK, Text: long})
	}
	written := func() string { return shown(formTable, false, func(p *page) { checkText(p, &report) }) }
	text := written()
	shown := 0
	for line := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		shown += max(1, (utf8.RuneCountInString(line)+99)/100)
	}
	if shown > 24 {
		t.Errorf("%d rows:\n%s", shown, text)
	}
	for _, want := range []string{
		"\n✗ members-agree   relay-1 sees other members than relay-2 (follows from workers-answer)\n✗ view-trusted    relay-1 lost much of the cluster (follows from workers-answer)\n✓ fine-0, fine-1,",
		"\nrelay-1: 19 fine, 0 to watch, 3 broken (2 of them follow from others)\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	report.Findings, report.Failures = report.Findings[10:], 0
	if text := written(); !strings.Contains(text, "✓ fine-18  a long text") {
		t.Errorf("a report without a failure only names its checks:\n%s", text)
	}
}

func TestUnitsAreHuman(t *testing.T) {
	for n, want := range map[uint64]string{0: "0", 9999: "9999", 10_000: "10.0k", 999_949: "999.9k", 999_950: "1.0M", 1_234_567: "1.2M", 5_000_000_000: "5.0G", 7e15: "7000.0T"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
	for d, want := range map[time.Duration]string{-time.Second: "0s", 0: "0s", 59 * time.Second: "59s", 61 * time.Second: "1m1s", time.Hour: "1h", 26*time.Hour + 30*time.Minute: "1d2h", 49 * time.Hour: "2d1h", 48*time.Hour + time.Second: "2d"} {
		if got := age(d); got != want {
			t.Errorf("age(%s) = %q, want %q", d, got, want)
		}
	}
	for ms, want := range map[float64]string{0: "", 0.25: "250µs", 1.25: "1.2ms", 99.94: "99.9ms", 250: "250ms", 12_500: "12.5s"} {
		if got := latency(ms); got != want {
			t.Errorf("latency(%g) = %q, want %q", ms, got, want)
		}
	}
	if got := percent(0.0425); got != "4.2%" && got != "4.3%" {
		t.Errorf("percent: %q", got)
	}
}

// A drained worker is out of the range; an operator looks for it all the same.
func TestADrainedWorkerStaysInTheTableOfItsService(t *testing.T) {
	a := api.Service{Catalogue: []*advertise.Endpoint{
		{Service: advertise.Service{Name: "echo", Address: "10.0.0.1:80", State: advertise.Ready}, Worker: &advertise.Worker{NodeID: "w1"}},
		{Service: advertise.Service{Name: "echo", Address: "10.0.0.2:80", State: advertise.Draining}, Worker: &advertise.Worker{NodeID: "w2"}},
		{Service: advertise.Service{Name: "echo", Address: "10.0.0.3:80", State: advertise.Ready}, Worker: &advertise.Worker{NodeID: "w3", Unreachable: true}},
	}}
	a.Endpoints = 3
	for _, output := range []string{formTable, formWide} {
		text := shown(output, false, func(p *page) { serviceTable(p, &a) })
		rows := map[string]string{}
		for line := range strings.Lines(text) {
			if fields := strings.Fields(line); len(fields) > 1 {
				rows[fields[0]] = fields[1]
			}
		}
		if rows["w2"] != "draining" || rows["w3"] != "unreachable" || !strings.Contains(text, "endpoints  3, 2 of them not taking new requests") {
			t.Errorf("%s:\n%s", output, text)
		}
	}
}

func TestAMemberWhoseDoubtsAreDeniedIsNamedBelowTheTable(t *testing.T) {
	doc := MembersDocument{Doubters: map[string]uint64{"w2": 1234}}
	text := shown(formTable, false, func(p *page) { membersTable(p, &doc) })
	if want := "w2 doubts members that live, or passes on such doubts: 1234 were denied\n"; !strings.HasSuffix(text, want) {
		t.Errorf("the table is\n%s", text)
	}
}
