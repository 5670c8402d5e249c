// Package check judges the state of a cluster's relays, from what the relays report about
// themselves and what one of them has tried.
//
// Promise: [Judge] is a pure function. It reads only the [Fleet] that it is given. For each
// check it reports success or the findings, each with its subject, cause and remedy, and
// with the page of docs/operations for details.
//
//	facts of this relay ─┐
//	facts of the others ─┼─► Fleet ─► Judge ─► Report: ✓ ! ✗
//	pings, plans ────────┘              ▲
//	                     one small function for each check
//
// Facts that are asked for the traffic only have a [Load], which no check compares: package
// relay adds up the loads of all relays.
//
// Rules: package relay gathers the facts and waits: findings that may pass by themselves are
// marked Passing, and the check is repeated before they are reported. A relay that does not
// answer is a finding, and is left out of every comparison. A check that cannot be made
// reports that; it never passes silently.
package check
