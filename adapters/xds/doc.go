// Package xds is a control plane for Envoys: it serves the plan of a cluster as EDS, so that a
// fleet of Envoys takes the place of relays.
//
// # Promise
//
// The Envoys that subscribe to a service are its relays: the Envoy of index i gets exactly the
// range and the shares of relay i of package affinity, and each worker is in the ranges of at
// least PeersPerWorker clients (Config.Plan.Minimums). A change of one service or one range is
// sent only to the clients that it concerns. An Envoy that reconnects within Config.Grace moves
// no range. After a restart of the control plane Envoys keep the endpoints that they have until
// it knows members, offers and clients.
//
// # Picture
//
//	                  one goroutine
//	gossip ─► catalogue ─► planner ◄─ subscriptions ◄─ streams ◄─ Envoy, node id, EDS over ADS
//	                          │                                       ▲
//	                  affinity.Plan per service                       │
//	                          └─► a cache per client, a version per service
//
// A range as ClusterLoadAssignment, grouped by region and zone (the datacenter):
//
//	priority 0  HEALTHY   workers with a share of the traffic, as load_balancing_weight
//	         1  HEALTHY   warm standbys: connected, without a share
//	       last DRAINING  workers that drain, with the clients that they had before
//
// A priority without endpoints is left out, and those after it move up. The metadata of an
// endpoint has worker, protocol, version, tags and slots in "ringway", worker and version in
// "envoy.lb", and secured and proxy_protocol in "envoy.transport_socket_match".
//
// # Rules
//
//   - Resource names are names of services. Only EDS is served, on streams of ADS or EDS, state
//     of the world or incremental. A request without names subscribes to nothing.
//   - An Envoy does not forward requests to another, so every client of a service is one of its
//     relays; the number of relays that workers advertise, strategies, policies and session
//     cookies have no effect. Envoy's own load balancing picks within the range.
//   - The index of a client follows from its node id and its locality (zone is the datacenter)
//     as that of a relay from its id and place. Ids must be unique and stable over restarts.
//   - Clients are counted by each control plane alone. Two at the same time would each make a
//     plan for a part of the Envoys, with too many connections per worker. So run one active
//     control plane, and start another only when it has ended, or give all of them the same
//     Config.Clients; then any number may be active. While none runs, Envoys keep their
//     endpoints and workers that die are found by Envoy's health checks and outlier detection.
//   - Endpoints that Envoy or a relay would refuse are left out, counted, and logged once: host
//     names, addresses without mutual TLS in a fleet with certificates, the minority of
//     protocols, and second workers of one address. They keep their places in the plan.
//   - Bytes of clients are hostile. Ids, localities and names are validated, and clients,
//     streams, names and sizes are bounded. A refusal ends the stream with a status, is counted
//     in ringway_xds_refused_total and logged. Refused responses (NACK) are counted, and the
//     first in a row is logged; the other endpoints of the client stay as they are.
//   - A client has at most 64 streams, of which each is read at 100 requests per second after the first
//     1,000; one beyond waits. A certificate has at most 16 connections. A connection without a
//     stream ends after 5 s.
//   - Of a stream that is read slowly 64 KiB wait. Of a request only the fields that are used are
//     decoded: all others, such as the metadata of a node, would multiply its bytes.
//   - 256 streams may be open without a request. A new one then takes the place of the oldest
//     of the address, or of the certificate, that has the most of them.
//   - If the node has an Identity, a client needs the certificate of a relay of this cluster,
//     with its node id. Workers do not accept connections of clients, so an Envoy needs it
//     anyway. Certificates of other roles are refused. Without an Identity every process that
//     reaches the listener can become a client and move ranges; a fixed list prevents this for
//     ids that are not in it.
//   - The planner's goroutine owns plans and graces; clients.mu guards streams and
//     subscriptions, and is held while a cache of go-control-plane is locked, never in reverse.
//     A slow client delays only its own stream.
package xds
