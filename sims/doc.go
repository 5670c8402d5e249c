// Command sims answers, before a setting is changed, what the change would do: it drives
// the real packages through the situations that matter and says which promises hold.
//
// Promise: the same seed and settings print the same bytes. It ends with exit code 1 when a
// promise does not hold, and the last line names the promise, its value and its bound.
//
//	scenarios.go ──► scenario.Execute ──► Result ──► report: table, json, csv, html
//	(one file or package each)                   ──► plot: svg, png
//
// See docs/concepts/simulation.md for what each scenario asks, and package
// sims/internal/scenario for how to write one.
//
//	go run ./sims list
//	go run ./sims run churn --set index=slot
//	go run ./sims run all --quick
//	go run ./sims compare churn index=rank index=slot
//	go run ./sims capacity --relays 300 --workers 10000
//	go run ./sims report --out sims.html
package main
