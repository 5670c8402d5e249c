// Package loadgen has the two ends of a fleet that are not Ringway: clients that send
// requests, and services that answer them. The demo, tests and simulations use it.
//
//	Load ──HTTP──► relays ──► workers ──► Service, with Stub or another handler
//
// Promise: Load returns after the last answer, and Service.Die when no connection and no
// goroutine of the service is left. Run finishes the requests in flight.
//
// Rules: nothing here knows relays or workers, only addresses.
package loadgen
