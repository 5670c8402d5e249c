package browser_test

import (
	"bytes"
	"fmt"
	"image/png"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"github.com/ringway/ringway/internal/e2e/browser"
	"github.com/ringway/ringway/membership/identity"
)

func TestThePageShowsAWorkerDieAndComeBackWithoutAReload(t *testing.T) {
	f, b := small(t), startBrowser(t)
	p := tab(t, b, browser.TabConfig{}, pageOf(f, "relay-1")+"?service=checkout")
	await(t, p, "the page is live", live)
	await(t, p, "six workers are active", six)
	// What the reader does must outlive the updates.
	evaluate[bool](t, p, `(window.mine = "kept", document.querySelector("details").open = true, document.querySelector("#services a").focus(), true)`)

	if err := f.Kill("worker-3"); err != nil {
		t.Fatal(err)
	}
	await(t, p, "worker-3 is no active peer", `!document.querySelector('#peers tr[data-key="worker-3"][data-state=active]')`)
	await(t, p, "worker-3 is marked on the ring by its shape", `document.querySelector('#ring g[data-key="worker-3"]:not(.s-active)') || document.querySelectorAll("#ring svg.ring g").length === 5`)
	await(t, p, "worker-3 is listed as failed", `document.querySelector('#members tr[data-key="worker-3"][data-state=failed]')`)
	await(t, p, "the notices name it", `document.querySelector("#state").textContent.includes("worker-3")`)
	await(t, p, "its place is given away", `document.querySelectorAll("#ring svg.ring g").length === 5`)
	picture(t, p, "worker-dead")

	startWorker(t, f, "worker-3")
	await(t, p, "worker-3 is alive", `document.querySelector('#members tr[data-key="worker-3"][data-state=alive]')`)
	await(t, p, "six workers are active again", six)
	await(t, p, "worker-3 is on the ring", `document.querySelector('#ring g[data-key="worker-3"].s-active')`)
	await(t, p, "the notices forgot it", `!document.querySelector("#state").textContent.includes("worker-3")`)
	picture(t, p, "worker-back")

	if got := evaluate[string](t, p, `window.mine`); got != "kept" {
		t.Error("the page was loaded again")
	}
	if !evaluate[bool](t, p, `document.querySelector("details").open`) {
		t.Error("what the reader opened was closed")
	}
	if got := evaluate[string](t, p, `document.activeElement.textContent`); got != "checkout" {
		t.Errorf("the focus moved to %q", got)
	}
	// Page, style, script, icon, events: nothing is polled.
	if n := p.Requests(); n > 6 {
		t.Errorf("%d requests", n)
	}
}

func TestEverythingCanBeReachedWithTheKeyboard(t *testing.T) {
	f, b := small(t), startBrowser(t)
	p := tab(t, b, browser.TabConfig{}, pageOf(f, "relay-1"))
	await(t, p, "the page is live", live)
	await(t, p, "both services are there", `document.querySelectorAll("#services a").length === 2`)
	await(t, p, "six workers are active", six)

	want := evaluate[[]string](t, p, `[...document.querySelectorAll("a[href], summary, [tabindex='0']")].filter(e => !e.closest("details:not([open]) > :not(summary)")).map(e => e.textContent.slice(0, 40))`)
	var got []string
	for range want {
		if err := p.Do(chromedp.KeyEvent(kb.Tab)); err != nil {
			t.Fatal(err)
		}
		got = append(got, evaluate[string](t, p, `document.activeElement.textContent.slice(0, 40)`))
		if outline := evaluate[string](t, p, `getComputedStyle(document.activeElement).outlineStyle + getComputedStyle(document.activeElement).outlineWidth`); outline != "solid3px" {
			t.Errorf("%q has the focus, and its outline is %s", got[len(got)-1], outline)
		}
	}
	if strings.Join(got, "|") != strings.Join(want, "|") {
		t.Errorf("tab went\n%q, want\n%q", got, want)
	}
	if want[0] != "Skip to the content" || len(want) < 12 {
		t.Errorf("there is %q", want)
	}

	// Choosing another service, by keys alone.
	evaluate[bool](t, p, `(document.querySelector("#services a").focus(), true)`)
	if err := p.Do(chromedp.KeyEvent(kb.Tab), chromedp.KeyEvent(kb.Enter)); err != nil {
		t.Fatal(err)
	}
	await(t, p, "the other service is shown", `location.search === "?service=search" && document.querySelector("#ring-title").textContent === "search"`)
	await(t, p, "the page is live", live)
	// Opening the table of workers.
	evaluate[bool](t, p, `(document.querySelector("summary").focus(), true)`)
	if err := p.Do(chromedp.KeyEvent(kb.Enter)); err != nil {
		t.Fatal(err)
	}
	await(t, p, "the table is open", `document.querySelector("details").open`)
}

func TestThePageIsWholeWithoutJavaScript(t *testing.T) {
	f, b := small(t), startBrowser(t)
	with := tab(t, b, browser.TabConfig{}, pageOf(f, "relay-2")+"?service=search")
	await(t, with, "six workers are active", six)
	p := tab(t, b, browser.TabConfig{NoScript: true}, pageOf(f, "relay-2")+"?service=search")
	if got := evaluate[string](t, p, `document.querySelector("#live").innerText`); got != "As of the last reload" {
		t.Errorf("the page says %q", got)
	}
	if n := evaluate[int](t, p, `document.querySelectorAll("#peers tbody tr").length`); n != 6 {
		t.Errorf("%d peers", n)
	}
	if n := evaluate[int](t, p, `document.querySelectorAll("#members tbody tr").length`); n != 9 {
		t.Errorf("%d members", n)
	}
	picture(t, p, "no-script")
	if err := p.Do(chromedp.Click(chromedp.CSS(`#services a[href="?service=checkout"]`))); err != nil {
		t.Fatal(err)
	}
	await(t, p, "the other service is shown", `document.querySelector("#ring-title").textContent === "checkout"`)
}

func TestThePageFollowsThePreferredScheme(t *testing.T) {
	f, b := small(t), startBrowser(t)
	backgrounds := map[string]bool{}
	for name, cfg := range map[string]browser.TabConfig{"light": {}, "dark": {Dark: true}} {
		p := tab(t, b, cfg, pageOf(f, "relay-1"))
		await(t, p, "six workers are active", six)
		backgrounds[evaluate[string](t, p, `getComputedStyle(document.body).backgroundColor`)] = true
		picture(t, p, "scheme-"+name)
	}
	if len(backgrounds) != 2 {
		t.Errorf("the background is %v in both", backgrounds)
	}
}

func TestNothingMovesForThoseWhoPreferThat(t *testing.T) {
	f, b := small(t), startBrowser(t)
	for still, want := range map[bool]string{true: "none", false: "changed"} {
		p := tab(t, b, browser.TabConfig{Still: still}, pageOf(f, "relay-1"))
		await(t, p, "six workers are active", six)
		if got := evaluate[string](t, p, `(() => { const row = document.querySelector("#peers tbody tr"); row.setAttribute("data-changed", ""); return getComputedStyle(row.firstElementChild).animationName; })()`); got != want {
			t.Errorf("less motion: %v: the animation is %q, want %q", still, got, want)
		}
	}
}

func TestNoFigureIsWiderThanItsCardOnALaptop(t *testing.T) {
	f, b := small(t), startBrowser(t)
	p := tab(t, b, browser.TabConfig{Width: 1280, Height: 800}, pageOf(f, "relay-1"))
	await(t, p, "six workers are active", six)
	if over := evaluate[int](t, p, `Math.max(...[...document.querySelectorAll("#figures dl > div")].map(c => Math.max(c.scrollWidth - c.clientWidth, Math.ceil(c.getBoundingClientRect().right - c.parentElement.getBoundingClientRect().right))))`); over > 0 {
		t.Errorf("a figure is %d pixels wider than its place", over)
	}
}

func TestNoTableIsWiderThanItsCardOnALaptop(t *testing.T) {
	f, b := small(t), startBrowser(t)
	p := tab(t, b, browser.TabConfig{Width: 1280, Height: 800}, pageOf(f, "relay-1"))
	await(t, p, "six workers are active", six)
	await(t, p, "rates are measured", `document.querySelector("#callers").textContent.includes("in the last")`)
	for _, id := range []string{"services", "peers", "fleet", "members"} {
		if over := evaluate[int](t, p, `(() => { const s = document.querySelector("#`+id+` .scroll"); return s.scrollWidth - s.clientWidth; })()`); over > 0 {
			t.Errorf("the table of #%s is %d pixels wider than its card", id, over)
		}
	}
	picture(t, p, "laptop")
}

// A phone shows no scroll bars, so a table that continues fades there: a reader would take the
// part for the whole.
func TestWhatAPhoneCutsFadesAndCanBeScrolled(t *testing.T) {
	f, b := small(t), startBrowser(t)
	wide := tab(t, b, browser.TabConfig{}, pageOf(f, "relay-1"))
	await(t, wide, "six workers are active", six)
	if cut := evaluate[string](t, wide, `document.querySelector("#members .scroll").dataset.cut`); cut != "" {
		t.Errorf("on a desktop the table of members is cut %q", cut)
	}
	var p *browser.Tab
	for scheme, dark := range map[string]bool{"light": false, "dark": true} {
		p = tab(t, b, browser.TabConfig{Width: 360, Height: 780, Dark: dark}, pageOf(f, "relay-1"))
		await(t, p, "six workers are active", six)
		await(t, p, "rates are measured", `document.querySelector("#callers").textContent.includes("in the last")`)
		if wide := evaluate[int](t, p, `document.documentElement.scrollWidth`); wide > 360 {
			t.Errorf("the page is %d wide on a screen of 360", wide)
		}
		picture(t, p, "phone-"+scheme)
		for _, id := range []string{"services", "peers", "fleet", "members"} {
			box := `document.querySelector("#` + id + ` .scroll")`
			cut := func() string { return evaluate[string](t, p, box+`.dataset.cut`) }
			if !strings.Contains(cut(), "right") || strings.Contains(cut(), "left") {
				t.Errorf("#%s is cut %q, want right", id, cut())
			}
			if id != "peers" && chosenAtTheEdge(t, p, id) { // #peers has no chosen row
				t.Errorf("%s: #%s does not fade where it is cut", scheme, id)
			}
			evaluate[bool](t, p, `(`+box+`.scrollLeft = 1e6, true)`)
			await(t, p, "the table knows that it was scrolled", box+`.dataset.cut.includes("left") && !`+box+`.dataset.cut.includes("right")`)
			if over := evaluate[float64](t, p, box+`.querySelector("th:last-child").getBoundingClientRect().right - `+box+`.getBoundingClientRect().right`); over > 0 {
				t.Errorf("the last column of #%s ends %.0f pixels beyond its card", id, over)
			}
			// The browser paints the new style some frames later.
			for deadline := time.Now().Add(browser.Patience); id != "peers" && !chosenAtTheEdge(t, p, id); {
				if time.Now().After(deadline) {
					t.Fatalf("%s: #%s fades at its end", scheme, id)
				}
			}
		}
	}
	// An update of the page does not forget what is cut.
	if err := f.Drain("worker-1"); err != nil {
		t.Fatal(err)
	}
	await(t, p, "worker-1 drains", `document.querySelector('#members tr[data-key="worker-1"][data-state=draining]')`)
	if cut := evaluate[string](t, p, `document.querySelector("#members .scroll").dataset.cut`); !strings.Contains(cut, "left") {
		t.Errorf("after an update the table is cut %q", cut)
	}
}

// chosenAtTheEdge reports whether the colour of the chosen row of a table is at the right edge
// of the table. It searches there, because an update may move the row before the picture.
func chosenAtTheEdge(t *testing.T, p *browser.Tab, id string) bool {
	t.Helper()
	row := `document.querySelector("#` + id + ` tr.chosen")`
	want := evaluate[string](t, p, `getComputedStyle(`+row+`.firstElementChild).backgroundColor`)
	at := evaluate[[]float64](t, p, `(() => { const r = `+row+`.getBoundingClientRect(); return [`+row+`.closest(".scroll").getBoundingClientRect().right + scrollX, (r.top + r.bottom) / 2 + scrollY]; })()`)
	shot, err := p.Picture()
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(shot))
	if err != nil {
		t.Fatal(err)
	}
	for y := int(at[1]) - 60; y < int(at[1])+60; y++ {
		r, g, b, _ := img.At(int(at[0])-2, y).RGBA()
		if fmt.Sprintf("rgb(%d, %d, %d)", r>>8, g>>8, b>>8) == want {
			return true
		}
	}
	return false
}

func TestAGateAndAWorkerHavePagesToo(t *testing.T) {
	f, b := small(t), startBrowser(t)
	startRelay(t, f, "gate-1", identity.RoleGate)
	gate := tab(t, b, browser.TabConfig{}, pageOf(f, "gate-1"))
	await(t, gate, "the gate forwards to three relays", `document.querySelectorAll("#ring line.s-active").length === 3`)
	picture(t, gate, "gate")
	worker := tab(t, b, browser.TabConfig{}, "http://"+f.Worker("worker-1").AdminAddr()+"/")
	await(t, worker, "the worker offers two services", `document.querySelectorAll("#offers tr[data-state=offered]").length === 2`)
	await(t, worker, "the page is live", live)
	if err := f.Drain("worker-1"); err != nil {
		t.Fatal(err)
	}
	await(t, worker, "they are draining", `document.querySelectorAll("#offers tr[data-state=draining]").length === 2`)
	await(t, gate, "the gate sees it on the ring", `[...document.querySelectorAll("#ring details tr")].some(r => r.dataset.key === "worker-1" && r.dataset.state === "draining")`)
	picture(t, worker, "worker")
}
