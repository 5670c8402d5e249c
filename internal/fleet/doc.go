// Package fleet runs relays and workers of one cluster in this process, over loopback
// sockets. The demo and tests use it.
//
// A fleet is secured like a real one unless its Config specifies otherwise: certificates of a
// temporary authority, encrypted gossip, mutual TLS between relays. Authority and key exist
// in memory only and end with the fleet.
//
// Promise: after Stop, and after Kill of a worker, nothing of the members is left. A member
// that could not be started leaves nothing either.
//
//	New ──► StartRelay  ──► Relay   ──┐
//	    └─► StartWorker ──► Worker  ──┴─► Stop
//	                        └► Kill, like kill -9
//
// Rules: all members listen on free ports. A member joins the relays that were started
// before it; starting it does not wait until they have found each other.
package fleet
