// Package scenario is what every simulation has in common: what it varies, what it
// measures, and what must hold.
//
// # Promise
//
// Equal settings and an equal seed give equal results, byte for byte, however many
// processors take part; only a scenario that drives a library with a source of chance
// of its own, as gossip does memberlist, cannot keep this. A promise that a scenario
// makes is checked or skipped with a reason; one that is forgotten is an error of the
// run, so that nothing holds because nobody looked.
//
// # Picture
//
//	Scenario ── Settings: name, default, range          --set key=value
//	   │                                                      │
//	   │        ┌──────────────── Execute ────────────────────┘
//	   ▼        ▼
//	  Run(r) ── r.Int, r.Rand, r.Parallel      what it varies
//	         ── r.Table, r.Plot                what it measures
//	         ── r.Check, r.Require, r.Skip     what must hold
//	            │
//	            ▼
//	         Result ──► package report: table, json, csv, html
//	                ──► package plot: svg, png
//
// # Rules
//
//   - A scenario drives the real packages; it never copies a formula of theirs.
//   - Chance comes from Run.Rand only, one stream for each thing that is independent.
//     No clock, no map order, no goroutine that Parallel did not start.
//   - Tables, plots and checks are made by the goroutine that Run was called on. What
//     Parallel calls writes to places of its own, by index.
//   - Each picture says in one sentence what it shows, and each axis has a label and a
//     unit: a run without them is an error.
//   - For each promise a test breaks something on purpose and sees it fail: see
//     package scenariotest.
package scenario
