// Package router is one door for Go programs: from a membership node to an endpoint of a
// service. A [Router] makes a relay, a gate or an observer of a program.
//
// # Promise
//
// A Router does what the relay's binary does, by the same packages: it follows members and
// offers, plans its range, keeps connections to it, picks the better of two endpoints, repeats
// what may be repeated within the deadline and the retry budget, and asks the relays that
// serve a service if this one does not. Each result of a request is reported, statistics are
// refreshed, and a stop waits for what is in flight. A program cannot forget one of these.
//
// # Picture
//
//	membership.Node ─► catalogue ─► plan ─► range of endpoints ─┐
//	                                  └───► relays that serve ──┤
//	                                                            ▼
//	http.Client, httputil.ReverseProxy ─► Router.RoundTrip ─► attempts ─► endpoint
//	a program with a protocol of its own ─► Router.Pick ─► Pick.Address ─► Pick.Done
//	                  it connects itself ─► Router.Endpoints
//	other relays ─► the node's ForwardAddr ───────────────► attempts ─► endpoint
//
// # Rules
//
//   - New binds, Run does everything else and is called once. RoundTrip and Pick wait until
//     the router knows the services, but not longer than a request may take. Before it knows
//     any, and in the first RequestTimeout of Run, RoundTrip waits as long for the first offer
//     of a service that is not known; later such a request fails immediately, as Pick always
//     does.
//   - RoundTrip takes the service from the host of the URL, as in http://billing/invoices/7. It
//     passes on what a request states about its origin: a program that serves clients sets
//     X-Forwarded-For and its like, as httputil.ReverseProxy does.
//   - RoundTrip starts no goroutine but for the body of a request and for a tunnel. The program
//     reads the response from the connection; it must read to the end or close it.
//   - Each Pick is given back with Done. Until then it counts as in flight.
//   - With Config.PickOnly the router opens no connection to workers and relays: the program
//     connects to what Endpoints lists. Without it the router keeps connections for RoundTrip,
//     also if the program only picks. No relay can forward to such a router: with the role of a
//     relay it is in no plan, and uses workers as an observer does.
//   - The members count a program with the role of a relay as a relay: it must serve every
//     service that it does not skip, and be reachable at its node's ForwardAddr, where attached
//     workers hold sessions with it, too. With the role of a gate it only forwards. With the
//     role of an observer it is in no plan: it sends to workers after its own place on the ring,
//     never forwards, and nothing connects to it.
//   - All methods but Run may be called from any goroutine.
package router
