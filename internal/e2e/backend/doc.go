// Command backend is the service next to a worker in the end-to-end tests. It serves
// HTTP/1.1, clear-text HTTP/2, WebSocket and gRPC on one port.
//
// Promise: a request that carries an X-Request-Id is in the journal before it is answered,
// and stays there when the process is killed, so that a test can count how often each
// request was executed. The answer has the same method and id as Seen-Request.
//
//	/              the name                  /events?key=K  two events; K is between them
//	/echo          the body, and trailers    /websocket     echoes messages
//	/delay?ms=N    the name, after N ms      gRPC           grpc.health.v1.Health
//	               Began-At and Completed-At are times, in µs since 1970
//	/work?ms=N     likewise, -slots concurrently; the others queue: no Began-At
//	/slow?by=F     multiplies the time of each later /work by F
//	/hold?key=K    the name, once K is released
//	/release?key=K ends the waiting for K    /health?service=S  S becomes SERVING
//	/cached        the name, which caches may keep for an hour
//
// Rules: every wait has a time limit. SIGTERM ends the process after the requests in
// flight.
package main
