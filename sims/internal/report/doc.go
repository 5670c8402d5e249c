// Package report writes the results of scenarios: as text for a terminal, as JSON and CSV
// for programs, as one HTML page for people, and as tables between the markers of a
// documentation page.
//
// # Promise
//
// Equal results give equal bytes: the output does not depend on the time, the machine or the
// order in which runs ended. The HTML page is self-contained: no network, no script, no font.
//
// # Picture
//
//	[]*scenario.Result ──► Write       table, json or csv
//	                   ──► HTML        tables, pictures (package plot) and verdicts
//	                   ──► UpdatePage  the sections of a page that tables name
//
// # Rules
//
// All functions are pure and safe for concurrent use.
package report
