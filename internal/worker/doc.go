// Package worker is the agent beside a service instance: it tells the relays
// what the instance offers, and takes the offer back in time when it goes.
//
// Promise: a service is offered from the moment the agent has joined until it is
// told to stop; then the relays stop sending new requests before the agent
// leaves, so that stopping loses none.
//
//	Run: gossip ─► offer ─► … stop ─► draining ─► (spreads) ─► leave ─► exit
//
// Rules: New binds and validates, Run starts everything and waits for all of it.
// The agent never touches the traffic: relays connect to the service itself.
package worker
