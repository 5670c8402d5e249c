// Package whatif compares the plans of a fleet with the plans that it would have after a change of
// settings or of members, before anything changes.
//
// Promise: [Compare] is a pure function. An empty [Change] opens and closes nothing. Equal inputs
// give equal answers at every relay: which members leave follows from their ids alone.
//
//	"m=4,relays=+20" ─► Parse ─► Change ┐
//	routing.Route.Basis of a service ───┴─► Apply ─► plan then ┐
//	                └─────────────────────────────► plan now ──┴─► what opens, what closes
//
// Rules: the text of a change comes from outside, so it is bounded, and so are the members and the
// connections that are compared. Members that have vanished and keep their place for some time have
// none here. What a relay does with a plan (slack, drain delay, grace) is not part of the answer.
package whatif
