package statuspage

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/net/html"

	"github.com/ringway/ringway/internal/api"
)

// A process describes itself; the page and its updates follow from that.
func Example() {
	mux := http.NewServeMux()
	Handle(mux, Config{
		Document: func(context.Context, string) Document {
			return Document{ID: "relay-1", Role: "relay", Notices: []Notice{{Severity: Problem, Text: "Not joined yet.", Remedy: "Check --join."}}}
		},
		Registerer: prometheus.NewRegistry(),
	})
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
	root, err := html.Parse(w.Body)
	if err != nil {
		fmt.Println(err)
	}
	for _, name := range []string{"h1", "li"} {
		for _, n := range all(root, name) {
			fmt.Println(text(n))
		}
	}
	// Output:
	// relay-1 relay
	// Problem: Not joined yet. Check --join.
}

func TestTheTablesShowTheContentOfTheDocument(t *testing.T) {
	root := parse(t, get(t, config(relayDocument(4)), "/?service=echo").Body.Bytes())
	for id, want := range map[string][]string{
		"services": {
			"Service | This relay | Ready | Requests /s | Errors /s | P99 ms | In flight | Strategy | Range",
			"echo | serves, index 0 | 4 | 1,200 | 1.0 | 12.50 | 0 | p2c | 2 of 4 workers, from position 0",
			"other | forwards | 1 of 2 | – | – | – | 0 | stable | –",
		},
		"peers": {
			"Worker | State | Requests /s | Errors % | Latency ms | In flight | Last eviction | Tier | Share % | Score",
			"w0 | active | 600 | 0.0 | 1.50 | 0 | – | datacenter | 50.0 | 0.00",
			"w1 | active | – | 0.0 | 1.50 | 1 | – | datacenter | 50.0 | 0.00",
		},
		"callers": {
			"Caller | Requests /s | Errors /s | P99 ms",
			"web | 1,100 | 0.0 | 12.50",
			"10.0.0.9 | 99.9 | 1.0 | 250",
		},
		"ring": {
			"Worker | State | Relays | This relay",
			"w0 | active | 3 | connects", "w1 | active | 3 | connects", "w2 | active | 3 | –", "w3 | active | 3 | –",
		},
		"fleet": {
			"Relay | State | Requests /s | Errors % | In flight | Sessions | Version | Reason",
			"relay-1 this one | ready | 1,235 | 1.0 | 7 | 2 | v1.2.3 | –",
			"relay-2 | not ready | – | – | 0 | 0 | – | draining; stopping",
			"relay-3 | no answer | – | – | – | – | – | connection refused",
			"relay-4 | left | – | – | – | – | – | it left",
		},
		"members": { // who went first, relays before workers
			"Member | State | Role | Age | Datacenter | Version | Gossip address",
			"worker-lost | failed | worker | < 1 min ago | – | – | 127.0.0.1:7401",
			"relay-1 this one | alive | relay | < 1 min | – | – | 127.0.0.1:7400",
			"w0 | alive | worker | < 1 min | – | – | 127.0.0.1:1", "w1 | alive | worker | < 1 min | – | – | 127.0.0.1:1",
			"w2 | alive | worker | < 1 min | – | – | 127.0.0.1:1", "w3 | alive | worker | < 1 min | – | – | 127.0.0.1:1",
		},
	} {
		if diff := cmp.Diff(want, table(t, byID(t, root, id))); diff != "" {
			t.Errorf("#%s (-want +got):\n%s", id, diff)
		}
	}
	for id, want := range map[string]string{
		"state":   "✓ Ready up for 3 h Warning: Something is odd. Look. Runbook",
		"figures": "Members 5 1 relay, 4 workers Services 2 1 served here, 1 forwarded In flight 7 requests Relays per worker 3 at least 3 wanted, echo",
		// What only developers read is at the end of the page.
		"links": "Metrics Readiness Members (JSON) Fleet (JSON) Services (JSON) echo (JSON) Plan of echo (JSON) Checksums (JSON) Settings (JSON) Checksums, equal on all members that agree: members 00112233aabbccdd , services ddccbbaa33221100",
	} {
		if got := text(byID(t, root, id)); got != want {
			t.Errorf("#%s: %q, want %q", id, got, want)
		}
	}
}

func TestThePageReportsHowManyCallersItLeavesOutAndWhenItHasCountedNone(t *testing.T) {
	d := relayDocument(4)
	callers := func() string { return text(byID(t, parse(t, get(t, config(d), "/").Body.Bytes()), "callers")) }
	if got := callers(); !strings.HasSuffix(got, "2 of 12 callers. Counted here over the last 3 s, while the page is read.") {
		t.Error(got)
	}
	d.Traffic.Callers, d.Traffic.AllCallers = nil, 0
	if got := callers(); !strings.HasSuffix(got, "No request ended in the last 3 s.") {
		t.Error(got)
	}
	d.Traffic = nil
	if got := callers(); !strings.HasSuffix(got, "The requests are being counted.") {
		t.Error(got)
	}
}

func TestAGateShowsTheRelaysThatItForwardsTo(t *testing.T) {
	root := parse(t, get(t, config(gateDocument()), "/").Body.Bytes())
	want := []string{
		"Relay | State | Requests /s | Errors % | Latency ms | In flight | Last eviction | Tier | Score",
		"relay-1 | primary | – | 0.0 | – | 0 | – | – | 0.00",
		"relay-2 | backup | – | 0.0 | – | 0 | – | – | 0.00",
		"relay-3 | evicted | – | 0.0 | – | 0 | error rate | – | 0.00",
		"relay-4 | candidate | – | 0.0 | – | 0 | – | – | 0.00",
	}
	if diff := cmp.Diff(want, table(t, byID(t, root, "peers"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	var spokes []string
	for _, n := range all(byID(t, root, "ring"), "line") {
		spokes = append(spokes, attr(n, "class"))
	}
	if diff := cmp.Diff([]string{"spoke s-active", "spoke s-backup", "spoke s-evicted"}, spokes); diff != "" {
		t.Errorf("spokes (-want +got):\n%s", diff)
	}
}

func TestAWorkerShowsItsOffersAndNoRing(t *testing.T) {
	root := parse(t, get(t, config(workerDocument()), "/").Body.Bytes())
	want := []string{
		"Service | State | For | Check | Address | Protocol | Weight | Last error",
		"echo | offered | < 1 min | http | 127.0.0.1:9000 | http1 | 10 | –",
		"slow | unhealthy | < 1 min | none | 127.0.0.1:9001 | h2c | 10 | connection refused",
	}
	if diff := cmp.Diff(want, table(t, byID(t, root, "offers"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for _, n := range all(root, "section") {
		if id := attr(n, "id"); id == "ring" || id == "peers" {
			t.Errorf("a worker has #%s", id)
		}
	}
}

func TestAServiceIsChosenByALinkThatNeedsNoScript(t *testing.T) {
	asked := ""
	cfg := config(Document{})
	cfg.Document = func(_ context.Context, service string) Document {
		asked = service
		return relayDocument(4)
	}
	root := parse(t, get(t, cfg, "/?service=echo").Body.Bytes())
	if asked != "echo" {
		t.Errorf("asked for %q", asked)
	}
	links := all(byID(t, root, "services"), "a")
	if len(links) != 2 || attr(links[1], "href") != "?service=other" || attr(links[0], "aria-current") != "true" || attr(links[1], "aria-current") != "" {
		t.Errorf("%v", links)
	}
}

func TestAnUnknownServiceIsNotFoundAndThePageShowsIt(t *testing.T) {
	d := relayDocument(4)
	d.Focus = nil
	w := get(t, config(d), "/?service=absent")
	if w.Code != http.StatusNotFound || !strings.Contains(text(byID(t, parse(t, w.Body.Bytes()), "state")), `offered, the service "absent"`) {
		t.Errorf("%d", w.Code)
	}
	if w := get(t, config(d), "/"); w.Code != http.StatusOK { // there is none at all
		t.Errorf("%d", w.Code)
	}
}

// Everything that a machine must find: landmarks, names, scopes, what can be focused.
func TestThePageIsAccessible(t *testing.T) {
	for name, d := range map[string]Document{"relay": relayDocument(40), "gate": gateDocument(), "worker": workerDocument()} {
		t.Run(name, func(t *testing.T) {
			root := parse(t, get(t, config(d), "/").Body.Bytes())
			if lang := attr(all(root, "html")[0], "lang"); lang != "en" {
				t.Errorf("lang %q", lang)
			}
			for _, one := range []string{"h1", "main", "title", "header"} {
				if n := len(all(root, one)); one != "title" && n != 1 {
					t.Errorf("%d <%s>", n, one)
				}
			}
			ids := map[string]bool{}
			for _, n := range all(root, "*") {
				if id := attr(n, "id"); id != "" {
					if ids[id] {
						t.Errorf("the id %q is there twice", id)
					}
					ids[id] = true
				}
			}
			for _, th := range all(root, "th") {
				if s := attr(th, "scope"); s != "col" && s != "row" {
					t.Errorf("the header %q has the scope %q", text(th), s)
				}
			}
			for _, n := range all(root, "*") {
				if by := attr(n, "aria-labelledby"); by != "" && !ids[by] {
					t.Errorf("<%s> is labelled by #%s, which is not there", n.Data, by)
				}
				if hasClass(n, "scroll") && (attr(n, "tabindex") != "0" || attr(n, "role") != "region" || attr(n, "aria-label")+attr(n, "aria-labelledby") == "") {
					t.Errorf("a part that scrolls cannot be reached or has no name: %v", n.Attr)
				}
				if n.Data == "section" && attr(n, "aria-label")+attr(n, "aria-labelledby") == "" {
					t.Errorf("#%s has no name", attr(n, "id"))
				}
				if n.Data == "img" && !slices.ContainsFunc(n.Attr, func(a html.Attribute) bool { return a.Key == "alt" }) {
					t.Error("an image without an alternative")
				}
				if n.Data == "svg" && attr(n, "aria-hidden") != "true" && (attr(n, "role") != "img" || attr(n, "aria-labelledby") == "") {
					t.Errorf("a drawing without an alternative: %v", n.Attr)
				}
			}
			live := false
			for _, n := range all(byID(t, root, "state"), "*") {
				live = live || attr(n, "aria-live") == "polite" && text(n) == text(all(byID(t, root, "state"), "div")[0])
			}
			if !live {
				t.Error("notices are not announced")
			}
		})
	}
}

// hostile tries to break out of texts, attributes and links.
const hostile = `"'><script>alert(1)</script><img src=x onerror=alert(1)></title></svg><a href="javascript:alert(1)">`

func TestHostileNamesStayInTheirPlace(t *testing.T) {
	for name, d := range map[string]Document{"relay": relayDocument(6), "gate": gateDocument(), "worker": workerDocument()} {
		t.Run(name, func(t *testing.T) {
			honest := elements(parse(t, get(t, config(d), "/").Body.Bytes()))
			self := map[string]int{"worker": -1}[name] // a worker is not among the members of its page, the others are the first
			poison(reflect.ValueOf(&d).Elem(), self)
			w := get(t, config(d), "/?service="+hostileQuery)
			root := parse(t, w.Body.Bytes())
			if diff := cmp.Diff(honest, elements(root)); diff != "" {
				t.Errorf("elements or attributes (-honest +hostile):\n%s", diff)
			}
			for _, n := range all(root, "*") {
				for _, a := range n.Attr {
					if strings.HasPrefix(a.Key, "on") || a.Key == "style" || strings.HasPrefix(strings.TrimSpace(strings.ToLower(a.Val)), "javascript:") {
						t.Errorf("<%s %s=%q>", n.Data, a.Key, a.Val)
					}
				}
			}
			if !strings.Contains(text(root), hostile) {
				t.Error("the names themselves are not shown")
			}
		})
	}
}

const hostileQuery = "%22%3E%3Cscript%3Ealert(1)%3C/script%3E"

// elements counts elements, and the names of their attributes.
func elements(root *html.Node) map[string]int {
	counts := map[string]int{}
	for _, n := range all(root, "*") {
		var names []string
		for _, a := range n.Attr {
			// These show which row is chosen, and depend on names on purpose.
			if a.Key != "aria-current" && a.Key != "class" {
				names = append(names, a.Key)
			}
		}
		counts[n.Data+" "+strings.Join(names, " ")]++
	}
	return counts
}

// poison puts hostile text into every field that is free text.
func poison(v reflect.Value, n int) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			poison(v.Elem(), n)
		}
	case reflect.Struct:
		for i := range v.NumField() {
			name := v.Type().Field(i).Name
			if !v.Field(i).CanSet() || name == "Role" && v.Type() != reflect.TypeFor[Focus]() || name == "Tier" || name == "Runbook" {
				continue // fixed words; a name of a page of the handbook
			}
			poison(v.Field(i), n)
		}
	case reflect.Slice:
		for i := range v.Len() {
			poison(v.Index(i), i)
		}
	case reflect.String:
		if v.Type() == reflect.TypeFor[string]() && v.String() != "" {
			v.SetString(fmt.Sprintf("%s %d", hostile, n))
		}
	}
}

func TestThePolicyAllowsNothingFromElsewhereAndNothingInline(t *testing.T) {
	for _, path := range []string{"/", "/assets/page.css", "/assets/page.js", "/assets/icon.svg"} {
		w := get(t, config(relayDocument(4)), path)
		policy := w.Header().Get("Content-Security-Policy")
		if w.Code != 200 || !strings.HasPrefix(policy, "default-src 'none';") || strings.Contains(policy, "unsafe") || strings.Contains(policy, "http") || strings.Contains(policy, "*") {
			t.Errorf("%s: %d %q", path, w.Code, policy)
		}
		if w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: the type may be guessed", path)
		}
	}
	w := get(t, config(relayDocument(4)), "/")
	for _, n := range all(parse(t, w.Body.Bytes()), "*") {
		inline := n.Data == "style" || n.Data == "script" && (attr(n, "src") == "" || n.FirstChild != nil)
		if inline {
			t.Errorf("<%s> inside of the page", n.Data)
		}
		for _, a := range n.Attr {
			loads := a.Key == "src" || a.Key == "href" && n.Data == "link"
			if loads && !strings.HasPrefix(a.Val, "assets/") {
				t.Errorf("<%s> loads %s", n.Data, a.Val)
			}
		}
	}
	if w.Header().Get("Cache-Control") != "no-store" {
		t.Error("the page may be kept")
	}
}

func TestAssetsAreFetchedOnce(t *testing.T) {
	first := get(t, config(relayDocument(4)), "/assets/page.js")
	mux := http.NewServeMux()
	Handle(mux, config(relayDocument(4)))
	again := httptest.NewRequest("GET", "/assets/page.js", nil)
	again.Header.Set("If-None-Match", first.Header().Get("ETag"))
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, again)
	if w.Code != http.StatusNotModified || first.Header().Get("Content-Type") != "text/javascript; charset=utf-8" {
		t.Errorf("%d %v", w.Code, first.Header())
	}
	for _, path := range []string{"/assets/page.html", "/assets/", "/nothing"} {
		if w := get(t, config(relayDocument(4)), path); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

func TestManyRowsAreCutAndThoseInTroubleStay(t *testing.T) {
	d := relayDocument(1000)
	d.Focus.Peers[400].State = Evicted
	d.Focus.Ring.Workers[900].State = Unreachable
	cfg := config(d)
	root := parse(t, get(t, cfg, "/?service=echo").Body.Bytes())
	rows := table(t, byID(t, root, "peers"))
	if len(rows) != 1+defaultRows || !strings.HasPrefix(rows[1], "w400 | evicted") || !strings.HasPrefix(rows[2], "w0 |") {
		t.Errorf("%d rows, %q", len(rows), rows[1:3])
	}
	if rows := table(t, byID(t, root, "ring")); !strings.HasPrefix(rows[1], "w900 | unreachable") {
		t.Errorf("%q", rows[1])
	}
	rest := ""
	for _, n := range all(byID(t, root, "peers"), "a") {
		rest = attr(n, "href")
	}
	if rest != "?all=1&service=echo" {
		t.Errorf("the rest is at %q", rest)
	}
	cfg = config(d)
	if rows := table(t, byID(t, parse(t, get(t, cfg, "/"+rest).Body.Bytes()), "peers")); len(rows) != 501 || !strings.HasPrefix(rows[1], "w0 |") {
		t.Errorf("all: %d rows", len(rows))
	}
	cfg = config(d)
	cfg.Rows = 10
	if rows := table(t, byID(t, parse(t, get(t, cfg, "/").Body.Bytes()), "peers")); len(rows) != 11 {
		t.Errorf("with 10 rows: %d", len(rows))
	}
}

// A fleet that scales down and up again has many workers that left.
func TestMembersThatLeftTakeNoRowOfOneThatIsThere(t *testing.T) {
	d := relayDocument(0)
	d.Members = nil
	for i := range 1000 {
		m := member(fmt.Sprintf("worker-%d", i), "worker", api.MemberAlive, "")
		if i < 300 {
			m.State = api.MemberLeft
		}
		d.Members = append(d.Members, m)
	}
	d.Members = append(d.Members, member("relay-1", "relay", api.MemberAlive, ""), member("relay-2", "relay", api.MemberAlive, ""), member("worker-lost", "worker", api.MemberFailed, ""))
	section := byID(t, parse(t, get(t, config(d), "/").Body.Bytes()), "members")
	rows := table(t, section)
	if len(rows) != 1+defaultRows || !strings.HasPrefix(rows[1], "worker-lost |") || !strings.HasPrefix(rows[2], "relay-1 this one |") || !strings.HasPrefix(rows[3], "relay-2 |") || !strings.HasPrefix(rows[4], "worker-300 |") {
		t.Errorf("%d rows, the first %q", len(rows), rows[:5])
	}
	d.Members = slices.Concat(d.Members[:310], d.Members[1000:])
	cfg := config(d)
	rows = table(t, byID(t, parse(t, get(t, cfg, "/").Body.Bytes()), "members"))
	if !strings.HasPrefix(rows[13], "worker-309 |") || !strings.HasPrefix(rows[14], "worker-0 |") {
		t.Errorf("after those that are alive %q", rows[13:15])
	}
}

func TestOfManyRelaysThePageShowsThoseFirstThatAreNotReady(t *testing.T) {
	d := relayDocument(4)
	d.Fleet = &api.Fleet{Relay: "relay-1"}
	for i := range 300 {
		d.Fleet.Relays = append(d.Fleet.Relays, api.FleetRelay{ID: fmt.Sprintf("relay-%d", i), State: api.MemberAlive, Answered: true, Ready: i != 250})
	}
	section := byID(t, parse(t, get(t, config(d), "/").Body.Bytes()), "fleet")
	rows := table(t, section)
	if len(rows) != defaultRows+1 || !strings.HasPrefix(rows[1], "relay-1 this one |") || !strings.HasPrefix(rows[2], "relay-250 | not ready") || !strings.Contains(text(section), "200 of 300 shown") {
		t.Errorf("%d rows, the first %q", len(rows), rows[:3])
	}
	d.Fleet = nil
	if got := text(byID(t, parse(t, get(t, config(d), "/").Body.Bytes()), "fleet")); got != "Relays of the fleet The relays are being asked." {
		t.Error(got)
	}
}
