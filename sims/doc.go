// Command sims predicts the effect of a setting before it is changed: the command runs the
// real packages in simulated situations and reports which promises hold.
//
// Promise: the same seed and settings print the same bytes, except in the scenario gossip.
// The exit code is 1 when a promise does not hold, and the last line names the promise, its
// value and its bound.
//
//	main.go ──► scenario.Execute ──► Result ──► report: table, json, csv, html
//	(one file or package each)                   ──► plot: svg, png
//
// See docs/concepts/simulation.md for the question of each scenario, and package
// sims/internal/scenario for how to write a scenario.
//
//	go run ./sims list
//	go run ./sims run churn --set index=slot
//	go run ./sims run all --quick
//	go run ./sims compare churn index=rank index=slot
//	go run ./sims capacity --relays 300 --workers 10000
//	go run ./sims plan --workers 20000 --rate 300000 --p99 300ms
//	go run ./sims from-bundle relay.tar.gz
//	go run ./sims report --out sims.html
package main
