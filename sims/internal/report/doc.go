// Package report writes what scenarios have shown: as text for a terminal, as JSON and CSV
// for programs, as one HTML page for people, and as tables between the markers of a
// documentation page.
//
// # Promise
//
// Equal results give equal bytes: nothing here knows the time, the machine or the order in
// which runs ended. The HTML page needs nothing but itself: no network, no script, no font.
//
// # Picture
//
//	[]*scenario.Result ──► Write       table, json or csv
//	                   ──► HTML        tables, pictures (package plot) and verdicts
//	                   ──► UpdatePage  the sections of a page that tables name
//
// # Rules
//
// Everything here is pure and safe for concurrent use.
package report
