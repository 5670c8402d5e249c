// Package ingress answers requests: it finds out which service a request is for,
// picks an endpoint, has its bytes carried there and back, and tries another
// endpoint when that is safe.
//
// Promise: a request is carried at most once to an endpoint that may have acted
// on it, unless repeating it is safe. Every answer of the relay's own is JSON
// with a code that says who has to act. Overload is refused at once, never
// queued: where more of a service is in flight than this relay carries, and where more
// wait for their answers than its endpoints complete in time, which package overload judges.
//
//	client ──► Handler ── service? ── room? ── pick ──► carry ──► worker      (affine)
//	                                            ▲         └─────► other relay (forwarding)
//	                                            └── failed, nothing sent: another one
//
// An attempt that another could follow has a limit, so that an endpoint that hangs does
// not cost a request all of its time. A client's own deadline shortens everything and is
// passed on with what is left of it; an endpoint that had less time than this relay gives
// is not blamed. While the client's body moves no time passes.
//
// Where circuits are on, a caller whose requests to a service fail too often is
// refused that service for a while; other callers are not. A caller is a client's address;
// only a trusted proxy may name another.
//
// What clients say of where a request comes from is replaced or dropped, what trusted
// proxies say of it is kept, and between relays the first one has decided. In the same
// way the first relay decides whether an answer tells a client where its request went.
//
// Where requests are traced, each is a span below its caller's and each attempt one
// below that, whose context goes out in the headers; where they are not, nobody looks
// at such headers and nothing is paid. What a span says of candidates is made up only
// for requests that are sampled.
//
// Where a service has a session cookie, a request goes to the endpoint that its cookie
// names, as long as that can be used, and the strategy picks for the others. The relay
// that picks the worker reads the cookie, and sets one where the client's does not count.
//
// The peer listener runs the same handler with Hop set: what another relay
// forwarded is carried to a worker or refused, never forwarded again.
//
// Rules: Handler is safe for concurrent use and keeps no state of a request. It
// reads the clock when a request begins and when its answer begins, and no more
// for answers that fit one read; a session cookie costs one more look, or two. What
// it picks with is routing's, what carries is upstream's; neither is known to the
// other.
package ingress
