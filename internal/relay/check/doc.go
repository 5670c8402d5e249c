// Package check judges whether a fleet of relays is as it should be, from what its
// relays say of themselves and what one of them has tried.
//
// Promise: [Judge] is a pure function. It looks at nothing but the [Fleet] that it is
// given, says for each check that all is well or what is not, who is concerned, why it
// matters and what to do, and names the page of docs/operations that says more.
//
//	facts of this relay ─┐
//	facts of the others ─┼─► Fleet ─► Judge ─► Report: ✓ ! ✗
//	pings, plans ────────┘              ▲
//	                     one small function for each check
//
// Rules: gathering is package relay's business, and so is waiting: findings that may
// pass by themselves are marked Passing, and are worth a second look before anybody is
// told. A relay that says nothing is a finding, and is left out of every comparison. A
// check that cannot be made says so; it never passes in silence.
package check
