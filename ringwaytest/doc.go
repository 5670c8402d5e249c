// Package ringwaytest runs a fleet in memory, for the tests of programs that embed Ringway.
//
// # Promise
//
// The members of a fleet are real: membership, catalogue, plan, router and mutual TLS are those of
// the binaries, and only the network and the clock are not. No port is opened and no test waits for
// gossip: inside a bubble of testing/synctest a minute of a relay and three workers takes 0.2 s of a
// processor, one of 40 members about a second. Members that are killed or cut off look to the others
// as after kill -9 or behind a dead switch. When the test ends, nothing of the members that the
// fleet runs is left.
//
// # Picture
//
//	synctest.Test ──► New ──► StartRelay  ──► *router.Router: requests, picks ─┐
//	                   ├────► StartWorker ──► an http.Handler, as services     ├─► Settle
//	                   ├────► Member      ──► a configuration ──► your relay   │     │
//	                   └────► Advertiser  ──► a configuration ──► your service ┘     ▼
//	                                                    Stop, Kill, Cut, Heal ──► Settle …
//
// # Rules
//
//   - Call New in the bubble. The fleet ends by Cleanup of the test, with the members that it runs.
//     Your program ends its own members before that.
//   - An id may be used again after Stop or Kill: the member then starts at another address.
//   - Time passes only while all goroutines of the bubble wait: a loop that sends requests until
//     something happens has to sleep. A socket of the operating system does not count as waiting,
//     so the program under test must use the network of its member, as a router does, and a server
//     the listener of Advertiser.
//   - Relays are routers with the settings of a program that sets none. What only the binary has,
//     such as its addresses for clients and its admin API, is not here.
//   - The order of events varies from run to run, as in a real network: assert what must hold after
//     Settle, not how it came about.
package ringwaytest
