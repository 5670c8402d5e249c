package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestAPageHasTheFiguresOfAllRunsAndAGraphOfEachSize(t *testing.T) {
	docs := t.TempDir()
	images := filepath.Join(docs, "images")
	if err := os.MkdirAll(images, 0o755); err != nil {
		t.Fatal(err)
	}
	page := filepath.Join(docs, "cost.md")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(page, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const pageBegin, pageEnd = "<!-- begin cost -->\n", "<!-- end cost -->\n"
	run := func(name string, relay float64) string {
		haproxy := []sample{{cpu: 20, p99: 2000}, {cpu: 40, p99: 2000}}
		c := comparison{Name: "HTTP/1.1, 128 B, 32 connections", Unit: "request", Proxies: []figures{summarise("HAProxy", haproxy, haproxy), summarise("relay", []sample{{cpu: relay}, {cpu: 2 * relay}}, haproxy)}}
		r := results{Programs: map[string]string{"haproxy": "HAProxy 3.2"}, CPUs: 2, Rounds: 2, Seconds: 3, Traffic: []comparison{c}}
		file := filepath.Join(docs, name)
		if err := r.writeJSON(file); err != nil {
			t.Fatal(err)
		}
		return file
	}
	files := []string{run("1.json", 18), run("2.json", 22)}
	write("# Cost\n\n" + pageBegin + "old\n" + pageEnd + "after\n")
	if err := writePage(page, images, files); err != nil {
		t.Fatal(err)
	}
	text, _ := os.ReadFile(page)
	for _, want := range []string{
		"# Cost\n\n" + pageBegin + "\n2 runs, each of 2 rounds of 3 s, on 2 processors", "| haproxy | HAProxy 3.2 |",
		"| HAProxy | 30.0 · 30.0 | 1.00 · 1.00 | 1.00–1.00 | – · – | 2.00 · 2.00 |", "| relay | 27.0 · 33.0 | 0.90 · 1.10 | 0.90–1.10 | – · – | – · – |",
		"(../images/cost-128b.svg)\n" + pageEnd + "after\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(string(text), "old") {
		t.Error("the old figures are left")
	}
	if svg, err := os.ReadFile(filepath.Join(images, "cost-128b.svg")); err != nil || !strings.Contains(string(svg), "run 2") {
		t.Errorf("the graph: %v", err)
	}

	empty, other := filepath.Join(docs, "empty.json"), filepath.Join(docs, "other.json")
	nothing := results{}
	fewer := results{Traffic: []comparison{{Name: "HTTP/1.1, 128 B, 32 connections", Proxies: []figures{{Name: "HAProxy"}}}}}
	if err := errors.Join(nothing.writeJSON(empty), fewer.writeJSON(other)); err != nil {
		t.Fatal(err)
	}
	for _, wrong := range [][]string{nil, {page}, {"missing"}, {empty}, {files[0], other}} {
		if err := writePage(page, images, wrong); err == nil {
			t.Errorf("%q was accepted", wrong)
		}
		if now, _ := os.ReadFile(page); string(now) != string(text) {
			t.Errorf("%q changed the page", wrong)
		}
	}
	write("no marks")
	if err := writePage(page, images, files); err == nil {
		t.Error("a page without a section was accepted")
	}
}
