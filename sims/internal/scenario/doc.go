// Package scenario is the common framework of all simulations: settings, measurements and
// promises.
//
// # Promise
//
// Equal settings and an equal seed give equal results, byte for byte, with any number of
// processors. The exception is a scenario that runs a library with a separate random
// source, as gossip runs memberlist. Each promise of a scenario is checked, or skipped with
// a reason; a promise without either is an error of the run, so that no promise holds
// unchecked.
//
// # Picture
//
//	Scenario ── Settings: name, default, range          --set key=value
//	   │                                                      │
//	   │        ┌──────────────── Execute ────────────────────┘
//	   ▼        ▼
//	  Run(r) ── r.Int, r.Rand, r.Parallel      settings, random numbers, work
//	         ── r.Table, r.Plot                measurements
//	         ── r.Check, r.Require, r.Skip     promises
//	            │
//	            ▼
//	         Result ──► package report: table, json, csv, html
//	                ──► package plot: svg, png
//
// # Rules
//
//   - A scenario runs the real packages and never copies their formulas.
//   - Random numbers come from Run.Rand only, with one stream per independent use. A
//     scenario uses no clock, no map order and no goroutine that Parallel did not start.
//   - The goroutine of Run makes all tables, plots and checks. A function called by
//     Parallel writes only to its own index.
//   - Each picture has a conclusion of one sentence, and each axis has a label and a unit:
//     a run without them is an error.
//   - For each promise a test breaks the scenario on purpose and expects the promise to
//     fail: see package scenariotest.
package scenario
